# SPDX-License-Identifier: BSD-3-Clause
"""Processes near GPUs: that one lives and is the same, whose it is, what it may see."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from ..core.model import Placement, Process, nodes_of
from . import DeviceError

_STATE, _THREADS, _START = 0, 17, 19
"""Positions behind the command in /proc/PID/stat (fields 3, 20 and 22)."""


def boot_id() -> str:
    """The kernel's id of this boot; empty where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def process_of(pid: int) -> Process | None:
    """The living process of this pid; ``None`` if there is none."""
    fields = _stat(pid)
    if not fields:
        return None
    # A zombie leader whose other threads still run keeps its files (and its GPU) open.
    if fields[_STATE] in ("Z", "X") and int(fields[_THREADS]) <= 1:
        return None
    return Process(pid, int(fields[_START]))


def this_process() -> Process:
    """The calling process."""
    process = process_of(os.getpid())
    assert process is not None, "/proc is not mounted"
    return process


def alive(process: Process) -> bool:
    """True while exactly this process lives; a later one of the same pid does not count."""
    return process_of(process.pid) == process


def environ_of(pid: int) -> Mapping[str, str]:
    """The environment that a process was launched with; empty if it may not be read."""
    try:
        data = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (item.decode(errors="replace").partition("=") for item in data.split(b"\0") if item)
    return {name: value for name, _, value in pairs}


def owner_of(environ: Mapping[str, str]) -> str:
    """The Job or the session key that an environment names; empty if it is not ours."""
    return environ.get("GPUBROKER_JOB") or environ.get("GPUBROKER_SESSION") or ""


def visible_devices(placement: Placement) -> Mapping[str, str]:
    """The environment that shows a process exactly these devices (none: an empty set).

    DeviceError for Shares of several nodes: a process lives on one."""
    if len(nodes_of(placement)) > 1:
        raise DeviceError(f"one process cannot use devices of {', '.join(nodes_of(placement))}")
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(share.device for share in placement),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }


def _stat(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return []
    # The command may hold blanks and brackets; the last bracket ends it.
    return text.rpartition(")")[2].split()
