# SPDX-License-Identifier: BSD-3-Clause
"""Whether this process has looked for GPUs already: CUDA reads its environment only once."""

from __future__ import annotations

import os
import sys


def touched() -> str:
    """Why this process can be given no other GPUs; empty while CUDA is untouched."""
    return _open_device() or _driver_loaded() or _framework()


def _open_device() -> str:
    # A GPU may be a folder (devices/simulated): a process on it keeps a file in there open.
    folder = os.path.join(os.environ.get("GPUBROKER_SIMULATED", ""), "")
    devices = tuple(filter(None, ("/dev/nvidia", folder)))
    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return ""
    for name in names:
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith(devices):
            return f"it has {target} open"
    return ""


def _driver_loaded() -> str:
    # A torch.cuda.is_available() that found nothing closes the devices again, but has
    # settled for this process that there are none; the driver's library stays mapped.
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            loaded = any("/libcuda.so" in line for line in maps)
    except OSError:
        return ""
    return "it has loaded the CUDA driver" if loaded else ""


def _framework() -> str:
    torch = sys.modules.get("torch")
    initialized = getattr(getattr(torch, "cuda", None), "is_initialized", None)
    if initialized is not None and initialized():
        return "torch.cuda is initialized"
    return ""
