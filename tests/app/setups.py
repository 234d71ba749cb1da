# SPDX-License-Identifier: BSD-3-Clause
"""What a shell is made of, in one process: a store in memory, a world in a folder."""

from __future__ import annotations

import pwd
from pathlib import Path

from jupyter_gpubroker import policy
from jupyter_gpubroker.app.setup import Setup
from jupyter_gpubroker.devices.simulated import SimulatedDevices
from jupyter_gpubroker.engines.local import LocalEngine
from jupyter_gpubroker.store.memory import MemoryStore


def setup_in(folder: Path, kind: type[LocalEngine] = LocalEngine) -> Setup:
    """One node with one GPU; jobs have their folders at home."""
    devices = SimulatedDevices.create(folder / "world", "1x1")
    return Setup(
        store=MemoryStore(),
        engines={"local": kind(devices, folder / "state", "id", "self", lambda: 1.0)},
        devices=devices,
        policy=policy.default(),
        policy_document=policy.DEFAULT_DOCUMENT,
        jobs_folder=lambda account: Path(pwd.getpwnam(account).pw_dir),
        parse_policy=policy.parse,
        account=lambda user: user,
    )
