# SPDX-License-Identifier: BSD-3-Clause
"""What each row of the state table does to a Job.

A move is pure: ``(job, event, now) -> (job, effects)``. The table decides when.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from . import events as e
from .model import (
    Job,
    Kept,
    Kind,
    Reason,
    Rung,
    Seconds,
    State,
)

Result = tuple[Job, tuple[e.Effect, ...]]
Move = Callable[[Job, Any, Seconds], Result]

CHECKPOINTED = 75
"""EX_TEMPFAIL: "checkpointed, run me again"."""


# --- small steps --------------------------------------------------------------------


def off(job: Job, now: Seconds) -> Result:
    """The Job without its lease and notice; the lease's use is accounted."""
    if job.lease is None:
        return replace(job, notice=None, stages=(), reserved=None), ()
    used = max(0.0, now - job.lease.since)
    freed = replace(
        job,
        lease=None,
        notice=None,
        stages=(),
        prepared=False,
        served=job.served + used,
        gpu_seconds=job.gpu_seconds + used * job.lease.milli / 1000,
    )
    return freed, (e.Released(job.lease, used),)


def end(job: Job, state: State, outcome: str, now: Seconds) -> Result:
    """The Job in a terminal state; what it kept is not wanted any more."""
    rest, effects = off(job, now)
    return replace(rest, state=state, since=now, until=None, outcome=outcome, kept=()), effects


def queue(job: Job, now: Seconds, **changes: Any) -> Result:
    """Back to the queue with its place; ``eligible`` moves only where a row says so."""
    rest, effects = off(job, now)
    wait = job.terms.max_wait
    until = None if wait is None else now + wait
    return replace(rest, state=State.QUEUED, since=now, until=until, **changes), effects


def parked(job: Job, kept: tuple[Kept, ...], reason: Reason, now: Seconds) -> Result:
    """PARKED with what is kept; remembers the reason it was parked for."""
    rest, effects = off(job, now)
    after = replace(
        rest,
        state=State.PARKED,
        since=now,
        until=now + job.terms.kept_for,
        kept=kept,
        parked_for=reason,
    )
    return after, effects


# --- waiting ------------------------------------------------------------------------


def same(job: Job, _event: e.Event, _now: Seconds) -> Result:
    """Nothing changes."""
    return job, ()


def queue_now(job: Job, _event: e.Event, now: Seconds) -> Result:
    """HELD -> QUEUED; age counts from now."""
    return queue(job, now, eligible=now)


def hold(job: Job, _event: e.Hold, now: Seconds) -> Result:
    """QUEUED -> HELD."""
    until = now + job.terms.hold
    return replace(job, state=State.HELD, since=now, until=until, reserved=None), ()


def reserve(job: Job, event: e.Reserve, _now: Seconds) -> Result:
    """What is kept free for it is now this."""
    return replace(job, reserved=event.reservation), ()


def place(job: Job, event: e.Place, now: Seconds) -> Result:
    """QUEUED -> STARTING with the next attempt."""
    assert event.lease.attempt == job.attempt + 1, (job, event)
    return replace(
        job,
        state=State.STARTING,
        since=now,
        until=now + event.start,
        reserved=None,
        lease=event.lease,
        terms=event.terms,
        attempt=event.lease.attempt,
        prepared=False,
        keeps_used=0,
        checkpoint_at_start=job.checkpoint,
        code=None,
        failed_rank=None,
    ), ()


def park_again(job: Job, _event: e.Event, now: Seconds) -> Result:
    """Back to PARKED with what was kept before."""
    return parked(job, job.kept, job.parked_for or Reason.USER, now)


def end_cancelled(job: Job, event: e.Event, now: Seconds) -> Result:
    """Ended by its owner, or held too long."""
    words = "held too long" if isinstance(event, e.Deadline) else "cancelled"
    if isinstance(event, e.Cancel | e.Withdraw):
        words = event.text or words
    return end(job, State.CANCELLED, words, now)


def end_waited(job: Job, _event: e.Deadline, now: Seconds) -> Result:
    """Waited longer than its class allows."""
    return end(job, State.FAILED, "waited longer than allowed", now)


def end_completed(job: Job, event: e.Event, now: Seconds) -> Result:
    """A session is over; what it kept is deleted."""
    words = "its server is gone" if isinstance(event, e.HolderGone) else "released"
    return end(job, State.COMPLETED, words, now)


def end_expired(job: Job, _event: e.Deadline, now: Seconds) -> Result:
    """Parked for longer than allowed."""
    return end(job, State.CANCELLED, "parked too long: what was kept has expired", now)


def kept_lost(job: Job, event: e.KeptLost, _now: Seconds) -> Result:
    """Part of what was kept is gone; where nothing remains, say so."""
    return replace(job, kept=event.kept or (Kept("", job.attempt, Rung.NOTHING),)), ()


def resume(job: Job, _event: e.Resume, now: Seconds) -> Result:
    """PARKED -> QUEUED; after a time limit it is a new request of time."""
    if job.parked_for is Reason.TIME:
        return queue(job, now, eligible=now, submitted=now, served=0.0, extended=0.0)
    return queue(job, now, eligible=now)


