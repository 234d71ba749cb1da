# SPDX-License-Identifier: BSD-3-Clause
"""Limits of queues and users, and budgets; those of classes are in test_schedule."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core.feasible import affordable
from jupyter_gpubroker.core.model import (
    GPU_MILLI,
    Blocked,
    Budget,
    Cohort,
    Kind,
    Queue,
    Quota,
    Refusal,
    Request,
    State,
)
from jupyter_gpubroker.core.quota import DAY_S, HOUR_MILLI_S, day_of, window

from .worlds import World, ask, node, on, placed, policy

WEEK = Budget(gpu_hours=10, days=7)
MONDAY = 4 * DAY_S
"""The first one of the epoch."""


def lab(**limits: object) -> World:
    """A node of eight GPUs, and a queue with these limits."""
    queues = {"default": Queue("default", **limits), "vision": Queue("vision")}  # type: ignore[arg-type]
    return World(policy=policy(queues=queues)).add(node("node1", 8))


def test_a_queue_runs_at_most_so_many_jobs() -> None:
    world = lab(running=2)
    world.runs("a", on("node1/0"), expires=world.now + 50)
    world.waits("b", ask(1))
    world.waits("c", ask(1))
    world.waits("d", ask(1), queue="vision")
    plan = world.plan()
    assert sorted(placed(plan)) == ["b", "d"]
    why = plan.why["c"]
    assert why.text == "queue default has 2 of at most 2 running"
    assert (why.code, why.rules) == (Blocked.LIMIT, ("queues.default.running",))
    assert (why.waits_for, why.until) == (("a",), world.now + 50)


def test_a_user_has_at_most_so_many_gpus_in_a_queue() -> None:
    world = lab(user_gpus=3)
    world.runs("a", on("node1/0", "node1/1"), user="ana", expires=world.now + 50)
    world.waits("b", ask(2), user="ana")
    world.waits("c", ask(2), user="bo")
    world.waits("d", ask(2), user="ana", queue="vision")
    plan = world.plan()
    assert sorted(placed(plan)) == ["c", "d"]
    why = plan.why["b"]
    assert why.text == "ana has 2 of at most 3 GPUs in use in queue default"
    assert (why.waits_for, why.rules) == (("a",), ("queues.default.user_gpus",))


# --- budgets ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("days", "now", "first", "end"),
    [
        (7, MONDAY, 4, MONDAY + 7 * DAY_S),
        (7, MONDAY - 1, -3, MONDAY),
        (1, MONDAY + 5, 4, MONDAY + DAY_S),
        (14, MONDAY + 13.5 * DAY_S, 4, MONDAY + 14 * DAY_S),
    ],
)
def test_windows_begin_at_midnight_and_those_of_weeks_on_mondays(
    days: int, now: float, first: int, end: float
) -> None:
    assert window(Budget(1, days), now) == (first, end)


def test_what_was_used_and_what_may_still_be_used_counts() -> None:
    world = lab(budget=WEEK)
    world.spent["default", "ana", day_of(world.now)] = 5 * HOUR_MILLI_S
    world.runs("a", on("node1/0", "node1/1"), granted=world.now - 3600, expires=world.now + 3600)
    world.waits("b", ask(2))
    world.waits("c", ask(1))
    plan = world.plan()
    assert sorted(placed(plan)) == ["c"]
    why = plan.why["b"]
    assert why.text == (
        "queue default has 9 of 10 GPU-hours of 7 days used or set aside, and this may take 2"
    )
    assert (why.code, why.rules) == (Blocked.LIMIT, ("queues.default.budget",))
    _, end = window(WEEK, world.now)
    assert (why.waits_for, why.until, plan.next) == ((), end, end)
    world.now = end
    assert "b" in placed(world.plan())


def test_what_was_granted_before_the_window_does_not_count() -> None:
    world = lab(budget=replace(WEEK, days=1))
    world.spent["default", "ana", day_of(world.now) - 1] = 9 * HOUR_MILLI_S
    granted = day_of(world.now) * DAY_S - 1
    world.runs("a", on("node1/0"), granted=granted, expires=world.now + 9 * 3600)
    world.waits("b", ask(7))
    assert placed(world.plan())


def test_a_user_has_a_budget_of_their_own() -> None:
    world = lab(user_budget=WEEK)
    world.spent["default", "ana", day_of(world.now)] = 10 * HOUR_MILLI_S
    world.spent["vision", "bo", day_of(world.now)] = 10 * HOUR_MILLI_S
    world.waits("a", ask(1), user="ana")
    world.waits("b", ask(1), user="bo")
    plan = world.plan()
    assert sorted(placed(plan)) == ["b"]
    assert plan.why["a"].text == (
        "ana has 10 of 10 GPU-hours of 7 days used or set aside in queue default,"
        " and this may take 1"
    )


def test_only_the_time_that_is_left_of_a_job_is_set_aside() -> None:
    world = lab(budget=replace(WEEK, gpu_hours=1))
    job = world.waits("a", ask(2))
    assert not placed(world.plan())
    world.put(replace(job, served=1800.0))
    assert placed(world.plan())


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_no_budget_is_exceeded_whatever_ends_early(seed: int) -> None:
    draw = Random(seed)
    world = lab(budget=Budget(draw.randint(2, 20), draw.choice((1, 7))), user_budget=Budget(4, 1))
    costs: list[tuple[str, float, float]] = []
    for step in range(40):
        world.now += draw.randint(0, 4) * 3600.0
        shape = ask(draw.choice((0.5, 1, 2)), time_limit=draw.choice((1800.0, 3600.0, 9000.0)))
        world.waits(f"j{step}", shape, user=draw.choice("ab"))
        for id_, job in list(world.jobs.items()):
            lease = job.lease
            if lease is not None and (draw.random() < 0.3 or lease.expires <= world.now):
                used = lease.milli * (min(world.now, lease.expires) - lease.since)
                key = (job.queue, job.user, day_of(lease.since))
                world.spent[key] = world.spent.get(key, 0.0) + used
                costs.append((job.user, lease.since, used))
                world.remove(id_)
        world.apply(world.plan())
    for job in world.jobs.values():
        if job.lease is not None:
            spend = job.lease.milli * (job.lease.expires - job.lease.since)
            costs.append((job.user, job.lease.since, spend))
    queue = world.policy.queues["default"]
    assert queue.budget is not None
    assert queue.user_budget is not None
    for budget, users in ((queue.budget, "ab"), (queue.user_budget, "a"), (queue.user_budget, "b")):
        windows: dict[int, float] = {}
        for user, since, used in costs:
            if user in users:
                first, _ = window(budget, since)
                windows[first] = windows.get(first, 0.0) + used
        assert all(used <= budget.gpu_hours * HOUR_MILLI_S for used in windows.values())


# --- what can never run -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "request_", "says"),
    [
        ({"running_gpus": 4}, ask(4), ""),
        (
            {"running_gpus": 4},
            ask(3, nodes=2),
            "gpus: the jobs in queue default have at most 4 GPUs at once, and this needs 6"
            " (nearest that can run: 3 GPUs)",
        ),
        ({"running_gpus": 4}, ask(2, nodes=3), "nearest that can run: 2 × 2 GPUs"),
        (
            {"user_gpus": 1},
            ask(1.5),
            "the jobs of one user in queue default have at most 1 GPU at once, and this needs 1.5"
            " (nearest that can run: 1 GPU)",
        ),
        ({"budget": WEEK}, ask(2, time_limit=5 * 3600.0), ""),
        (
            {"budget": WEEK},
            ask(2, time_limit=6 * 3600.0),
            "time_limit: this may take 12 GPU-hours, and queue default has 10 GPU-hours of 7 days"
            " (ask for at most 5 h, or for fewer GPUs)",
        ),
        (
            {"user_budget": replace(WEEK, days=1)},
            ask(8, time_limit=6 * 3600.0),
            "each user in queue default has 10 GPU-hours of a day",
        ),
    ],
)
def test_what_no_limit_ever_allows_is_told_with_what_it_does_allow(
    limits: dict[str, object], request_: Request, says: str
) -> None:
    world = lab(**limits)
    if not says:
        affordable(request_, "default", world.policy, world.nodes)
        return
    with pytest.raises(Refusal) as refused:
        affordable(request_, "default", world.policy, world.nodes)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("queue", "request_", "says"),
    [
        ("vision", ask(4), ""),
        (
            "vision",
            ask(5),
            "gpus: the jobs in queue vision have at most 4 GPUs, and this needs 5"
            " (nearest that can run: 4 GPUs)",
        ),
        ("vision", ask(2, nodes=3), "nearest that can run: 2 × 2 GPUs"),
        ("vision", ask(1, flavors=("a100",)), ""),
        ("text", ask(9), "at most 8 GPUs, and this needs 9"),
        ("alone", ask(1, flavors=("a100",)), "at most 0 GPUs of flavor a100, and this needs 1"),
        ("alone", ask(3), "at most 2 GPUs of flavor h100, and this needs 3"),
    ],
)
def test_what_no_quota_ever_allows_is_told_with_what_it_does_allow(
    queue: str, request_: Request, says: str
) -> None:
    queues = {
        "vision": Queue("vision", cohort="lab", quota={"*": Quota(3000, borrow=1000)}),
        "text": Queue("text", cohort="lab", quota={"*": Quota(5000)}),
        "alone": Queue("alone", quota={"h100": Quota(2000), "a100": Quota(0)}),
    }
    lab = policy(queues=queues, cohorts={"lab": Cohort("lab")})
    world = World(policy=lab).add(node("node1", 8), node("node2", 8, flavor="a100"))
    if not says:
        affordable(request_, queue, world.policy, world.nodes)
        return
    with pytest.raises(Refusal) as refused:
        affordable(request_, queue, world.policy, world.nodes)
    assert says in str(refused.value)


def test_leases_of_all_states_count() -> None:
    world = lab(running_gpus=2)
    job = world.runs("a", on("node1/0"), kind=Kind.BATCH)
    world.put(replace(job, state=State.STARTING, until=world.now + 9))
    world.stops("b", on("node1/1"))
    world.waits("c", ask(1))
    assert not placed(world.plan())
    assert sum(job.lease.milli for job in world.jobs.values() if job.lease) == 2 * GPU_MILLI
