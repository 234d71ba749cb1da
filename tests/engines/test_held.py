# SPDX-License-Identifier: BSD-3-Clause
"""Held leases: granted, parked, restored and taken, with the servers' processes untouched."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from jupyter_gpubroker.core.model import Kept, Key, Process, Rung
from jupyter_gpubroker.devices import processes
from jupyter_gpubroker.engines import (
    Engine,
    EngineError,
    Phase,
    Report,
    RestoreRefused,
    StartRefused,
    Stop,
)

from ..until import until_async
from .conftest import LocalGround
from .contract import child, ended, line, python

pytestmark = pytest.mark.asyncio

SERVER = "ana/lab"
KEY, NEXT = Key("s-held", 1), Key("s-held", 2)
KERNEL = (
    "import sys\n"
    "from jupyter_gpubroker.devices.simulated import hold\n"
    "memory = hold(int(sys.argv[1]))\n"
    "print('holds', flush=True)\n"
    "for line in sys.stdin: memory.touch(); print('touched', flush=True)"
)


@asynccontextmanager
async def kernel(ground: LocalGround, mib: int = 1024) -> AsyncIterator[Process]:
    """A kernel of the server that holds memory."""
    env = ground.session_environment(SERVER) | {"GPUBROKER_KERNEL": "k1"}
    with child([*python(KERNEL), str(mib)], env=env) as process:
        assert line(process) == "holds"
        found = processes.process_of(process.pid)
        assert found
        yield found


async def report_of(engine: Engine, key: Key = KEY) -> Report:
    return (await engine.poll()).reports[key]


async def test_a_held_lease_runs_until_it_is_asked_to_stop(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER))
    assert (await report_of(engine)).phase is Phase.RUNNING
    async with kernel(ground) as process:
        report = await report_of(engine)
        assert (report.phase, report.processes) == (Phase.RUNNING, (process,))
        assert (report.memory_mib, report.kept) == (1024, ())
    await until_async(lambda: not processes.alive(process))
    report = await report_of(ground.engine())
    assert (report.phase, report.processes) == (Phase.RUNNING, ())


async def test_parking_frees_the_device_and_keeps_the_process(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER))
    async with kernel(ground) as process:
        await engine.stop(KEY, Stop.PARK)
        report = await ended(engine, KEY)
        (kept,) = report.kept
        assert (kept.rung, kept.processes, kept.memory_mib) == (Rung.GPU_STATE, (process,), 1024)
        assert (kept.server, kept.attempt, kept.kernel) == (SERVER, 1, "k1")
        assert report.processes == ()
        assert processes.alive(process)
        assert (await ground.engine().poll()).reports[KEY] == report
        (parked,) = (await engine.poll()).parked
        assert (parked.server, parked.processes) == (SERVER, (process,))


async def test_what_is_parked_comes_back_once(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER))
    async with kernel(ground) as process:
        await engine.stop(KEY, Stop.PARK)
        kept = (await ended(engine, KEY)).kept
        await engine.forget(KEY)
        launch = ground.held(SERVER, kept=kept)
        await engine.start(NEXT, launch)
        assert (await report_of(engine, NEXT)).processes == (process,)
        await engine.start(NEXT, launch)
        await ground.engine().start(NEXT, launch)
        assert (await report_of(engine, NEXT)).phase is Phase.RUNNING
        assert (await engine.poll()).parked == ()


async def test_what_cannot_be_restored_is_still_kept(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER))
    async with kernel(ground, 20_000) as process:
        await engine.stop(KEY, Stop.PARK)
        kept = (await ended(engine, KEY)).kept
        share = replace(ground.placement()[0], milli=100, memory_mib=1000)
        launch = replace(ground.held(SERVER, kept=kept), placement=(share,))
        with pytest.raises(RestoreRefused, match="20000 MiB"):
            await engine.start(NEXT, launch)
        assert (await report_of(engine, NEXT)).phase is Phase.RUNNING
        await engine.stop(NEXT, Stop.PARK)
        (again,) = (await ended(engine, NEXT)).kept
        assert again.processes == (process,)


async def test_an_image_whose_process_is_gone_is_refused(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER))
    async with kernel(ground) as process:
        await engine.stop(KEY, Stop.PARK)
        kept = (await ended(engine, KEY)).kept
    await until_async(lambda: not processes.alive(process))
    with pytest.raises(RestoreRefused, match="gone"):
        await engine.start(NEXT, ground.held(SERVER, kept=kept))


async def test_lower_rungs_need_nothing_of_the_engine(ground: LocalGround) -> None:
    kept = Kept("k1", 1, Rung.VARIABLES, path="/home/ana/saved")
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER, kept=(kept,)))
    assert (await report_of(engine)).phase is Phase.RUNNING
    await engine.drop(kept)


async def test_term_takes_the_grant_and_waits_for_the_server(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER))
    async with kernel(ground) as process:
        await engine.stop(KEY, Stop.TERM)
        assert (await report_of(engine)).phase is Phase.RUNNING
        assert processes.alive(process)
        env = ground.session_environment(SERVER)
        with child([*python(KERNEL), "1"], env=env, stderr=-2) as late:
            assert "has no lease" in late.communicate()[0]
    report = await ended(engine, KEY)
    assert (report.kept, report.code) == ((), None)


async def test_kill_ends_what_is_on_the_device_and_nothing_else(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER))
    env = ground.session_environment(SERVER)
    async with kernel(ground) as process:
        with child(["sleep", "600"], env=env) as server:
            await engine.stop(KEY, Stop.KILL)
            await ended(engine, KEY)
            assert not processes.alive(process)
            assert server.poll() is None


async def test_kill_leaves_what_is_parked(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER))
    async with kernel(ground) as process:
        ground.devices.park(SERVER)
        await engine.stop(KEY, Stop.KILL)
        (kept,) = (await ended(engine, KEY)).kept
        assert kept.processes == (process,)
        assert processes.alive(process)


async def test_a_park_that_fails_is_told_and_the_next_stage_works(ground: LocalGround) -> None:
    ground.devices = type(ground.devices)(ground.root / "world", park_limit_mib=100)
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER))
    async with kernel(ground) as process:
        with pytest.raises(EngineError, match="100 MiB"):
            await engine.stop(KEY, Stop.PARK)
        assert (await report_of(engine)).processes == (process,)
        await engine.stop(KEY, Stop.KILL)
        assert (await ended(engine, KEY)).kept == ()


async def test_dropping_an_image_forgets_it(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER))
    async with kernel(ground):
        await engine.stop(KEY, Stop.PARK)
        (kept,) = (await ended(engine, KEY)).kept
        await engine.drop(kept)
        assert (await engine.poll()).parked == ()


async def test_a_stop_that_was_asked_is_finished_by_the_next_broker(ground: LocalGround) -> None:
    engine = ground.engine()
    await engine.start(KEY, ground.held(SERVER))
    async with kernel(ground):
        await engine.stop(KEY, Stop.TERM)
        later = ground.engine()
        with pytest.raises(EngineError, match="leave"):
            await later.start(KEY, ground.held(SERVER))
    assert (await ended(later, KEY)).phase is Phase.EXITED


async def test_a_lease_of_unknown_devices_or_nobody_is_refused(ground: LocalGround) -> None:
    engine = ground.engine()
    launch = ground.held(SERVER)
    share = replace(launch.placement[0], device="GPU-none")
    with pytest.raises(StartRefused, match="GPU-none"):
        await engine.start(KEY, replace(launch, placement=(share,)))
    with pytest.raises(StartRefused, match="server"):
        await engine.start(KEY, replace(launch, server=""))
    assert (await engine.poll()).reports == {}


async def test_an_old_lease_takes_nothing_from_a_later_one_of_its_server(
    ground: LocalGround,
) -> None:
    """The old one was fenced and given up without proof; it is ended while the next runs."""
    engine = ground.engine()
    later = ground.placement(gpus=2)[1]
    await engine.start(KEY, ground.held(SERVER))
    async with kernel(ground):
        await engine.stop(KEY, Stop.TERM)
        await engine.start(NEXT, replace(ground.held(SERVER), placement=(later,)))
        await engine.stop(KEY, Stop.KILL)
        await ended(engine, KEY)
    env = ground.session_environment(SERVER) | {"CUDA_VISIBLE_DEVICES": later.device}
    with child([*python(KERNEL), "1"], env=env) as process:
        assert line(process) == "holds"
