# SPDX-License-Identifier: BSD-3-Clause
"""Moves of a Job that has to leave: notices, the stages of STOPPING, and its end."""

from __future__ import annotations

from dataclasses import replace

from . import events as e
from .model import (
    Binding,
    Job,
    Kept,
    Kind,
    Mode,
    Notice,
    Reason,
    Rung,
    Seconds,
    Stage,
    StageName,
    State,
)
from .moves import CHECKPOINTED, Move, Result, end, parked, queue, refused_again, refused_end

ENDS_FOR_GOOD = (Reason.CANCEL, Reason.RELEASE, Reason.HOLDER)
"""A session that stops for one of these is over; for any other it is parked, or tried again."""
LEFT_FOR_MAX = 256
"""Jobs that one remembers having had to leave for."""


def _stages(job: Job, reason: Reason) -> tuple[Stage, ...]:
    terms = job.terms
    last = (Stage(StageName.KILL, terms.stop), Stage(StageName.FENCE, terms.fence))
    if job.kind is Kind.BATCH:
        gentle = reason in (Reason.PREEMPTED, Reason.DRAIN, Reason.IDLE)
        return (Stage(StageName.SIGNAL, terms.grace if gentle else terms.stop), *last)
    if reason is Reason.HOLDER:
        return last  # nobody is there to restart its kernels
    if reason in ENDS_FOR_GOOD or not terms.park:
        first = StageName.SIGNAL if _goes_whole(job) else StageName.RESTART
        return (Stage(first, terms.stop), *last)
    return (*(Stage(name, seconds) for name, seconds in terms.park), *last)


def _goes_whole(job: Job) -> bool:
    """True where the server itself has to leave, and not only its kernels."""
    hosted = job.lease is not None and job.lease.mode is Mode.HOSTED
    return hosted or job.binding is Binding.SERVER


def _stop(job: Job, notice: Notice, now: Seconds) -> Result:
    stages = _stages(job, notice.reason)
    until = now + stages[0].seconds
    if job.state is State.RUNNING and job.kind is Kind.BATCH and notice.deadline > now:
        until = min(until, notice.deadline)
    stopping = replace(
        job, state=State.STOPPING, since=now, until=until, notice=notice, stages=stages
    )
    return stopping, ()


def notice_id(job: Job, reason: Reason, now: Seconds) -> str:
    """Names a notice for good: browsers show one once."""
    return f"{job.id}.{job.attempt}-{reason}-{int(now)}"


def _notice(job: Job, reason: Reason, deadline: Seconds, now: Seconds) -> Notice:
    return Notice(reason, deadline, None, notice_id(job, reason, now))


def drain(job: Job, event: e.Notify, now: Seconds) -> Result:
    """RUNNING -> DRAINING."""
    return replace(job, state=State.DRAINING, since=now, notice=event.notice), ()


def drain_holder(job: Job, _event: e.HolderGone, now: Seconds) -> Result:
    """Its server is gone; the same user and server name may take over in time."""
    notice = _notice(job, Reason.HOLDER, now + job.terms.holder_grace, now)
    return replace(job, state=State.DRAINING, since=now, notice=notice), ()


def _merged(job: Job, reason: Reason, deadline: Seconds) -> Job:
    assert job.notice is not None
    old = job.notice
    stronger = reason if reason.rank >= old.reason.rank else old.reason
    return replace(job, notice=replace(old, reason=stronger, deadline=min(old.deadline, deadline)))


def merge_notice(job: Job, event: e.Notify, _now: Seconds) -> Result:
    """The stronger reason, the earlier deadline."""
    merged = _merged(job, event.notice.reason, event.notice.deadline)
    assert merged.notice is not None
    for_job = event.notice.for_job or merged.notice.for_job
    return replace(merged, notice=replace(merged.notice, for_job=for_job)), ()


def merge_holder(job: Job, _event: e.HolderGone, now: Seconds) -> Result:
    """The holder of a draining session is gone."""
    return _merged(job, Reason.HOLDER, now + job.terms.holder_grace), ()


