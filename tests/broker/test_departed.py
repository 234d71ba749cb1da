# SPDX-License-Identifier: BSD-3-Clause
"""A user who left the Hub: what waits is cancelled, sessions end, running jobs by policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.broker.departed import WHY
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import Job, Mode, RemovedUsers, Request, State
from jupyter_gpubroker.engines import Phase, Poll, Report

from .desk import Desk


def running(desk: Desk, gpus: int = 2) -> Job:
    """A job of ana that runs."""
    job = desk.submit(gpus)
    report = Report(job.key, Phase.RUNNING, Mode.HOSTED)
    desk.turn(i.PollSeen("toy", Poll(desk.now, {job.key: report})))
    assert desk.job(job).state is State.RUNNING
    return job


def session(desk: Desk, user: str) -> Job:
    """A session that has its GPU and no server yet."""
    asked = i.OpenSession("hub", user, f"{user}/", Request(gpus=1), 1, attach=False)
    (answer,) = desk.turn(asked).answers
    assert answer.job is not None
    return answer.job


def test_what_waits_is_cancelled_for_that_reason_and_nobody_elses() -> None:
    desk = Desk()
    desk.sees()
    running(desk, 4)
    waiting, held = desk.submit(1), desk.submit(1)
    desk.turn(i.Ask("user:ana", held.id, e.Hold()))
    other, asked = desk.submit(1, user="bo"), session(desk, "ana")
    turn = desk.turn(i.UsersGone(["ana", "nobody"]))
    for job in (waiting, held, asked):
        ended = desk.job(job)
        assert (ended.state, ended.outcome) == (State.CANCELLED, WHY)
    assert replace(desk.job(other), reserved=None) == other
    told = [entry for entry in turn.writes.entries if entry.job == waiting.id]
    assert [(entry.actor, entry.event, entry.facts["why"]) for entry in told] == [
        ("hub", "job.cancel-asked", WHY)
    ]


@pytest.mark.parametrize("rule", RemovedUsers)
def test_a_running_job_ends_as_the_policy_says(rule: RemovedUsers) -> None:
    desk = Desk()
    desk.sees()
    desk.broker.world.policy = replace(desk.broker.world.policy, removed_users=rule)
    job = running(desk)
    turn = desk.turn(i.UsersGone(["ana"]))
    cancelled = rule is RemovedUsers.CANCEL
    assert desk.job(job).state is (State.STOPPING if cancelled else State.RUNNING)
    assert bool(turn.writes.entries) is cancelled
    assert not desk.turn(i.UsersGone(["ana"])).writes.entries, "told once"


def test_a_session_is_released_once() -> None:
    desk = Desk()
    desk.sees()
    job = session(desk, "ana")
    assert desk.job(job).state is State.STARTING
    for expected in (["job.release-asked"], []):
        turn = desk.turn(i.UsersGone(["ana"]))
        assert [entry.event for entry in turn.writes.entries] == expected
    assert desk.job(job).state is State.STOPPING
