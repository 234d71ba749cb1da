# SPDX-License-Identifier: BSD-3-Clause
"""The one state machine: ``TABLE`` and ``advance(job, event, now)``.

Rows are tried in order; the first whose guard holds is taken. An event without a row
is a late fact (ignored) or a verb that the state does not allow (``Conflict``).
What a transition does to the Job lives in ``moves`` and ``leaving``; this file says when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import events as e
from . import leaving as out
from . import moves as m
from .model import (
    TERMINAL,
    Binding,
    Conflict,
    Job,
    Kind,
    Mode,
    Reason,
    Seconds,
    StageName,
    State,
    check,
)

S = State
Guard = Callable[[Job, Any], bool]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    guard: Guard
    when: str
    """The guard in words; empty = always."""
    move: m.Move
    next: str
    """The state it leads to, in words for the docs."""


def _always(_job: Job, _event: Any) -> bool:
    return True


def _session(job: Job, _event: Any) -> bool:
    return job.kind is Kind.SESSION


def _parkable(job: Job, _event: Any) -> bool:
    """A server that was launched with its GPUs cannot go on without them."""
    return job.kind is Kind.SESSION and job.binding is Binding.KERNEL


def _batch(job: Job, _event: Any) -> bool:
    return job.kind is Kind.BATCH


def _bindable(job: Job, _event: Any) -> bool:
    """Nobody can have bound kernels before the lease is granted and what was kept restored:
    with Started that is given up."""
    return job.prepared or (job.lease is not None and job.lease.mode is Mode.HOSTED)


def _kept(job: Job, _event: Any) -> bool:
    return bool(job.kept)


def _may_start_again(job: Job, _event: Any) -> bool:
    return job.start_failures + 1 < job.terms.max_start_failures


def _holder_of_this(job: Job, event: e.HolderGone) -> bool:
    held = job.lease is None or job.lease.mode is Mode.HELD
    return job.kind is Kind.SESSION and held and event.incarnation == job.incarnation


def _not_older(job: Job, event: e.Hello | e.Adopt) -> bool:
    return job.kind is Kind.SESSION and event.incarnation >= job.incarnation


def _reason(*reasons: Reason) -> Guard:
    return lambda job, _event: job.notice is not None and job.notice.reason in reasons


def _keeps_left(job: Job, _event: Any) -> bool:
    return job.kind is Kind.SESSION and job.keeps_used < job.terms.keeps


def _idle_keeps_left(job: Job, event: Any) -> bool:
    return _keeps_left(job, event) and _reason(Reason.IDLE)(job, event)


def _drains(job: Job, event: e.Notify) -> bool:
    return job.kind is Kind.SESSION or event.notice.reason is Reason.DRAIN


def _may_resume(job: Job, event: e.Resume) -> bool:
    return event.person or job.parked_for is not Reason.TIME


def _parks(job: Job, _event: Any) -> bool:
    return job.stages[0].name is StageName.PARK


def _more_stages(job: Job, _event: Any) -> bool:
    return len(job.stages) > 1


_Rows = list[tuple[tuple[State, ...], type[e.Event], Row]]


def _row(move: m.Move, next_state: str, guard: Guard = _always, when: str = "") -> Row:
    return Row(guard=guard, when=when, move=move, next=next_state)


def _waiting_rows() -> _Rows:
    return [
        ((S.HELD,), e.Unhold, _row(m.queue_now, "queued")),
        ((S.HELD,), e.Cancel, _row(m.end_cancelled, "cancelled")),
        ((S.HELD,), e.Deadline, _row(m.end_cancelled, "cancelled")),
        ((S.QUEUED,), e.Place, _row(m.place, "starting")),
        ((S.QUEUED,), e.Reserve, _row(m.reserve, "unchanged")),
        ((S.QUEUED,), e.Hold, _row(m.hold, "held", _batch, "batch")),
        ((S.QUEUED,), e.Withdraw, _row(m.park_again, "parked", _kept, "something is kept")),
        ((S.QUEUED,), e.Withdraw, _row(m.end_cancelled, "cancelled")),
        ((S.QUEUED,), e.Park, _row(m.park_again, "parked", _kept, "something is kept")),
        ((S.QUEUED,), e.Deadline, _row(m.park_again, "parked", _kept, "something is kept")),
        ((S.QUEUED,), e.Deadline, _row(m.end_waited, "failed")),
        ((S.QUEUED,), e.Cancel, _row(m.end_cancelled, "cancelled")),
        ((S.QUEUED,), e.Release, _row(m.end_completed, "completed", _session, "session")),
        (
            (S.QUEUED, S.PARKED),
            e.HolderGone,
            _row(m.end_completed, "completed", _holder_of_this, "of this incarnation"),
        ),
        (
            (S.QUEUED, S.STARTING, S.RUNNING, S.DRAINING),
            e.Resume,
            _row(m.same, "unchanged", _session, "session"),
        ),
        (
            (S.QUEUED, S.PARKED),
            e.KeptLost,
            _row(m.kept_lost, "unchanged, degraded", _kept, "something is kept"),
        ),
    ]


def _starting_rows() -> _Rows:
    start = (S.STARTING,)
    return [
        (start, e.Prepared, _row(m.prepared, "unchanged")),
        (start, e.Started, _row(m.started, "running", _bindable, "hosted, or prepared")),
        (start, e.Refused, _row(m.refused_again, "queued", _may_start_again, "fewer than 5")),
        (start, e.Refused, _row(m.park_again, "parked", _kept, "something is kept")),
        (start, e.Refused, _row(m.refused_end, "failed")),
        (start, e.Exited, _row(m.park_again, "parked", _kept, "something is kept")),
        (start, e.Exited, _row(m.exited, "as running")),
        (start, e.RestoreFailed, _row(out.stop(Reason.USER), "stopping", _session, "session")),
        (start, e.Withdraw, _row(out.stop(Reason.USER), "stopping", _session, "session")),
        (start, e.Notify, _row(out.stop_by_notice, "stopping")),
        (start, e.Deadline, _row(out.stop(Reason.START), "stopping")),
        (
            start,
            e.HolderGone,
            _row(out.stop(Reason.HOLDER), "stopping", _holder_of_this, "of this incarnation"),
        ),
    ]


def _running_rows() -> _Rows:
    run, drain = (S.RUNNING,), (S.DRAINING,)
    both = (S.RUNNING, S.DRAINING)
    leased = (S.STARTING, S.RUNNING, S.DRAINING)
    return [
        (leased, e.Cancel, _row(out.stop(Reason.CANCEL), "stopping")),
        (leased, e.Lost, _row(out.stop(Reason.LOST), "stopping")),
        (leased, e.Release, _row(out.stop(Reason.RELEASE), "stopping", _session, "session")),
        (
            leased,
            e.Park,
            _row(out.stop_by_park, "stopping", _parkable, "session, not bound to its server"),
        ),
        (run, e.Active, _row(m.same, "unchanged")),
        (run, e.Started, _row(m.holder_back, "running")),
        (run, e.Keep, _row(m.keep, "unchanged", _keeps_left, "keep budget left")),
        (both, e.Extend, _row(m.extend, "unchanged; the notice stays")),
        (both, e.Mark, _row(m.mark, "unchanged", _batch, "batch")),
        (run, e.Notify, _row(out.drain, "draining", _drains, "session, or maintenance")),
        (run, e.Notify, _row(out.stop_by_notice, "stopping")),
        (
            run,
            e.HolderGone,
            _row(out.drain_holder, "draining", _holder_of_this, "of this incarnation"),
        ),
        (run, e.Deadline, _row(out.stop(Reason.TIME), "stopping")),
        (both, e.Exited, _row(m.exited, "completed, failed or queued")),
        (drain, e.Active, _row(m.rescue, "running", _reason(Reason.IDLE), "notice is idle")),
        (drain, e.Active, _row(m.same, "unchanged")),
        (drain, e.Keep, _row(m.keep, "running", _idle_keeps_left, "idle, keep budget left")),
        (
            drain,
            e.Reprieve,
            _row(
                m.reprieve,
                "running",
                _reason(Reason.IDLE, Reason.PREEMPTED, Reason.DRAIN),
                "idle, preempted or drain",
            ),
        ),
        (drain, e.Started, _row(m.rescue, "running", _reason(Reason.HOLDER), "notice is holder")),
        (drain, e.Notify, _row(out.merge_notice, "unchanged: stronger reason, earlier deadline")),
        (
            drain,
            e.HolderGone,
            _row(out.merge_holder, "unchanged, merged", _holder_of_this, "of this incarnation"),
        ),
        (drain, e.Deadline, _row(out.stop_drained, "stopping")),
    ]


def _stopping_rows() -> _Rows:
    stop = (S.STOPPING,)
    proof = (e.Freed, e.Exited, e.Refused)
    rows: _Rows = [(stop, fact, _row(out.stopped, "by reason, see below")) for fact in proof]
    return [
        *rows,
        (
            stop,
            e.Deadline,
            _row(out.next_stage, "unchanged, next stage", _more_stages, "more stages"),
        ),
        (
            stop,
            e.Deadline,
            _row(out.stopped_without_proof, "by reason; the shares are quarantined"),
        ),
        (
            stop,
            e.NoRoom,
            _row(out.skip_park, "unchanged, next stage", _parks, "it is to be parked"),
        ),
        (stop, e.Notify, _row(out.merge_notice, "unchanged, merged")),
        (stop, e.Cancel, _row(out.merge(Reason.CANCEL), "unchanged, merged")),
        (
            stop,
            e.Release,
            _row(out.merge(Reason.RELEASE), "unchanged, merged", _session, "session"),
        ),
        (stop, e.Withdraw, _row(out.merge(Reason.USER), "unchanged, merged", _session, "session")),
        (stop, e.Park, _row(m.same, "unchanged", _session, "session")),
        (
            stop,
            e.HolderGone,
            _row(
                out.merge(Reason.HOLDER),
                "unchanged, merged",
                _holder_of_this,
                "of this incarnation",
            ),
        ),
        (stop, e.Lost, _row(out.fence, "unchanged, fence stage")),
        (stop, e.Mark, _row(m.mark, "unchanged", _batch, "batch")),
        (stop, e.Started, _row(m.same, "unchanged, late news")),
        (stop, e.Active, _row(m.same, "unchanged, late news")),
    ]


def _parked_rows() -> _Rows:
    parked = (S.PARKED,)
    return [
        (
            parked,
            e.Resume,
            _row(m.resume, "queued", _may_resume, "after a time limit only if a person asks"),
        ),
        (parked, e.Release, _row(m.end_completed, "completed")),
        (parked, e.Cancel, _row(m.end_cancelled, "cancelled")),
        (parked, e.Deadline, _row(m.end_expired, "cancelled")),
        (parked, e.Withdraw, _row(m.same, "unchanged")),
        (parked, e.Park, _row(m.same, "unchanged")),
    ]


def _common_rows() -> _Rows:
    living = tuple(state for state in S if state not in TERMINAL)
    waiting = (S.QUEUED, S.STARTING, S.RUNNING, S.DRAINING, S.STOPPING, S.PARKED)
    return [
        (waiting, e.Hello, _row(m.hello, "unchanged", _not_older, "not an older incarnation")),
        (waiting, e.Adopt, _row(m.adopt, "unchanged", _not_older, "not an older incarnation")),
        (living, e.Retune, _row(m.retune, "unchanged")),
        (living, e.Force, _row(out.force, "cancelled; held shares are quarantined")),
    ]


def _table() -> Mapping[tuple[State, type[e.Event]], tuple[Row, ...]]:
    table: dict[tuple[State, type[e.Event]], tuple[Row, ...]] = {}
    for rows in (
        _waiting_rows(),
        _starting_rows(),
        _running_rows(),
        _stopping_rows(),
        _parked_rows(),
        _common_rows(),
    ):
        for states, event, row in rows:
            for state in states:
                table[state, event] = (*table.get((state, event), ()), row)
    return table


TABLE = _table()
"""(state, event type) -> rows in order."""


def advance(job: Job, event: e.Event, now: Seconds) -> tuple[Job, tuple[e.Effect, ...]]:
    """The next Job and what else the transition did.

    A fact about another attempt, or one that no row expects, changes nothing.
    ``Conflict`` for a verb or decision that the state does not allow."""
    if isinstance(event, e.AttemptFact) and event.attempt != job.attempt:
        return job, ()
    for row in TABLE.get((job.state, type(event)), ()):
        if row.guard(job, event):
            after, effects = row.move(job, event, now)
            return check(after), effects
    if isinstance(event, e.Fact | e.Deadline | e.Reprieve):
        return job, ()
    if job.state in TERMINAL and isinstance(event, e.Cancel | e.Withdraw | e.Release):
        return job, ()
    raise Conflict(_conflict(job, event))


def _conflict(job: Job, event: e.Event) -> str:
    verb = type(event).__name__.lower()
    if isinstance(event, e.Keep) and job.state in (State.RUNNING, State.DRAINING):
        if job.keeps_used >= job.terms.keeps:
            return f"{job.id} cannot be kept: it used {job.keeps_used} of {job.terms.keeps}"
        if job.notice is not None:
            return f"{job.id} cannot be kept: it leaves, and not because it is idle"
    if isinstance(event, e.Park) and job.binding is Binding.SERVER:
        return f"{job.id} cannot be parked: its server was launched with its GPUs; stop the server"
    if isinstance(event, e.Resume) and job.state is State.PARKED:
        return f"{job.id} was parked at its time limit: ask for it again"
    return f"{job.id} is {job.state}: {verb} is not possible now"


def states_markdown() -> str:
    """The table as docs/states.md shows it."""
    lines = [
        "# States of a Job",
        "",
        "Generated from `jupyter_gpubroker.core.lifecycle.TABLE` by `make docs`; do not edit.",
        "Rows are tried in order. An event that is not listed for a state is a late fact",
        "(ignored) or a verb that the state does not allow (HTTP 409).",
    ]
    for state in State:
        rows = [(ev, row) for (at, ev), found in TABLE.items() if at is state for row in found]
        if not rows:
            continue
        lines += ["", f"## {state}", "", "| event | if | then |", "|---|---|---|"]
        lines += [f"| {ev.__name__} | {row.when} | {row.next} |" for ev, row in rows]
    lines += [
        "",
        "## How STOPPING ends",
        "",
        "With proof that the GPUs are free, or without it at the end of the last stage",
        "(then the shares are quarantined), by the reason of the notice:",
        "",
        "| reason | kind | then |",
        "|---|---|---|",
        *out.STOPPED_WORDS,
        "",
    ]
    return "\n".join(lines)
