# SPDX-License-Identifier: BSD-3-Clause
"""Processes that kernels and terminals of this server started."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import psutil


def start_time(pid: int) -> int | None:
    """When it started, in clock ticks since boot (field 22 of its stat); ``None`` if gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    # The command may hold blanks and brackets; the last bracket ends it.
    fields = text.rpartition(")")[2].split()
    return int(fields[19]) if len(fields) > 19 else None


def boot_id() -> str:
    """The kernel's id of this boot; empty where it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def count_children(kernels: Mapping[int, str], terminals: Iterable[int]) -> int:
    """Living descendants of these processes, without the kernels themselves.

    ``kernels``: pid -> connection file. A kernel launched through a shell is a child of
    that shell: it is known by the connection file on its command line."""
    count = 0
    for pid in terminals:
        count += len(_descendants(pid))
    for pid, connection_file in kernels.items():
        count += sum(not _names(child, connection_file) for child in _descendants(pid))
    return count


def this_host() -> str:
    """The name of this machine."""
    return os.uname().nodename


def _descendants(pid: int) -> list[psutil.Process]:
    try:
        found: list[psutil.Process] = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    return [child for child in found if _lives(child)]


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _names(process: psutil.Process, argument: str) -> bool:
    try:
        return bool(argument) and argument in process.cmdline()
    except psutil.Error:
        return False
