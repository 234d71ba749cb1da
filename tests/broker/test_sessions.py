# SPDX-License-Identifier: BSD-3-Clause
"""What the Hub's spawner relies on: nothing is granted to nobody, a refusal costs nothing."""

from __future__ import annotations

import pytest

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core.model import Job, Refusal, Request, State

from .theatre import Theatre


def waiting(stage: Theatre, user: str, incarnation: int = 1, gpus: int = 1) -> Job:
    """A start that waits in the queue, before there is a server."""
    job = stage.ask(
        i.OpenSession("hub", user, f"{user}/", Request(gpus=gpus), incarnation, attach=False)
    )
    assert job is not None
    return job


def test_a_start_that_the_hub_has_lost_keeps_its_place_and_is_granted_nothing() -> None:
    stage = Theatre(count=1)
    rival = stage.submit("bo", gpus=4, lasts=20)
    place = waiting(stage, "ana")
    stage.ask(i.ServerGone("hub", "ana/", 1, i.HowGone.GONE))
    stage.run(60)
    assert stage.job(rival.id).state is State.COMPLETED
    assert stage.job(place.id).state is State.QUEUED, "all GPUs are free, and nobody asks"
    assert "started again" in stage.broker.world.plan.why[place.id].text

    assert waiting(stage, "ana", 2).id == place.id
    assert stage.job(place.id).state is State.STARTING


def test_a_start_that_nobody_asks_for_again_ends_after_the_holders_grace() -> None:
    stage = Theatre(count=1)
    stage.submit("bo", gpus=4, lasts=1000)
    place = waiting(stage, "ana")
    stage.ask(i.ServerGone("hub", "ana/", 1, i.HowGone.GONE))
    stage.run(stage.job(place.id).terms.holder_grace + 5)
    assert stage.job(place.id).state is State.COMPLETED


def test_a_wish_that_is_refused_changes_nothing() -> None:
    stage = Theatre()
    session = stage.session("ana", gpus=1)
    stage.run(3)
    before = dict(stage.broker.world.servers)
    with pytest.raises(Refusal):
        waiting(stage, "ana", 2, gpus=9)
    stage.run(3)
    assert stage.job(session.id).state is State.RUNNING
    assert stage.broker.world.servers == before


def test_another_wish_may_replace_the_last_place_that_a_user_may_have() -> None:
    stage = Theatre(count=1)
    stage.submit("bo", gpus=4, lasts=1000)
    most = stage.policy.classes["interactive"].waiting
    assert most is not None
    for number in range(most):
        stage.ask(i.OpenSession("hub", "ana", f"ana/{number}", Request(gpus=1), 1, attach=False))
    with pytest.raises(Refusal):
        stage.ask(i.OpenSession("hub", "ana", "ana/more", Request(gpus=1), 1))
    assert stage.ask(i.OpenSession("hub", "ana", "ana/0", Request(gpus=2), 2))
