# SPDX-License-Identifier: BSD-3-Clause
"""Which devices this machine offers."""

from __future__ import annotations

import os
from pathlib import Path

from . import DeviceError, Devices
from .simulated import SimulatedDevices


def open_devices(kind: str, root: Path) -> Devices:
    """The devices named ``auto``, ``nvml`` or ``simulated:2x4[:24GiB[:flavor]]``.

    ``auto`` is ``simulated:$GPUBROKER_SIMULATE`` where that is set, else ``nvml``.
    ``root`` is the folder of a simulated world, made where it is missing. DeviceError
    for any other name, or if the world cannot be opened."""
    simulate = os.environ.get("GPUBROKER_SIMULATE")
    if kind == "auto":
        kind = f"simulated:{simulate}" if simulate else "nvml"
    name, _, shape = kind.partition(":")
    if name == "simulated":
        return SimulatedDevices.create(root, shape)
    if kind == "nvml":
        from .nvml import NvmlDevices  # noqa: PLC0415  not needed where devices are simulated

        return NvmlDevices()
    raise DeviceError(f"devices: {kind!r} is none of auto, nvml, simulated:NODESxGPUS")