def merge(reason: Reason) -> Move:
    """STOPPING hears of a stronger reason; its stage never lasts longer for it."""

    def move(job: Job, _event: e.Event, now: Seconds) -> Result:
        assert job.until is not None
        until = min(job.until, now + job.terms.stop)
        return replace(_merged(job, reason, until), until=until), ()

    return move


def stop(reason: Reason) -> Move:
    """-> STOPPING for this reason; a notice's ``for`` is kept."""

    def move(job: Job, _event: e.Event, now: Seconds) -> Result:
        notice = _notice(job, reason, now, now)
        if job.notice is not None:
            stronger = reason if reason.rank >= job.notice.reason.rank else job.notice.reason
            notice = replace(job.notice, reason=stronger, deadline=now)
        return _stop(job, notice, now)

    return move


def stop_by_notice(job: Job, event: e.Notify, now: Seconds) -> Result:
    """-> STOPPING: this Job is signalled at once, its notice is its grace."""
    return _stop(job, event.notice, now)


def stop_by_park(job: Job, event: e.Park, now: Seconds) -> Result:
    """-> STOPPING and then PARKED."""
    return stop(event.reason)(job, event, now)


def stop_drained(job: Job, event: e.Deadline, now: Seconds) -> Result:
    """The notice is over: TIME if it was the lease that ended, else its own reason."""
    assert job.notice is not None
    assert job.lease is not None
    if now >= job.lease.expires:
        return stop(Reason.TIME)(job, event, now)
    return _stop(job, job.notice, now)


def next_stage(job: Job, _event: e.Event, now: Seconds) -> Result:
    """The stage did not bring the proof in time: the next one."""
    stages = job.stages[1:]
    return replace(job, stages=stages, until=now + stages[0].seconds), ()


def skip_park(job: Job, event: e.NoRoom, now: Seconds) -> Result:
    """There is no room for its GPU memory: the next rung, for this lease."""
    return next_stage(below_park(job), event, now)


def below_park(job: Job) -> Job:
    """The same, but without the rung that keeps its GPU memory."""
    below = tuple(rung for rung in job.terms.park if rung[0] is not StageName.PARK)
    return replace(job, terms=replace(job.terms, park=below))


def fence(job: Job, _event: e.Lost, now: Seconds) -> Result:
    """Nothing can be asked of a lost part any more."""
    assert job.until is not None
    last = job.stages[-1]
    merged = _merged(job, Reason.LOST, job.until)
    return replace(merged, stages=(last,), until=min(job.until, now + last.seconds)), ()


def stopped_without_proof(job: Job, event: e.Deadline, now: Seconds) -> Result:
    """The last stage is over: the Job leaves, its Shares stay behind."""
    assert job.lease is not None
    quarantine = e.Quarantine(job.lease)
    after, effects = stopped(job, event, now)
    return after, (*effects, quarantine)


def force(job: Job, _event: e.Force, now: Seconds) -> Result:
    """Admin: ended now; what it held is quarantined."""
    quarantine = (e.Quarantine(job.lease),) if job.lease is not None else ()
    after, effects = end(job, State.CANCELLED, "ended by an admin", now)
    return after, effects + quarantine


_WHOLE_WORDS = {Reason.TIME: "time limit", Reason.LOST: "a part was lost"}

STOPPED_WORDS = (
    "| cancel | any | cancelled |",
    "| release, holder | session | completed |",
    "| start, lost | session not started in this attempt, bound by kernel | as Refused |",
    "| any other | session not started in this attempt, nothing kept | cancelled |",
    "| any other | session bound to its server | completed; failed if lost or over |",
    "| any other | session | parked |",
    "| any other | batch that marked complete, or all agents gave 0 | completed |",
    "| time | batch | failed; queued for its whole time again if it gave 75 and asks for it |",
    "| lost | batch | queued while restarts are left, else failed |",
    "| start | batch | queued, avoiding the node, fewer than 5 times; else failed |",
    "| over | batch | failed |",
    "| user | batch | cancelled |",
    "| preempted, drain, idle | batch | queued with its place |",
)


