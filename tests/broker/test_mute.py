# SPDX-License-Identifier: BSD-3-Clause
"""Servers that are up and have no extension of ours: they are told what is missing."""

from __future__ import annotations

import pytest

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.broker.planning import MUTE
from jupyter_gpubroker.core.model import Blocked, Conflict, Job, Request, State

from .theatre import Theatre


def start(stage: Theatre, *, attach: bool, incarnation: int = 1) -> Job:
    """The Hub starts ana's server, which asks for one GPU."""
    job = stage.ask(
        i.OpenSession("hub", "ana", "ana/", Request(gpus=1), incarnation, attach=attach)
    )
    assert job is not None
    return job


def mute(stage: Theatre, incarnation: int = 1) -> None:
    """The Hub has waited long enough for a hello."""
    stage.ask(i.ServerGone("hub", "ana/", incarnation, i.HowGone.MUTE))


def test_its_session_waits_for_the_package_and_is_granted_when_it_says_hello_after_all() -> None:
    stage = Theatre(count=1)
    session = start(stage, attach=True)
    assert "to come up" in stage.broker.world.plan.why[session.id].text
    mute(stage)
    why = stage.broker.world.plan.why[session.id]
    assert (why.code, why.text) == (Blocked.SERVER, MUTE)
    stage.run(900)
    assert stage.job(session.id).state is State.QUEUED
    stage.hello("ana")
    stage.run(5)
    assert stage.job(session.id).state is State.RUNNING


def test_the_next_start_of_the_server_is_not_told_what_its_last_one_lacked() -> None:
    stage = Theatre(count=1)
    session = start(stage, attach=True)
    mute(stage)
    assert start(stage, attach=True, incarnation=2).id == session.id
    assert stage.broker.world.plan.why[session.id].text != MUTE
    mute(stage)  # late news of the first
    assert stage.broker.world.plan.why[session.id].text != MUTE


def test_a_grant_that_nobody_in_the_server_would_bind_is_taken_back() -> None:
    stage = Theatre(count=1)
    session = start(stage, attach=False)
    assert session.state is State.STARTING
    mute(stage)
    stage.run(60)
    assert stage.job(session.id).state is State.CANCELLED
    assert not stage.leased()


@pytest.mark.parametrize("attach", [True, False])
def test_who_has_said_hello_is_not_called_mute(attach: bool) -> None:
    stage = Theatre(count=1)
    session = start(stage, attach=attach)
    stage.hello("ana")
    with pytest.raises(Conflict, match="has said hello"):
        mute(stage)
    stage.run(5)
    assert stage.job(session.id).state is State.RUNNING
