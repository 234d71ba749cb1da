# SPDX-License-Identifier: BSD-3-Clause
"""The broker's side of a simulated world: the Devices seam."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from ...core.model import Device, Kept, Node, Placement, Process, Rung, Seconds, Share
from .. import DeviceCaps, DeviceError, DeviceEvent, EventKind, Use, processes
from .spec import Spec
from .watching import Watch
from .world import FAULTS, Entry, World


class SimulatedDevices:
    """Devices that are folders; memory is a number, processes are real."""

    caps = DeviceCaps(
        parks=True,
        moves=True,
        memory="cooperative",
        fault=True,
        sentence="Simulated GPUs: hold() keeps to the memory of a share; nothing is computed.",
    )

    def __init__(self, root: Path, *, park_limit_mib: int | None = None) -> None:
        """Open the world at ``root``; DeviceError if there is none.

        ``park_limit_mib`` caps what is parked on each node; default its
        (simulated) host memory: how much of it may be used is for the policy to say."""
        self._world = World(root)
        self._park_limit_mib = park_limit_mib
        self._watch: Watch | None = None

    @classmethod
    def create(cls, root: Path, spec: str, *, park_limit_mib: int | None = None) -> Self:
        """Make a world like ``2x4`` or ``2x4:24GiB:sim-a100`` at ``root``, or open it.

        DeviceError if ``spec`` is no shape or the world there has another one."""
        World.create(root, Spec.parse(spec))
        return cls(root, park_limit_mib=park_limit_mib)

    def inventory(self) -> Sequence[Node]:
        """The nodes of the world; their boot is this machine's. A broken device is unusable."""
        return [
            replace(node, devices=tuple(self._judged(device) for device in node.devices))
            for node in self._world.nodes
        ]

    def usage(self) -> Sequence[Use]:
        """One Use per process, device and state."""
        with self._world.locked():
            entries = self._world.entries()
        sums: dict[tuple[str, Process, str, bool], int] = {}
        for entry in entries:
            key = (entry.device, entry.process, entry.owner, entry.parked)
            sums[key] = sums.get(key, 0) + entry.memory_mib
        return [
            Use(device, process, memory_mib, owner, parked)
            for (device, process, owner, parked), memory_mib in sums.items()
        ]

    def events(self, timeout: Seconds) -> Sequence[DeviceEvent]:
        """Faults that come and go, and processes that take, move or leave memory; what
        happened before the first call is not told."""
        if self._watch is None:
            self._watch = Watch(self._world.watched())
        events = (self._event(path) for path in self._watch.wait(timeout))
        return tuple(dict.fromkeys(events))

    def break_device(self, device: str, text: str) -> None:
        """From now on the device has that fault: it is unusable, and what holds memory on it
        goes on. DeviceError if there is no such device."""
        self._world.set_fault(device, text)

    def mend_device(self, device: str) -> None:
        """The device is healthy again; DeviceError if there is no such device."""
        self._world.set_fault(device, None)

    def environment(self, placement: Placement) -> Mapping[str, str]:
        """The UUIDs and the folder of the world; DeviceError for Shares of several nodes."""
        return {
            **processes.visible_devices(placement),
            "GPUBROKER_SIMULATED": str(self._world.root),
        }

    def grant(self, owner: str, shares: Sequence[Share]) -> None:
        """Let ``hold`` in the owner's processes take memory on these devices."""
        with self._world.locked():
            self._world.grant(owner, shares)

    def revoke(self, owner: str) -> None:
        """``hold`` is refused to the owner from now on; what it holds stays."""
        with self._world.locked():
            self._world.revoke(owner)

    def park(self, owner: str) -> tuple[Kept, ...]:
        """Move all that the owner's processes hold to host memory, or DeviceError."""
        with self._world.locked():
            entries = self._world.entries()
            own = [entry for entry in entries if entry.owner == owner]
            moving = [entry for entry in own if not entry.parked]
            self._check_host_memory([entry for entry in entries if entry.parked], moving)
            self._world.move(moving, [(entry.device, True) for entry in moving])
            return self._kept(own)

    def restore(self, kept: Sequence[Kept], shares: Sequence[Share]) -> None:
        """Move parked memory back, all or DeviceError and nothing.

        A process stays on its devices where ``shares`` has them all; else the distinct
        devices of ``kept`` go onto those of ``shares`` in order."""
        with self._world.locked():
            entries = self._world.entries()
            parked: list[Entry] = []
            for process in (process for item in kept for process in item.processes):
                parked += _parked_of(process, entries)
            targets = self._targets(kept, parked, shares)
            for share in shares:
                incoming = [entry for entry in parked if targets[entry.device] == share.device]
                self._check_fits(share, incoming, entries)
            self._world.move(parked, [(targets[entry.device], False) for entry in parked])

    def drop(self, kept: Kept) -> None:
        """Forget parked memory; ``Holding.touch`` raises in its process."""
        with self._world.locked():
            for entry in self._world.entries():
                if entry.parked and entry.process in kept.processes:
                    self._world.remove(entry)

    def parked(self) -> Sequence[Kept]:
        """One Kept per living process with parked memory."""
        with self._world.locked():
            return self._kept([entry for entry in self._world.entries() if entry.parked])

    def _judged(self, device: Device) -> Device:
        fault = self._world.fault(device.uuid)
        return device if fault is None else replace(device, usable=False, note=fault)

    def _event(self, path: Path) -> DeviceEvent:
        if path.parent.name != FAULTS:
            return DeviceEvent(path.parent.name, EventKind.CHANGED)
        fault = self._world.fault(path.name)
        kind = EventKind.CHANGED if fault is None else EventKind.FAULT
        return DeviceEvent(path.name, kind, fault or "")

    def _kept(self, entries: Sequence[Entry]) -> tuple[Kept, ...]:
        groups: dict[Process, list[Entry]] = {}
        for entry in entries:
            groups.setdefault(entry.process, []).append(entry)
        return tuple(self._kept_of(process, groups[process]) for process in sorted(groups))

    def _kept_of(self, process: Process, entries: Sequence[Entry]) -> Kept:
        used = {entry.device for entry in entries}
        devices = tuple(uuid for uuid in self._world.devices if uuid in used)
        return Kept(
            kernel=entries[0].kernel,
            attempt=0,
            rung=Rung.GPU_STATE,
            node=self._world.node_of[devices[0]],
            boot=processes.boot_id(),
            devices=devices,
            memory_mib=sum(entry.memory_mib for entry in entries),
            processes=(process,),
        )

    def _check_host_memory(self, parked: Sequence[Entry], moving: Sequence[Entry]) -> None:
        for node in self._world.nodes:
            limit = self._park_limit_mib
            if limit is None:
                limit = node.host_memory_mib
            before = self._on_node(node, parked)
            more = self._on_node(node, moving)
            if more and before + more > limit:
                raise DeviceError(
                    f"{node.name} has no host memory to park {more} MiB:"
                    f" {before} MiB of at most {limit} MiB are taken"
                )

    def _on_node(self, node: Node, entries: Sequence[Entry]) -> int:
        node_of = self._world.node_of
        return sum(entry.memory_mib for entry in entries if node_of[entry.device] == node.name)

    def _targets(
        self, kept: Sequence[Kept], parked: Sequence[Entry], shares: Sequence[Share]
    ) -> Mapping[str, str]:
        old = dict.fromkeys(uuid for item in kept for uuid in item.devices)
        old |= dict.fromkeys(entry.device for entry in parked)
        new = [share.device for share in shares]
        if len(new) < len(old):
            raise DeviceError(f"what is parked needs {len(old)} devices, got {len(new)}")
        targets = (
            {uuid: uuid for uuid in old}
            if old.keys() <= set(new)
            else dict(zip(old, new, strict=False))
        )
        for uuid, target in targets.items():
            if self._world.node_of.get(target) != self._world.node_of[uuid]:
                raise DeviceError(f"what is parked from {uuid} cannot come back on {target}")
        return targets

    def _check_fits(
        self, share: Share, incoming: Sequence[Entry], entries: Sequence[Entry]
    ) -> None:
        need = sum(entry.memory_mib for entry in incoming)
        there = [entry for entry in entries if entry.device == share.device and not entry.parked]
        free = self._world.devices[share.device].memory_mib - sum(e.memory_mib for e in there)
        limit = self._world.limit_mib(share)
        if need > min(free, limit):
            raise DeviceError(
                f"{need} MiB do not fit back onto {share.device}:"
                f" {free} MiB are free, the share gives {limit} MiB"
            )


def _parked_of(process: Process, entries: Sequence[Entry]) -> list[Entry]:
    own = [entry for entry in entries if entry.process == process]
    if own:
        return [entry for entry in own if entry.parked]
    if processes.alive(process):
        raise DeviceError(f"nothing of process {process.pid} is parked any more")
    raise DeviceError(f"process {process.pid} is gone, and what it had parked with it")
