# SPDX-License-Identifier: BSD-3-Clause
"""World -> Plan: who is asked to leave, who is reprieved, who gets what they leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpubroker.core.model import Blocked, Notice, Reason, State, Terms, Why

from .worlds import PARKABLE, World, ask, node, noticed, on, placed

# --- the story ----------------------------------------------------------------------


def story() -> World:
    """Five notebooks that were started one after another on two nodes of four GPUs."""
    world = World().add(node("node1"), node("node2"))
    for name, gpus in (("nb1", 0.5), ("nb2", 2), ("nb3", 1), ("nb4", 3), ("nb5", 1)):
        world.session(name, ask(gpus))
        world.apply(world.plan())
        job = world.jobs[name]
        assert job.state is State.STARTING, name
        terms = Terms(grace=10.0, shield=0.0, park=PARKABLE)
        world.put(replace(job, state=State.RUNNING, until=None, terms=terms))
    return world


def trainer(world: World) -> World:
    """nb1 to nb4 are idle, nb1 for the longest; nb1 has 1 GiB, the others 2 GiB per GPU."""
    for age, (name, mib) in enumerate((("nb1", 1024), ("nb2", 4096), ("nb3", 2048), ("nb4", 6144))):
        running = world.jobs.pop(name)
        assert running.lease is not None
        world.idles(
            name,
            running.lease.placement,
            mib,
            idle_since=world.now - 100 + age,
            terms=running.terms,
            request=running.request,
        )
    world.waits("trainer", ask(3, nodes=2))
    return world


def test_notebooks_that_come_one_after_another_are_packed_best_fit() -> None:
    leases = {id_: job.lease for id_, job in story().jobs.items()}
    devices = {id_: [s.device for s in lease.placement] for id_, lease in leases.items() if lease}
    assert devices == {
        "nb1": ["node1/0"],
        "nb2": ["node1/1", "node1/2"],
        "nb3": ["node1/3"],
        "nb4": ["node2/0", "node2/1", "node2/2"],
        "nb5": ["node2/3"],
    }


def test_a_gang_of_two_times_three_gpus_asks_exactly_three_idle_notebooks_to_leave() -> None:
    world = trainer(story())
    plan = world.plan()
    deadline = world.now + 10
    assert plan.place == ()
    assert {id_: replace(notice, id="") for id_, notice in plan.notice} == dict.fromkeys(
        ("nb1", "nb2", "nb4"), Notice(Reason.IDLE, deadline, "trainer")
    )
    why = plan.why["trainer"]
    assert (why.code, why.position, why.until) == (Blocked.LEAVING, 1, deadline)
    assert sorted(why.waits_for) == ["nb1", "nb2", "nb4"]
    assert why.text == "waiting for 3 sessions to leave (nb1, nb2, nb4)"


def test_the_gang_waits_until_the_last_of_them_has_left_and_then_starts_whole() -> None:
    world = trainer(story())
    world.apply(world.plan())
    for name in ("nb4", "nb1"):
        world.remove(name)
        plan = world.plan()
        assert (plan.place, plan.notice, plan.reprieve) == ((), (), ())
    world.remove("nb2")
    assert placed(world.plan()) == {
        "trainer": ["node1/0", "node1/1", "node1/2", "node2/0", "node2/1", "node2/2"]
    }


def test_one_notice_has_one_name_and_another_notice_another() -> None:
    world = trainer(story())
    first = {id_: notice.id for id_, notice in world.plan().notice}
    assert len(set(first.values())) == 3
    assert first == {id_: notice.id for id_, notice in world.plan().notice}
    world.now += 60
    again = [notice.id for _, notice in world.plan().notice]
    assert not set(again) & set(first.values())


# --- notices ------------------------------------------------------------------------


def test_sessions_take_from_nobody_but_use_what_leaves() -> None:
    world = World().add(node("node1", 2))
    world.idles("idle", on("node1/0"))
    world.stops("old", on("node1/1"))
    world.session("a", ask(1))
    world.session("b", ask(1))
    plan = world.plan()
    assert (plan.notice, [id_ for id_, _ in plan.promise]) == ((), ["a"])
    assert plan.why["a"].waits_for == ("old",)
    assert plan.why["b"].code is Blocked.AHEAD


def test_all_victims_of_a_plan_share_the_longest_grace() -> None:
    world = World().add(node("node1", 2))
    for index, grace in enumerate((20.0, 70.0)):
        terms = Terms(grace=grace, park=PARKABLE)
        world.idles(f"s{index}", on(f"node1/{index}"), terms=terms)
    world.waits("x", ask(2))
    assert [notice.deadline for _, notice in world.plan().notice] == [world.now + 70] * 2


def test_a_replacement_does_not_leave_before_those_who_were_told_earlier() -> None:
    world = World().add(node("node1", 2))
    world.drains("told", on("node1/0"), "x", deadline=world.now + 500)
    world.idles("new", on("node1/1"))
    world.waits("x", ask(2))
    plan = world.plan()
    assert noticed(plan) == ["new"]
    assert plan.notice[0][1].deadline == world.now + 500
    assert plan.reprieve == ()


def test_a_victim_that_is_rescued_is_replaced_and_the_other_stays_noticed() -> None:
    world = World().add(node("node1", 1), node("node2", 1), node("node3", 1))
    for i, mib in ((1, 10), (2, 10), (3, 99)):
        world.idles(f"s{i}", on(f"node{i}/0"), mib)
    world.waits("x", ask(1, nodes=2))
    world.apply(world.plan())
    world.put(replace(world.jobs["s1"], state=State.RUNNING, notice=None))
    plan = world.plan()
    assert (noticed(plan), plan.reprieve) == (["s3"], ())


def test_when_the_plan_cannot_succeed_any_more_the_others_are_reprieved() -> None:
    world = World().add(node("node1", 1), node("node2", 1))
    for i in (1, 2):
        world.idles(f"s{i}", on(f"node{i}/0"))
    world.waits("x", ask(1, nodes=2))
    world.apply(world.plan())
    world.put(replace(world.jobs["s1"], state=State.RUNNING, notice=None))
    plan = world.plan()
    assert (plan.notice, plan.reprieve) == ((), ("s2",))
    assert plan.why["x"].code is Blocked.CAPACITY


@pytest.mark.parametrize("ending", ["gone", "held", "placed"])
def test_whoever_no_waiting_job_needs_is_reprieved(ending: str) -> None:
    world = World().add(node("node1", 2))
    world.idles("s", on("node1/0"))
    world.runs("busy", on("node1/1"))
    job = world.waits("x", ask(1))
    world.apply(world.plan())
    assert world.jobs["s"].state is State.DRAINING
    if ending == "gone":
        world.remove("x")
    elif ending == "held":
        world.put(replace(job, state=State.HELD, until=world.now + 9))
    else:
        world.remove("busy")
    plan = world.plan()
    assert plan.reprieve == ("s",)
    assert placed(plan) == ({"x": ["node1/1"]} if ending == "placed" else {})


@pytest.mark.parametrize("reason", [Reason.DRAIN, Reason.TIME, Reason.HOLDER])
def test_a_notice_of_another_kind_is_never_withdrawn_and_counts_as_leaving(reason: Reason) -> None:
    world = World().add(node("node1", 1))
    world.drains("s", on("node1/0"), "gone", reason=reason)
    assert world.plan().reprieve == ()
    world.waits("x", ask(1))
    plan = world.plan()
    assert (plan.reprieve, plan.notice) == ((), ())
    assert plan.why["x"].waits_for == ("s",)


def test_stopping_is_never_reprieved_and_its_gpus_are_promised() -> None:
    world = World().add(node("node1", 1))
    world.stops("s", on("node1/0"), "gone")
    assert world.plan().reprieve == ()
    world.waits("x", ask(1))
    plan = world.plan()
    assert plan.promise == (("x", on("node1/0")),)
    assert plan.why["x"].until == world.now + 30


def test_a_slow_victim_holds_up_nobody_else() -> None:
    world = World().add(node("node1", 1), node("node2", 1))
    world.stops("slow", on("node1/0"), "x")
    world.waits("x", ask(1))
    world.waits("y", ask(1))
    assert placed(world.plan()) == {"x": ["node2/0"]}
    assert world.plan().promise == (("y", on("node1/0")),)


def test_a_victim_that_is_quarantined_is_replaced() -> None:
    world = World().add(node("node1", 1), node("node2", 1))
    world.idles("a", on("node1/0"), 1)
    world.idles("b", on("node2/0"), 2)
    world.waits("x", ask(1))
    world.apply(world.plan())
    world.remove("a")
    world.quarantine(on("node1/0"))
    assert noticed(world.plan()) == ["b"]


def test_what_leaves_for_another_job_is_left_to_it_if_something_else_leaves_too() -> None:
    world = World().add(node("node1", 2), node("node2", 4))
    world.stops("mine", on("node1/0", "node1/1"), "behind")
    world.stops("else", on("node2/0", "node2/1", "node2/2", "node2/3"))
    world.waits("ahead", ask(2))
    world.waits("behind", ask(2, flavors=("h100",)))
    world.reserves("behind", on("node1/0", "node1/1"))
    promises = dict(world.plan().promise)
    assert promises["ahead"] == on("node2/0", "node2/1")
    assert promises["behind"] == on("node1/0", "node1/1")


def test_a_job_ahead_takes_what_leaves_for_another_before_anybody_new_is_asked() -> None:
    world = World().add(node("node1", 1), node("node2", 1))
    world.drains("told", on("node1/0"), "behind")
    world.idles("idle", on("node2/0"), 1)
    world.waits("ahead", ask(1))
    plan = world.plan()
    notice = replace(world.jobs["told"].notice, for_job="ahead")
    assert (plan.notice, plan.reprieve) == ((("told", notice),), ())
    assert plan.promise == (("ahead", on("node1/0")),)
    world.apply(plan)
    world.waits("behind", ask(1))
    plan = world.plan()
    assert (noticed(plan), plan.reprieve) == (["idle"], ())


def test_a_job_prefers_the_gpus_of_those_who_leave_for_it() -> None:
    world = World().add(node("node1", 1), node("node2", 1))
    world.drains("other", on("node1/0"), "behind")
    world.drains("own", on("node2/0"), "ahead")
    world.waits("ahead", ask(1))
    world.waits("behind", ask(1))
    plan = world.plan()
    assert dict(plan.promise) == {"ahead": on("node2/0"), "behind": on("node1/0")}
    assert (plan.notice, plan.reprieve) == ((), ())


def test_two_jobs_never_ask_the_same_session() -> None:
    world = World().add(node("node1", 2))
    world.idles("a", on("node1/0"), 1)
    world.idles("b", on("node1/1"), 2)
    for name in ("x", "y", "z"):
        world.waits(name, ask(1))
    plan = world.plan()
    assert {id_: notice.for_job for id_, notice in plan.notice} == {"a": "x", "b": "y"}
    assert plan.why["z"].code is Blocked.AHEAD


def test_what_a_large_victim_leaves_over_serves_the_next_job() -> None:
    world = World().add(node("node1", 2))
    world.idles("a", on("node1/0", "node1/1"))
    for name in ("x", "y"):
        world.waits(name, ask(1))
    plan = world.plan()
    assert noticed(plan) == ["a"]
    assert [id_ for id_, _ in plan.promise] == ["x", "y"]


def test_a_promise_stays_where_it_was_though_a_better_place_came_up() -> None:
    world = World().add(node("node1", 2), node("node2", 3))
    world.stops("old", on("node1/0", "node1/1"))
    world.stops("wide", on("node2/0", "node2/1", "node2/2"))
    world.waits("x", ask(2))
    world.reserves("x", on("node2/1", "node2/2"))
    assert world.plan().promise == (("x", on("node2/1", "node2/2")),)


# --- what others count on ---


def gang_behind_a_session() -> World:
    """Two people were asked to leave for a gang; one has left. A session is ahead in line."""
    world = World().add(node("node1", 1), node("node2", 1))
    for i in (1, 2):
        world.idles(f"s{i}", on(f"node{i}/0"))
    world.waits("gang", ask(1, nodes=2), user="eve")
    world.usage["default", "eve"] = 5.0
    world.apply(world.plan())
    world.remove("s1")
    world.stops("s2", on("node2/0"), "gang")
    world.session("ahead", ask(1), user="ana")
    return world


def test_a_session_ahead_in_line_does_not_get_what_people_left_for_a_gang() -> None:
    world = gang_behind_a_session()
    plan = world.plan()
    assert (plan.place, [id_ for id_, _ in plan.promise]) == ((), ["gang"])
    why = plan.why["ahead"]
    assert (why.code, why.position, why.waits_for) == (Blocked.AHEAD, 2, ("gang",))
    world.apply(plan)
    world.remove("s2")
    assert list(placed(world.plan())) == ["gang"]


def test_batch_uses_what_leaves_anyway_and_whoever_was_asked_may_stay() -> None:
    world = World().add(node("node1", 1))
    world.idles("asked", on("node1/0", milli=500))
    world.runs("other", on("node1/0", milli=500))
    world.waits("batch", ask(0.5), user="eve")
    world.usage["default", "eve"] = 5.0
    world.apply(world.plan())
    world.stops("other", on("node1/0", milli=500), reason=Reason.USER)
    world.session("ahead", ask(0.5), user="ana")
    plan = world.plan()
    assert ([id_ for id_, _ in plan.promise], plan.reprieve) == (["batch"], ("asked",))


@pytest.mark.parametrize("ending", ["barred", "gone", "held"])
def test_it_gets_it_at_once_when_the_gang_has_no_use_for_it(ending: str) -> None:
    world = gang_behind_a_session()
    gang = world.jobs["gang"]
    if ending == "barred":
        world.barred["gang"] = Why(Blocked.SERVER, "not now")
    elif ending == "gone":
        world.remove("gang")
    else:
        world.put(replace(gang, state=State.HELD, until=world.now + 9, reserved=None))
    assert placed(world.plan()) == {"ahead": ["node1/0"]}


def test_a_promise_is_kept_though_somebody_ahead_in_line_comes_later() -> None:
    world = World().add(node("node1", 1), node("node2", 1))
    world.stops("s", on("node1/0"))
    world.runs("busy", on("node2/0"))
    world.waits("behind", ask(1), user="eve")
    world.usage["default", "eve"] = 5.0
    world.apply(world.plan())
    world.waits("ahead", ask(1), user="ana")
    plan = world.plan()
    assert dict(plan.promise) == {"behind": on("node1/0")}
    found = dict(plan.reserve)["ahead"]  # after that one, which ends before the other
    assert (found.placement, found.promised) == (on("node1/0"), False)
    assert found.start == world.now + 30 + 3600


def test_a_job_starts_on_what_is_free_though_another_counts_on_who_leaves_for_it() -> None:
    """Of two halves one is free now: the first Job has it, the second that of ``own``."""
    world = World().add(node("node1", 1))
    world.drains("own", on("node1/0", milli=500), "first")
    world.waits("first", ask(0.5))
    world.waits("second", ask(0.5))
    for id_ in ("first", "second"):
        world.reserves(id_, on("node1/0", milli=500))
    plan = world.plan()
    assert placed(plan) == {"first": ["node1/0"]}
    assert [id_ for id_, _ in plan.promise] == ["second"]
    world.apply(plan)
    plan = world.plan()
    assert ({id_: notice.for_job for id_, notice in plan.notice}) == {"own": "second"}
    assert plan.reprieve == ()
