# SPDX-License-Identifier: BSD-3-Clause
"""Hosted attempts on this machine: we launch every process and prove that all have ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ..core.model import Key, Mode, Process, Seconds, nodes_of
from ..devices import DeviceError, Devices, processes
from . import EngineError, Launch, Phase, Report, StartRefused, Stop, parts, recipe, torchrun
from .folder import Folder, Said, node_log, rank_log
from .parts import Part, State
from .records import Record, Records
from .shim import FORWARDED, KILL_TREE

_FATE: Seconds = 2.0
"""From the TERM to the KILL of a gang that has lost a rank."""
_SIGNALS = {Stop.TERM: signal.SIGTERM, Stop.KILL: signal.SIGKILL}


@dataclass
class Hosted:
    """Batch attempts. Its methods block: the engine calls them in a thread."""

    records: Records
    devices: Devices
    accounts: bool
    """Run as ``Launch.user``, else as who we are."""
    _folders: dict[Key, Folder] = field(default_factory=dict)
    _parts: dict[Key, list[Part]] = field(default_factory=dict)
    _failing: dict[Key, float] = field(default_factory=dict)

    def start(self, key: Key, launch: Launch) -> None:
        """Start what is not started yet; StartRefused, EngineError."""
        recipe.check(launch)
        account = recipe.account_of(launch.user) if self.accounts else None
        record = self.records.get(key)
        if record is None:
            uid = account["uid"] if account else os.geteuid()
            record = self.records.save(self._record(key, launch, uid))
        states = [part.state for part in self._look(record)]
        if State.LOST in states or State.ENDED in states:
            return  # the gang is broken already: poll() ends it
        waiting = [node for node, state in enumerate(states) if state is State.WAITS]
        try:
            self.devices.grant(record.owner, record.placement)
            specs = [recipe.spec(record, launch, self.devices, node) for node in waiting]
            for spec in specs:
                spec["account"] = account
            parts.start(
                [self.records.part(key, node) for node in waiting],
                specs,
                [record.nodes[node] for node in waiting],
            )
        except (StartRefused, DeviceError) as error:
            self._undo(record, error)

    def signal(self, record: Record, signum: int) -> None:
        """Send a signal to the process group of every part's main process.

        EngineError for one that cannot be passed on."""
        if signum not in FORWARDED:
            names = ", ".join(known.name for known in FORWARDED)
            raise EngineError(f"signal {signum} cannot be passed on, only {names}")
        _signal(self._look(record), signum)

    def stop(self, record: Record, how: Stop) -> None:
        """Ask every part to leave, or kill the whole tree of each."""
        if how not in _SIGNALS:
            raise EngineError(f"{how} is for leases that a server holds")
        self.records.ask(record.key, how)
        if how is Stop.TERM:
            with suppress(OSError):  # the signal says the same
                self._folder(record).tell_stop("asked to leave", time.time())
        self._end(record, self._look(record), _SIGNALS[how])

    def look(self, record: Record) -> Report:
        """The present Report; recorded for good when all is proven gone."""
        found, said = self._look(record), self._folder(record).said()
        asked = self.records.asked(record.key)
        with suppress(EngineError):  # tried again at the next look
            if asked:
                self._close(record, found)
            elif _broken(found, said):
                self._take_down(record, found)
        started = all(part.state is not State.WAITS for part in found)
        report = Report(
            record.key,
            Phase.RUNNING if started else Phase.PENDING,
            Mode.HOSTED,
            codes=tuple(part.code for part in found),
            processes=tuple(part.main for part in found if part.main and part.state is State.RUNS),
            complete=said.complete,
            checkpoint=said.checkpoint,
        )
        if not (started and self._gone(record, found)):
            return report
        said = self._folder(record).said()  # its last words may be younger than the first look
        report = replace(report, complete=said.complete, checkpoint=said.checkpoint)
        report = self._outcome(record, replace(report, phase=Phase.EXITED), found, said)
        self.forget(record.key)
        return self.records.end(report)

    def forget(self, key: Key) -> None:
        """Drop what was kept in memory for this key."""
        for known in (self._folders, self._parts, self._failing):
            known.pop(key, None)

    def _record(self, key: Key, launch: Launch, uid: int) -> Record:
        many = launch.torchrun or len(nodes_of(launch.placement)) > 1
        others = [self.records.get(other) for other in self.records.present()] if many else []
        return Record(
            key,
            self.records.broker,
            Mode.HOSTED,
            owner=key.job,
            placement=launch.placement,
            folder=launch.folder,
            uid=uid,
            torchrun=many,
            port=torchrun.draw_port([other.port for other in others if other]) if many else 0,
        )

    def _undo(self, record: Record, error: Exception) -> None:
        if any(part.state is not State.WAITS for part in self._look(record)):
            raise EngineError(f"only a part of {record.key!s} runs: {error}") from error
        with suppress(DeviceError):
            self.devices.revoke(record.owner)
        self.records.discard(record.key)
        self.forget(record.key)
        raise error if isinstance(error, StartRefused) else StartRefused(str(error))

    def _look(self, record: Record) -> list[Part]:
        none: list[Part | None] = [None] * len(record.nodes)
        before: Sequence[Part | None] = self._parts.get(record.key, none)
        found = [
            parts.look(self.records.part(record.key, rank), rank, part)
            for rank, part in enumerate(before)
        ]
        self._parts[record.key] = found
        return found

    def _folder(self, record: Record) -> Folder:
        return self._folders.setdefault(record.key, Folder(record.folder, record.uid))

    def _close(self, record: Record, found: Sequence[Part]) -> None:
        """A part that was not started must not be any more."""
        for part in found:
            if part.state is State.WAITS:
                parts.never(self.records.part(record.key, part.rank))

    def _take_down(self, record: Record, found: Sequence[Part]) -> None:
        """A rank or part has failed: TERM to all the others, KILL soon after."""
        now = time.monotonic()
        since = self._failing.setdefault(record.key, now)
        if since == now:
            self._end(record, found, signal.SIGTERM)
        elif now - since >= _FATE:
            self._end(record, found, signal.SIGKILL)

    def _end(self, record: Record, found: Sequence[Part], signum: int) -> None:
        kill = signum == signal.SIGKILL
        self._close(record, found)
        _signal(found, KILL_TREE if kill else signum)
        if any(part.state is State.LOST for part in found):
            mains = _lost_mains(found)
            orphans = parts.survivors(record.key, record.uid, mains) if kill else mains
            for process in orphans:
                parts.signal_process(process, signum)

    def _gone(self, record: Record, found: Sequence[Part]) -> bool:
        """The proof: no shim, no process of the tree, and nothing of it on a device."""
        if any(part.state is State.RUNS for part in found):
            return False
        lost = any(part.state is State.LOST for part in found)
        if lost and parts.survivors(record.key, record.uid, _lost_mains(found)):
            return False
        try:
            if any(use.owner == record.owner for use in self.devices.usage()):
                return False
            self.devices.revoke(record.owner)
        except DeviceError:
            return False
        return True

    def _outcome(self, record: Record, report: Report, found: Sequence[Part], said: Said) -> Report:
        """Whose failure it was, if anybody's, and its last lines."""
        if all(part.code == 0 for part in found):
            return replace(report, code=0)
        lost = [part for part in found if part.state is State.LOST]
        failed = [part for part in found if part.code]
        first = min(failed, key=lambda part: part.time, default=None)
        tail = self._folder(record).tail
        if lost:
            return replace(report, code=-signal.SIGKILL, failed_rank=lost[0].rank, text=_lost(lost))
        if record.torchrun and said.failure:
            rank, code = said.failure.rank, said.failure.code
            text = tail(rank_log(rank)) or f"rank {rank} ended with exit code {code}"
            return replace(report, code=code, failed_rank=rank, text=text)
        if first:
            text = tail(node_log(first.rank) if record.torchrun else rank_log(0))
            text = text or f"it ended with exit code {first.code}"
            return replace(report, code=first.code, failed_rank=first.rank, text=text)
        return replace(report, code=-signal.SIGTERM, text="it was stopped before it had started")


def _broken(found: Sequence[Part], said: Said) -> bool:
    """A part or a rank has failed, so the gang cannot go on."""
    ended = [part for part in found if part.state is State.ENDED]
    lost = any(part.state is State.LOST for part in found)
    return lost or any(part.code != 0 for part in ended) or said.failure is not None


def _lost(lost: Sequence[Part]) -> str:
    if all(part.boot == processes.boot_id() for part in lost):
        return "its shim was killed, so its exit code is unknown; its processes were ended"
    return "the machine was restarted while it ran"


def _lost_mains(found: Sequence[Part]) -> list[Process]:
    boot = processes.boot_id()
    lost = (part for part in found if part.state is State.LOST and part.boot == boot)
    return [part.main for part in lost if part.main]


def _signal(found: Sequence[Part], signum: int) -> None:
    for part in found:
        if part.state is State.RUNS and part.shim:
            parts.signal_process(part.shim, signum)
            if signum == KILL_TREE:  # a job of our own account may have stopped its shim
                parts.signal_process(part.shim, signal.SIGCONT)
