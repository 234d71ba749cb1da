# SPDX-License-Identifier: BSD-3-Clause
"""Worlds left alone come to rest, and nobody takes from whom they had to leave for."""

from __future__ import annotations

import pytest

from jupyter_gpubroker.core.model import Kind, Reason
from jupyter_gpubroker.core.relations import relation
from jupyter_gpubroker.sim import alone
from jupyter_gpubroker.sim.__main__ import main

WORLDS = 20_000
PORTION = 1000
WALKS, CYCLES = 10, 250


@pytest.mark.parametrize("first", range(0, WORLDS, PORTION))
def test_small_worlds_left_alone_come_to_rest(first: int) -> None:
    assert list(alone.seeds(first, PORTION)) == []


def test_such_worlds_have_preemptions_by_class_and_by_level() -> None:
    worlds = [alone.rest(seed) for seed in range(300)]
    pairs = [(world, pair) for world in worlds for pair in world.taken]
    same = [
        world.jobs[taker].class_name == world.jobs[victim].class_name
        for world, (taker, victim) in pairs
    ]
    assert True in same
    assert False in same


def test_in_a_restless_world_nobody_takes_back_and_preemptions_are_bounded() -> None:
    preemptions = 0
    for seed in range(WALKS):
        world = alone.restless(seed, CYCLES)
        assert world.preemptions < CYCLES, "more than Jobs that came"
        preemptions += world.preemptions
    assert preemptions > WALKS


def test_the_check_notices_who_takes_back_and_who_may_not_take() -> None:
    world = next(w for w in map(alone.rest, range(300)) if w.taken)
    taker, victim = next(iter(world.taken))
    jobs = world.jobs
    assert jobs[taker].kind is Kind.BATCH
    assert relation(jobs[victim], jobs[taker], world.snapshot(), world.policy) is not (
        Reason.PREEMPTED
    )
    with pytest.raises(alone.Restless, match="may not take"):
        world.check(jobs[victim], jobs[taker], world.snapshot())


def test_the_command_plays_such_worlds_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "0", "--worlds", "20"]) == 0
    assert "20 worlds" in capsys.readouterr().out