def stopped(job: Job, event: e.Event, now: Seconds) -> Result:
    """The end of STOPPING (``STOPPED_WORDS``)."""
    assert job.notice is not None
    reason = job.notice.reason
    if isinstance(event, e.Exited):
        job = replace(job, code=event.code, failed_rank=event.rank)
    if job.kind is Kind.SESSION:
        job = replace(job, kept=_kept_by_stop(job, event))
    if reason is Reason.CANCEL:
        return end(job, State.CANCELLED, "cancelled", now)
    if reason in (Reason.RELEASE, Reason.HOLDER):
        words = "released" if reason is Reason.RELEASE else "its server is gone"
        return end(job, State.COMPLETED, words, now)
    if job.kind is Kind.SESSION:
        return _session_stopped(job, reason, now)
    return _batch_stopped(job, reason, event, now)


def _kept_by_stop(job: Job, event: e.Event) -> tuple[Kept, ...]:
    """What this stop kept; if the restore before it was not done, the earlier kept."""
    if isinstance(event, e.Freed) and event.kept:
        return event.kept
    if job.started_attempt != job.attempt:
        return job.kept
    stage = job.stages[0].name
    if stage is StageName.PARK and isinstance(event, e.Freed):
        # No process of the session was on its GPUs: nothing is lost.
        return (Kept("", job.attempt, Rung.GPU_STATE),)
    rung = Rung.NOTHING if stage is StageName.FENCE else Rung.SERVER
    return (Kept("", job.attempt, rung),)


def _session_stopped(job: Job, reason: Reason, now: Seconds) -> Result:
    whole = job.binding is Binding.SERVER
    if job.started_attempt != job.attempt:
        # A server that is being launched cannot change over to other GPUs.
        if reason in (Reason.START, Reason.LOST) and not whole:
            return _start_failed(job, f"did not start in time ({reason})", now)
        if not job.kept:
            return end(job, State.CANCELLED, "stopped before it started", now)
    if whole:
        state = State.FAILED if reason in (Reason.LOST, Reason.OVER) else State.COMPLETED
        return end(job, state, f"its server was stopped ({_WHOLE_WORDS.get(reason, reason)})", now)
    return parked(job, job.kept, reason, now)


def _start_failed(job: Job, text: str, now: Seconds) -> Result:
    assert job.lease is not None
    node = job.lease.placement[0].node
    event = e.Refused(job.attempt, node, text)
    if job.start_failures + 1 < job.terms.max_start_failures:
        return refused_again(job, event, now)
    if job.kept:
        return parked(job, job.kept, job.parked_for or Reason.START, now)
    return refused_end(job, event, now)


def _batch_stopped(job: Job, reason: Reason, event: e.Event, now: Seconds) -> Result:
    exit_event = event if isinstance(event, e.Exited) else None
    code = None if exit_event is None else exit_event.code
    all_zero = exit_event is not None and exit_event.all_zero
    done = job.complete or (all_zero and (job.torchrun or job.exit_zero_done))
    if done:
        return end(job, State.COMPLETED, "completed while it was asked to leave", now)
    match reason:
        case Reason.TIME:
            if code == CHECKPOINTED and job.requeue:
                # It asks for its whole time again, behind those who wait already.
                return queue(job, now, eligible=now, served=0.0, extended=0.0)
            return end(job, State.FAILED, "time limit", now)
        case Reason.LOST:
            if job.restarts < job.terms.max_restarts:
                return queue(job, now, restarts=job.restarts + 1)
            return end(job, State.FAILED, "a part was lost", now)
        case Reason.START:
            return _start_failed(job, "did not start in time", now)
        case Reason.OVER:
            return end(job, State.FAILED, "used more than its share", now)
        case Reason.USER:
            return end(job, State.CANCELLED, "stopped by its owner", now)
        case _:
            assert job.notice is not None
            who = job.notice.for_job
            left_for = job.left_for if who is None else (*job.left_for, who)[-LEFT_FOR_MAX:]
            return queue(job, now, preemptions=job.preemptions + 1, left_for=left_for)
