# SPDX-License-Identifier: BSD-3-Clause
"""What the Hub's spawner relies on: nothing is granted to nobody, a refusal costs nothing."""

from __future__ import annotations

import pytest

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.broker.questions import SERVERS_MAX
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import Holder, Job, Refusal, Request, State

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


def reopen(stage: Theatre, incarnation: int = 1, gpus: int = 1) -> Job:
    job = stage.ask(i.OpenSession("user:ana", "ana", "ana/", Request(gpus=gpus), incarnation))
    assert job is not None
    return job


def test_a_server_that_waited_for_its_gpus_may_take_longer_to_start_than_they_to_attach() -> None:
    stage = Theatre()
    wish = Request(gpus=1)
    stays = stage.session("ana", gpus=1)
    waits = stage.ask(i.OpenSession("hub", "bo", "bo/", wish, 1, attach=False))
    assert waits is not None
    starting = [stage.job(stays.id), stage.job(waits.id)]
    assert [job.state for job in starting] == [State.STARTING, State.STARTING]
    assert [(job.deadline or 0) - stage.now for job in starting] == [120.0, 600.0]


def test_a_session_that_is_asked_for_while_it_is_being_parked_comes_back() -> None:
    """A second one beside it would get a GPU, and what the first had kept would never see it."""
    stage = Theatre()
    session = stage.session("ana", gpus=1)
    stage.run(3)
    stage.ask(i.Ask("user:ana", session.id, e.Park()))
    assert stage.job(session.id).state is State.STOPPING
    assert reopen(stage).id == session.id
    assert reopen(stage).id == session.id
    stage.run(10)
    assert (stage.job(session.id).state, stage.job(session.id).attempt) == (State.RUNNING, 2)
    assert len(stage.broker.world.alive) == 1


@pytest.mark.parametrize("how", ["park", "withdrawn"])
def test_who_takes_that_wish_back_finds_it_parked(how: str) -> None:
    stage = Theatre()
    session = stage.session("ana", gpus=1)
    stage.run(3)
    stage.ask(i.Ask("user:ana", session.id, e.Park()))
    reopen(stage)
    if how == "park":
        stage.ask(i.Ask("user:ana", session.id, e.Park()))
    else:
        stage.ask(i.ServerGone("hub", "ana/", 1, i.HowGone.WITHDRAWN))
    stage.run(10)
    assert stage.job(session.id).state is State.PARKED


def test_another_wish_while_it_is_being_parked_replaces_it() -> None:
    stage = Theatre()
    session = stage.session("ana", gpus=1)
    stage.run(3)
    stage.ask(i.Ask("user:ana", session.id, e.Park()))
    other = reopen(stage, gpus=2)
    assert other.id != session.id
    stage.run(10)
    assert stage.job(session.id).state is State.COMPLETED
    assert stage.job(other.id).state is State.RUNNING


def test_a_session_that_ends_for_good_is_followed_by_another() -> None:
    stage = Theatre()
    session = stage.session("ana", gpus=1)
    stage.run(3)
    stage.ask(i.Ask("user:ana", session.id, e.Release()))
    other = reopen(stage)
    assert other.id != session.id
    stage.run(10)
    assert stage.job(session.id).state is State.COMPLETED
    assert stage.job(other.id).state is State.RUNNING


def test_a_server_that_is_gone_is_noted_once() -> None:
    """Every look at the machine finds it gone, ten times a second."""
    stage = Theatre()
    session = stage.session("ana", gpus=1)
    stage.run(3)
    seq = stage.broker.world.seq
    stage.servers["ana"].end()
    stage.moving_s = 0.1
    stage.run(5)
    assert stage.job(session.id).state is State.DRAINING
    assert stage.broker.world.seq == seq + 1


def test_servers_without_a_session_cost_little() -> None:
    """On a shared machine a user may name as many as there are names."""
    stage = Theatre()
    kernel = i.Kernel("k", busy=False, idle_for=0.0)
    for number in range(SERVERS_MAX + 10):
        server, holder = f"ana/{number}", Holder("host", "b1", 1 + number, 1)
        stage.ask(i.ServerHello("peer:1", server, 1, holder))
        stage.ask(i.ServerActivity("peer:1", server, 1, (kernel,), None, 0))
    stage.ask(i.ServerHello("peer:2", "bo/", 1, Holder("host", "b1", 9, 1)))
    world = stage.broker.world
    assert len(world.holders) == SERVERS_MAX + 1
    assert "ana/0" not in world.holders
    assert world.activity == {}
