# SPDX-License-Identifier: BSD-3-Clause
"""The files of a simulated world.

::

    world.json             nodes and devices; never changes
    lock                   flock: held for every look and every change
    grants/<digest>.json   who may open which devices (as a device cgroup filter would say)
    devices/<uuid>/<name>  one allocation of one process on that device
    parked/<uuid>/<name>   the same file while that allocation is in host memory

An allocation's file never changes: where it lies is its state, so parking is a rename.
It is true only while its process lives *and* its file is flocked. The lock dies with the
process and survives a rename; the process id tells apart a forked child that inherited it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...core.model import GPU_MILLI, Device, Node, Process, Share
from .. import DeviceError, processes

_SPEC = re.compile(r"(\d+)x(\d+)(?::(\d+)(MiB|GiB))?(?::([a-z0-9][a-z0-9._-]*))?")
_MIB_PER_GIB = 1024
_CPU_MILLI_PER_DEVICE = 8000
_HOST_MEMORY_PER_GPU_MEMORY = 2
_ANYBODY = 0o1777
"""Holders may be other accounts than the broker; sticky, so that each removes only its own."""


@dataclass(frozen=True, slots=True)
class Spec:
    """The shape of a world: ``2x4`` or ``2x4:24GiB:sim`` (nodes, GPUs on each, memory, flavor)."""

    nodes: int
    devices: int
    memory_mib: int = 24 * _MIB_PER_GIB
    flavor: str = "sim"

    @classmethod
    def parse(cls, text: str) -> Self:
        """DeviceError if ``text`` is no shape of at most 64 nodes with 16 GPUs each."""
        match = _SPEC.fullmatch(text.strip())
        if not match:
            raise DeviceError(
                f"simulated devices: {text!r} is not a shape"
                " (NODESxGPUS, for example 2x4 or 2x4:24GiB:sim-a100)"
            )
        nodes, devices, size, unit, flavor = match.groups()
        shape = cls(int(nodes), int(devices), flavor=flavor or cls.flavor_default())
        if size:
            memory = int(size) * (_MIB_PER_GIB if unit == "GiB" else 1)
            shape = cls(shape.nodes, shape.devices, memory, shape.flavor)
        if not (1 <= shape.nodes <= 64 and 1 <= shape.devices <= 16 and shape.memory_mib):
            raise DeviceError(
                f"simulated devices: {text!r} must have 1 to 64 nodes with 1 to 16 GPUs"
                " and some memory"
            )
        return shape
