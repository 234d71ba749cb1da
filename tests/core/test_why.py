# SPDX-License-Identifier: BSD-3-Clause
"""Why a Job waits: one true sentence, and who would have to go."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpubroker.core.model import Blocked, Kind, Why
from jupyter_gpubroker.core.why import EXPLAINED, jobs, people

from .worlds import World, ask, kept, node, on


def why(world: World, id_: str = "x") -> Why:
    return world.plan().why[id_]


def test_capacity_says_how_much_is_free_and_who_has_the_rest() -> None:
    world = World().add(node("node1"), node("node2"))
    world.runs("ana", on("node1/0", "node1/1", "node1/2"), expires=world.now + 70)
    world.runs("bo", on("node1/3", milli=500))
    world.runs("cy", on("node2/0", "node2/1", "node2/2"), expires=world.now + 60)
    world.runs("di", on("node2/3", milli=900))
    world.waits("x", ask(3, nodes=2))
    reason = why(world)
    assert reason.code is Blocked.CAPACITY
    assert reason.text == (
        "needs 2 × 3 GPUs; 0.6 of 8 GPUs are free, held by ana (3), cy (3), di (0.9) and 1 more"
    )
    assert (reason.waits_for, reason.until) == (("cy", "ana"), world.now + 70)


def test_fragmented_says_that_there_is_enough_but_not_together() -> None:
    world = World().add(node("node1", 2), node("node2", 2))
    world.runs("ana", on("node1/0"), expires=world.now + 9)
    world.runs("bo", on("node2/0"), expires=world.now + 8)
    world.waits("x", ask(2))
    reason = why(world)
    assert reason.code is Blocked.FRAGMENTED
    assert reason.text == (
        "needs 2 GPUs; 2 of 4 GPUs are free, but not together, held by ana (1), bo (1)"
    )
    assert (reason.waits_for, reason.until) == (("bo",), world.now + 8)


def test_missing_cpus_are_not_called_missing_gpus() -> None:
    world = World().add(node("node1", 4, cpu_milli=8000))
    world.runs("ana", on("node1/0"), request=ask(1, cpu_milli=8000))
    world.waits("x", ask(1, cpu_milli=1000))
    reason = why(world)
    assert reason.code is Blocked.FRAGMENTED
    assert reason.text == "needs 1 GPU; 3 of 4 GPUs are free, but not the CPU or memory beside them"
    assert reason.waits_for == ("ana",)


def test_only_gpus_that_would_serve_are_counted() -> None:
    world = World().add(node("node1", 2), node("node2", 4, flavor="a100"))
    world.runs("ana", on("node1/0", "node1/1"))
    world.waits("x", ask(1, flavors=("h100",)))
    assert why(world).text == "needs 1 GPU (h100); 0 of 2 GPUs are free, held by ana (2)"


def test_until_is_told_only_if_nobody_ahead_would_take_the_room() -> None:
    world = World().add(node("node1", 2))
    world.runs("ana", on("node1/0", "node1/1"), expires=world.now + 9)
    world.waits("first", ask(2))
    world.waits("x", ask(1))
    plan = world.plan()
    assert plan.why["first"].until == world.now + 9
    assert (plan.why["x"].waits_for, plan.why["x"].until) == (("ana", "first"), None)
    assert plan.why["x"].text.endswith("; 1 job ahead of it (first) could start first")
    assert [plan.why[id_].position for id_ in ("first", "x")] == [1, 2]


def test_jobs_ahead_that_need_something_else_are_not_in_the_way() -> None:
    world = World().add(node("node1", 1), node("node2", 1, flavor="a100"))
    world.runs("ana", on("node1/0"), expires=world.now + 9)
    world.runs("bo", on("node2/0"), expires=world.now + 8)
    world.waits("first", ask(1, flavors=("a100",)))
    world.waits("x", ask(1, flavors=("h100",)))
    assert (why(world).waits_for, why(world).until) == (("ana",), world.now + 9)


def test_a_job_that_was_just_placed_is_one_of_those_it_waits_for() -> None:
    world = World().add(node("node1", 2))
    world.waits("first", ask(2, time_limit=500.0))
    world.waits("x", ask(2))
    assert (why(world).waits_for, why(world).until) == (("first",), world.now + 500)
    assert "held by first (2)" in why(world).text


def test_impossible_names_the_nodes_that_are_away() -> None:
    world = World().add(node("node1", 2), node("node2", 4, usable=False, note="drained by eve"))
    world.waits("x", ask(4))
    reason = why(world)
    assert (reason.code, reason.waits_for, reason.until) == (Blocked.IMPOSSIBLE, (), None)
    assert reason.text == (
        "no node can take 4 GPUs at present; not usable now: node2 (drained by eve)"
    )
    world.add(node("node2", 4))
    assert [id_ for id_, _ in world.plan().place] == ["x"]


def test_impossible_names_what_is_held_back_without_proof() -> None:
    world = World().add(node("node1", 1))
    world.quarantine(on("node1/0"))
    world.waits("x", ask(1))
    assert why(world).text == (
        "no node can take 1 GPU at present; "
        "held back until proven free: the GPUs of 1 ended job on node1"
    )
    world.quarantined.clear()
    assert [id_ for id_, _ in world.plan().place] == ["x"]


def test_a_node_that_refused_a_start_is_named() -> None:
    world = World().add(node("node1", 1), node("node2", 1))
    world.runs("ana", on("node2/0"), expires=world.now + 10)
    world.waits("x", ask(1), avoid=(("node1", world.now + 300),))
    assert (why(world).code, why(world).waits_for) == (Blocked.CAPACITY, ("ana",))
    world.waits("x", ask(1, nodes=2), avoid=(("node1", world.now + 300),))
    reason = why(world)
    assert reason.text == "node1 did not start it and is left alone for a while"
    assert (reason.code, reason.until) == (Blocked.IMPOSSIBLE, world.now + 300)


def test_people_far_behind_get_a_short_answer() -> None:
    world = World().add(node("node1", 1))
    world.runs("ana", on("node1/0"))
    for index in range(EXPLAINED + 1):
        world.waits(f"w{index:02}", ask(1))
    plan = world.plan()
    assert len(plan.why) == EXPLAINED + 1
    assert len(plan.why[f"w{EXPLAINED - 1:02}"].waits_for) == EXPLAINED
    last = plan.why[f"w{EXPLAINED:02}"]
    assert (last.code, last.position) == (Blocked.CAPACITY, EXPLAINED + 1)
    assert last.text == f"{EXPLAINED} jobs ahead of it wait for GPUs as well"


def test_waiting_for_people_counts_sessions_and_jobs_and_names_at_most_three() -> None:
    world = World().add(node("node1", 8))
    some = [world.runs(name, on(f"node1/{i}")) for i, name in enumerate("abcde")]
    batch = world.runs("z", on("node1/7"), kind=Kind.BATCH, user="a")
    assert (jobs(some), people(some)) == ("5 sessions", "a, b, c and 2 more")
    assert (jobs([batch]), jobs([*some[:1], batch])) == ("1 job", "1 session and 1 job")
    assert people([some[0], batch, some[1]]) == "a, b"


# --- what it names is what has to change --------------------------------------------


def idle_sessions(world: World) -> None:
    world.idles("ana", on("node1/0", milli=500))
    world.idles("bo", on("node1/1"))
    world.idles("cy", on("node2/0", "node2/1"))
    world.waits("x", ask(2, nodes=2))


def busy_sessions(world: World) -> None:
    world.runs("ana", on("node1/0", milli=500), expires=world.now + 5)
    world.runs("bo", on("node1/1"), expires=world.now + 4)
    world.runs("cy", on("node2/0", "node2/1"), expires=world.now + 3)
    world.waits("x", ask(2))


def promised_ahead(world: World) -> None:
    world.stops("ana", on("node1/0"))
    world.runs("bo", on("node2/0", "node2/1"))
    world.waits("first", ask(2))
    world.waits("x", ask(1))


def blocked_ahead(world: World) -> None:
    world.runs("ana", on("node1/0", "node1/1"), expires=world.now + 5)
    world.runs("bo", on("node2/0", "node2/1"), expires=world.now + 9)
    world.waits("wide", ask(2, nodes=2))
    world.waits("first", ask(2))
    world.waits("x", ask(1))


def parked(world: World) -> None:
    world.runs("ana", on("node1/1", milli=500))
    world.runs("bo", on("node1/0"))
    world.session("x", ask(1), kept=(kept("node1", "node1/1"),))


def split_shares(world: World) -> None:
    world.runs("ana", on("node1/0", milli=500), expires=world.now + 5)
    world.runs("bo", on("node1/1", milli=600), expires=world.now + 4)
    world.runs("cy", on("node2/0", "node2/1"), expires=world.now + 30)
    world.waits("x", ask(0.6))


@pytest.mark.parametrize(
    "build",
    [idle_sessions, busy_sessions, promised_ahead, blocked_ahead, parked, split_shares],
)
def test_when_exactly_those_are_gone_it_starts_and_not_before(
    build: Callable[[World], None],
) -> None:
    world = World().add(node("node1", 2), node("node2", 2))
    build(world)
    named = why(world).waits_for
    assert named
    for spared in named:
        partly = World().add(node("node1", 2), node("node2", 2))
        build(partly)
        partly.remove(*(id_ for id_ in named if id_ != spared))
        assert "x" not in dict(partly.plan().place), spared
    world.remove(*named)
    assert "x" in dict(world.plan().place)
