# SPDX-License-Identifier: BSD-3-Clause
"""A simulated world in a folder of its own, processes that hold memory in it, and a machine
with the stubs of NVIDIA's libraries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from jupyter_gpubroker.core.model import Share
from jupyter_gpubroker.devices.simulated import SimulatedDevices

from .machine import Machine, build
from .talk import Talk

GIB = 1024
MEMORY = 24 * GIB


@dataclass
class Lab:
    """Two nodes of four GPUs with 24 GiB each."""

    root: Path
    devices: SimulatedDevices
    _open: ExitStack

    def share(self, index: int = 0, *, node: int = 0, milli: int = 1000, mib: int = 0) -> Share:
        """A share of the GPU with that index."""
        where = self.devices.inventory()[node]
        return Share(where.name, where.devices[index].uuid, milli, mib)

    def holder(self, owner: str, *shares: Share, grant: bool = True, kernel: str = "") -> Talk:
        """A process of that owner that sees these shares."""
        if grant:
            self.devices.grant(owner, shares)
        environ = dict(self.devices.environment(shares))
        environ |= {"GPUBROKER_SESSION": owner, "GPUBROKER_KERNEL": kernel}
        return self._open.enter_context(Talk("holder.py", environ))

    def used(self) -> Sequence[tuple[str, int, bool]]:
        """(device, MiB, parked) of everything in use."""
        return sorted((use.device, use.memory_mib, use.parked) for use in self.devices.usage())


@pytest.fixture
def lab(short_tmp: Path) -> Iterator[Lab]:
    """A world and everything that was started in it, ended afterwards."""
    short_tmp.chmod(0o711)  # for holders of other accounts
    root = short_tmp / "world"
    with ExitStack() as stack:
        yield Lab(root, SimulatedDevices.create(root, "2x4:24GiB:sim-a100"), stack)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the stub libraries, built once."""
    return build(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def machine(library: Path, tmp_path: Path) -> Iterator[Machine]:
    """A machine with the libraries and, until something is said, no loaded driver."""
    with ExitStack() as stack:
        yield Machine(library, tmp_path / "world", stack)
