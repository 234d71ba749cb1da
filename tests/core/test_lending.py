# SPDX-License-Identifier: BSD-3-Clause
"""Quotas in the scheduler: who may start where, in which turn, and why others wait."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core import cohorts
from jupyter_gpubroker.core.cohorts import ANY, Account, Cohorts
from jupyter_gpubroker.core.ledger import Ledger
from jupyter_gpubroker.core.model import (
    GPU_MILLI,
    LEASED,
    Blocked,
    Cohort,
    Kind,
    Queue,
    Quota,
)

from .random_worlds import random_world
from .worlds import World, ask, node, on, placed, policy


def gpus(nominal: int, borrow: int | None = None, lend: int | None = None) -> Quota:
    """A quota in whole GPUs."""
    bounds = [None if bound is None else bound * GPU_MILLI for bound in (borrow, lend)]
    return Quota(nominal * GPU_MILLI, *bounds)


def lab(flavors: tuple[str, ...] = ("h100",), **quotas: dict[str, Quota] | Quota) -> World:
    """A node of eight GPUs of each flavor, and queues with these quotas in one cohort."""
    queues = {"default": Queue("default", cohort="lab")}
    for name, quota in quotas.items():
        rows = quota if isinstance(quota, dict) else {ANY: quota}
        queues[name] = Queue(name, cohort="lab", quota=rows)
    world = World(policy=policy(queues=queues, cohorts={"lab": Cohort("lab")}))
    for flavor in flavors:
        world.add(node(f"n-{flavor}", 8, flavor=flavor))
    return world


def test_a_queue_has_what_it_owns_and_what_others_lend() -> None:
    world = lab(vision=gpus(2), text=gpus(4, lend=1))
    for number in range(5):
        world.waits(f"v{number}", ask(1), queue="vision")
    plan = world.plan()
    assert sorted(placed(plan)) == ["v0", "v1", "v2"]
    why = plan.why["v3"]
    assert (why.code, why.rules) == (Blocked.LIMIT, ("queues.vision.quota",))
    assert why.text.startswith(
        "queue vision uses 3 of its 2 GPUs and can have 0 more; this needs 1"
    )


def test_who_borrows_is_told() -> None:
    world = lab(vision=gpus(2), text=gpus(2))
    three = on("n-h100/0", "n-h100/1", "n-h100/2")
    until = {"expires": world.now + 50, "shield_until": world.now + 99}
    world.runs("t", three, queue="text", **until)
    world.waits("v", ask(2), queue="vision")
    why = world.plan().why["v"]
    assert why.text == (
        "queue vision uses 0 of its 2 GPUs and can have 1 more; this needs 2; text borrows 1;"
        " it waits for 1 session (t)"
    )
    assert (why.waits_for, why.until) == (("t",), world.now + 50)


def test_a_job_takes_the_flavor_that_its_queue_owns_before_it_borrows_another() -> None:
    rows = {"a100": gpus(2), "h100": gpus(0)}
    world = lab(("a100", "h100"), vision=rows, text={"h100": gpus(1), "a100": gpus(0)})
    for number in range(4):
        world.waits(f"v{number}", ask(1), queue="vision")
    assert placed(world.plan()) == {
        "v0": ["n-a100/0"], "v1": ["n-a100/1"], "v2": ["n-h100/0"]
    }  # fmt: skip


def test_a_flavor_that_no_quota_names_belongs_to_the_others() -> None:
    world = lab(("a100", "h100"), vision={"h100": gpus(1)})
    world.waits("a", ask(1, flavors=("a100",)), queue="vision")
    world.waits("h", ask(1, flavors=("a100", "h100")), queue="vision")
    plan = world.plan()
    assert placed(plan) == {"h": ["n-h100/0"]}
    assert plan.why["a"].rules == ("queues.vision.quota",)
    assert plan.why["a"].waits_for == ()


def test_who_stays_inside_what_the_queue_owns_goes_first() -> None:
    world = lab(vision=gpus(1), text=gpus(1))
    world.add(node("n-h100", 2))
    for number in range(2):
        world.waits(f"v{number}", ask(1), queue="vision", class_name="urgent")
    world.waits("t0", ask(1), queue="text")
    assert sorted(placed(world.plan())) == ["t0", "v0"]


def test_what_leaves_gives_quota_back_and_a_promise_takes_it() -> None:
    world = lab(vision=gpus(2))
    world.stops("old", on("n-h100/0", "n-h100/1"), queue="vision")
    world.waits("first", ask(2), queue="vision")
    world.waits("second", ask(1), queue="vision")
    plan = world.plan()
    assert placed(plan) == {}
    assert dict(plan.reserve)["first"].promised
    assert plan.why["first"].waits_for == ("old",)
    assert plan.why["second"].rules == ("queues.vision.quota",)


def test_who_lacks_quota_keeps_no_gpus_free() -> None:
    world = lab(vision=gpus(2))
    world.runs("v", on("n-h100/0", "n-h100/1"), queue="vision")
    world.waits("big", ask(2), queue="vision")
    assert world.plan().reserve == ()


def test_the_first_that_lacks_gpus_also_finds_its_quota_when_its_time_has_come() -> None:
    world = lab(vision=gpus(3))
    world.runs("o", on(*(f"n-h100/{n}" for n in range(6))), queue="alone", expires=world.now + 90)
    world.policy = replace(world.policy, queues={**world.policy.queues, "alone": Queue("alone")})
    world.waits("head", ask(3), queue="vision")
    world.waits("long", ask(1, time_limit=500.0), queue="vision")
    world.waits("short", ask(1, time_limit=60.0), queue="vision")
    plan = world.plan()
    assert [id_ for id_, _ in plan.reserve] == ["head"]
    assert sorted(placed(plan)) == ["short"]
    assert plan.why["long"].waits_for == ("head",)


def test_lowered_quota_stops_nothing_and_lets_nobody_in() -> None:
    world = lab(vision=gpus(1), text=gpus(1, lend=0))
    world.runs("v", on("n-h100/0", "n-h100/1", "n-h100/2"), queue="vision", kind=Kind.BATCH)
    world.waits("more", ask(1), queue="vision")
    world.waits("t", ask(1), queue="text")
    plan = world.plan()
    assert (sorted(placed(plan)), plan.notice) == (["t"], ())


# --- every world ------------------------------------------------------------------------

many = settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
governed = st.builds(
    random_world,
    st.integers(0, 2**32),
    st.integers(10, 35),
    st.integers(10, 25),
    st.just(False),
    st.just(True),
)


def usage(world: World) -> Cohorts:
    """What the leases of the world use, counted without the scheduler."""
    quotas = Cohorts(world.policy)
    flavors = {d.uuid: d.flavor for each in world.nodes.values() for d in each.devices}
    for job in world.jobs.values():
        if job.lease is not None and job.queue in quotas.queues:
            for share in job.lease.placement:
                row = quotas.row(job.queue, flavors[share.device])
                quotas.account(job.queue, row).add(cohorts.NOW, share.milli)
    return quotas


def levels(quotas: Cohorts) -> list[Account]:
    """The accounts of all queues, and those above them."""
    found = []
    for queue in quotas.queues:
        for row in quotas.rows(queue):
            account: Account | None = quotas.account(queue, row)
            while account is not None:
                found.append(account)
                account = account.parent
    return found


@many
@given(governed)
def test_no_start_exceeds_a_quota_at_any_level(world: World) -> None:
    for _ in range(4):
        before = usage(world)
        world.apply(world.plan())
        after = usage(world)
        for old, new in zip(levels(before), levels(after), strict=True):
            if new.used[cohorts.NOW] > old.used[cohorts.NOW]:
                top = new.parent is None
                most = new.owned + (0 if top else new.borrow if new.borrow is not None else 10**9)
                assert new.used[cohorts.NOW] <= most
        for job in [job for job in world.jobs.values() if job.state in LEASED][:3]:
            world.remove(job.id)


@many
@given(governed)
def test_what_the_ledger_counts_is_what_the_leases_have(world: World) -> None:
    world.apply(world.plan())
    ledger, counted = Ledger(world.snapshot(), world.policy), usage(world)
    assert ledger.quotas is not None
    for job in world.jobs.values():
        if job.lease is not None:
            for amount, milli in ledger.quotas.amounts(job.lease.placement, job.request, job.queue):
                assert amount.now <= amount.soon
                assert milli > 0
    for queue in counted.queues:
        for row in counted.rows(queue):
            found = ledger.quotas.account(queue, row)
            assert found.used[cohorts.NOW] == counted.account(queue, row).used[cohorts.NOW]


@many
@given(governed)
def test_what_is_tried_and_undone_leaves_the_quotas_as_they_were(world: World) -> None:
    ledger = Ledger(world.snapshot(), world.policy)
    assert ledger.quotas is not None
    queues = [queue for queue in world.policy.queues if ledger.quotas.governs(queue)]
    before = [list(ledger.quotas.account(queue, ANY).used) for queue in queues]
    with ledger.trial():
        for job in world.jobs.values():
            if job.state in LEASED:
                ledger.leave(job)
    assert [list(ledger.quotas.account(queue, ANY).used) for queue in queues] == before


@many
@given(governed)
def test_who_waits_for_nobody_but_for_quota_would_not_start_in_an_empty_world(world: World) -> None:
    plan = world.plan()
    others = {
        id_: why
        for id_, why in plan.why.items()
        if why.rules and why.rules[0].endswith(".quota") and not why.waits_for
    }
    for id_, why in others.items():
        alone = replace(world, jobs={id_: world.jobs[id_]}, idle={})
        assert not alone.plan().place, why
