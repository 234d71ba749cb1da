# SPDX-License-Identifier: BSD-3-Clause
"""Room that batch leaves to sessions: how much is enough, and who may not take it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpubroker.core.ledger import BOTH, Ledger
from jupyter_gpubroker.core.model import Blocked, Job, Kind, Lease, Mode, Request, State, nodes_of
from jupyter_gpubroker.core.reserve import ENOUGH, HALF_LIFE, SAFETY, Demand, room_for

from .worlds import World, ask, node, noticed, on, placed, policy

ONE, TWO, FOUR = Request(gpus=1), Request(gpus=2), Request(gpus=4)
AUTO = policy(reserve=None)


# --- who may take it ----------------------------------------------------------------------


def test_batch_leaves_room_and_a_session_takes_it() -> None:
    world = World(reserve=(TWO, ONE)).add(node("node1", 4), node("node2", 4))
    world.waits("first", ask(4))
    world.waits("second", ask(2))
    world.session("ana", ask(2))
    plan = world.plan()
    assert placed(plan).keys() == {"first", "ana"}
    why = plan.why["second"]
    assert why.code is Blocked.RESERVE
    assert why.text == (
        "what is free is room for sessions that may come (1 with 2 GPUs, 1 with 1 GPU)"
    )
    assert (why.rules, why.waits_for) == (("reserve",), ())
    world.reserve = ()
    assert placed(world.plan()).keys() == {"first", "ana", "second"}


def test_batch_takes_what_no_such_session_could_use() -> None:
    world = World(reserve=(FOUR,)).add(node("node1", 4), node("node2", 4))
    world.runs("bo", on("node1/0"))
    world.waits("big", ask(4))
    world.waits("small", ask(3))
    assert placed(world.plan()) == {"small": ["node1/1", "node1/2", "node1/3"]}


def test_where_there_is_not_room_enough_batch_waits_until_what_is_given_back_makes_some() -> None:
    world = World(reserve=(FOUR, TWO)).add(node("node1", 4), node("node2", 4))
    world.runs("bo", on("node1/0", "node1/1", "node1/2"), kind=Kind.BATCH)
    world.runs("cy", on("node2/0"), kind=Kind.BATCH)
    world.waits("x", ask(1))
    assert placed(world.plan()) == {}
    world.remove("cy")
    assert placed(world.plan()) == {}
    world.remove("bo")
    assert placed(world.plan()).keys() == {"x"}


def test_room_that_not_even_an_empty_cluster_has_holds_up_nobody() -> None:
    world = World(reserve=(FOUR, FOUR)).add(node("node1", 4), node("node2", 3))
    world.waits("x", ask(1))
    assert placed(world.plan()).keys() == {"x"}


def test_the_room_makes_nobody_leave() -> None:
    world = World(reserve=(TWO,)).add(node("node1", 4))
    world.idles("ana", on("node1/0", "node1/1"))
    world.waits("x", ask(2))
    plan = world.plan()
    assert (placed(plan), noticed(plan)) == ({}, [])
    assert plan.why["x"].code is Blocked.RESERVE


def test_a_promise_leaves_room_as_well() -> None:
    world = World(reserve=(TWO,)).add(node("node1", 4), node("node2", 2))
    world.runs("bo", on("node2/0", "node2/1"))
    world.stops("ana", on("node1/0", "node1/1"))
    world.waits("x", ask(3))
    assert world.plan().why["x"].code is not Blocked.LEAVING
    world.remove("bo")
    assert world.plan().why["x"].code is Blocked.LEAVING


def test_what_could_never_run_beside_the_room_is_not_held_up() -> None:
    world = World(reserve=(TWO,)).add(node("node1", 4), node("node2", 4))
    world.waits("x", ask(4, nodes=2))
    assert placed(world.plan()).keys() == {"x"}
    world.add(node("node3", 1))
    world.waits("y", ask(1))
    assert placed(world.plan()).keys() == {"x"}, "beside the room there would be one GPU for y"
    world.add(node("node4", 4))
    world.runs("bo", on("node4/0", "node4/1", "node4/2"), kind=Kind.BATCH)
    world.remove("y")
    assert placed(world.plan()) == {}, "when bo has gone there is room for both"


def test_the_place_that_is_kept_free_for_a_gang_leaves_room_as_well() -> None:
    world = World(reserve=(FOUR,)).add(node("node1", 4), node("node2", 4), node("node3", 4))
    world.runs("bo", on(*(f"node1/{k}" for k in range(4))), kind=Kind.BATCH, expires=world.now + 50)
    world.waits("gang", ask(4, nodes=2))
    world.waits("short", ask(4, time_limit=40.0))
    plan = world.plan()
    assert plan.why["gang"].code is Blocked.RESERVE
    (reserved,) = dict(plan.reserve).values()
    assert reserved.start == world.now + 50
    assert nodes_of(dict(plan.place)["short"]) == ("node2",), "that is no room for sessions"
    world.apply(plan)
    world.remove("bo", "short")
    assert placed(world.plan()).keys() == {"gang"}


def test_a_place_that_is_kept_free_for_a_job_is_no_room_for_sessions() -> None:
    world = World(reserve=(FOUR,)).add(node("node1", 4), node("node2", 4))
    world.runs("bo", on("node2/0"))
    world.waits("x", ask(4))
    assert placed(world.plan()) == {}
    world.reserves("x", on(*(f"node1/{k}" for k in range(4))), start=world.now)
    assert placed(world.plan()).keys() == {"x"}


@pytest.mark.parametrize(
    ("sessions", "gpus"),
    [
        ((FOUR, TWO, ONE), 3),
        ((TWO, TWO, TWO), 4),
        ((Request(gpu_milli=500),) * 20, 3 + 2.5),
        ((replace(ONE, flavors=("a100",)), TWO), 1 + 2),
    ],
)
def test_as_many_sessions_count_as_fit_together(sessions: tuple[Request, ...], gpus: float) -> None:
    world = World().add(node("node1", 4), node("node2", 4), node("node3", 2, flavor="a100"))
    world.runs("bo", on("node1/0", "node1/1", "node1/2", "node2/0"))
    world.runs("cy", on("node2/1", milli=250))
    snapshot = world.snapshot()
    ledger = Ledger(snapshot)
    for _ in range(2):  # nothing is taken
        assert room_for(ledger, sessions, BOTH, world.now) == 1000 * gpus


# --- how much is enough -------------------------------------------------------------------


def session(id_: str, request: Request, state: State = State.QUEUED) -> Job:
    return replace(World().session(id_, request), state=state)


def ended(gpus: int) -> tuple[Job, Job]:
    """A batch Job before and after its end."""
    placement = on(*(f"node1/{k}" for k in range(gpus)))
    runs = World().runs("b", placement, kind=Kind.BATCH)
    return runs, replace(runs, state=State.COMPLETED, lease=None)


@given(st.integers(0, 2**32), st.integers(1, 40))
def test_a_session_finds_gpus_where_the_depth_is_at_most_what_batch_leaves_free(
    seed: int, left_free: int
) -> None:
    draw, demand = Random(seed), Demand()
    free, running = left_free, dict[str, int]()
    for number in range(60):
        what = draw.choice(("comes", "comes", "leaves", "ends"))
        if what == "comes":
            gpus = draw.choice((1, 2, 4, 8))
            running[f"s{number}"] = gpus
            free -= gpus  # may be less than nothing: it waits
            demand.saw(None, session(f"s{number}", Request(gpus=gpus)), 0.0)
        elif what == "leaves" and running:
            id_ = draw.choice(sorted(running))
            gpus = running.pop(id_)
            free = min(left_free, free + gpus)
            before = session(id_, Request(gpus=gpus))
            demand.saw(before, replace(before, state=State.PARKED), 0.0)
        else:
            gpus = draw.choice((1, 8, 16))
            free = min(left_free, free + gpus)  # batch takes what is above
            demand.saw(*ended(gpus), 0.0)
        assert demand.depth == 1000 * (left_free - free)


def seen(*depths: int, demand: Demand | None = None, now: float = 0.0) -> Demand:
    """Sessions of one GPU that came when so many had."""
    demand = demand or Demand()
    for depth in depths:
        demand.depth = 1000 * (depth - 1)
        demand.saw(None, session("s", ONE), now)
    return demand


def enough(demand: Demand, gpus: int = 400, now: float = 0.0) -> int:
    return len(demand.sessions(AUTO, [node("node1", gpus)], now))


def test_auto_is_enough_for_99_of_100_sessions_of_the_last_days() -> None:
    demand = seen(*[3] * 985, *[7] * 10, *[20] * 5)
    assert ENOUGH == 0.99
    assert enough(demand) == 7 * SAFETY
    assert enough(seen(*[3] * 985, *[20] * 15)) == 20 * SAFETY
    later = 8 * HALF_LIFE
    seen(*[2] * 300, demand=demand, now=later)
    assert enough(demand, now=later) == 3 * SAFETY
    assert enough(demand, now=later + 20 * HALF_LIFE) == 0


def test_auto_is_the_most_of_a_few_sessions_until_they_are_two_days_old() -> None:
    demand = seen(1, 5)
    assert enough(demand) == enough(demand, now=1.9 * HALF_LIFE) == 5 * SAFETY
    assert enough(demand, now=2.1 * HALF_LIFE) == SAFETY
    assert enough(demand, now=3.1 * HALF_LIFE) == 0


def test_auto_is_nothing_where_nobody_came_and_on_few_gpus_and_at_most_a_quarter() -> None:
    assert enough(Demand()) == 0
    assert [enough(seen(9), gpus) for gpus in (7, 8, 19, 20, 400)] == [0, 2, 4, 5, 9 * SAFETY]


def test_the_sessions_are_like_those_that_came() -> None:
    demand = Demand()
    for request in (FOUR, ask(1), replace(ONE, time_limit=5.0), Request(gpu_milli=500)) * 5:
        demand.saw(None, session("s", request), 0.0)
    many = demand.sessions(AUTO, [node("node1", 400)], 0.0)
    # Twice 32.5 GPUs at most, rounded up: 41 sessions of 1.625 GPUs.
    assert [many.count(shape) for shape in (FOUR, ONE, Request(gpu_milli=500))] == [11, 21, 9]
    assert demand.sessions(policy(reserve=3), [node("node1", 1)], 0.0) == (FOUR, ONE, ONE)
    assert demand.sessions(policy(reserve=0), [node("node1", 99)], 0.0) == ()
    assert Demand().sessions(policy(reserve=2), [node("node1", 99)], 0.0) == (ONE, ONE)


def test_a_session_comes_once_however_often_it_is_tried_and_gives_back_what_it_had() -> None:
    demand = Demand()
    waits = session("s", TWO)
    lease = Lease("local", on("node1/0", "node1/1"), 1, 0.0, 9.0, Mode.HELD)
    starts = replace(waits, state=State.STARTING, lease=lease, attempt=1)
    demand.saw(None, waits, 0.0)
    demand.saw(waits, starts, 0.0)
    demand.saw(starts, waits, 0.0)
    assert (demand.depth, demand.depths) == (2000, {2: 1.0})
    demand.saw(waits, replace(waits, state=State.CANCELLED), 0.0)
    assert demand.depth == 0
