# SPDX-License-Identifier: BSD-3-Clause
"""A session that is bound to its server: nothing is parked, and to take it is to end it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.lifecycle import advance
from jupyter_gpubroker.core.model import (
    Binding,
    Conflict,
    Holder,
    Job,
    Reason,
    StageName,
    State,
    Terms,
)

from .test_lifecycle import after, notice, placed, running, session


def bound() -> Job:
    """As the broker places one: without a ladder."""
    return replace(session(), binding=Binding.SERVER, terms=Terms())


def stopped(job: Job, event: e.Event) -> Job:
    """Where the event leads once everything is proven free."""
    return after(job, event, e.Freed(1))


@pytest.mark.parametrize(
    ("event", "state", "word"),
    [
        (e.Deadline(), State.COMPLETED, "time limit"),
        (e.Cancel(), State.CANCELLED, "cancelled"),
        (e.Release(), State.COMPLETED, "released"),
        (e.Lost(1), State.FAILED, "lost"),
    ],
)
def test_its_server_is_told_to_leave_and_the_session_is_over(
    event: e.Event, state: State, word: str
) -> None:
    leaving = after(running(bound()), event)
    assert leaving.state is State.STOPPING
    names = [stage.name for stage in leaving.stages]
    assert names == [StageName.SIGNAL, StageName.KILL, StageName.FENCE]
    gone = after(leaving, e.Freed(1))
    assert (gone.state, gone.kept) == (state, ())
    assert word in gone.outcome


@pytest.mark.parametrize("reason", [Reason.DRAIN, Reason.PREEMPTED, Reason.OVER])
def test_a_notice_that_runs_out_ends_it(reason: Reason) -> None:
    draining = after(running(bound()), notice(reason))
    gone = after(draining, e.Deadline(), e.Freed(1))
    assert gone.state is (State.FAILED if reason is Reason.OVER else State.COMPLETED)
    assert gone.kept == ()


def test_it_cannot_be_parked_and_says_what_to_do_instead() -> None:
    with pytest.raises(Conflict, match="stop the server"):
        advance(running(bound()), e.Park(), 1000.0)


def test_a_server_that_was_granted_gpus_and_lost_them_does_not_wait_for_others() -> None:
    """It is being launched with the first ones."""
    prepared = after(placed(bound()), e.Prepared(1))
    assert stopped(prepared, e.Deadline()).state is State.CANCELLED
    assert stopped(prepared, e.Lost(1)).state is State.CANCELLED
    assert after(placed(bound()), e.Refused(1, "node1")).state is State.QUEUED, "nothing ran"


def test_a_server_that_died_may_come_back_in_time() -> None:
    gone = after(running(bound()), e.HolderGone(1))
    assert gone.state is State.DRAINING
    back = after(gone, e.Adopt(2, attach=False), e.Hello(Holder("h", "b", 2, 2), 2), e.Started(1))
    assert (back.state, back.incarnation) == (State.RUNNING, 2)
    assert stopped(gone, e.Deadline()).outcome == "its server is gone"
