# SPDX-License-Identifier: BSD-3-Clause
"""Who may take from whom, what a level is, and that a policy with a circle is found."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isclose
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpubroker.core.model import (
    Class,
    Equals,
    Job,
    Kind,
    Levels,
    Order,
    Policy,
    Queue,
    Reason,
    State,
)
from jupyter_gpubroker.core.relations import (
    attained,
    circle,
    leaves_level,
    level,
    relation,
    remaining,
    unsaved,
    words,
    yields,
)
from jupyter_gpubroker.core.victims import Prey

from .random_worlds import worlds
from .worlds import NOW, World, ask, node, on, policy

BATCH, SESSION = Kind.BATCH, Kind.SESSION


def rules(order: Order = Order.ATTAINED, **changes: Any) -> Policy:
    """Levels at 100, 1000, 10000 … GPU-seconds."""
    queues = {
        "default": Queue("default", order=order, preempt_equals=Equals.LEVELS),
        "vision": Queue("vision", order=order),
    }
    return policy(queues=queues, levels=Levels(100.0, 10.0, 3.0), **changes)


def takes(world: World, taker: Job, victim: Job) -> Reason | None:
    return relation(taker, victim, world.snapshot(), world.policy)


# --- class --------------------------------------------------------------------------


def test_a_running_job_gives_way_to_a_higher_class_of_its_queue() -> None:
    world = World().add(node("node1"))
    low = world.runs("low", on("node1/0"), kind=BATCH)
    busy = world.runs("busy", on("node1/1"))
    urgent = world.waits("urgent", ask(), class_name="urgent")
    assert takes(world, urgent, low) is Reason.PREEMPTED
    assert takes(world, urgent, replace(low, queue="vision")) is None
    assert takes(world, urgent, replace(low, class_name="urgent")) is None
    assert takes(world, urgent, replace(low, shield_until=world.now + 1)) is None
    assert takes(world, urgent, replace(low, state=State.STARTING, until=world.now)) is None
    assert takes(world, urgent, busy) is None
    assert takes(world, replace(urgent, class_name="batch"), low) is None
    assert takes(world, replace(urgent, kind=SESSION), low) is None


def test_a_class_says_to_whom_it_yields_and_only_then_a_session_at_work_does() -> None:
    world = World().add(node("node1"))
    low = world.runs("low", on("node1/0"), kind=BATCH)
    busy = world.runs("busy", on("node1/1"))
    urgent = world.waits("urgent", ask(), class_name="urgent")
    named = {name: replace(item) for name, item in world.policy.classes.items()}
    named["interactive"] = replace(named["interactive"], yields_to=("urgent",))
    named["batch"] = replace(named["batch"], yields_to=())
    world.policy = policy(classes=named)
    assert takes(world, urgent, busy) is Reason.PREEMPTED
    assert takes(world, urgent, low) is None
    assert takes(world, replace(urgent, class_name="batch"), busy) is None
    named["urgent"] = replace(named["urgent"], yields_to=("batch",))
    high = replace(low, class_name="urgent")
    assert takes(world, replace(urgent, class_name="batch"), high) is Reason.PREEMPTED


def test_nobody_takes_from_whom_they_had_to_leave_for() -> None:
    world = World().add(node("node1"))
    low = world.runs("low", on("node1/0"), kind=BATCH)
    urgent = world.waits("urgent", ask(), class_name="urgent", left_for=("low",))
    assert takes(world, urgent, low) is None
    assert takes(world, urgent, replace(low, id="other")) is Reason.PREEMPTED


def test_a_class_that_is_no_more_takes_from_nobody_and_gives_to_nobody() -> None:
    world = World().add(node("node1"))
    low = world.runs("low", on("node1/0"), kind=BATCH)
    urgent = world.waits("urgent", ask(), class_name="urgent")
    assert takes(world, urgent, replace(low, class_name="gone")) is None
    assert takes(world, replace(urgent, class_name="gone"), low) is None


# --- levels -------------------------------------------------------------------------


@pytest.mark.parametrize(("had", "expected"), [(0, 0), (99, 0), (100, 1), (999, 1), (1e4, 3)])
def test_a_level_of_attained_is_the_power_that_it_has_had(had: float, expected: int) -> None:
    world = World(policy=rules())
    job = world.waits("x", ask(), gpu_seconds=float(had))
    assert level(job, world.now, world.policy) == expected


def test_what_a_running_job_has_counts_with_what_it_had_before() -> None:
    world = World(policy=rules()).add(node("node1"))
    job = world.runs(
        "x", on("node1/0", "node1/1"), kind=BATCH, granted=NOW - 100, gpu_seconds=700.0
    )
    assert attained(job, NOW) == 900.0
    assert (level(job, NOW, world.policy), leaves_level(job, NOW, world.policy)) == (1, NOW + 50)
    assert level(job, NOW + 50, world.policy) == 2
    assert attained(job, NOW - 1000) == 700.0  # a clock that went back


def test_a_level_of_shortest_is_the_power_of_two_that_is_left_by_the_limit() -> None:
    world = World(policy=rules(Order.SHORTEST)).add(node("node1"))
    waits = world.waits("w", ask(2, nodes=2, time_limit=300.0), served=44.0)
    assert remaining(waits, NOW, world.policy) == 4 * 256
    assert level(waits, NOW, world.policy) == 10
    runs = world.runs(
        "r", on("node1/0"), kind=BATCH, granted=NOW - 269, request=ask(1, time_limit=300.0)
    )
    assert remaining(runs, NOW, world.policy) == 31
    assert level(runs, NOW, world.policy) == 4
    assert leaves_level(runs, NOW, world.policy) == inf, "it has less and less left"
    over = replace(runs, served=1000.0)
    assert (remaining(over, NOW, world.policy), level(over, NOW, world.policy)) == (0, 0)
    default = replace(waits, request=ask(1, time_limit=None), served=0.0, extended=60.0)
    assert remaining(default, NOW, world.policy) == 3660
    shared = replace(waits, request=ask(0.5, time_limit=100.0), served=0.0)
    assert remaining(shared, NOW, world.policy) == 50


def test_equals_take_from_a_higher_level_where_their_queue_says_so() -> None:
    world = World(policy=rules()).add(node("node1"))
    old = world.runs("old", on("node1/0"), kind=BATCH, granted=NOW - 100)
    new = world.waits("new", ask(), gpu_seconds=99.0)
    assert takes(world, new, old) is Reason.PREEMPTED
    assert takes(world, replace(new, gpu_seconds=100.0), old) is None
    assert takes(world, new, replace(old, shield_until=NOW + 1)) is None
    assert takes(world, replace(new, kind=SESSION), old) is None
    assert takes(world, new, replace(old, kind=SESSION)) is None
    assert takes(world, replace(new, queue="vision"), replace(old, queue="vision")) is None
    assert takes(world, replace(new, left_for=("old",)), old) is None
    classes = {
        **world.policy.classes,
        "batch": replace(world.policy.classes["batch"], yields_to=()),
    }
    world.policy = rules(classes=classes)
    assert takes(world, new, old) is None, "its class yields to nobody"


jobs = st.builds(
    lambda gpus, had, age: (gpus, had, age),
    st.integers(1, 64),
    st.one_of(st.just(0.0), st.floats(0, 1e9)),
    st.floats(0, 1e7),
)


@given(jobs, st.floats(1, 1e6), st.floats(1.5, 1000), st.sampled_from([1e5, 1.7e9]))
def test_a_running_job_is_of_the_next_level_when_it_was_said_and_not_long_before(
    job: tuple[int, float, float], first: float, factor: float, now: float
) -> None:
    gpus, had, age = job
    world = World(policy=replace(rules(), levels=Levels(first, factor)))
    world.add(node("node1", 64))
    where = on(*(f"node1/{n}" for n in range(gpus)))
    runs = world.runs("x", where, kind=BATCH, granted=now - age, gpu_seconds=had, expires=1e18)
    before = level(runs, now, world.policy)
    at = leaves_level(runs, now, world.policy)
    assert at > now
    assert level(runs, at, world.policy) == before + 1
    early = now + (at - now) * 0.99 - 1e-3
    assert early <= now or level(runs, early, world.policy) == before


@given(st.sampled_from(list(Order)), st.floats(0, 1e9), st.floats(0, 1e9))
def test_the_level_of_a_job_that_waits_stays_as_it_is(order: Order, had: float, dt: float) -> None:
    world = World(policy=rules(order))
    job = world.waits("x", ask(2, time_limit=9e4), gpu_seconds=had, served=had / 1e5)
    assert level(job, NOW, world.policy) == level(job, NOW + dt, world.policy)


# --- work that is not saved ---------------------------------------------------------


def test_unsaved_is_what_was_done_since_the_program_saved_and_nothing_if_it_never_tells() -> None:
    world = World().add(node("node1"))
    silent = world.runs("x", on("node1/0", "node1/1"), kind=BATCH, granted=NOW - 100)
    assert unsaved(silent, NOW) == 0
    assert unsaved(replace(silent, saved_at=NOW - 30), NOW) == 60
    assert unsaved(replace(silent, saved_at=NOW - 300), NOW) == 200, "in an earlier lease"
    assert isclose(unsaved(replace(silent, saved_at=NOW), NOW), 0)


# --- what the scheduler uses --------------------------------------------------------


@given(worlds())
def test_the_victims_that_the_scheduler_finds_are_those_of_the_relations(world: World) -> None:
    snapshot = world.snapshot()
    prey = Prey(snapshot, world.policy)
    equals: dict[object, list[str]] = {}
    for taker in world.jobs.values():
        if taker.state is not State.QUEUED:
            continue
        expected = {
            victim.id: reason
            for victim in world.jobs.values()
            if (reason := relation(taker, victim, snapshot, world.policy)) is not None
        }
        found = prey.victims(taker)
        assert {victim.job.id: victim.reason for victim in found} == expected
        assert equals.setdefault(prey.hunter(taker), sorted(expected)) == sorted(expected)


# --- circles ------------------------------------------------------------------------


def classes(**said: tuple[int, tuple[str, ...] | None]) -> dict[str, Class]:
    return {
        name: Class(name, (BATCH,), priority=priority, yields_to=to)
        for name, (priority, to) in said.items()
    }


def test_priorities_make_no_circle() -> None:
    assert circle(policy().classes) == ()
    assert circle(classes(a=(0, None), b=(1, None), c=(2, None), d=(2, None))) == ()
    assert circle(classes(a=(5, ("b",)), b=(1, ()))) == ()


def test_a_circle_is_found_and_told() -> None:
    around = circle(classes(a=(0, None), b=(1, ("a",)), c=(0, ())))
    assert sorted(around) == [(BATCH, "a"), (BATCH, "b")]
    assert words(((BATCH, "a"), (BATCH, "b"))) == (
        "batch of a could take from batch of b, and batch of b from batch of a"
    )
    assert circle(classes(a=(0, ("a",)))) == ((BATCH, "a"),)
    assert words(((BATCH, "a"),)) == "batch of a could take from batch of a"
    sessions = {"s": Class("s", (SESSION,), priority=9, yields_to=("b",)), **classes(b=(0, ("s",)))}
    assert circle(sessions) == (), "sessions take from nobody"


named = st.dictionaries(
    st.sampled_from("abcdef"),
    st.tuples(
        st.integers(-1, 1),
        st.one_of(st.none(), st.lists(st.sampled_from("abcdef"), max_size=2).map(tuple)),
    ),
)


@given(named)
def test_a_circle_is_one_and_is_found_wherever_there_is_one(
    said: dict[str, tuple[int, tuple[str, ...] | None]],
) -> None:
    some = classes(**said)
    around = circle(some)
    for (_, over), (_, under) in zip(around, (*around[1:], *around[:1]), strict=True):
        assert yields(some[under], BATCH, some[over])
    left = dict(some)
    while True:  # take away who takes from nobody who is left
        free = [a for a in left if not any(yields(b, BATCH, left[a]) for b in left.values())]
        if not free:
            break
        for name in free:
            del left[name]
    assert bool(around) == bool(left)
