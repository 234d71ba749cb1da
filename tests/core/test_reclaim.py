# SPDX-License-Identifier: BSD-3-Clause
"""A queue takes back what it owns and others borrowed, and never more."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpubroker.core.cohorts import ANY
from jupyter_gpubroker.core.model import (
    GPU_MILLI,
    Cohort,
    Kind,
    Queue,
    Quota,
    Reason,
    State,
    Terms,
)
from jupyter_gpubroker.core.reclaim import reclaims

from .worlds import PARKABLE, World, ask, node, noticed, on, placed, policy


def lent(vision: int = 4, text: int = 4) -> World:
    """Eight GPUs; *text* has all of them, one Job each, ``t7`` granted last."""
    queues = {
        name: Queue(name, cohort="lab", quota={ANY: Quota(owned * GPU_MILLI)})
        for name, owned in (("vision", vision), ("text", text))
    }
    queues["default"] = Queue("default")
    world = World(policy=policy(queues=queues, cohorts={"lab": Cohort("lab")}))
    world.add(node("n", 8))
    for number in range(8):
        granted = world.now - 900 + number
        more = {"granted": granted, "queue": "text", "kind": Kind.BATCH}
        world.put(replace(world.runs(f"t{number}", on(f"n/{number}"), **more), queue="text"))
    return world


def test_the_newest_grants_beyond_what_others_own_give_way() -> None:
    world = lent()
    world.waits("v", ask(2), queue="vision")
    plan = world.plan()
    assert noticed(plan) == ["t6", "t7"]
    assert {notice.reason for _, notice in plan.notice} == {Reason.PREEMPTED}
    assert {notice.for_job for _, notice in plan.notice} == {"v"}


def test_nothing_that_others_own_is_ever_taken() -> None:
    world = lent()
    for number in range(5):
        world.waits(f"v{number}", ask(1), queue="vision")
    assert noticed(world.plan()) == ["t4", "t5", "t6", "t7"]
    world.waits("vision-in-text", ask(1), queue="text", class_name="batch")
    assert "t3" not in noticed(world.plan())


def test_who_would_borrow_takes_nothing_back() -> None:
    world = lent()
    world.waits("v", ask(5), queue="vision")
    assert noticed(world.plan()) == []
    world = lent(vision=0, text=8)
    world.waits("v", ask(1), queue="vision")
    assert noticed(world.plan()) == []


def test_what_is_free_is_used_before_anybody_gives_way() -> None:
    world = lent()
    world.remove("t0")
    world.waits("v", ask(1), queue="vision")
    plan = world.plan()
    assert (placed(plan), noticed(plan)) == ({"v": ["n/0"]}, [])


def test_a_session_at_work_gives_way_as_well_and_is_parked_in_its_own_time() -> None:
    world = lent()
    job = world.jobs.pop("t7")
    assert job.lease is not None
    terms = Terms(grace=40.0, park=PARKABLE)
    session = world.runs("s", on("n/7"), granted=world.now - 1, terms=terms)
    world.put(replace(session, queue="text"))
    world.waits("v", ask(1), queue="vision")
    plan = world.plan()
    assert noticed(plan) == ["s"]
    world.apply(plan)
    assert world.jobs["s"].state is State.DRAINING
    again = world.plan()
    assert (again.notice, again.reprieve) == ((), ())
    world.remove("v")
    assert world.plan().reprieve == ("s",)


def test_who_has_just_started_is_left_alone_until_its_shield_is_over() -> None:
    world = lent(vision=1, text=7)
    world.put(replace(world.jobs["t7"], shield_until=world.now + 30))
    world.waits("v", ask(1), queue="vision")
    plan = world.plan()
    assert (noticed(plan), plan.next) == ([], world.now + 30)
    world.now += 30
    assert noticed(world.plan()) == ["t7"]


def test_a_session_takes_nothing_back() -> None:
    world = lent()
    world.session("v", ask(1), queue="vision")
    assert noticed(world.plan()) == []


def test_a_higher_class_does_not_make_its_queue_borrow_more() -> None:
    world = lent(vision=2, text=6)
    for number in range(5):
        world.remove(f"t{number}")
    for number in range(2):
        low = world.runs(f"v{number}", on(f"n/{number}"), kind=Kind.BATCH)
        world.put(replace(low, queue="vision"))
    world.runs("other", on("n/2", "n/3", "n/4"))
    world.waits("urgent", ask(3), queue="vision", class_name="urgent")
    assert noticed(world.plan()) == []
    world.waits("urgent", ask(2), queue="vision", class_name="urgent")
    assert noticed(world.plan()) == ["v0", "v1"]


def test_the_relation_alone_says_the_same() -> None:
    world = lent()
    taker = world.waits("v", ask(2), queue="vision")
    assert [
        id_
        for id_, job in world.jobs.items()
        if id_ != "v" and reclaims(taker, job, world.snapshot(), world.policy)
    ] == ["t4", "t5", "t6", "t7"]
