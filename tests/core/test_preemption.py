# SPDX-License-Identifier: BSD-3-Clause
"""Who is asked to leave: those whose loss is least, and nobody too many."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core.events import Exited
from jupyter_gpubroker.core.ledger import Ledger
from jupyter_gpubroker.core.lifecycle import advance
from jupyter_gpubroker.core.model import (
    Class,
    Equals,
    Job,
    Kind,
    Levels,
    Order,
    Queue,
    Reason,
    Request,
    Rung,
    StageName,
    State,
    Terms,
)
from jupyter_gpubroker.core.parked import rung
from jupyter_gpubroker.core.placement import Packing
from jupyter_gpubroker.core.preemption import cost, make_way
from jupyter_gpubroker.core.relations import relation
from jupyter_gpubroker.core.victims import Prey, Told, Victim, recallable

from .random_worlds import worlds
from .worlds import World, ask, node, noticed, on, placed, policy

PARK = Terms(park=((StageName.PARK, 60.0),))
SAVE = Terms(park=((StageName.SAVE, 60.0), (StageName.RESTART, 60.0)))
NONE = Terms()


def prey(world: World) -> Prey:
    """From whom Jobs of the world may take."""
    return Prey(world.snapshot(), world.policy)


def asked(world: World, job: Job, considered: int = 64) -> list[str] | None:
    """Who has to leave so that the Job can start."""
    snapshot = world.snapshot()
    packing = Packing.of(snapshot, world.policy)
    candidates = Prey(snapshot, world.policy).victims(job)
    way = make_way(Ledger(snapshot), job, candidates, packing, considered)
    return None if way is None else sorted(victim.job.id for victim in way.victims)


def test_batch_may_take_from_an_idle_session_and_from_nobody_else() -> None:
    world = World().add(node("node1"))
    batch, session = world.waits("b", ask(1)), world.session("s", ask(1))
    idle = world.idles("idle", on("node1/0"))
    busy = world.runs("busy", on("node1/1"))
    job = world.runs("job", on("node1/2"), kind=Kind.BATCH)
    shielded = world.idles("shielded", on("node1/3"), shield_until=world.now + 1)
    snapshot = world.snapshot()
    assert relation(batch, idle, snapshot, world.policy) is Reason.IDLE
    for victim in (busy, job, shielded):
        assert relation(batch, victim, snapshot, world.policy) is None
    assert relation(session, idle, snapshot, world.policy) is None
    assert (
        relation(batch, replace(idle, shield_until=world.now), snapshot, world.policy)
        is Reason.IDLE
    )


def test_an_idle_session_that_leaves_already_is_not_taken_again() -> None:
    world = World().add(node("node1"))
    taker = world.waits("b", ask(1))
    idle = world.idles("s", on("node1/0"))
    assert [victim.job for victim in prey(world).victims(taker)] == [idle]
    leaving = world.drains("s", on("node1/0"), for_job="other")
    assert relation(taker, leaving, world.snapshot(), world.policy) is None
    assert prey(world).victims(taker) == ()
    (known,) = prey(world).victims(taker, [leaving])
    assert (known.job, known.told) == (leaving, Told.FOR_ANOTHER)


@pytest.mark.parametrize(
    ("reason", "for_job", "expected"),
    [
        (Reason.IDLE, "b", True),
        (Reason.PREEMPTED, "b", True),
        (Reason.IDLE, None, False),
        (Reason.DRAIN, "b", False),
        (Reason.TIME, "b", False),
        (Reason.HOLDER, "b", False),
    ],
)
def test_only_notices_for_another_job_can_be_taken_back(
    reason: Reason, for_job: str | None, expected: bool
) -> None:
    world = World().add(node("node1"))
    assert recallable(world.drains("a", on("node1/0"), for_job, reason=reason)) is expected
    assert not recallable(world.stops("s", on("node1/1"), for_job, reason=reason))


def test_the_rung_that_would_apply_is_the_first_stage_of_the_ladder() -> None:
    world = World().add(node("node1"))
    job = world.runs("a", on("node1/0"))
    expected = {PARK: Rung.GPU_STATE, SAVE: Rung.VARIABLES, NONE: Rung.SERVER}
    for terms, kept in expected.items():
        assert rung(replace(job, terms=terms)) is kept
    restart = Terms(park=((StageName.RESTART, 60.0),))
    assert rung(replace(job, terms=restart)) is Rung.SERVER


def test_regret_is_loss_then_bytes_then_idle_time_then_newness_then_id() -> None:
    world = World().add(node("node1", 8))
    world.idles("f", on("node1/0"), 10, terms=NONE, idle_since=1)
    world.idles("e", on("node1/1"), 10, terms=SAVE, idle_since=1)
    world.idles("d", on("node1/2"), 11, terms=PARK, idle_since=1)
    world.idles("c", on("node1/3"), 10, terms=PARK, idle_since=3)
    world.idles("b", on("node1/4"), 10, terms=PARK, idle_since=2, granted=world.now - 60)
    world.idles("a", on("node1/5"), 10, terms=PARK, idle_since=2, granted=world.now - 50)
    world.idles("g", on("node1/6"), 10, terms=PARK, idle_since=2, granted=world.now - 50)
    found = prey(world).victims(world.waits("x", ask(1)))
    order = [victim.job.id for victim in sorted(found, key=lambda victim: victim.regret)]
    assert order == ["a", "g", "b", "c", "d", "e", "f"]


def test_who_knows_already_costs_nothing_and_the_takers_own_come_first() -> None:
    world = World().add(node("node1"))
    mine = Victim(world.runs("m", on("node1/0")), Reason.IDLE, Told.FOR_THIS, 9000, 0.0)
    other = replace(mine, told=Told.FOR_ANOTHER)
    new = replace(mine, told=Told.NOT_YET, memory_mib=0)
    assert cost([]) < cost([mine]) < cost([other]) < cost([new])
    assert sorted([new, other, mine], key=lambda v: v.regret) == [mine, other, new]


def test_the_cheapest_session_on_the_node_leaves() -> None:
    world = World().add(node("node1", 3))
    for index, mib in enumerate((300, 100, 200)):
        world.idles(f"s{index}", on(f"node1/{index}"), mib)
    assert asked(world, world.waits("x", ask(1))) == ["s1"]
    assert asked(world, world.waits("x", ask(2))) == ["s1", "s2"]


def test_all_tenants_of_a_shared_device_leave_when_it_is_needed_whole() -> None:
    world = World().add(node("node1", 2))
    world.idles("a", on("node1/0", milli=300), 1)
    world.idles("b", on("node1/0", milli=300), 1)
    world.idles("c", on("node1/1"), 50)
    assert asked(world, world.waits("x", ask(1))) == ["a", "b"]
    world.idles("b", on("node1/0", milli=300), 100)
    assert asked(world, world.waits("x", ask(1))) == ["c"]


def test_a_device_with_a_busy_tenant_is_left_alone() -> None:
    world = World().add(node("node1", 2))
    world.idles("cheap", on("node1/0", milli=300), 1)
    world.runs("busy", on("node1/0", milli=300))
    world.idles("dear", on("node1/1"), 5000)
    assert asked(world, world.waits("x", ask(1))) == ["dear"]
    assert asked(world, world.waits("x", ask(0.5))) == ["cheap"]
    assert asked(world, world.waits("x", ask(2))) is None


def test_one_large_session_leaves_rather_than_many_small_ones_that_hold_more() -> None:
    world = World().add(node("node1", 8))
    for index in range(4):
        world.idles(f"small{index}", on(f"node1/{index}"), 10)
    world.idles("large", on(*(f"node1/{i}" for i in range(4, 8))), 20)
    assert asked(world, world.waits("x", ask(4))) == ["large"]


def test_the_cheaper_node_is_chosen_and_free_gpus_are_used_first() -> None:
    world = World().add(node("node1", 2), node("node2", 2), node("node3", 2))
    world.idles("a", on("node1/0", "node1/1"), 100)
    world.idles("b", on("node2/0"), 60)  # node2/1 is free
    world.idles("c", on("node3/0"), 40)
    world.idles("d", on("node3/1"), 40)
    assert asked(world, world.waits("x", ask(2))) == ["b"]


def test_a_gang_takes_the_cheapest_nodes_and_those_that_need_nobody_first() -> None:
    world = World().add(*(node(f"node{i}", 2) for i in range(1, 5)))
    world.idles("a", on("node1/0", "node1/1"), 300)
    world.idles("b", on("node2/0", "node2/1"), 100)
    world.idles("c", on("node3/0", "node3/1"), 200)
    assert asked(world, world.waits("x", ask(2, nodes=2))) == ["b"]
    assert asked(world, world.waits("x", ask(2, nodes=3))) == ["b", "c"]
    assert asked(world, world.waits("x", ask(2, nodes=5))) is None


def test_a_gang_uses_a_free_node_and_makes_room_on_another() -> None:
    world = World().add(node("node1", 2), node("node2", 2))
    world.idles("a", on("node2/0"))
    assert asked(world, world.waits("x", ask(2, nodes=2))) == ["a"]


def test_a_gang_never_takes_from_two_engines() -> None:
    world = World().add(node("a", 1), node("b", 1, engine="slurm"), node("c", 1, engine="slurm"))
    for name, mib in (("a", 1), ("b", 500), ("c", 600)):
        world.idles(f"on-{name}", on(f"{name}/0"), mib)
    assert asked(world, world.waits("x", ask(1, nodes=2))) == ["on-b", "on-c"]


def test_nobody_leaves_where_it_would_not_help() -> None:
    world = World().add(node("node1", 2), node("node2", 2, flavor="a100"))
    world.idles("a", on("node1/0"))
    world.runs("busy", on("node1/1"))
    world.idles("b", on("node2/0", "node2/1"))
    assert asked(world, world.waits("x", ask(2, flavors=("h100",)))) is None
    assert asked(world, world.waits("y", ask(2))) == ["b"]


def test_sessions_leave_for_cpus_and_memory_as_well() -> None:
    world = World().add(node("node1", 4, cpu_milli=8000, host_memory_mib=1000))
    world.idles("a", on("node1/0"), 10, request=ask(1, cpu_milli=3000))
    world.idles("b", on("node1/1"), 20, request=ask(1, cpu_milli=5000))
    assert asked(world, world.waits("x", ask(1, cpu_milli=4000))) == ["b"]
    assert asked(world, world.waits("x", ask(1, cpu_milli=6000))) == ["a", "b"]


def test_at_most_so_many_nodes_are_searched_but_as_many_as_a_gang_needs() -> None:
    world = World().add(*(node(f"node{i}", 2) for i in range(1, 5)))
    for i in range(1, 5):
        world.idles(f"s{i}", on(f"node{i}/0", f"node{i}/1"), 100 - i)
    world.remove("s4")
    world.idles("s4", on("node4/0"), 1000)
    job = world.waits("x", ask(2))
    assert asked(world, job, considered=4) == ["s3"]
    assert asked(world, job, considered=1) == ["s4"]  # the emptiest is looked at first
    assert asked(world, world.waits("y", ask(2, nodes=4)), considered=1) == ["s1", "s2", "s3", "s4"]


def test_unusable_nodes_and_those_to_be_avoided_give_no_room() -> None:
    world = World().add(node("node1", 1, usable=False), node("node2", 1), node("node3", 1))
    for i in (1, 2, 3):
        world.idles(f"s{i}", on(f"node{i}/0"), i)
    job = world.waits("x", ask(1), avoid=(("node2", world.now + 60),))
    assert asked(world, job) == ["s3"]


# --- jobs at work -------------------------------------------------------------------


def lower(world: World, id_: str, *devices: str, **more: Any) -> Job:
    """A running batch Job that gives way to class *urgent*."""
    return world.runs(id_, on(*devices), kind=Kind.BATCH, **more)


def urgent(world: World, request: Request) -> Job:
    return world.waits("x", request, class_name="urgent")


def test_idle_sessions_leave_before_jobs_at_work_and_of_these_the_lowest_class() -> None:
    world = World().add(node("node1", 3))
    classes = {**world.policy.classes, "spare": Class("spare", (Kind.BATCH,), priority=-5)}
    world.policy = policy(classes=classes)
    lower(world, "b", "node1/0")
    lower(world, "spare", "node1/1", class_name="spare")
    world.idles("idle", on("node1/2"), 9999, terms=NONE)
    assert asked(world, urgent(world, ask(1))) == ["idle"]
    assert asked(world, urgent(world, ask(2))) == ["idle", "spare"]
    assert asked(world, urgent(world, ask(3))) == ["b", "idle", "spare"]


def test_of_equals_the_one_that_had_most_leaves_first() -> None:
    queue = Queue("default", order=Order.ATTAINED, preempt_equals=Equals.LEVELS)
    world = World(policy=policy(queues={"default": queue}, levels=Levels(100.0, 10.0)))
    world.add(node("node1", 3))
    for index, had in enumerate((0.0, 500.0, 5e6)):
        lower(world, f"b{index}", f"node1/{index}", gpu_seconds=had, granted=world.now - 50)
    assert asked(world, world.waits("x", ask(1))) == ["b2"]
    assert asked(world, world.waits("x", ask(2))) == ["b1", "b2"]
    assert asked(world, world.waits("x", ask(3))) is None
    assert asked(world, world.waits("x", ask(1), gpu_seconds=1e9)) is None


def test_of_those_alike_the_one_leaves_that_loses_the_least_work_then_the_newest() -> None:
    world = World().add(node("node1", 4))
    for index, saved in enumerate((50, 20, 0, 0)):
        at = world.now - saved
        lower(world, f"b{index}", f"node1/{index}", saved_at=at, granted=world.now - 900 + index)
    assert asked(world, urgent(world, ask(1))) == ["b3"]
    assert asked(world, urgent(world, ask(2))) == ["b2", "b3"]
    assert asked(world, urgent(world, ask(3))) == ["b1", "b2", "b3"]


def test_the_work_of_a_whole_set_counts() -> None:
    world = World().add(node("node1", 2), node("node2", 2))
    lower(world, "a", "node1/0", saved_at=world.now - 60)
    lower(world, "b", "node1/1", saved_at=world.now - 60)
    lower(world, "c", "node2/0", "node2/1", saved_at=world.now - 50)
    assert asked(world, urgent(world, ask(2))) == ["c"]
    lower(world, "c", "node2/0", "node2/1", saved_at=world.now - 70)
    assert asked(world, urgent(world, ask(2))) == ["a", "b"]


def test_a_gang_that_is_taken_leaves_whole_and_goes_back_to_its_place() -> None:
    world = World().add(node("node1", 2), node("node2", 2))
    gang = lower(world, "gang", "node1/0", "node1/1", "node2/0", "node2/1")
    taker = urgent(world, ask(2))
    plan = world.plan()
    ((id_, notice),) = plan.notice
    assert (id_, notice.reason, notice.for_job) == ("gang", Reason.PREEMPTED, taker.id)
    assert notice.deadline == world.now + gang.terms.grace
    world.apply(plan)
    assert world.jobs["gang"].state is State.STOPPING
    back, _ = advance(world.jobs["gang"], Exited(1, 143), world.now + 5)
    assert (back.state, back.submitted, back.eligible) == (State.QUEUED, gang.submitted, 0.0)
    assert (back.preemptions, back.restarts, back.left_for) == (1, 0, ("x",))
    world.put(back)
    assert placed(world.plan()) == {"x": ["node1/0", "node1/1"]}


def test_what_is_looked_at_again_is_the_end_of_a_shield_and_of_a_level() -> None:
    queue = Queue("default", order=Order.ATTAINED, preempt_equals=Equals.LEVELS)
    world = World(policy=policy(queues={"default": queue}, levels=Levels(100.0, 10.0)))
    world.add(node("node1", 1))
    lower(world, "b", "node1/0", granted=world.now - 40, shield_until=world.now + 10)
    world.waits("x", ask(1))
    assert world.plan().next == world.now + 60
    world.waits("urgent", ask(1), class_name="urgent")
    assert world.plan().next == world.now + 10
    world.now += 60
    assert noticed(world.plan()) == ["b"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), st.integers(0, 99), st.floats(0, 5000))
def test_who_tells_what_is_saved_is_no_likelier_victim_than_who_is_silent(
    world: World, which: int, ago: float
) -> None:
    takers = [job for job in world.jobs.values() if job.state is State.QUEUED]
    running = [
        job for job in world.jobs.values() if job.kind is Kind.BATCH and job.state is State.RUNNING
    ]
    assume(running)
    one = running[which % len(running)]
    silent = world.put(replace(one, saved_at=None))
    spared = [taker for taker in takers if silent.id not in (asked(world, taker) or ())]
    world.put(replace(one, saved_at=world.now - ago))
    for taker in spared:
        assert one.id not in (asked(world, taker) or ()), taker.id
