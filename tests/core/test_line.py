# SPDX-License-Identifier: BSD-3-Clause
"""Who is next in a queue of each order."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import inf
from random import Random
from typing import Any

from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core.fairshare import fair_tree
from jupyter_gpubroker.core.line import accounts, turn
from jupyter_gpubroker.core.line import order as line_of
from jupyter_gpubroker.core.model import Job, Levels, Order, Queue, State
from jupyter_gpubroker.core.relations import remaining

from .random_worlds import worlds
from .worlds import World, ask, on, policy


def world(order: Order, **queue: Any) -> World:
    queues = {"default": Queue("default", order=order, **queue), "vision": Queue("vision")}
    return World(policy=policy(queues=queues, levels=Levels(100.0, 10.0, aging=3.0)))


def line(some: World) -> list[str]:
    return [job.id for job in line_of(some.snapshot(), some.policy)]


def test_shortest_is_the_least_gpu_time_left_less_what_was_waited() -> None:
    some = world(Order.SHORTEST)
    some.waits("long", ask(1, time_limit=900.0), submitted=some.now)
    some.waits("wide", ask(4, time_limit=200.0), submitted=some.now)
    some.waits("short", ask(1, time_limit=700.0), submitted=some.now)
    assert line(some) == ["short", "wide", "long"]
    some.waits("long", ask(1, time_limit=900.0), submitted=some.now - 50)
    assert line(some) == ["short", "long", "wide"]
    some.waits("wide", ask(4, time_limit=200.0), submitted=some.now, served=100.0)
    assert line(some) == ["short", "wide", "long"], "served: 400 left, and 100 not waited"


def test_attained_is_the_lowest_level_then_who_came_first_whatever_they_ask_for() -> None:
    some = world(Order.ATTAINED)
    some.waits("c", ask(1), gpu_seconds=0.0, submitted=30)
    some.waits("b", ask(8, time_limit=9e6), gpu_seconds=99.0, submitted=20)
    some.waits("a", ask(1), gpu_seconds=100.0, submitted=10)
    assert line(some) == ["b", "c", "a"]


def test_class_comes_before_the_order_of_a_queue() -> None:
    for order in Order:
        some = world(order)
        some.waits("b", ask(1, time_limit=1.0), submitted=1)
        some.waits("a", ask(8, time_limit=9e6), class_name="urgent", gpu_seconds=1e9)
        assert line(some) == ["a", "b"], order


def test_users_matter_only_in_a_fair_queue_and_queues_come_in_turn_in_any_case() -> None:
    for order, expected in ((Order.FAIR, ["y", "b", "a"]), (Order.ATTAINED, ["y", "a", "b"])):
        some = world(order)
        some.waits("a", ask(1), submitted=1, user="ana")
        some.waits("b", ask(1), submitted=2, user="bo")
        some.waits("y", ask(1), submitted=3, user="ana", queue="vision")
        some.usage = {("default", "ana"): 50.0, ("vision", "ana"): 1.0}
        assert line(some) == expected
        some.policy = replace(
            some.policy,
            queues={**some.policy.queues, "default": Queue("default", order=order, shares=99)},
        )
        assert line(some) == [*(id_ for id_ in expected if id_ != "y"), "y"]


shapes = st.tuples(
    st.integers(1, 8), st.floats(1, 1e6), st.floats(0, 1e5), st.floats(0, 1e5), st.floats(0, 1e6)
)


@given(st.sampled_from(list(Order)), st.lists(shapes, min_size=2, max_size=9), st.floats(0, 1e6))
def test_the_order_of_those_who_wait_is_the_same_later(
    order: Order, some: list[tuple[int, float, float, float, float]], later: float
) -> None:
    made = world(order)
    for number, (gpus, limit, since, served, had) in enumerate(some):
        made.waits(
            f"j{number}", ask(gpus, time_limit=limit), submitted=since, served=served,
            gpu_seconds=had,
        )  # fmt: skip
    made.policy = replace(made.policy, max_age=inf)
    before = line(made)
    scores = [_score(made, id_) for id_ in before]
    assume(all(abs(a - b) > 1e-3 * (1 + abs(a)) for a, b in pairwise(scores)))
    made.now += later
    assert line(made) == before


def _score(some: World, id_: str) -> float:
    job = some.jobs[id_]
    waited = some.now - job.eligible - job.served
    return remaining(job, some.now, some.policy) - some.policy.levels.aging * waited


@settings(max_examples=60, deadline=None, phases=(Phase.reuse, Phase.generate))
@given(worlds(limits=False), st.randoms(use_true_random=False), st.booleans())
def test_what_many_jobs_have_in_common_is_the_same_for_each_alone(
    some: World, draw: Random, queues: bool
) -> None:
    some.policy = replace(some.policy, max_age=draw.choice((10.0, 990.0, inf)))
    for id_ in [job.id for job in some.jobs.values() if job.state is State.QUEUED]:
        if draw.random() < 0.8:  # few users: what is kept of one has to be right for another
            some.put(replace(some.jobs[id_], user=draw.choice("ab")))
        if queues:
            some.put(replace(some.jobs[id_], queue=draw.choice(("default", "vision", "gone"))))
        if draw.random() < 0.3:
            some.reserves(id_, on("node0/0"), draw.choice((None, some.now + 60)))
    snapshot = some.snapshot()
    waiting = [job for job in some.jobs.values() if job.state is State.QUEUED]
    ranks = fair_tree(accounts(waiting, snapshot, some.policy), some.policy.queues)

    def alone(job: Job) -> tuple[Any, ...]:
        own = turn(job, ranks, some.now, some.policy)
        return own, job.eligible, job.submitted, job.id

    assert line(some) == [job.id for job in sorted(waiting, key=alone)]
