# SPDX-License-Identifier: BSD-3-Clause
"""A long random walk through the state table: whatever comes, in whatever order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.lifecycle import TABLE, advance
from jupyter_gpubroker.core.model import (
    TERMINAL,
    Binding,
    Conflict,
    Job,
    Kind,
    Reason,
    Request,
    StageName,
    State,
    Terms,
    check,
)

from .happenings import happening

STEPS = 100_000
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
        before, event = self.job, happening(kind, self.job, self.now, self.draw.choice)
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
