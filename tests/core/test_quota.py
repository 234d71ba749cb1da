# SPDX-License-Identifier: BSD-3-Clause
"""Decay of usage, and ends of Leases. Limits are tested where they bite: test_schedule."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpubroker.core.model import State
from jupyter_gpubroker.core.quota import decayed, ends, latest

from .worlds import World, ask, node, on

WEEK = 7 * 86400.0


def test_usage_halves_in_every_half_life() -> None:
    assert decayed(1000.0, WEEK, WEEK) == 500.0
    assert decayed(1000.0, 3 * WEEK, WEEK) == 125.0
    assert decayed(1000.0, 0.0, WEEK) == 1000.0
    assert decayed(1.0, 300.0, WEEK) == pytest.approx(0.9996562361, abs=1e-9)


def test_a_clock_that_went_back_decays_nothing() -> None:
    assert decayed(1000.0, -5.0, WEEK) == 1000.0


@given(st.floats(0, 1e12), st.floats(0, 1e7), st.floats(0, 1e7))
def test_decay_in_two_steps_is_decay_in_one(value: float, first: float, second: float) -> None:
    once = decayed(value, first + second, WEEK)
    assert decayed(decayed(value, first, WEEK), second, WEEK) == pytest.approx(once)


def test_a_lease_ends_at_its_limit_or_at_the_notice_before_it() -> None:
    world = World().add(node("node1"))
    running = world.runs("a", on("node1/0"), expires=world.now + 100)
    draining = world.drains("b", on("node1/1"), "x", deadline=world.now + 30)
    waiting = world.waits("c", ask(1))
    starting = replace(running, state=State.STARTING, until=world.now + 5)
    assert [ends(job) for job in (running, draining, starting, waiting)] == [
        world.now + 100,
        world.now + 30,
        world.now + 100,
        None,
    ]
    assert latest((running, draining)) == world.now + 100
    assert latest((running, waiting)) is None
    assert latest(()) is None
