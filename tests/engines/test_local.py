# SPDX-License-Identifier: BSD-3-Clause
"""The local engine: the contract, as the broker's own account and as a user's."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpubroker.core.model import Node
from jupyter_gpubroker.devices.simulated import SimulatedDevices
from jupyter_gpubroker.engines.local import LocalEngine

from .contract import EngineContract


class TestAsSelf(EngineContract):
    """``run_as: self``."""


class Bare(SimulatedDevices):
    """Devices that know of no processor, as NVIDIA's library does."""

    def inventory(self) -> Sequence[Node]:
        return [replace(node, cpu_milli=0, host_memory_mib=0) for node in super().inventory()]


@pytest.mark.asyncio
async def test_processors_and_memory_are_this_machines_where_the_devices_know_of_none(
    tmp_path: Path,
) -> None:
    devices = Bare.create(tmp_path / "world", "1x1")
    (node,) = await LocalEngine(devices, tmp_path, "broker-1", "self", time.time).nodes()
    assert node.cpu_milli == 1000 * len(os.sched_getaffinity(0))
    assert node.host_memory_mib > 0
