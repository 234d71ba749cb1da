# SPDX-License-Identifier: BSD-3-Clause
"""Queues of groups, places in a queue, and budgets that outlive a broker."""

from __future__ import annotations

import pytest

from jupyter_gpubroker import policy
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core.model import Refusal, Request, State

from .theatre import Theatre

QUEUES = """
queues:
  default: {}
  vision: {groups: [vision, staff]}
  course: {waiting: 1, budget: {gpu_hours: 2, per: 1d}}
groups: {vision: vision, students: course, staff: default}
"""


def theatre(queues: str = QUEUES) -> Theatre:
    """One whose policy has these queues."""
    stage = Theatre()
    head = policy.DEFAULT_DOCUMENT.partition("queues:\n")[0]
    text = head + queues
    stage.ask(i.ApplyPolicy("admin:eve", text, policy.parse(text)))
    return stage


@pytest.mark.parametrize(
    ("groups", "queue"),
    [
        ((), "default"),
        (("phd",), "default"),
        (("vision",), "vision"),
        (("students", "vision"), "vision"),
        (("staff", "students"), "course"),
        (("staff",), "default"),
    ],
)
def test_the_first_group_that_the_policy_names_decides_the_queue(
    groups: tuple[str, ...], queue: str
) -> None:
    stage = theatre()
    assert stage.submit("ana", groups=groups).queue == queue
    request = Request(gpus=1)
    session = stage.ask(i.OpenSession("hub", "ana", "ana/", request, 1, groups=groups))
    assert session is not None
    assert session.queue == queue


def test_a_queue_that_is_named_is_taken_if_its_groups_allow_it() -> None:
    stage = theatre()
    assert stage.submit("ana", queue="course", groups=("vision",)).queue == "course"
    assert stage.submit("ana", queue="vision", groups=("staff",)).queue == "vision"
    with pytest.raises(Refusal) as refused:
        stage.submit("ana", queue="vision", groups=("students",))
    assert str(refused.value) == (
        "queue: queue vision is for vision or staff, and you are in no such group"
        " (your queues: default, course)"
    )


def test_so_many_jobs_may_wait_in_a_queue() -> None:
    stage = theatre()
    stage.submit("ana", nodes=2, gpus=4, queue="course")  # it has all GPUs
    stage.submit("ana", queue="course")
    with pytest.raises(Refusal, match="queue course has 1 waiting jobs, the most allowed"):
        stage.submit("bo", queue="course")


def test_what_is_larger_than_the_limits_of_its_queue_is_refused() -> None:
    stage = theatre("queues:\n  default: {running_gpus: 4}\n")
    with pytest.raises(Refusal, match="nearest that can run: 4 GPUs"):
        stage.submit("ana", nodes=2, gpus=4)


def test_a_budget_that_is_used_up_makes_jobs_wait_for_the_next_window_also_after_a_restart() -> (
    None
):
    stage = theatre("queues:\n  default: {budget: {gpu_hours: 1, per: 1d}}\n")
    first = stage.submit("ana", gpus=4, lasts=500.0)  # may take 40 min of GPU time
    second = stage.submit("ana", gpus=4, lasts=500.0)
    assert stage.job(first.id).state is State.STARTING
    assert stage.job(second.id).state is State.QUEUED
    stage.run(550)
    # It took about 33 of the 60 minutes; the other may still take 40.
    assert stage.job(first.id).state is State.COMPLETED
    stage.restart()
    stage.run(60)
    assert stage.job(second.id).state is State.QUEUED
    why = stage.world.plan.why[second.id]
    assert "GPU-hours of a day used or set aside" in why.text
    assert why.until is not None
    assert why.until % 86400 == 0
    stage.run(why.until - stage.agenda.now + 1)
    assert stage.job(second.id).lease is not None
