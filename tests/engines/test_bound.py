# SPDX-License-Identifier: BSD-3-Clause
"""Held leases of servers that were launched with their GPUs: they go as a whole."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from jupyter_gpubroker.core.model import Binding, Key
from jupyter_gpubroker.devices import processes
from jupyter_gpubroker.engines import Launch, Phase, Stop

from ..until import until_async
from .conftest import LocalGround
from .contract import child, ended, line, python
from .test_held import SERVER, report_of

pytestmark = pytest.mark.asyncio

KEY = Key("s-bound", 1)
LAB = """\
import signal, subprocess, sys
kernel = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE)
def leave(*_):
    print("told", flush=True)
    if sys.argv[2] == "leaves":
        kernel.kill()
        sys.exit(0)
signal.signal(signal.SIGTERM, leave)
while True: signal.pause()
"""
"""A server with one kernel that holds memory; it ends both when it is told to, or nothing."""
KERNEL = """\
import signal
from jupyter_gpubroker.devices.simulated import hold
memory = hold(1024)
signal.signal(signal.SIGTERM, lambda *_: print("the kernel was told", flush=True))
signal.signal(signal.SIGCONT, lambda *_: print("the kernel goes on", flush=True))
print("holds", flush=True)
while True: signal.pause()
"""


def launch(ground: LocalGround) -> Launch:
    return ground.held(SERVER, binding=Binding.SERVER)


@contextmanager
def lab(ground: LocalGround, how: str) -> Iterator[subprocess.Popen[str]]:
    """The server, once its kernel holds memory."""
    env = ground.session_environment(SERVER)
    with child([*python(LAB), KERNEL, how], env=env) as process:
        assert line(process) == "holds"
        yield process


async def test_a_server_that_is_told_leaves_with_its_kernels(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, launch(ground))
    with lab(ground, "leaves") as server:
        await engine.stop(KEY, Stop.TERM)
        await engine.stop(KEY, Stop.TERM)
        await ended(engine, KEY)
        assert server.wait() == 0
        assert server.stdout is not None
        assert server.stdout.read() == "told\n", "once"


async def test_a_server_that_does_not_leave_is_killed_with_all_it_started(
    ground: LocalGround,
) -> None:
    engine = ground.engine()
    await engine.start(KEY, launch(ground))
    with lab(ground, "stays") as server:
        (kernel,) = (await report_of(engine, KEY)).processes
        await engine.stop(KEY, Stop.TERM)
        assert line(server) == "told"
        # Had it been told too, it would say that first: Python handles signals by number.
        os.kill(kernel.pid, signal.SIGCONT)
        assert line(server) == "the kernel goes on"
        assert (await report_of(engine, KEY)).phase is Phase.RUNNING
        await ground.engine().stop(KEY, Stop.KILL)
        await ended(engine, KEY)
        assert server.wait() == -9
        assert not processes.alive(kernel)


async def test_gpus_are_not_free_while_a_server_lives_that_could_open_them(
    ground: LocalGround,
) -> None:
    engine = ground.engine()
    await engine.start(KEY, launch(ground))
    env = ground.session_environment(SERVER)
    with child(["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"], env=env) as server:
        assert line(server) == "up"
        await engine.stop(KEY, Stop.TERM)
        report = await report_of(ground.engine(), KEY)
        assert (report.phase, report.processes) == (Phase.RUNNING, ()), "nothing holds memory"
        server.kill()
        await ended(engine, KEY)


async def test_other_servers_and_other_gpus_of_the_same_user_are_left_alone(
    ground: LocalGround,
) -> None:
    engine = ground.engine()
    await engine.start(KEY, launch(ground))
    env = ground.session_environment(SERVER)
    other = ground.placement(gpus=2)[1].device
    around = [
        env | {"GPUBROKER_SESSION": "ana/other"},
        env | {"CUDA_VISIBLE_DEVICES": other},
        env | {"CUDA_VISIBLE_DEVICES": ""},
        env | {"GPUBROKER_JOB": "b-1"},
    ]
    with ExitStack() as stack:
        others = [stack.enter_context(child(["sleep", "600"], env=item)) for item in around]
        await engine.stop(KEY, Stop.KILL)
        await ended(engine, KEY)
        assert [process.poll() for process in others] == [None] * len(around)


async def test_whether_a_server_is_bound_outlives_the_broker(ground: LocalGround) -> None:
    await ground.engine().start(KEY, launch(ground))
    with lab(ground, "leaves") as server:
        later = ground.engine()
        await later.stop(KEY, Stop.TERM)
        await until_async(lambda: server.poll() is not None, what="the server to leave")
        await ended(later, KEY)
