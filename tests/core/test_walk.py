# SPDX-License-Identifier: BSD-3-Clause
"""A long random walk through the state table: whatever comes, in whatever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random

from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.lifecycle import TABLE, advance
from jupyter_gpubroker.core.model import (
    TERMINAL,
    Binding,
    Conflict,
    Holder,
    Job,
    Kept,
    Kind,
    Lease,
    Mode,
    Notice,
    Process,
    Reason,
    Request,
    Reservation,
    Rung,
    Share,
    StageName,
    State,
    Terms,
    check,
)

STEPS = 100_000
PLACE = (Share("node1", "GPU-1", 500),)
IMAGE = Kept("k", 1, Rung.GPU_STATE, node="node1", processes=(Process(7, 7),), memory_mib=10)
PROOFS = (e.Exited, e.Freed, e.Refused)


class Walk:
    """One Job after the other, each until it has ended."""

    def __init__(self, seed: int) -> None:
        self.draw = Random(seed)
        self.now = 1000.0
        self.job = self.born()
        self.seen: Counter[tuple[State, type[e.Event]]] = Counter()
        self.ended: Counter[State] = Counter()

    def born(self) -> Job:
        """Any Job that was just submitted."""
        kind = self.draw.choice([*Kind])
        class_ = "interactive" if kind is Kind.SESSION else "batch"
        job = Job("j", kind, "ana", "default", class_, Request(gpus=1, time_limit=3600.0))
        park = ((StageName.PARK, 60.0), (StageName.RESTART, 30.0))
        terms = Terms(
            park=self.draw.choice([park, park[1:], ()]),
            max_wait=self.draw.choice([None, None, 500.0]),
            max_restarts=self.draw.randrange(3),
        )
        job = replace(
            job,
            terms=terms,
            submitted=self.now,
            eligible=self.now,
            since=self.now,
            torchrun=self.draw.random() < 0.5,
            requeue=self.draw.random() < 0.5,
        )
        if kind is Kind.SESSION:
            binding = self.draw.choice([Binding.KERNEL, Binding.KERNEL, Binding.SERVER])
            job = replace(job, server="ana/", incarnation=1, binding=binding)
        return job

    def event(self, kind: type[e.Event]) -> e.Event:
        """Any event of that type, about this attempt or another one."""
        job, draw = self.job, self.draw
        attempt = job.attempt - draw.choice([0, 0, 0, 1])
        kept = draw.choice([(), (IMAGE,)])
        incarnation = job.incarnation + draw.choice([-1, 0, 0, 1])
        mode = Mode.HELD if job.kind is Kind.SESSION else Mode.HOSTED
        lease = Lease("local", PLACE, job.attempt + 1, self.now, self.now + 3600, mode)
        reason = draw.choice([Reason.IDLE, Reason.PREEMPTED, Reason.DRAIN, Reason.OVER])
        code = draw.choice([0, 1, 75, -9])
        made: dict[type[e.Event], Callable[[], e.Event]] = {
            e.Place: lambda: e.Place(lease, job.terms, 120.0),
            e.Reserve: lambda: e.Reserve(Reservation(PLACE, self.now) if kept else None),
            e.Notify: lambda: e.Notify(Notice(reason, self.now + 10, "x", "n")),
            e.Prepared: lambda: e.Prepared(attempt),
            e.Started: lambda: e.Started(attempt),
            e.Refused: lambda: e.Refused(attempt, "node1"),
            e.Exited: lambda: e.Exited(attempt, code, all_zero=code == 0),
            e.Freed: lambda: e.Freed(attempt, kept),
            e.Lost: lambda: e.Lost(attempt),
            e.RestoreFailed: lambda: e.RestoreFailed(attempt),
            e.Hello: lambda: e.Hello(Holder("h", "b", 1, 1), incarnation),
            e.HolderGone: lambda: e.HolderGone(incarnation),
            e.KeptLost: lambda: e.KeptLost(kept),
            e.Mark: lambda: e.Mark(complete=draw.random() < 0.2, step=code),
            e.Extend: lambda: e.Extend(60.0),
            e.Adopt: lambda: e.Adopt(incarnation, attach=True),
            e.Retune: lambda: e.Retune(replace(job.terms, grace=1.0)),
            e.Resume: lambda: e.Resume(person=draw.random() < 0.5),
        }
        return made.get(kind, kind)()

    def step(self) -> None:
        """Something happens, and nothing breaks."""
        kind = self.draw.choice(
            [*ROWS.get(self.job.state, EVENTS), *ONWARD.get(self.job.state, [])]
        )
        if self.draw.random() < 0.1:
            kind = self.draw.choice(EVENTS)  # most are not expected in this state
        rare = kind in (e.Force, e.Cancel, e.Release, e.HolderGone)
        if rare and self.draw.random() < 0.9:
            return  # else no Job lives long
        self.now += self.draw.choice([0.0, 1.0, 40.0])
        before, event = self.job, self.event(kind)
        try:
            self.job, effects = advance(before, event, self.now)
        except Conflict:
            return
        self.seen[before.state, kind] += 1
        check(self.job)
        self.holds(before, event, effects)
        if self.job.state in TERMINAL and self.draw.random() < 0.2:
            self.ended[self.job.state] += 1
            self.job = self.born()

    def holds(self, before: Job, event: e.Event, effects: tuple[e.Effect, ...]) -> None:
        """What is true of every transition."""
        job = self.job
        asked_again = before.parked_for is Reason.TIME and isinstance(event, e.Resume)
        assert asked_again or job.submitted == before.submitted
        assert job.attempt == before.attempt + (type(event) is e.Place)
        assert before.state not in TERMINAL or job == before
        if isinstance(event, e.AttemptFact) and event.attempt != before.attempt:
            assert job == before
        released = [effect.lease for effect in effects if isinstance(effect, e.Released)]
        gone = before.lease is not None and job.lease is None
        assert released == ([before.lease] if gone else [])
        assert (job.gpu_seconds > before.gpu_seconds) <= gone
        proven = isinstance(event, PROOFS)
        assert not gone or proven or any(isinstance(each, e.Quarantine) for each in effects)
        if before.kept and not job.kept and job.state not in TERMINAL:
            # Dropped only when it was restored, is gone, or was replaced by a new one.
            assert isinstance(event, e.Started | e.KeptLost | e.Freed | e.Exited), event


EVENTS = [*dict.fromkeys(kind for _, kind in TABLE)]
ONWARD: Mapping[State, Sequence[type[e.Event]]] = {
    State.QUEUED: (e.Place,) * 6,
    State.STARTING: (e.Prepared, e.Started) * 9,
    State.RUNNING: (e.Notify,) * 3,
}
"""What happens more often, so that most Jobs get far."""
ROWS = {state: [kind for at, kind in TABLE if at is state] for state, _ in TABLE}


def test_a_long_walk_keeps_every_invariant_and_takes_every_row() -> None:
    walk = Walk(7)
    for _ in range(STEPS):
        walk.step()
    assert set(walk.ended) == set(TERMINAL)
    assert {*TABLE} <= {*walk.seen}, {*TABLE} - {*walk.seen}
