# SPDX-License-Identifier: BSD-3-Clause
"""Sessions whose servers are launched with their GPUs, from the queue to their end."""

from __future__ import annotations

import pytest

from jupyter_gpubroker import policy
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.broker.duties import needed
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import Binding, Job, Refusal, Request, StageName, State

from .theatre import Theatre

LEAVES_S = 60.0
"""Within this a server that was told to leave is gone, or was killed."""


def start(stage: Theatre, incarnation: int = 1, binding: Binding = Binding.SERVER) -> Job:
    """A start that waits in the queue, before there is a server."""
    wish = Request(gpus=1, time_limit=3600.0)
    job = stage.ask(
        i.OpenSession("hub", "ana", "ana/", wish, incarnation, attach=False, binding=binding)
    )
    assert job is not None
    return job


def up(stage: Theatre) -> Job:
    """Its server runs."""
    job = start(stage)
    stage.run(3)
    assert stage.job(job.id).state is State.RUNNING
    return stage.job(job.id)


def test_it_has_no_ladder_and_ends_at_its_time_limit() -> None:
    stage = Theatre()
    job = up(stage)
    assert job.terms.park == ()
    stage.run(3600 + LEAVES_S)
    gone = stage.job(job.id)
    assert (gone.state, gone.kept) == (State.COMPLETED, ())
    assert "time limit" in gone.outcome
    assert stage.leased() == []


def test_a_new_policy_gives_it_no_ladder_either() -> None:
    stage = Theatre()
    job = up(stage)
    changed = policy.DEFAULT_DOCUMENT.replace("grace: 120s", "grace: 100s")
    stage.ask(i.ApplyPolicy("admin:eve", changed, policy.parse(changed, 2)))
    assert (stage.job(job.id).terms.grace, stage.job(job.id).terms.park) == (100.0, ())


def test_nothing_that_a_server_reports_makes_it_idle() -> None:
    """Only samples of its GPUs could, and then its server would be stopped."""
    stage = Theatre(count=1)
    job = up(stage)
    for _ in range(60):
        stage.active("ana", idle_for=100_000.0)
        stage.run(30)
    waits = stage.submit("bo", gpus=4)
    stage.run(30)
    assert stage.broker.world.idle == {}
    assert stage.job(job.id).state is State.RUNNING
    assert stage.job(waits.id).state is State.QUEUED


def test_the_same_start_again_takes_over_what_there_is() -> None:
    stage = Theatre()
    job = up(stage)
    stage.servers["ana"].end()
    stage.run(3)
    assert stage.job(job.id).state is State.DRAINING
    again = start(stage, 2)
    assert (again.id, again.attempt) == (job.id, 1)


def test_while_it_leaves_it_is_no_session_to_take_over() -> None:
    stage = Theatre()
    job = up(stage)
    stage.ask(i.Ask("broker", job.id, e.Lost(1, "its engine does not know it")))
    leaving = stage.job(job.id)
    assert (leaving.state, leaving.stages[0].name) == (State.STOPPING, StageName.SIGNAL)
    other = start(stage, 2)
    assert other.id != job.id
    stage.run(LEAVES_S)
    assert stage.job(job.id).state is State.FAILED
    assert stage.job(other.id).lease is not None


def test_a_server_that_is_bound_otherwise_is_another_wish() -> None:
    stage = Theatre()
    job = up(stage)
    other = start(stage, 2, Binding.KERNEL)
    assert other.id != job.id
    stage.run(LEAVES_S)
    assert stage.job(job.id).state is State.COMPLETED


def test_a_server_that_is_up_already_cannot_be_launched_with_gpus() -> None:
    stage = Theatre()
    question = i.OpenSession(
        "hub", "ana", "ana/", Request(gpus=1), 1, attach=True, binding=Binding.SERVER
    )
    with pytest.raises(Refusal, match="binding"):
        stage.ask(question)


def test_the_engine_hears_that_the_server_has_to_go_also_after_a_crash() -> None:
    stage = Theatre()
    job = up(stage)
    stage.ask(i.Ask("admin:eve", job.id, e.Cancel()))
    stage.restart()
    duty = needed(stage.broker.world, stage.job(job.id))
    assert duty is not None
    assert (duty.act, duty.binding) == (i.Act.TERM, Binding.SERVER)
