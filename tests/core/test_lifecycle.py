# SPDX-License-Identifier: BSD-3-Clause
"""The state machine as rows, and as walks that nothing may break."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.lifecycle import TABLE, advance
from jupyter_gpubroker.core.model import (
    LEASED,
    TERMINAL,
    Binding,
    Conflict,
    Holder,
    Job,
    Kind,
    Notice,
    Reason,
    Request,
    Rung,
    StageName,
    State,
    Terms,
    check,
)

from .happenings import IMAGE, happening, lease, mode_of

NOW = 1000.0
PARKS = ((StageName.PARK, 60.0), (StageName.RESTART, 30.0))


def batch(**changes: Any) -> Job:
    job = Job("b-1", Kind.BATCH, "ana", "default", "batch", Request(gpus=1, time_limit=3600.0))
    return replace(job, **changes)


def session(**changes: Any) -> Job:
    job = Job("s-1", Kind.SESSION, "ana", "default", "interactive", Request(gpu_milli=500))
    job = replace(job, server="ana/", incarnation=1, terms=Terms(park=PARKS))
    return replace(job, **changes)


def after(job: Job, *steps: e.Event, now: float = NOW) -> Job:
    for step in steps:
        job, _ = advance(job, step, now)
    return job


def placed(job: Job, now: float = NOW) -> Job:
    granted = lease(job.attempt + 1, mode_of(job), now)
    return after(job, e.Place(granted, job.terms, 120.0), now=now)


def running(job: Job, now: float = NOW) -> Job:
    job = placed(job, now)
    if job.kind is Kind.SESSION:
        job = after(job, e.Prepared(job.attempt), now=now)
    return after(job, e.Started(job.attempt), now=now)


def notice(reason: Reason, deadline: float = NOW + 10) -> e.Notify:
    return e.Notify(Notice(reason, deadline, "b-9", "n1"))


def parked(reason: Reason = Reason.IDLE) -> Job:
    job = after(running(session()), notice(reason), e.Deadline())
    return after(job, e.Freed(job.attempt, (IMAGE,)))


def test_a_batch_job_runs_to_its_exit() -> None:
    done = after(running(batch()), e.Exited(1, 0), now=NOW + 10)
    assert done.state is State.COMPLETED
    assert done.gpu_seconds == pytest.approx(5.0)
    assert done.served == pytest.approx(10.0)


def test_an_exit_before_it_was_seen_started_is_a_normal_end() -> None:
    assert after(placed(batch()), e.Exited(1, 0)).state is State.COMPLETED


def test_a_fact_about_another_attempt_changes_nothing() -> None:
    job = running(batch(attempt=1))
    assert job.attempt == 2
    for fact in (e.Exited(1, 0), e.Lost(1), e.Refused(1), e.Freed(1), e.Started(1)):
        assert advance(job, fact, NOW) == (job, ())


def test_a_failure_goes_back_to_its_place_until_the_restarts_are_used_up() -> None:
    job = batch(terms=Terms(max_restarts=1), submitted=5.0)
    again = after(running(job), e.Exited(1, 3, rank=2, text="boom"))
    assert (again.state, again.restarts, again.submitted) == (State.QUEUED, 1, 5.0)
    failed = after(running(again), e.Exited(2, 3, rank=2, text="boom"))
    assert failed.state is State.FAILED
    assert "rank 2: exit 3" in failed.outcome
    assert "boom" in failed.outcome


def test_exit_75_costs_a_restart_only_where_no_checkpoint_advanced() -> None:
    saved = after(running(batch()), e.Mark(step=7), e.Exited(1, 75))
    assert (saved.state, saved.restarts) == (State.QUEUED, 0)
    stuck = after(running(saved), e.Exited(2, 75))
    assert (stuck.state, stuck.restarts) == (State.QUEUED, 1)


def test_a_preempted_batch_job_is_signalled_at_once_and_keeps_its_place() -> None:
    job = after(running(batch(submitted=5.0)), notice(Reason.PREEMPTED))
    assert job.state is State.STOPPING
    assert [stage.name for stage in job.stages] == [
        StageName.SIGNAL,
        StageName.KILL,
        StageName.FENCE,
    ]
    back = after(job, e.Exited(1, -15))
    assert (back.state, back.submitted, back.preemptions) == (State.QUEUED, 5.0, 1)
    assert (back.restarts, back.start_failures) == (0, 0)


@pytest.mark.parametrize(
    ("job", "exit_event", "state"),
    [
        (batch(), e.Exited(1, 0, all_zero=True), State.QUEUED),
        (batch(exit_zero_done=True), e.Exited(1, 0, all_zero=True), State.COMPLETED),
        (batch(torchrun=True), e.Exited(1, 0, all_zero=True), State.COMPLETED),
        (batch(torchrun=True), e.Exited(1, 1), State.QUEUED),
        (batch(complete=True), e.Exited(1, 1), State.COMPLETED),
    ],
)
def test_exit_zero_after_a_signal_is_completion_only_where_it_can_be_told(
    job: Job, exit_event: e.Exited, state: State
) -> None:
    assert after(running(job), notice(Reason.PREEMPTED), exit_event).state is state


def test_a_session_is_warned_and_use_rescues_it() -> None:
    job = after(running(session()), notice(Reason.IDLE))
    assert job.state is State.DRAINING
    assert job.deadline == NOW + 10
    rescued = after(job, e.Active())
    assert rescued.state is State.RUNNING
    assert rescued.shield_until == NOW + job.terms.shield


def test_use_does_not_rescue_from_maintenance() -> None:
    job = after(running(session()), notice(Reason.DRAIN), e.Active())
    assert job.state is State.DRAINING


def test_keep_is_bounded() -> None:
    job = running(session())
    job = after(job, e.Keep(), e.Keep())
    with pytest.raises(Conflict, match="2 of 2"):
        advance(job, e.Keep(), NOW)


def test_a_keep_that_is_refused_says_why() -> None:
    leaving = after(running(session()), notice(Reason.PREEMPTED))
    with pytest.raises(Conflict, match="not because it is idle"):
        advance(leaving, e.Keep(), NOW)
    with pytest.raises(Conflict, match="parked: keep is not possible"):
        advance(parked(), e.Keep(), NOW)


def test_a_session_parks_and_resumes_with_what_it_kept() -> None:
    job = parked()
    assert (job.state, job.rung, job.parked_for) == (State.PARKED, Rung.GPU_STATE, Reason.IDLE)
    job = after(job, e.Resume(person=False), now=NOW + 50)
    assert (job.state, job.eligible, job.kept) == (State.QUEUED, NOW + 50, (IMAGE,))
    job = placed(job, NOW + 60)
    assert job.kept == (IMAGE,)
    job = after(job, e.Prepared(2), e.Started(2), now=NOW + 61)
    assert (job.state, job.kept, job.parked_for) == (State.RUNNING, (), None)


def test_a_server_cannot_bind_kernels_before_what_was_kept_is_restored() -> None:
    job = placed(after(parked(), e.Resume(person=True)))
    early = after(job, e.Started(job.attempt))
    assert (early.state, early.kept) == (State.STARTING, (IMAGE,))
    refused = after(early, e.RestoreFailed(job.attempt, "no room"), e.Freed(job.attempt))
    assert (refused.state, refused.kept) == (State.PARKED, (IMAGE,))


def test_a_resume_that_is_given_up_leaves_the_session_parked() -> None:
    job = after(parked(), e.Resume(person=False), e.Park())
    assert (job.state, job.kept, job.parked_for) == (State.PARKED, (IMAGE,), Reason.IDLE)
    with pytest.raises(Conflict, match="queued"):
        advance(session(), e.Park(), NOW)


def test_parked_time_does_not_count_against_the_time_limit() -> None:
    job = after(running(session()), e.Park(), now=NOW + 100)
    job = after(job, e.Freed(1, (IMAGE,)), now=NOW + 110)
    assert job.served == pytest.approx(110)
    assert after(job, e.Resume(), now=NOW + 5000).served == pytest.approx(110)


def test_after_a_time_limit_only_a_person_resumes() -> None:
    job = running(session())
    assert job.lease is not None
    job = after(job, e.Deadline(), now=job.lease.expires)
    assert job.notice is not None
    assert job.notice.reason is Reason.TIME
    job = after(job, e.Freed(1, (IMAGE,)), now=NOW + 3700)
    with pytest.raises(Conflict, match="time limit"):
        advance(job, e.Resume(person=False), NOW + 3800)
    again = after(job, e.Resume(person=True), now=NOW + 3800)
    assert (again.state, again.served, again.submitted) == (State.QUEUED, 0.0, NOW + 3800)


def test_a_job_that_saved_at_its_time_limit_gets_its_whole_time_again() -> None:
    late = NOW + 3600
    stopping = after(running(batch(submitted=5.0)), e.Deadline(), now=late)
    again = after(stopping, e.Exited(1, 75), now=late)
    assert (again.state, again.served, again.restarts) == (State.QUEUED, 0.0, 0)
    assert (again.submitted, again.eligible) == (5.0, late)
    assert after(replace(stopping, requeue=False), e.Exited(1, 75)).state is State.FAILED


def test_the_ladder_goes_down_a_stage_at_each_deadline() -> None:
    job = after(running(session()), e.Park())
    seen = []
    while job.state is State.STOPPING:
        seen.append(job.stages[0].name)
        assert job.until is not None
        job, effects = advance(job, e.Deadline(), job.until)
    assert seen == [StageName.PARK, StageName.RESTART, StageName.KILL, StageName.FENCE]
    assert any(isinstance(effect, e.Quarantine) for effect in effects)
    assert job.rung is Rung.NOTHING


@pytest.mark.parametrize(
    ("deadlines", "rung"), [(0, Rung.GPU_STATE), (1, Rung.SERVER), (2, Rung.SERVER)]
)
def test_what_is_kept_is_the_rung_that_was_reached(deadlines: int, rung: Rung) -> None:
    job = after(running(session()), e.Park(), *[e.Deadline()] * deadlines)
    assert after(job, e.Freed(1)).rung is rung


def test_a_failed_restore_leads_back_to_parked_with_the_earlier_image() -> None:
    job = placed(after(parked(), e.Resume()))
    job = after(job, e.RestoreFailed(2, "no room"), e.Freed(2))
    assert (job.state, job.kept) == (State.PARKED, (IMAGE,))


def test_cancel_while_parking_drops_what_was_kept() -> None:
    job = after(running(session()), e.Park(), e.Cancel())
    done = after(job, e.Freed(1, (IMAGE,)))
    assert (done.state, done.kept) == (State.CANCELLED, ())


def test_a_merge_never_gives_a_stage_more_time() -> None:
    job = after(running(session()), e.Park())
    until = job.until
    assert until is not None
    later = after(job, e.Cancel(), now=until - 1)
    assert later.until == until
    sooner = after(job, e.Cancel())
    assert sooner.until == NOW + job.terms.stop


def test_a_vanished_server_may_come_back_in_time() -> None:
    job = after(running(session()), e.HolderGone(1))
    assert job.notice is not None
    assert (job.state, job.notice.reason) == (State.DRAINING, Reason.HOLDER)
    assert job.deadline == NOW + job.terms.holder_grace
    back = after(job, e.Hello(Holder("h", "b", 2, 2), 2), e.Started(1))
    assert (back.state, back.incarnation) == (State.RUNNING, 2)
    gone = after(job, e.Deadline(), e.Freed(1))
    assert gone.state is State.COMPLETED


def test_news_of_an_older_server_never_touches_the_new_one() -> None:
    job = running(session(incarnation=2))
    assert after(job, e.HolderGone(1)) == job
    assert after(job, e.Hello(Holder("h", "b", 2, 2), 1)) == job


def test_a_start_that_is_refused_avoids_the_node_and_gives_up_after_five() -> None:
    job = batch()
    for attempt in range(1, 5):
        job = after(placed(job), e.Refused(attempt, "node1", "busy"))
        assert job.state is State.QUEUED
        assert job.avoid == (("node1", NOW + 300),)
    job = after(placed(job), e.Refused(5, "node1", "busy"))
    assert job.state is State.FAILED
    assert "busy" in job.outcome


def test_a_lost_part_costs_a_restart() -> None:
    job = after(running(batch()), e.Lost(1), e.Exited(1, -9))
    assert (job.state, job.restarts) == (State.QUEUED, 1)


def test_an_admin_can_end_anything_and_its_shares_stay_quarantined() -> None:
    done, effects = advance(running(session()), e.Force(), NOW)
    assert done.state is State.CANCELLED
    assert any(isinstance(effect, e.Quarantine) for effect in effects)


def test_terminal_states_ignore_facts_and_refuse_other_verbs() -> None:
    done = after(running(batch()), e.Exited(1, 0))
    assert advance(done, e.Exited(1, 9), NOW) == (done, ())
    assert advance(done, e.Cancel(), NOW) == (done, ())
    with pytest.raises(Conflict, match="completed"):
        advance(done, e.Extend(60), NOW)


# --- walks ------------------------------------------------------------------------------


def _event(kind: type[e.Event], job: Job, draw: st.DataObject, now: float) -> e.Event:
    return happening(kind, job, now, lambda some: draw.draw(st.sampled_from(some)))


def _step(job: Job, event: e.Event, now: float) -> Job:
    try:
        job, effects = advance(job, event, now)
    except Conflict:
        return job
    assert all(isinstance(effect, e.Effect) for effect in effects)
    return check(job)


EVENTS = sorted({kind for _, kind in TABLE}, key=lambda kind: kind.__name__)


@settings(max_examples=400)
@given(
    st.data(),
    st.sampled_from(
        [
            batch(),
            session(),
            session(binding=Binding.SERVER, terms=Terms()),
            batch(state=State.HELD, until=NOW + 9),
        ]
    ),
)
def test_no_sequence_of_events_breaks_an_invariant_and_every_job_can_end(
    draw: st.DataObject, job: Job
) -> None:
    now = NOW
    attempts = job.attempt
    for _ in range(draw.draw(st.integers(0, 30))):
        now += draw.draw(st.sampled_from([0.0, 1.0, 200.0]))
        kind = draw.draw(
            st.sampled_from([ev for state, ev in TABLE if state is job.state] or EVENTS)
        )
        event = _event(kind, job, draw, now)
        job = _step(job, event, now)
        assert job.attempt >= attempts
        attempts = job.attempt
    _ends(job, now)


def _ends(job: Job, now: float) -> None:
    """Once people and faults stop and the engine answers, it ends."""
    for _ in range(60):
        if job.state in TERMINAL:
            return
        granted = lease(job.attempt + 1, mode_of(job), now)
        ready = job.prepared or job.kind is Kind.BATCH
        answers: dict[State, e.Event] = {
            State.HELD: e.Deadline(),
            State.QUEUED: e.Place(granted, job.terms, 120.0),
            State.STARTING: e.Started(job.attempt) if ready else e.Prepared(job.attempt),
            State.RUNNING: e.Exited(job.attempt, 0),
            State.DRAINING: e.Deadline(),
            State.STOPPING: e.Exited(job.attempt, 0),
            State.PARKED: e.Deadline(),
        }
        now = max(now, job.deadline or now)
        job = _step(job, answers[job.state], now)
    raise AssertionError(f"did not end: {job}")


def test_every_living_state_has_a_row_for_its_deadline() -> None:
    for state in State:
        if state not in TERMINAL:
            assert (state, e.Deadline) in TABLE


def test_every_living_state_can_be_cancelled_and_forced() -> None:
    for state in State:
        if state not in TERMINAL:
            assert (state, e.Cancel) in TABLE
            assert (state, e.Force) in TABLE


def test_every_leased_state_hears_of_proof_that_processes_ended() -> None:
    for state in LEASED:
        assert (state, e.Exited) in TABLE
