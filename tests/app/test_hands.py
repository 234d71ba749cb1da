# SPDX-License-Identifier: BSD-3-Clause
"""Whatever an engine or an account does, a duty ends and looking goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpubroker.app.hands import Hands
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.broker.world import World
from jupyter_gpubroker.core.model import Key, Node
from jupyter_gpubroker.engines import Poll
from jupyter_gpubroker.engines.local import LocalEngine
from jupyter_gpubroker.store import LaunchRow, StoreError
from tests.until import until_async

from .setups import setup_in

pytestmark = pytest.mark.asyncio

START = i.Duty(i.Act.START, "local", Key("b-1", 1))


class Odd(LocalEngine):
    """An engine with a bug."""

    async def nodes(self) -> list[Node]:
        raise ValueError("a bug in nodes")

    async def poll(self) -> Poll:
        raise ValueError("a bug in poll")


def hands(
    folder: Path, put: Callable[[i.Fact], None], row: Callable[[], LaunchRow | None]
) -> tuple[Hands, World]:
    setup = setup_in(folder, Odd)

    async def launch_row(_job: str) -> LaunchRow | None:
        return row()

    world = World.of(setup.store.open(), setup.policy, 1.0)
    return Hands(setup, put, launch_row), world


async def performed(folder: Path, row: Callable[[], LaunchRow | None]) -> i.DutyDone:
    facts: list[i.Fact] = []
    await hands(folder, facts.append, row)[0].perform(START)
    (done,) = facts
    assert isinstance(done, i.DutyDone)
    return done


async def test_a_job_whose_account_was_deleted_is_refused(tmp_path: Path) -> None:
    launch = LaunchRow(("true",), {}, "/", "", torchrun=False, account="no-such-account")
    done = await performed(tmp_path, lambda: launch)
    assert done.did is i.Did.REFUSED
    assert "no account 'no-such-account'" in done.text


@pytest.mark.parametrize("error", [StoreError("gone"), RuntimeError("a bug")])
async def test_a_duty_that_fails_in_any_way_is_over(tmp_path: Path, error: Exception) -> None:
    """Until a start is over, nothing stops the Job."""

    def row() -> LaunchRow | None:
        raise error

    done = await performed(tmp_path, row)
    assert done.did is i.Did.FAILED
    assert str(error) in done.text


async def test_looking_goes_on_after_a_bug(tmp_path: Path) -> None:
    facts: list[i.Fact] = []
    made, world = hands(tmp_path, facts.append, lambda: None)
    await made.look_at_nodes()
    made.watch(lambda: world)

    def told(word: str) -> int:
        texts = [fact.text for fact in facts if isinstance(fact, i.EngineDown)]
        return sum(word in text for text in texts)

    try:
        await until_async(lambda: told("bug in poll") > 1, what="a second look")
    finally:
        await made.close()
    assert told("bug in nodes") == 1
