# SPDX-License-Identifier: BSD-3-Clause
"""This machine's GPUs: what there is, who uses it, and parking.

One seam with two implementations: ``nvml`` (real) and ``simulated`` (a file-backed
world outside every process). Everything is addressed by UUID.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from ..core.model import Kept, Node, Placement, Process, Seconds, Share


class DeviceError(Exception):
    """The devices could not do it; nothing was changed."""


@dataclass(frozen=True, slots=True)
class Use:
    """One process on one device."""

    device: str
    process: Process
    memory_mib: int
    owner: str = ""
    """``GPUBROKER_SESSION`` or ``GPUBROKER_JOB`` of its launch environment, if any."""
    parked: bool = False
    """Its memory is in host RAM; it does not use the device."""


class EventKind(StrEnum):
    """What happened to a device."""

    LOST = "lost"
    """It does not answer any more."""
    FAULT = "fault"
    """It failed, and is not usable until it is proven healthy."""
    CHANGED = "changed"
    """Something else: memory was taken or freed, a fault is over, slices were made anew."""


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """Something happened: a reason to look, never a fact to rely on."""

    device: str
    """Empty = it is not known which; of a GPU with MIG slices that GPU."""
    kind: EventKind
    text: str = ""
    """For people."""


@dataclass(frozen=True, slots=True)
class DeviceCaps:
    """What can be done with these devices."""

    parks: bool
    """A driver-level checkpoint works (rung ``gpu_state``)."""
    moves: bool
    """What was parked can be restored on another device of the same node."""
    memory: str = "none"
    """hardware | driver | cooperative | none: who enforces a share's memory."""
    fault: bool = False
    """A fault of one tenant cannot hurt another on the same device."""
    sentence: str = ""
    """The guarantees in one honest sentence, for API and UI."""


class Devices(Protocol):
    """The GPUs that one broker sees on its host."""

    caps: DeviceCaps

    def inventory(self) -> Sequence[Node]:
        """Nodes with their devices, in a stable order. No library or driver = no devices."""
        ...

    def usage(self) -> Sequence[Use]:
        """Every living process on every device, and those that are parked.

        DeviceError where a device that may be in use does not answer: that a process is not
        listed proves something only in an answer."""
        ...

    def events(self, timeout: Seconds) -> Sequence[DeviceEvent]:
        """Wait until something has happened since the last call; nothing after ``timeout``.

        For one thread of its own. No library or driver = no events; what is told may be less
        than what happens, so that looking now and then stays necessary. DeviceError where
        this cannot be watched at all."""
        ...

    def environment(self, placement: Placement) -> Mapping[str, str]:
        """What a process needs to use exactly these Shares (one node's); empty Placement =
        an explicit empty set."""
        ...

    def grant(self, owner: str, shares: Sequence[Share]) -> None:
        """Let processes of this owner open these devices; replaces an earlier grant."""
        ...

    def revoke(self, owner: str) -> None:
        """No new use by this owner; what is open stays until it is parked or ends.

        Before ``park``, else a process may take memory after it."""
        ...

    def park(self, owner: str) -> tuple[Kept, ...]:
        """Move the GPU memory of the owner's processes to host memory: all or none.

        DeviceError with everything rolled back where one of them cannot be parked.
        Done twice, the second call returns the same."""
        ...

    def restore(self, kept: Sequence[Kept], shares: Sequence[Share]) -> None:
        """Bring parked processes back, onto the devices of ``shares`` in order.

        After ``grant``, for a process goes on the moment its memory is back. Done twice, the
        second call does nothing. DeviceError if a process is gone or there is no memory; what
        was parked stays so."""
        ...

    def drop(self, kept: Kept) -> None:
        """Forget a parked image; its process loses its GPU memory for good."""
        ...

    def parked(self) -> Sequence[Kept]:
        """Everything that is parked now (one per process, of living processes only)."""
        ...
