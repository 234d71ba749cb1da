# SPDX-License-Identifier: BSD-3-Clause
"""The shape of a simulated world and the nodes that follow from it."""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import Self

from ...core.model import Device, Node
from .. import DeviceError

_SHAPE = re.compile(r"(\d+)x(\d+)(?::(\d+)(MiB|GiB))?(?::([a-z][a-z0-9._-]*))?", re.ASCII)
_MIB_PER = {"MiB": 1, "GiB": 1024}
_MEMORY_MIB = 24 * _MIB_PER["GiB"]
_FLAVOR = "sim"
_CPU_MILLI_PER_DEVICE = 8000
_HOST_MIB_PER_GPU_MIB = 2


@dataclass(frozen=True, slots=True)
class Spec:
    """Nodes, GPUs on each, memory and flavor: ``2x4`` or ``2x4:24GiB:sim-a100``."""

    nodes: int
    devices: int
    memory_mib: int = _MEMORY_MIB
    flavor: str = _FLAVOR

    @classmethod
    def parse(cls, text: str) -> Self:
        """DeviceError if ``text`` is no shape of at most 64 nodes with 16 GPUs each."""
        match = _SHAPE.fullmatch(text)
        if not match:
            raise DeviceError(
                f"simulated devices: {text!r} is not a shape of the form NODESxGPUS"
                " (for example 2x4, or 2x4:24GiB:sim-a100)"
            )
        nodes, devices, size, unit, flavor = match.groups()
        memory_mib = int(size) * _MIB_PER[unit] if size else _MEMORY_MIB
        spec = cls(int(nodes), int(devices), memory_mib, flavor or _FLAVOR)
        if not (1 <= spec.nodes <= 64 and 1 <= spec.devices <= 16 and spec.memory_mib):
            raise DeviceError(
                f"simulated devices: {text!r} is out of range"
                " (1 to 64 nodes with 1 to 16 GPUs each, memory above 0)"
            )
        return spec

    def __str__(self) -> str:
        return f"{self.nodes}x{self.devices}:{self.memory_mib}MiB:{self.flavor}"

    def build(self, world: uuid.UUID, boot: str) -> tuple[Node, ...]:
        """The nodes of the world with that id; the same arguments give the same UUIDs."""
        return tuple(self._node(world, f"node{rank}", boot) for rank in range(1, self.nodes + 1))

    def _node(self, world: uuid.UUID, name: str, boot: str) -> Node:
        devices = tuple(
            Device(
                f"GPU-{uuid.uuid5(world, f'{name}/{index}')}", self.flavor, self.memory_mib, index
            )
            for index in range(self.devices)
        )
        return Node(
            name=name,
            engine="local",
            boot=boot,
            devices=devices,
            cpu_milli=_CPU_MILLI_PER_DEVICE * self.devices,
            host_memory_mib=_HOST_MIB_PER_GPU_MIB * self.memory_mib * self.devices,
        )
