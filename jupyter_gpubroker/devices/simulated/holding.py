# SPDX-License-Identifier: BSD-3-Clause
"""Take simulated GPU memory in this process: what a kernel or a job calls."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from .. import DeviceError, processes
from .world import Entry, World

_PAUSE = 0.05
"""Seconds between two looks at what is parked."""


class HoldRefused(RuntimeError):
    """The memory was not taken: no lease, not this device, or not enough is free."""


class HoldLost(RuntimeError):
    """The memory of this holding is gone for good."""


class Holding:
    """Simulated GPU memory of this process.

    It is kept until ``release()`` or the end of the process, also when nothing refers to
    it any more, as a leaked allocation on a GPU would be.
    """

    def __init__(self, world: World, memory_mib: int, files: dict[str, int]) -> None:
        """Made by ``hold`` only. ``files``: descriptor by entry name."""
        self.memory_mib = memory_mib
        """MiB on each device."""
        self._world = world
        self._files = files
        self._process = processes.this_process()

    @property
    def devices(self) -> tuple[str, ...]:
        """UUIDs of the devices it is on now, or was on when it was parked."""
        return tuple(entry.device for entry in self._entries())

    @property
    def parked(self) -> bool:
        """True while its memory is in host RAM."""
        return any(entry.parked for entry in self._entries())

    def touch(self) -> None:
        """Use the memory: returns at once on a device, waits (interruptibly) while parked.

        HoldLost if it was released, if what was parked was dropped, or in a forked child."""
        while self.parked:
            time.sleep(_PAUSE)

    def release(self) -> None:
        """Free the memory; waits while it is parked, as a call into the driver would.

        Done twice, or after the memory was lost, it does nothing."""
        if not self._files:
            return
        while True:
            with self._world.locked():
                entries = _mine(self._world, self._files)
                if not any(entry.parked for entry in entries):
                    for entry in entries:
                        self._world.remove(entry)
                    self._forget()
                    return
            time.sleep(_PAUSE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def __repr__(self) -> str:
        if not self._files:
            return f"<Holding {self.memory_mib} MiB, released>"
        return f"<Holding {self.memory_mib} MiB on {len(self._files)} simulated GPU(s)>"

    def _entries(self) -> list[Entry]:
        if not self._files:
            raise HoldLost(
                "this holding was released, or belongs to the parent of this forked process"
            )
        with self._world.locked():
            entries = _mine(self._world, self._files)
        if len(entries) < len(self._files):
            raise HoldLost("the parked memory of this holding was dropped: hold() again")
        return entries

    def _forget(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files.clear()
        _held.remove(self)


_held: list[Holding] = []


def hold(mib: int, *, device: str | None = None) -> Holding:
    """Take ``mib`` MiB on each GPU of ``CUDA_VISIBLE_DEVICES`` (or only on ``device``).

    While memory of this process is parked it waits, interruptibly, until that is back.
    HoldRefused, with nothing taken, where the process has no lease on a device or less
    memory than ``mib`` is free on it. ValueError if ``mib`` is not positive, TypeError if it
    is not a whole number."""
    mib = operator.index(mib)
    if mib <= 0:
        raise ValueError(f"mib must be positive, got {mib}")
    while True:
        wanted = _wanted(device)
        world = _world()
        with world.locked():
            me = processes.this_process()
            entries = world.entries()
            if not any(entry.parked and entry.process == me for entry in entries):
                return _take(world, wanted, mib, entries)
        time.sleep(_PAUSE)


def _wanted(device: str | None) -> Sequence[str]:
    visible = [uuid for uuid in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if uuid]
    if not visible:
        raise HoldRefused(
            "this process has no GPU: CUDA_VISIBLE_DEVICES is empty"
            " (ask for one, for example with %gpu_session request --gpus 0.5)"
        )
    if device is None:
        return list(dict.fromkeys(visible))
    if device not in visible:
        raise HoldRefused(f"device {device} is not among CUDA_VISIBLE_DEVICES of this process")
    return [device]


def _world() -> World:
    root = os.environ.get("GPUBROKER_SIMULATED")
    if not root:
        raise HoldRefused("there are no simulated GPUs here: GPUBROKER_SIMULATED is not set")
    try:
        return World(Path(root))
    except DeviceError as error:
        raise HoldRefused(str(error)) from error


def _take(world: World, wanted: Sequence[str], mib: int, entries: Sequence[Entry]) -> Holding:
    owner = processes.owner_of(os.environ)
    for uuid in wanted:
        _check(world, owner, uuid, mib, entries)
    me, kernel = processes.this_process(), os.environ.get("GPUBROKER_KERNEL", "")
    files: dict[str, int] = {}
    for uuid in wanted:
        name = f"{me.pid}-{me.start}-{os.urandom(4).hex()}"
        files[name] = world.add(Entry(name, uuid, False, me, mib, owner, kernel))
    holding = Holding(world, mib, files)
    _held.append(holding)
    return holding


def _check(world: World, owner: str, uuid: str, mib: int, entries: Sequence[Entry]) -> None:
    share = world.granted(owner).get(uuid) if owner else None
    if share is None:
        who = owner or "this process (GPUBROKER_SESSION and GPUBROKER_JOB are not set)"
        raise HoldRefused(f"{who} has no lease on device {uuid}")
    on_device = [entry for entry in entries if entry.device == uuid and not entry.parked]
    total = world.devices[uuid].memory_mib
    free = total - sum(entry.memory_mib for entry in on_device)
    if mib > free:
        raise HoldRefused(f"asked for {mib} MiB on {uuid}, {free} MiB of {total} MiB are free")
    limit = world.limit_mib(share)
    left = limit - sum(entry.memory_mib for entry in on_device if entry.owner == owner)
    if mib > left:
        raise HoldRefused(
            f"asked for {mib} MiB on {uuid}, {left} MiB of this share's {limit} MiB are left"
        )


def _mine(world: World, files: dict[str, int]) -> list[Entry]:
    return [entry for entry in world.entries() if entry.name in files]


def _forked() -> None:
    """A child has its parent's descriptors but none of its GPU memory."""
    for holding in list(_held):
        holding._forget()


os.register_at_fork(after_in_child=_forked)
