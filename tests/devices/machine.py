# SPDX-License-Identifier: BSD-3-Clause
"""A machine with NVIDIA GPUs, as the stub libraries tell it (stub/world.h)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from .. import needs
from .talk import HERE, Talk

LIBRARIES = {"nvml": "libnvidia-ml.so.1", "cuda": "libcuda.so.1"}


def build(folder: Path) -> Path:
    """Compile the stub libraries into a folder."""
    flags = ["-shared", "-fPIC", "-Wall", "-Werror", "-O1", "-fvisibility=hidden"]
    for name, file in LIBRARIES.items():
        source, target = HERE / "stub" / f"{name}.c", folder / file
        command = [needs.compiler(), *flags, f"-Wl,-soname,{file}", "-o", target, source]
        subprocess.run(command, check=True)
    return folder


@dataclass
class Machine:
    """A machine whose driver tells what ``says`` was called with."""

    library: Path
    world: Path
    _open: ExitStack
    _children: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    def says(self, *lines: str) -> None:
        """More lines of the stubs' world."""
        with self.world.open("a") as file:
            file.write("".join(f"{line}\n" for line in lines))

    @property
    def environ(self) -> Mapping[str, str]:
        """What a process needs to see it."""
        return {"LD_LIBRARY_PATH": str(self.library), "STUB_WORLD": str(self.world)}

    def talk(self, script: str) -> Talk:
        """A process that sees it."""
        return self._open.enter_context(Talk(script, self.environ))

    def seer(self) -> Talk:
        """A process that has looked at it once."""
        seer = self.talk("seer.py")
        seer.ask("reason")
        return seer

    def child(self, **environ: str) -> int:
        """The pid of a living process with that environment."""
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, env={**os.environ, **environ})
        self._open.enter_context(child)  # leaving it closes the pipe, which ends cat
        self._children[child.pid] = child
        return child.pid

    def ends(self, pid: int) -> None:
        """Kill a child with -9 and leave it unreaped, as a busy parent would."""
        child = self._children[pid]
        child.kill()
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