def hello(job: Job, event: e.Hello, _now: Seconds) -> Result:
    """The server's extension is up and holds the session now."""
    return replace(job, holder=event.holder, incarnation=event.incarnation), ()


def adopt(job: Job, event: e.Adopt, _now: Seconds) -> Result:
    """A new start of the server takes the session over; its old holder is forgotten."""
    return replace(job, incarnation=event.incarnation, holder=None, attach=event.attach), ()


def retune(job: Job, event: e.Retune, _now: Seconds) -> Result:
    """New terms; what its owner asked for, the parking ladder and the keep budget stay."""
    old = job.terms
    terms = replace(event.terms, max_restarts=old.max_restarts, park=old.park)
    if job.lease is not None:
        terms = replace(terms, keep=old.keep, keeps=old.keeps)
    return (job if terms == old else replace(job, terms=terms)), ()


# --- starting -----------------------------------------------------------------------


def prepared(job: Job, _event: e.Prepared, _now: Seconds) -> Result:
    """The holder may bind its kernels now."""
    return replace(job, prepared=True), ()


def started(job: Job, event: e.Started, now: Seconds) -> Result:
    """STARTING -> RUNNING; only now is what was kept given up."""
    return replace(
        job,
        state=State.RUNNING,
        since=now,
        until=None,
        holder=event.holder or job.holder,
        kept=(),
        parked_for=None,
        prepared=True,
        started_attempt=job.attempt,
        start_failures=0,
        shield_until=now + job.terms.shield,
    ), ()


def refused_again(job: Job, event: e.Refused, now: Seconds) -> Result:
    """Nothing ran: back to its place, another node first."""
    avoid = tuple(pair for pair in job.avoid if pair[1] > now and pair[0] != event.node)
    if event.node:
        avoid = (*avoid, (event.node, now + job.terms.avoid))
    return queue(job, now, start_failures=job.start_failures + 1, avoid=avoid)


def refused_end(job: Job, event: e.Refused, now: Seconds) -> Result:
    """Refused too often."""
    tries = job.start_failures + 1
    ended = replace(job, start_failures=tries)
    return end(ended, State.FAILED, f"did not start in {tries} tries: {event.text}", now)


# --- running ------------------------------------------------------------------------


def holder_back(job: Job, event: e.Started, _now: Seconds) -> Result:
    """The holder bound its kernels again."""
    return replace(job, holder=event.holder or job.holder), ()


def keep(job: Job, _event: e.Keep, now: Seconds) -> Result:
    """*Keep*: shielded for a while; a notice of idleness is answered."""
    until = now + job.terms.keep
    running = replace(job, keeps_used=job.keeps_used + 1, shield_until=until)
    if job.state is State.DRAINING:
        return replace(running, state=State.RUNNING, since=now, notice=None), ()
    return running, ()


def rescue(job: Job, _event: e.Event, now: Seconds) -> Result:
    """DRAINING -> RUNNING: it is in use after all; shielded."""
    shield = max(job.shield_until, now + job.terms.shield)
    return replace(job, state=State.RUNNING, since=now, notice=None, shield_until=shield), ()


def reprieve(job: Job, _event: e.Reprieve, now: Seconds) -> Result:
    """DRAINING -> RUNNING: nobody needs its GPUs any more."""
    return replace(job, state=State.RUNNING, since=now, notice=None), ()


def extend(job: Job, event: e.Extend, _now: Seconds) -> Result:
    """More leased time."""
    assert job.lease is not None
    lease = replace(job.lease, expires=job.lease.expires + event.seconds)
    return replace(job, lease=lease, extended=job.extended + event.seconds), ()


def mark(job: Job, event: e.Mark, now: Seconds) -> Result:
    """What the program said of itself; a step never goes back."""
    marked = replace(job, complete=job.complete or event.complete)
    if event.step is None or (job.checkpoint is not None and event.step <= job.checkpoint):
        return marked, ()
    return replace(marked, checkpoint=event.step, saved_at=now), ()


def exited(job: Job, event: e.Exited, now: Seconds) -> Result:
    """All processes ended by themselves."""
    job = replace(job, code=event.code, failed_rank=event.rank)
    if event.code == 0 or job.complete:
        words = "exit 0" if event.code == 0 else "its program says that its work is done"
        return end(job, State.COMPLETED, words, now)
    if job.kind is Kind.SESSION:
        return end(job, State.FAILED, f"the server ended with {event.code}", now)
    saved = job.checkpoint is not None and job.checkpoint != job.checkpoint_at_start
    if event.code == CHECKPOINTED and saved:
        return queue(job, now)
    if job.restarts < job.terms.max_restarts:
        return queue(job, now, restarts=job.restarts + 1)
    return end(job, State.FAILED, exit_words(event), now)


def exit_words(event: e.Exited) -> str:
    """``rank 3: exit 1`` or ``rank 3: killed by signal 9``, with the last lines."""
    how = f"exit {event.code}" if event.code >= 0 else f"killed by signal {-event.code}"
    who = "" if event.rank is None else f"rank {event.rank}: "
    return who + how + (f"\n{event.text}" if event.text else "")
