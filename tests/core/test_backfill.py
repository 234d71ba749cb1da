# SPDX-License-Identifier: BSD-3-Clause
"""World -> Plan: what is kept free for the first Job that lacks GPUs, and who may start before."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core.model import Blocked, Class, Kind, Queue, Reservation, State, Terms

from .random_worlds import random_world
from .worlds import PARKABLE, World, ask, node, noticed, on, placed, policy

HOUR = 3600.0


def two_nodes() -> World:
    """Four GPUs each; node1 is free in one hour, of node2 one half in two; a gang wants both."""
    world = World().add(node("node1"), node("node2"))
    world.runs("a", on(*(f"node1/{i}" for i in range(4))), expires=world.now + HOUR)
    world.runs("b", on("node2/0", "node2/1"), expires=world.now + 2 * HOUR)
    world.waits("gang", ask(4, nodes=2))
    return world


def test_the_first_that_lacks_gpus_reserves_named_nodes_and_a_time() -> None:
    world = two_nodes()
    plan = world.plan()
    (found,) = plan.reserve
    devices = on(*(f"node{n}/{i}" for n in (1, 2) for i in range(4)))
    assert found == ("gang", Reservation(devices, world.now + 2 * HOUR))
    assert plan.why["gang"].until == world.now + 2 * HOUR


def test_only_what_ends_before_its_start_may_use_what_is_kept_free() -> None:
    world = two_nodes()
    world.waits("long", ask(1, time_limit=2 * HOUR + 1))
    world.waits("short", ask(1, time_limit=2 * HOUR))
    plan = world.plan()
    assert placed(plan) == {"short": ["node2/2"]}
    why = plan.why["long"]
    assert (why.code, why.waits_for, why.until) == (Blocked.AHEAD, ("gang",), None)
    assert why.text == (
        "what is free is kept for 1 job (gang), to start in 2 h at most; "
        "with a time limit up to that it could start first"
    )
    world.remove("gang")
    assert sorted(placed(world.plan())) == ["long", "short"]


def test_what_is_not_reserved_is_free_for_any_time() -> None:
    world = two_nodes().add(node("node3", 1))
    world.waits("long", ask(1, time_limit=99 * HOUR))
    assert placed(world.plan()) == {"long": ["node3/0"]}


def test_what_the_reserved_job_leaves_over_is_free_for_any_time() -> None:
    world = World().add(node("node1", 1))
    world.runs("a", on("node1/0", milli=500), expires=world.now + HOUR)
    world.waits("first", ask(0.75))
    world.waits("half", ask(0.5, time_limit=9 * HOUR))
    world.waits("quarter", ask(0.25, time_limit=9 * HOUR))
    plan = world.plan()
    assert placed(plan) == {"quarter": ["node1/0"]}
    assert "first" in plan.why["half"].waits_for


def test_idle_sessions_are_not_asked_to_leave_for_what_would_delay_the_first() -> None:
    world = two_nodes()
    world.idles("idle", on("node2/2"), terms=Terms(grace=10.0, park=PARKABLE))
    world.runs("busy", on("node2/3"), expires=world.now + HOUR)
    world.waits("long", ask(1, time_limit=9 * HOUR))
    assert noticed(world.plan()) == []
    world.waits("long", ask(1, time_limit=HOUR))
    assert noticed(world.plan()) == ["idle"]


def test_one_reservation_for_each_flavor() -> None:
    world = World().add(node("node1", 1), node("node2", 1, flavor="a100"))
    world.runs("a", on("node1/0"), expires=world.now + 9)
    world.runs("b", on("node2/0"), expires=world.now + 5)
    world.waits("first", ask(1, flavors=("h100",)))
    world.waits("second", ask(1, flavors=("h100",)))
    world.waits("any", ask(1))
    world.waits("third", ask(1, flavors=("a100",)))
    starts = {id_: found.start for id_, found in world.plan().reserve}
    assert starts == {"first": world.now + 9, "third": world.now + 5}


def test_a_job_that_a_limit_bars_reserves_nothing() -> None:
    world = World().add(node("node1", 2))
    world.policy = policy(
        queues={"default": Queue("default", running_gpus=1), "vision": Queue("v")}
    )
    world.runs("a", on("node1/0"), expires=world.now + 9)
    world.waits("limited", ask(1))
    world.waits("long", ask(1, time_limit=99 * HOUR), queue="vision")
    plan = world.plan()
    assert (plan.reserve, placed(plan)) == ((), {"long": ["node1/1"]})


def test_what_is_left_of_a_limit_is_kept_for_the_first_as_well() -> None:
    world = World().add(node("node1", 2), node("node2", 1))
    world.policy = policy(queues={"default": Queue("default", running_gpus=3)})
    world.runs("a", on("node1/0"), expires=world.now + HOUR)
    world.waits("first", ask(2))
    world.waits("long", ask(1, flavors=("h100",), time_limit=2 * HOUR))
    world.waits("short", ask(1, time_limit=HOUR))
    plan = world.plan()
    assert list(placed(plan)) == ["short"]
    assert plan.why["long"].rules == ("queues.default.running_gpus",)


def test_a_reservation_stays_with_its_job_though_another_user_is_ahead_now() -> None:
    world = two_nodes()
    world.apply(world.plan())
    before = world.jobs["gang"].reserved
    world.usage["default", "gang"] = 9.0
    world.waits("other", ask(4, nodes=2), submitted=1.0)
    plan = world.plan()
    assert plan.reserve == (("gang", before),)
    assert [plan.why[id_].position for id_ in ("gang", "other")] == [1, 2]


def test_a_higher_class_overtakes_a_reservation() -> None:
    world = two_nodes()
    world.apply(world.plan())
    world.waits("urgent", ask(3, nodes=2, time_limit=99 * HOUR), class_name="urgent")
    world.waits("small", ask(2, time_limit=99 * HOUR), class_name="urgent")
    plan = world.plan()
    assert [id_ for id_, _ in plan.reserve] == ["urgent"]
    assert plan.why["small"].code is Blocked.AHEAD


def test_who_waits_longer_than_the_limit_of_ages_leads_the_class() -> None:
    world = World(policy=policy(max_age=100.0)).add(node("node1", 1))
    world.usage["default", "old"] = 9.0
    world.waits("old", ask(1), submitted=world.now - 99)
    world.waits("new", ask(1), submitted=world.now)
    plan = world.plan()
    assert (placed(plan), plan.next) == ({"new": ["node1/0"]}, world.now + 1)
    world.now += 1
    assert list(placed(world.plan())) == ["old"]


def test_a_stream_of_small_jobs_never_starves_a_gang() -> None:
    """Each small Job comes the moment that another one ends, for weeks; the gang wants all."""
    world = World(policy=policy(max_age=10**9)).add(*(node(f"node{i}", 2) for i in range(5)))
    number = 0
    for _ in range(10):
        number += 1
        world.waits(f"s{number:04}", ask(1, time_limit=HOUR * (1 + number % 5)), user="many")
    world.apply(world.plan())
    world.waits("gang", ask(2, nodes=5), user="many")
    promised = None
    for _ in range(60):
        ends = {id_: job.lease.expires for id_, job in world.jobs.items() if job.lease}
        world.now = min(ends.values())
        world.remove(*(id_ for id_, end in ends.items() if end <= world.now))
        for _ in range(3):
            number += 1
            small = ask(1, time_limit=HOUR * (1 + number % 5))
            world.waits(f"s{number:04}", small, user="many", submitted=world.now)
        world.apply(world.plan())
        gang = world.jobs["gang"]
        if gang.state is not State.QUEUED:
            return
        assert gang.reserved is not None
        assert promised is None or gang.reserved.start <= promised
        promised = gang.reserved.start
    raise AssertionError("the gang starves")


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_no_grant_moves_a_reservation_later(seed: int) -> None:
    """Nothing changes but time and what the scheduler grants itself: Jobs end at their limits."""
    world = random_world(seed, 25, 20, limits=True)
    for job in [*world.jobs.values()]:
        if job.state in (State.DRAINING, State.STOPPING):
            world.remove(job.id)
        elif job.class_name == "urgent":  # it may overtake others
            world.put(replace(job, class_name="batch"))
    world.barred.clear()
    limit = world.policy.queues["default"].running_gpus
    world.policy = replace(world.policy, queues={"default": Queue("default", limit)})
    seen: dict[str, float] = {}
    for _ in range(12):
        plan = world.plan()
        world.apply(plan)
        for id_, found in plan.reserve:
            if not found.promised:
                assert found.start <= seen.get(id_, found.start), id_
                seen[id_] = found.start
        gone = [id_ for id_, job in world.jobs.items() if job.state is State.DRAINING]
        world.remove(*gone)
        ends = [job.lease.expires for job in world.jobs.values() if job.lease]
        if not gone and ends:
            world.now = min(ends)
            over = [
                id_
                for id_, job in world.jobs.items()
                if job.lease and job.lease.expires <= world.now
            ]
            world.remove(*over)


def test_of_two_classes_the_higher_one_is_reserved_for_first() -> None:
    world = World().add(node("node1", 1))
    classes = {**world.policy.classes, "low": Class("low", (Kind.BATCH,), priority=-1)}
    world.policy = replace(world.policy, classes=classes)
    world.runs("a", on("node1/0"), expires=world.now + 9)
    world.waits("low", ask(1), class_name="low")
    world.waits("high", ask(1))
    assert [id_ for id_, _ in world.plan().reserve] == ["high"]
