# SPDX-License-Identifier: BSD-3-Clause
"""The writer, without I/O: ``turn(inputs, now)`` decides, the shell commits and acts.

No await, no clock, no randomness: the shell in ``app`` and the simulator drive the
same object. After a failed commit the world in memory is ahead of the store: the
shell throws the Broker away and makes one from what is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from ..core import events as e
from ..core.model import Conflict, Mode, Seconds, StageName
from ..store import Writes
from . import inputs as i
from .batch import Batch
from .departed import users_gone
from .duties import due, finished
from .entrance import NewId
from .planning import may_be_in_use, plan
from .questions import answer, resume_wanted
from .sightings import engine_down, holders_overdue, nodes_seen, poll_seen, reports_seen
from .waits import unasked
from .world import World

ROUNDS_MAX = 8
"""Deadlines that may follow each other for one Job within one turn."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What one turn decided."""

    writes: Writes
    answers: Sequence[i.Answer]
    """One per question, in order."""
    duties: Sequence[i.Duty]
    next: Seconds | None
    """When to take a turn without news."""


class Broker:
    """Owns the world. ``ladders``: engine -> the parking rungs it has, best first."""

    def __init__(
        self, world: World, ladders: Mapping[str, tuple[StageName, ...]], new_id: NewId
    ) -> None:
        self.world = world
        self.ladders = ladders
        self.new_id = new_id
        self._plan_next: Seconds | None = None
        self._stale = True
        """The Plan is older than what it was made from."""

    def turn(self, news: Sequence[i.Input], now: Seconds) -> Turn:
        """Take everything in, let time pass, plan, and say what to write and do."""
        self.world.forget()
        batch = Batch(self.world, now)
        answers: list[i.Answer] = []
        extra: list[i.Duty] = []
        for item in news:
            if isinstance(item, i.Question):
                answers.append(answer(batch, item, self.new_id))
            else:
                extra += self._fact(batch, item)
        overdue, silent = holders_overdue(batch), unasked(batch)
        self._deadlines(batch)
        resume_wanted(batch)
        planned = self._plan_next is not None and now >= self._plan_next
        if batch.changed or planned or self._stale:
            self._plan_next = plan(batch, self.ladders)
            self._stale = False
        elif batch.look_at < inf and self.world.index.waiting:
            self._plan_next = min(self._plan_next or inf, batch.look_at)
        duties, again = due(self.world, extra, now)
        next_deadline = self.world.index.next_deadline()
        times = (self._plan_next, again, overdue, silent, next_deadline)
        return Turn(
            writes=batch.writes(),
            answers=[self._newest(item) for item in answers],
            duties=duties,
            next=min((time for time in times if time is not None), default=None),
        )

    def _newest(self, answer: i.Answer) -> i.Answer:
        """The Job as this turn leaves it: a submit that was placed at once says so."""
        known = self.world.jobs
        if answer.jobs:
            return i.Answer(jobs=tuple(known.get(job.id, job) for job in answer.jobs))
        return answer if answer.job is None else i.Answer(known.get(answer.job.id, answer.job))

    def _fact(self, batch: Batch, fact: i.Input) -> Iterable[i.Duty]:
        match fact:
            case i.NodesSeen():
                nodes_seen(batch, fact)
            case i.EngineDown():
                engine_down(batch, fact)
            case i.PollSeen():
                return poll_seen(batch, fact)
            case i.ReportsSeen():
                return reports_seen(batch, fact)
            case i.UsersGone():
                users_gone(batch, fact)
            case i.Tidy():
                batch.tidy()
            case i.DutyDone():
                self._duty_done(batch, fact)
        return ()

    def _duty_done(self, batch: Batch, done: i.DutyDone) -> None:
        finished(self.world, done, batch.now)
        key, job = done.duty.key, self.world.jobs.get(done.duty.key.job)
        if done.duty.act is not i.Act.START or job is None or job.key != key:
            return
        actor = f"engine:{done.duty.engine}"
        match done.did:
            case i.Did.DONE if done.duty.mode is Mode.HELD:
                batch.apply(job.id, e.Prepared(key.attempt), actor)
            case i.Did.REFUSED:
                batch.apply(job.id, e.Refused(key.attempt, done.node, done.text), actor)
            case i.Did.RESTORE_REFUSED:
                batch.apply(job.id, e.RestoreFailed(key.attempt, done.text), actor)
            case _:
                pass

    def _deadlines(self, batch: Batch) -> None:
        for job in self.world.index.due(batch.now):
            for _ in range(ROUNDS_MAX):
                now_is = self.world.jobs[job.id]
                if now_is.deadline is None or batch.now < now_is.deadline:
                    break
                in_use = may_be_in_use(self.world, now_is, batch.now)
                try:
                    batch.apply(job.id, e.Active() if in_use else e.Deadline(), "broker")
                except Conflict as error:  # a row is missing: a bug, seen in the journal
                    raise AssertionError(str(error)) from error
            left = self.world.alive.get(job.id)
            if left is not None and left.deadline == job.deadline:
                self.world.index.remind(left)
