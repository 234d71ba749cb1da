# SPDX-License-Identifier: BSD-3-Clause
"""Held leases on this machine: a Jupyter server binds its own kernels; we grant and take."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..core.model import Binding, Kept, Key, Mode, Process, Rung
from ..devices import DeviceError, Devices, Use, processes
from . import EngineError, Launch, Phase, Report, RestoreRefused, StartRefused, Stop, parts
from .records import Record, Records


@dataclass(frozen=True, slots=True)
class Sight:
    """One look at all devices; ``uses`` is ``None`` where they cannot be seen."""

    uses: Sequence[Use] | None
    parked: Sequence[Kept] = ()

    def owned(self) -> tuple[Kept, ...]:
        """What is parked, with the session that it belongs to."""
        owners = {use.process: use.owner for use in self.uses or () if use.parked}
        return tuple(
            replace(kept, server=next(filter(None, map(owners.get, kept.processes)), kept.server))
            for kept in self.parked
        )

    def owned_by(self, owner: str) -> tuple[Kept, ...]:
        """What is parked of one session."""
        return tuple(kept for kept in self.owned() if kept.server == owner)


@dataclass
class Held:
    """Leases of Jupyter servers. Its methods block: the engine calls them in a thread."""

    records: Records
    devices: Devices

    def start(self, key: Key, launch: Launch) -> None:
        """Grant the devices and restore what was parked; StartRefused, RestoreRefused."""
        if not launch.server:
            raise StartRefused("server: a held lease names the session that holds it")
        record = self.records.get(key)
        if record is None:
            record = Record(
                key,
                self.records.broker,
                Mode.HELD,
                launch.server,
                launch.placement,
                binding=launch.binding,
            )
            self.records.save(record)
        try:
            self.devices.grant(record.owner, record.placement)
        except DeviceError as error:
            self.records.discard(key)
            raise StartRefused(str(error)) from error
        try:
            self._restore(launch.kept, record)
        except DeviceError as error:
            raise RestoreRefused(str(error)) from error

    def stop(self, record: Record, how: Stop) -> None:
        """Nothing new is opened from now on; PARK and KILL also free what is open.

        EngineError where that failed: the next stage may still work."""
        asked = self.records.asked(record.key)
        self.records.ask(record.key, how)
        try:
            self._revoke(record)
            if how is Stop.PARK:
                self.devices.park(record.owner)
            uses = self.devices.usage() if how is Stop.KILL else ()
        except DeviceError as error:
            raise EngineError(str(error)) from error
        bound = _bound(record)
        if how is Stop.KILL:
            for process in (*bound, *_processes(_active(record, uses))):
                parts.signal_process(process, signal.SIGKILL)
        elif bound and asked is None:
            # Said once: a server that is told again and again can save nothing.
            for process in parts.heads(bound):
                parts.signal_process(process, signal.SIGTERM)

    def look(self, record: Record, sight: Sight) -> Report:
        """The present Report; recorded for good when the devices are proven free."""
        active = _active(record, sight.uses or ())
        report = Report(
            record.key,
            Phase.RUNNING,
            Mode.HELD,
            processes=_processes(active),
            memory_mib=sum(use.memory_mib for use in active),
            kept=self._kept(record, sight),
        )
        if sight.uses is None or active or not self.records.asked(record.key):
            return report
        return self._freed(record, report)

    def _freed(self, record: Record, report: Report) -> Report:
        try:
            # It may have been asked and not done (a crash between the two), and a process
            # may have come since the look: revoke, and then look again, is the proof.
            self._revoke(record)
            sight = Sight(self.devices.usage(), self.devices.parked())
        except DeviceError:
            return report
        if _active(record, sight.uses or ()) or _bound(record):
            return report
        kept = self._kept(record, sight)
        return self.records.end(replace(report, phase=Phase.EXITED, kept=kept))

    def _revoke(self, record: Record) -> None:
        """Take the grant back, unless a later lease of the same server has it now: then this
        one was given up without proof, and is ended while the other is in use."""
        records = [self.records.get(key) for key in self.records.present()]
        theirs = [other.key for other in records if other and other.owner == record.owner]
        if all(self.records.asked(key) or self.records.ended(key) for key in theirs):
            self.devices.revoke(record.owner)

    def _kept(self, record: Record, sight: Sight) -> tuple[Kept, ...]:
        attempt = record.key.attempt
        return tuple(replace(kept, attempt=attempt) for kept in sight.owned_by(record.owner))

    def _restore(self, kept: Iterable[Kept], record: Record) -> None:
        images = [item for item in kept if item.rung is Rung.GPU_STATE]
        if not images:
            return
        parked = {process for item in self.devices.parked() for process in item.processes}
        back = [
            item
            for item in images
            # One that lives and is not parked was restored before.
            if not all(processes.alive(p) and p not in parked for p in item.processes)
        ]
        if back:
            self.devices.restore(back, record.placement)


def _active(record: Record, uses: Iterable[Use]) -> list[Use]:
    """What the lease uses at present on its devices."""
    devices = {share.device for share in record.placement}
    return [
        use
        for use in uses
        if use.owner == record.owner and use.device in devices and not use.parked
    ]


def _bound(record: Record) -> list[Process]:
    """What was launched with the devices and could open them again, where no extension sees
    to that."""
    if record.binding is Binding.KERNEL:
        return []
    return parts.bound(record.owner, {share.device for share in record.placement})


def _processes(uses: Iterable[Use]) -> tuple[Process, ...]:
    return tuple(dict.fromkeys(use.process for use in uses))
