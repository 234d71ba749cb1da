# SPDX-License-Identifier: BSD-3-Clause
"""What NVIDIA's driver tells of the health of GPUs: its events, and what it wants done.

Numbers, for older nvidia-ml-py have no names for the newer ones (nvml.h)."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from ..core.model import Seconds
from . import DeviceEvent, EventKind

_DOUBLE_BIT_ECC, _XID, _MIG_CONFIG = 0x2, 0x8, 0x100
_UNAVAILABLE, _RECOVERY = 0x4000, 0x8000
_WANTED = _DOUBLE_BIT_ECC | _XID | _MIG_CONFIG | _UNAVAILABLE | _RECOVERY
_RECOVERY_FIELD = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION."""
_RECOVERIES: Mapping[int, str] = {
    1: "a reset of the GPU",
    2: "a restart of the machine",
    3: "that peers of the GPU stop using it",
    4: "that the GPU is drained and reset",
}
_OF_PROGRAMS = frozenset({13, 31, 43, 45, 68, 94, 109})
"""Xids that a faulty program causes, or that end only the programs that were hit: the GPU is
as good as before. The list of NVIDIA's own device plugin for Kubernetes, and 94 (contained)."""


def wish(gpu: Any) -> str | None:
    """What the driver wants done with a GPU before it is used again: empty = nothing, it is
    healthy; ``None`` = this driver does not say."""
    try:
        (value,) = pynvml.nvmlDeviceGetFieldValues(gpu, [_RECOVERY_FIELD])
    except pynvml.NVMLError:
        return None
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    action = int(value.value.uiVal)
    return (action and _RECOVERIES.get(action, f"recovery action {action}")) or ""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A set of events that the driver fills from the moment it is made."""

    handle: Any
    gpus: Mapping[int, str]
    """Address of the library's handle -> UUID, of the GPUs that have events."""

    @classmethod
    def of(cls, gpus: Sequence[Any]) -> Alarm:
        """NVMLError where there can be no such set; a GPU without events is left out."""
        handle = pynvml.nvmlEventSetCreate()
        known = {}
        for gpu in gpus:
            try:
                kinds = pynvml.nvmlDeviceGetSupportedEventTypes(gpu) & _WANTED
                pynvml.nvmlDeviceRegisterEvents(gpu, kinds, handle)
                known[_address(gpu)] = pynvml.nvmlDeviceGetUUID(gpu)
            except pynvml.NVMLError:
                continue  # it has none, or is lost: looking at it says so
        return cls(handle, known)

    def wait(self, timeout: Seconds) -> DeviceEvent | None:
        """The next event; ``None`` after ``timeout``. NVMLError where waiting failed."""
        try:
            data = pynvml.nvmlEventSetWait_v2(self.handle, max(1, int(timeout * 1000)))
        except pynvml.NVMLError_Timeout:
            return None
        return _event(data.eventType, data.eventData, self.gpus.get(_address(data.device), ""))

    def close(self) -> None:
        """Give it back to the driver."""
        pynvml.nvmlEventSetFree(self.handle)


def _address(gpu: Any) -> int:
    return ctypes.cast(gpu, ctypes.c_void_p).value or 0


def _event(kind: int, data: int, gpu: str) -> DeviceEvent | None:
    match kind:
        case _ if kind & _XID:
            if data in _OF_PROGRAMS:
                return None
            return DeviceEvent(gpu, EventKind.FAULT, f"Xid {data}")
        case _ if kind & _DOUBLE_BIT_ECC:
            return DeviceEvent(gpu, EventKind.FAULT, "an uncorrectable memory error")
        case _ if kind & _UNAVAILABLE:
            return DeviceEvent(gpu, EventKind.LOST, "the driver says that it is unavailable")
    return DeviceEvent(gpu, EventKind.CHANGED)
