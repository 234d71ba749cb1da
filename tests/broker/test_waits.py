# SPDX-License-Identifier: BSD-3-Clause
"""Starts that wait at a Hub: their places while somebody asks for them, and after that."""

from __future__ import annotations

import pytest

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.broker.waits import KEPT_S, QUIET_S
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import Blocked, Job, Request, State

from .theatre import Theatre

LOOK_S = 15.0


def start(stage: Theatre, user: str, incarnation: int = 1) -> Job:
    """A start that waits in the queue, before there is a server."""
    job = stage.ask(
        i.OpenSession("hub", user, f"{user}/", Request(gpus=1), incarnation, attach=False)
    )
    assert job is not None
    return job


def full(stage: Theatre) -> Job:
    """All four GPUs are taken, by somebody whose use nobody can see the end of."""
    rival = stage.session("rival", gpus=4)
    stage.run(3)
    return rival


def free(stage: Theatre, rival: Job) -> None:
    """They are given back."""
    stage.ask(i.Ask("user:rival", rival.id, e.Release()))
    stage.run(5)
    assert stage.job(rival.id).state is State.COMPLETED


class Unattended(Theatre):
    """No server ever binds anything."""

    def _holders(self) -> None:
        pass


def ask(stage: Theatre, job: Job, seconds: float) -> None:
    """The Hub waits for it so long, and says so."""
    end = stage.now + seconds
    while stage.now < end:
        stage.ask(i.StillWaits("hub", job.id))
        stage.run(min(LOOK_S, end - stage.now))


def test_a_start_that_is_asked_for_waits_as_long_as_it_takes() -> None:
    stage = Theatre(count=1)
    rival = full(stage)
    place = start(stage, "ana")
    ask(stage, place, 3 * KEPT_S)
    assert stage.job(place.id).state is State.QUEUED
    assert stage.broker.world.plan.why[place.id].code is Blocked.CAPACITY
    free(stage, rival)
    assert stage.job(place.id).state is State.RUNNING


def test_asking_writes_nothing_and_plans_nothing() -> None:
    stage = Theatre(count=1)
    full(stage)
    place = start(stage, "ana")
    stage.run(3)
    seq, plan = stage.broker.world.seq, stage.broker.world.plan
    turn = stage.broker.turn([i.StillWaits("hub", place.id)], stage.now)
    assert turn.answers[0].job is not None
    assert not turn.writes
    assert stage.broker.world.seq == seq
    assert stage.broker.world.plan is plan


def test_a_place_that_nobody_asks_for_is_granted_nothing_and_says_why() -> None:
    stage = Theatre(count=1)
    rival = full(stage)
    place = start(stage, "ana")
    asked = stage.now
    stage.run(QUIET_S - 1)
    assert stage.broker.world.plan.why[place.id].code is Blocked.CAPACITY
    stage.run(2)
    free(stage, rival)
    assert stage.job(place.id).state is State.QUEUED, "four GPUs are free"
    why = stage.broker.world.plan.why[place.id]
    assert (why.code, why.until) == (Blocked.SERVER, asked + KEPT_S)
    assert "no longer asks" in why.text

    stage.ask(i.StillWaits("hub", place.id))
    assert stage.job(place.id).state is State.STARTING, "whoever asks again is served at once"


def test_a_turn_names_the_times_at_which_silence_counts() -> None:
    stage = Theatre(count=1)
    full(stage)
    start(stage, "ana")
    opened = stage.now
    for limit in (QUIET_S, KEPT_S):
        turn = stage.broker.turn([], stage.now)
        assert turn.next is not None
        assert turn.next <= opened + limit
        stage.run(opened + limit - stage.now)


def test_a_place_that_nobody_has_asked_for_is_given_up_after_ten_minutes() -> None:
    stage = Theatre(count=1)
    full(stage)
    place = start(stage, "ana")
    stage.run(KEPT_S - 1)
    assert stage.job(place.id).state is State.QUEUED
    stage.run(2)
    gone = stage.job(place.id)
    assert gone.state is State.CANCELLED
    assert "its Hub has not asked" in gone.outcome
    assert place.id not in stage.broker.world.asked


def test_a_hub_that_comes_back_has_the_place_again() -> None:
    stage = Theatre(count=1)
    full(stage)
    place = start(stage, "ana")
    stage.run(KEPT_S - 30)
    again = start(stage, "ana", 2)
    assert (again.id, again.submitted) == (place.id, place.submitted)
    stage.run(QUIET_S - 1)
    assert stage.broker.world.plan.why[place.id].code is Blocked.CAPACITY


def test_what_was_asked_before_a_restart_of_the_broker_is_not_held_against_a_hub() -> None:
    stage = Theatre(count=1)
    full(stage)
    place = start(stage, "ana")
    stage.run(KEPT_S - 10)
    stage.restart()
    stage.run(QUIET_S - 1)
    assert stage.broker.world.plan.why[place.id].code is Blocked.CAPACITY
    stage.run(KEPT_S)
    assert stage.job(place.id).state is State.CANCELLED


def test_what_is_parked_stays_parked_when_the_hub_that_wanted_it_is_gone() -> None:
    stage = Theatre(count=1)
    session = stage.session("ana", gpus=1)
    stage.run(3)
    stage.ask(i.Ask("user:ana", session.id, e.Park()))
    stage.run(5)
    assert stage.job(session.id).state is State.PARKED
    full(stage)
    assert start(stage, "ana", 2).state is State.QUEUED
    stage.run(KEPT_S + 5)
    assert stage.job(session.id).state is State.PARKED


@pytest.mark.parametrize("attach", [True, False])
def test_who_waits_beside_a_server_that_is_up_need_not_ask(attach: bool) -> None:
    stage = Theatre(count=1)
    full(stage)
    stage.hello("ana")
    job = stage.ask(i.OpenSession("user:ana", "ana", "ana/", Request(gpus=1), 1, attach=attach))
    assert job is not None
    stage.run(2 * KEPT_S)
    assert stage.job(job.id).state is State.QUEUED


def test_a_start_whose_server_never_came_is_not_granted_gpus_again_and_again() -> None:
    stage = Unattended()
    place = start(stage, "ana")
    stage.engine.stubborn["ana/"] = True  # there is nothing of it that could be parked
    stage.run(KEPT_S + 300)
    gone = stage.job(place.id)
    assert (gone.state, gone.attempt) == (State.CANCELLED, 1)
