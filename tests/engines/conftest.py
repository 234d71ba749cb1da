# SPDX-License-Identifier: BSD-3-Clause
"""The local engine's ground: a simulated world, a state folder, and what a test started."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio

from jupyter_gpubroker.core.model import Mode, Node, Placement, Share
from jupyter_gpubroker.devices.simulated import SimulatedDevices
from jupyter_gpubroker.engines import Launch, Phase, Stop
from jupyter_gpubroker.engines.local import LocalEngine

from .. import needs
from ..until import until_async
from . import agent
from .contract import KEY

TOOLS = ("useradd", "userdel")
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass
class LocalGround:
    """A folder of its own; every engine over it is another life of the same broker."""

    root: Path
    run_as: Literal["user", "self"] = "self"
    user: str = ""
    home: Path | None = None
    python: str = sys.executable
    made: list[LocalEngine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.devices = SimulatedDevices.create(self.root / "world", "2x4")

    @property
    def state(self) -> Path:
        """The engine's own folder."""
        return self.root / "state"

    @property
    def folder(self) -> Path:
        """The attempt's folder of KEY."""
        return (self.home or self.root) / "jobs" / KEY.job / str(KEY.attempt)

    @property
    def nodes(self) -> list[Node]:
        """The nodes of the world."""
        return list(self.devices.inventory())

    def engine(self) -> LocalEngine:
        """An engine over the same state: each is another life of the broker."""
        engine = LocalEngine(self.devices, self.state, "broker-1", self.run_as, time.time)
        self.made.append(engine)
        return engine

    def placement(self, nodes: int = 1, gpus: int = 1) -> Placement:
        """The first GPUs of the first nodes."""
        return tuple(
            Share(node.name, device.uuid, 1000)
            for node in self.nodes[:nodes]
            for device in node.devices[:gpus]
        )

    def launch(self, *argv: str, nodes: int = 1, gpus: int = 1, **more: Any) -> Launch:
        """A hosted Launch in the folder of KEY."""
        known: dict[str, Any] = {"folder": str(self.folder), "user": self.user, **more}
        return Launch(Mode.HOSTED, self.placement(nodes, gpus), argv, **known)

    def gang(self, code: str, *, gpus: int = 1, nodes: int = 2, **more: Any) -> Launch:
        """A torchrun Launch of ``code`` under the stand-in agent."""
        path = self.root / "agent"
        path.write_text(f"#!{sys.executable}\n{Path(agent.__file__).read_text()}")
        path.chmod(0o755)
        files = {"rank_code.py": code.encode()}
        known: dict[str, Any] = {"torchrun": True, "python": str(path), "files": files, **more}
        return self.launch("rank_code.py", nodes=nodes, gpus=gpus, **known)

    def held(self, server: str, **more: Any) -> Launch:
        """A held Launch for a server."""
        return Launch(Mode.HELD, self.placement(), server=server, **more)

    def session_environment(self, server: str) -> dict[str, str]:
        """What a kernel of that server is launched with."""
        return {
            **os.environ,
            **self.devices.environment(self.placement()),
            "GPUBROKER_SESSION": server,
            "PYTHONPATH": str(ROOT),
        }

    async def clean(self) -> None:
        """Kill whatever a test has left."""
        engine = self.engine()

        async def empty() -> bool:
            reports = (await engine.poll()).reports.values()
            living = [report for report in reports if report.phase is not Phase.EXITED]
            for report in living:
                await engine.stop(report.key, Stop.KILL)
            return not living

        await until_async(empty, what="an empty engine")


@pytest_asyncio.fixture
async def ground() -> AsyncIterator[LocalGround]:
    """The local engine as the broker's own account."""
    root = Path(tempfile.mkdtemp(prefix="gb-"))
    ground = LocalGround(root)
    yield ground
    await ground.clean()
    shutil.rmtree(root, ignore_errors=True)


@pytest.fixture(scope="session")
def account() -> Iterator[pwd.struct_passwd]:
    """An account of this machine, made for the tests and removed after them."""
    needs.root()
    tools = [needs.program(name, enable="sudo apt-get install passwd") for name in TOOLS]
    name = f"gbtest{os.getpid() % 100000}"
    home = tempfile.mkdtemp(prefix="gb-home-")
    subprocess.run([tools[0], "-M", "-d", home, "-s", "/bin/sh", name], check=True)
    try:
        entry = pwd.getpwnam(name)
        os.chown(home, entry.pw_uid, entry.pw_gid)
        yield entry
    finally:
        subprocess.run([tools[1], name], check=True, stderr=subprocess.DEVNULL)
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def public_root() -> Iterator[Path]:
    """A folder in which another account finds what it may read."""
    root = Path(tempfile.mkdtemp(prefix="gb-"))
    root.chmod(0o711)
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest_asyncio.fixture
async def user_ground(account: pwd.struct_passwd, public_root: Path) -> AsyncIterator[LocalGround]:
    """The local engine as root, its jobs as their account."""
    home = Path(account.pw_dir)
    ground = LocalGround(public_root, "user", account.pw_name, home, system_python())
    yield ground
    await ground.clean()
    shutil.rmtree(home / "jobs", ignore_errors=True)


def system_python() -> str:
    """An interpreter that every account may run; a virtual environment's may be root's own."""
    return shutil.which("python3", path="/usr/bin") or needs.missing(
        "a python3 in /usr/bin", "sudo apt-get install python3"
    )
