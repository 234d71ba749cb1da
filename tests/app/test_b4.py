# SPDX-License-Identifier: BSD-3-Clause
"""B4 with few jobs: everything is submitted, runs once and ends; its engine keeps its promises."""

from __future__ import annotations

import asyncio
import time

import pytest

from jupyter_gpubroker.app.b4.engine import NullEngine
from jupyter_gpubroker.app.b4.measure import measure
from jupyter_gpubroker.app.b4.workload import PLAY, SIZES, Workload
from jupyter_gpubroker.core.model import Key, Mode
from jupyter_gpubroker.engines import Launch, Phase, Report, Stop
from tests.until import until_async

KEY = Key("b-1", 1)


@pytest.mark.asyncio
async def test_a_small_workload_runs_to_its_end() -> None:
    few = Workload(cohorts=2, queues=2, counts=(1, 2, 5))
    told: list[str] = []
    found = await measure(few, told.append)
    assert (found["id"], found["value"]) == ("b4", found["wall_s"])
    assert (found["jobs"], found["completed"]) == (few.total, few.total) == (32, 32)
    assert found["wall_s"] >= 1.0, "a large job takes a second"
    assert list(found["admission_s"]) == ["large", "medium", "small"]
    assert all(0 <= seconds < found["wall_s"] for seconds in found["admission_s"].values())
    assert len(told) == 1


def test_the_workload_is_the_one_that_was_published() -> None:
    arrivals = Workload().arrivals()
    assert sum(map(len, arrivals.values())) == Workload().total == 15_000
    assert max(arrivals) == pytest.approx(49 * 1.2)
    jobs = [job for some in arrivals.values() for job in some]
    assert len({job.key for job in jobs}) == 15_000
    work = sum(float(job.request.gpus) * float(job.argv[1]) for job in jobs)
    gpus = sum(len(node.devices) for node in Workload().nodes())
    assert (gpus, work / gpus) == (600, pytest.approx(66.0))
    assert [size.priority for size in SIZES] == sorted((50, 100, 200), reverse=True)


@pytest.mark.asyncio
async def test_a_timer_starts_once_and_is_told_until_it_is_forgotten() -> None:
    engine = NullEngine(Workload().nodes(), time.time)
    told: list[Report] = []

    async def listen() -> None:
        async for reports in engine.watch():
            told.extend(reports)

    listener = asyncio.create_task(listen())
    launch = Launch(Mode.HOSTED, (), (PLAY, "0.01"))
    await engine.start(KEY, launch)
    await engine.start(KEY, launch)
    await engine.forget(KEY)
    assert KEY in (await engine.poll()).reports, "it runs"
    await until_async(lambda: len(told) == 2, what="the end")
    listener.cancel()
    assert [report.phase for report in told] == [Phase.RUNNING, Phase.EXITED]
    assert told[1].all_zero
    await engine.stop(KEY, Stop.KILL)
    assert (await engine.poll()).reports == {KEY: told[1]}
    await engine.forget(KEY)
    assert (await engine.poll()).reports == {}


@pytest.mark.asyncio
async def test_what_is_stopped_ends_with_the_signal() -> None:
    engine = NullEngine((), time.time)
    await engine.start(KEY, Launch(Mode.HOSTED, (), (PLAY, "600")))
    await engine.stop(KEY, Stop.TERM)
    assert (await engine.poll()).reports[KEY].code == -15
