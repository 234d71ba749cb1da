# SPDX-License-Identifier: BSD-3-Clause
"""The loop around the broker ends when it is told to, whatever comes at that moment."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpubroker import policy as policies
from jupyter_gpubroker.app.shell import Shell
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import Holder, Job, Kind, Node, Request, Seconds, State
from jupyter_gpubroker.engines import EngineError
from jupyter_gpubroker.engines.local import LocalEngine
from jupyter_gpubroker.store import KEPT_S, Entry, Writes
from tests.until import until_async

from .setups import setup_in

pytestmark = pytest.mark.asyncio


async def tick() -> None:
    """One round of the loop."""
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_soon(passed.set_result, None)
    await passed


@pytest.mark.parametrize("ticks", range(4))
async def test_a_broker_that_is_told_to_end_ends_also_while_news_come(
    tmp_path: Path, ticks: int
) -> None:
    shell = Shell(setup_in(tmp_path))
    running = asyncio.create_task(shell.run())
    session = await shell.ask(i.OpenSession("peer:1", "ana", "ana/", Request(gpus=1), 1))
    await shell.ask(i.ServerHello("peer:1", "ana/", 1, Holder("elsewhere", "boot", 1, 1)))
    assert session is not None
    await until_async(lambda: shell.world.jobs[session.id].prepared, what="a deadline to wait for")
    await asyncio.wait([running], timeout=0.2)  # until it waits for it
    shell.put(i.EngineDown("other", "news"))
    for _ in range(ticks):
        await tick()
    running.cancel()
    done, _ = await asyncio.wait([running], timeout=60)
    assert done, "it has lost the cancel and goes on"
    assert running.cancelled()


async def test_a_broker_that_comes_up_forgets_what_ended_a_month_ago(tmp_path: Path) -> None:
    setup = setup_in(tmp_path)
    old = Job("b-old", Kind.BATCH, "ana", "default", "batch", Request(gpus=1), state=State.FAILED)
    setup.store.open()
    setup.store.commit(Writes(jobs=[old], entries=[Entry(1, 2.0, "broker", "job.exited", "b-old")]))
    assert setup.store.job("b-old") is not None
    running = asyncio.create_task(Shell(setup).run())
    await until_async(lambda: setup.store.job("b-old") is None, what="the job to be forgotten")
    running.cancel()
    await asyncio.wait([running])


class Sweeping(LocalEngine):
    """An engine that says what it was asked to remove, and cannot do it."""

    asked: list[tuple[Seconds, Collection[str]]]

    async def prune(self, before: Seconds, living: Collection[str]) -> None:
        self.asked.append((before, living))
        raise EngineError("the file server is away")


async def test_folders_of_living_jobs_are_kept_and_a_failure_ends_nothing(tmp_path: Path) -> None:
    Sweeping.asked = []
    setup = setup_in(tmp_path, Sweeping)
    job = Job("b-1", Kind.BATCH, "ana", "default", "batch", Request(gpus=1), state=State.HELD)
    setup.store.open()
    setup.store.commit(Writes(jobs=[replace(job, until=setup.clock() + 60)]))
    shell = Shell(setup)
    running = asyncio.create_task(shell.run())
    await until_async(lambda: Sweeping.asked, what="a first sweep")
    ((before, living),) = Sweeping.asked
    assert before <= setup.clock() - KEPT_S
    assert list(living) == ["b-1"]
    cancelled = await shell.ask(i.Ask("peer:1", "b-1", e.Cancel()))
    assert cancelled is not None
    running.cancel()
    await asyncio.wait([running])


class Slow(LocalEngine):
    """An engine whose first look at its machines takes time."""

    seen: asyncio.Event

    async def nodes(self) -> Sequence[Node]:
        await self.seen.wait()
        return await super().nodes()


async def test_whoever_asks_while_the_broker_looks_at_its_machines_waits(tmp_path: Path) -> None:
    Slow.seen = asyncio.Event()
    shell = Shell(setup_in(tmp_path, Slow))
    running = asyncio.create_task(shell.run())
    await until_async(lambda: "store" not in shell.world.problems, what="an open store")
    asked = asyncio.create_task(shell.opened())
    await asyncio.wait([asked], timeout=0.1)
    assert not asked.done()
    Slow.seen.set()
    await asked
    running.cancel()
    await asyncio.wait([running])


async def test_a_file_that_is_not_the_policy_in_force_is_told_and_never_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = policies.DEFAULT_DOCUMENT.replace("running: 2 ", "running: 3 ")
    setup = replace(setup_in(tmp_path), policy_file="/etc/policy.yaml")
    first = Shell(setup)
    running = asyncio.create_task(first.run())
    await until_async(lambda: first.world.policy_row is not None, what="the first import")
    assert "policy file" not in first.world.problems
    running.cancel()
    await asyncio.wait([running])

    shell = Shell(replace(setup, policy=policies.parse(text), policy_document=text))
    running = asyncio.create_task(shell.run())
    await shell.opened()
    _, drift = shell.policy()
    assert drift.startswith("/etc/policy.yaml differs from the policy in force (revision 1 by ")
    assert shell.world.problems["policy file"] == drift
    assert drift in caplog.text
    assert shell.world.policy.classes["interactive"].running == 2
    # Other words for the same are no difference.
    await shell.ask(i.ApplyPolicy("admin:eve", f"# mine\n{text}", policies.parse(text)))
    assert shell.policy()[1] == ""
    assert "policy file" not in shell.world.problems
    running.cancel()
    await asyncio.wait([running])
