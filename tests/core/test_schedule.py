# SPDX-License-Identifier: BSD-3-Clause
"""World -> Plan: the line, limits, parked sessions, when to look again."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpubroker.core.line import order
from jupyter_gpubroker.core.model import (
    Blocked,
    Class,
    Kind,
    Plan,
    Queue,
    State,
    Why,
)

from .worlds import World, ask, kept, node, noticed, on, placed, policy

# --- the line -----------------------------------------------------------------------


def test_the_order_is_class_then_queue_then_user_then_age_then_submit_time_then_id() -> None:
    world = World()
    world.waits("h", ask(), submitted=1, user="used")
    for id_ in ("g", "f"):
        world.waits(id_, ask(), submitted=5, user="new")
    world.put(replace(world.jobs["h"], id="e", user="new", submitted=4.0, eligible=5.0))
    world.put(replace(world.jobs["h"], id="d", user="new", submitted=9.0, eligible=4.0))
    world.waits("c", ask(), submitted=99, user="used", class_name="urgent")
    world.waits("b", ask(), submitted=98, user="used", queue="vision")
    world.usage = {("default", "used"): 10.0, ("vision", "used"): 3.0}
    world.put(replace(world.jobs["h"], id="held", state=State.HELD, until=world.now + 9))
    world.runs("running", on("node1/0"))
    line = [job.id for job in order(world.snapshot(), world.policy)]
    assert line == ["c", "b", "d", "e", "f", "g", "h"]
    # With so many shares the first queue has used less than its part.
    queues = {**world.policy.queues, "default": Queue("default", shares=9)}
    line = [job.id for job in order(world.snapshot(), replace(world.policy, queues=queues))]
    assert line == ["c", "d", "e", "f", "g", "h", "b"]


def test_the_next_in_line_gets_the_last_gpu() -> None:
    world = World().add(node("node1", 1))
    world.waits("second", ask(1), submitted=20)
    world.waits("first", ask(1), submitted=10)
    plan = world.plan()
    assert placed(plan) == {"first": ["node1/0"]}
    assert plan.why["second"].position == 1


def test_who_was_too_far_behind_has_a_turn_as_soon_as_others_have_started() -> None:
    world = World().add(node("node1", 4))
    world.policy = policy(jobs_considered=2)
    for name in "abcde":
        world.waits(name, ask(1))
    for started in ("ab", "cd"):
        plan = world.plan()
        assert sorted(dict(plan.place)) == list(started)
        assert plan.next == world.now
        world.apply(plan)
    plan = world.plan()
    assert (plan.place, plan.next) == ((), world.jobs["e"].eligible + world.policy.max_age)


def test_a_promise_ahead_is_not_taken_by_somebody_behind() -> None:
    world = World().add(node("node1", 2))
    world.stops("old", on("node1/0"))
    world.waits("gang", ask(2))
    world.waits("small", ask(1))
    plan = world.plan()
    assert plan.place == ()
    assert plan.promise == (("gang", on("node1/0", "node1/1")),)
    assert plan.why["gang"].code is Blocked.LEAVING
    assert plan.why["small"].code is Blocked.AHEAD
    assert plan.why["small"].waits_for == ("gang",)


def test_a_job_that_cannot_start_holds_up_nobody_who_can() -> None:
    world = World().add(node("node1", 2))
    world.runs("busy", on("node1/0"))
    world.waits("gang", ask(2))
    world.waits("small", ask(1))
    assert placed(world.plan()) == {"small": ["node1/1"]}


def test_at_most_so_many_jobs_are_looked_at_and_the_others_are_told_so() -> None:
    world = World(policy=policy(jobs_considered=2)).add(node("node1", 4))
    for name in "abc":
        world.waits(name, ask(1))
    plan = world.plan()
    assert list(placed(plan)) == ["a", "b"]
    assert plan.why["c"].code is Blocked.AHEAD
    assert plan.why["c"].text == "2 jobs ahead of it are looked at first"


# --- who may not start now ----------------------------------------------------------


def test_a_session_is_placed_only_after_its_server_said_hello() -> None:
    world = World().add(node("node1"))
    job = world.session("s", ask(1), attach=True)
    assert world.plan().why["s"].code is Blocked.SERVER
    holder = world.runs("other", on("node1/0")).holder
    world.put(replace(job, holder=holder))
    assert placed(world.plan()) == {"s": ["node1/1"]}


def test_a_barred_job_waits_with_the_sentence_of_who_barred_it() -> None:
    world = World().add(node("node1"))
    world.session("s", ask(1))
    world.barred["s"] = Why(Blocked.LEAVING, "your earlier session still has its GPUs")
    plan = world.plan()
    assert plan.place == ()
    assert plan.why["s"].text == "your earlier session still has its GPUs"


def test_a_user_runs_at_most_so_many_jobs_of_a_class() -> None:
    two = Class("interactive", (Kind.SESSION,), running=2)
    world = World(policy=policy(classes={**policy().classes, "interactive": two}))
    world.add(node("node1"))
    world.runs("a", on("node1/0"), user="eve", expires=world.now + 50)
    for name in ("b", "c"):
        world.session(name, ask(1), user="eve")
    world.session("d", ask(1), user="bo")
    plan = world.plan()
    assert sorted(placed(plan)) == ["b", "d"]
    why = plan.why["c"]
    assert (why.code, why.waits_for, why.until) == (Blocked.LIMIT, ("a",), world.now + 50)
    assert why.text == "eve has 2 of at most 2 running in class interactive"


def test_a_promise_counts_against_a_limit_like_a_lease() -> None:
    one = Class("batch", (Kind.BATCH,), running=1)
    world = World(policy=policy(classes={"batch": one}))
    world.add(node("node1", 2), node("node2", 1))
    world.stops("old", on("node1/0"))
    world.waits("gang", ask(2), user="eve")
    world.waits("small", ask(1), user="eve")
    plan = world.plan()
    assert plan.place == ()
    assert plan.why["small"].code is Blocked.LIMIT
    assert plan.why["small"].waits_for == ("gang",)


def test_a_queue_runs_at_most_so_many_gpus() -> None:
    queues = {"default": Queue("default", running_gpus=3), "vision": Queue("vision")}
    world = World(policy=policy(queues=queues)).add(node("node1", 8))
    world.runs("a", on("node1/0", "node1/1"), expires=world.now + 50)
    world.runs("b", on("node1/2", milli=500), expires=world.now + 90)
    world.waits("half", ask(0.5))
    world.waits("more", ask(0.5))
    world.waits("five", ask(5))
    world.waits("other", ask(1), queue="vision")
    plan = world.plan()
    assert sorted(placed(plan)) == ["half", "other"]
    more = plan.why["more"]
    assert (more.code, more.waits_for, more.until) == (Blocked.LIMIT, ("a",), world.now + 50)
    assert more.text == "queue default has 3 of at most 3 GPUs in use"
    assert plan.why["five"].text.endswith("and this needs 5")
    assert plan.why["five"].waits_for == ()


def test_a_share_by_memory_counts_as_the_most_it_can_be() -> None:
    queues = {"default": Queue("default", running_gpus=1)}
    world = World(policy=policy(queues=queues))
    world.add(node("node1", 1, memory_mib=10_000), node("node2", 1, memory_mib=40_000))
    memory = replace(ask(0.5), gpu_milli=0, memory_mib=6_000)  # 0.6 of the small one
    world.waits("a", memory)
    world.waits("b", memory)
    assert len(world.plan().place) == 1
    assert world.plan().why["b"].code is Blocked.LIMIT


def test_a_held_job_is_told_that_it_is_held_and_has_no_place_in_the_line() -> None:
    world = World().add(node("node1"))
    job = world.waits("h", ask(1))
    world.put(replace(job, state=State.HELD, until=world.now + 9))
    plan = world.plan()
    assert plan.place == ()
    assert (plan.why["h"].code, plan.why["h"].position) == (Blocked.HELD, 0)


# --- parked sessions ----------------------------------------------------------------


def test_a_parked_session_waits_for_its_own_gpu_and_says_where() -> None:
    world = World().add(node("node1"), node("node2"))
    world.runs("guest", on("node2/1"), expires=world.now + 40)
    world.session("s", ask(1), kept=(kept("node2", "node2/1"),))
    plan = world.plan()
    why = plan.why["s"]
    assert (why.code, why.waits_for, why.until) == (Blocked.AFFINITY, ("guest",), world.now + 40)
    assert "node2" in why.text
    assert "guest (1)" in why.text
    world.remove("guest")
    assert placed(world.plan()) == {"s": ["node2/1"]}


def test_a_parked_session_that_waited_long_is_told_how_to_go_on_elsewhere() -> None:
    world = World().add(node("node1"), node("node2"))
    world.runs("guest", on("node2/1"))
    waits = world.session("s", ask(1), kept=(kept("node2", "node2/1"),), submitted=world.now)
    plan, told = world.plan(), waits.eligible + waits.terms.affinity_wait
    assert plan.next == told
    assert "elsewhere" not in plan.why["s"].text
    world.now = told
    plan = world.plan()
    assert plan.why["s"].text.endswith(
        "to go on elsewhere without it, discard what is kept and ask anew"
    )
    assert plan.next is None or plan.next > told


def test_a_parked_session_whose_node_is_away_says_so() -> None:
    world = World().add(node("node1"), node("node2", usable=False, note="drained by eve"))
    world.session("s", ask(1), kept=(kept("node2", "node2/1"),))
    why = world.plan().why["s"]
    assert why.code is Blocked.AFFINITY
    assert "node2 (drained by eve)" in why.text


# --- when to look again -------------------------------------------------------------


def test_the_plan_names_the_end_of_the_first_shield_of_an_idle_session() -> None:
    world = World().add(node("node1", 2))
    world.idles("a", on("node1/0"), shield_until=world.now + 30)
    world.idles("b", on("node1/1"), shield_until=world.now + 20)
    assert world.plan().next is None  # nobody waits
    world.waits("x", ask(1))
    plan = world.plan()
    assert (plan.notice, plan.next) == ((), world.now + 20)
    world.now += 20
    assert noticed(world.plan()) == ["b"]


def test_the_plan_names_when_a_node_may_be_tried_again() -> None:
    world = World().add(node("node1", 1))
    until = world.now + 33
    world.waits("x", ask(1), avoid=(("node1", until), ("node0", world.now - 1)))
    plan = world.plan()
    assert plan.next == until
    assert (plan.why["x"].code, plan.why["x"].until) == (Blocked.IMPOSSIBLE, until)
    world.now = until
    assert placed(world.plan()) == {"x": ["node1/0"]}


def test_an_empty_world_has_an_empty_plan() -> None:
    assert World().plan() == Plan()
