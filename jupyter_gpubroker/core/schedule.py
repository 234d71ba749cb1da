# SPDX-License-Identifier: BSD-3-Clause
"""``schedule(snapshot, policy) -> Plan``: who starts, who is asked to leave, why others wait.

The steps are in the order of what they disturb. Nobody is told anything unless the Job
that needs it then fits whole, and who was told is reprieved as soon as no Job needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from . import why as reasons
from .ledger import Column, Ledger, lease_of
from .model import (
    LEAVING,
    Blocked,
    Job,
    JobId,
    Kind,
    Notice,
    Placement,
    Plan,
    Policy,
    Seconds,
    Snapshot,
    State,
    Why,
)
from .placement import Ask, Packing, fit
from .preemption import Told, Victim, Way, make_way, minimal, recallable, victims
from .quota import Limits, ends


def schedule(snapshot: Snapshot, policy: Policy) -> Plan:
    """What to do now. Pure: the same input gives the same Plan."""
    cycle = Cycle(snapshot, policy)
    # 1. The line: every queue's Jobs in their order, merged.
    line = order(snapshot, policy)
    for job in line[: policy.jobs_considered]:
        # 2. Who may not start now, whatever is free: no server yet, or a limit.
        bar = cycle.bar(job)
        if bar is not None:
            cycle.why[job.id] = bar
        # 3. It fits now, and what is promised to those ahead stays free: it starts.
        elif (placement := cycle.fits_now(job)) is not None:
            cycle.place(job, placement)
        # 4. It fits when those have left who leave anyway or leave for it: a promise.
        # 5. It fits when idle sessions leave: they get a notice, it gets the promise.
        elif (way := cycle.promise(job) or cycle.make_way(job)) is not None:
            cycle.grant(job, way)
        # 6. It waits: say for whom, and until when.
        else:
            cycle.block(job)
    return cycle.plan(line)


def order(snapshot: Snapshot, policy: Policy) -> list[Job]:
    """QUEUED Jobs, the next one first: class, then least decayed usage of its user in that
    queue, then age since eligible, submit time, id."""

    def rank(job: Job) -> tuple[int, float, Seconds, Seconds, JobId]:
        priority = policy.classes[job.class_name].priority
        usage = snapshot.usage.get((job.queue, job.user), 0.0)
        return -priority, usage, job.eligible, job.submitted, job.id

    return sorted((job for job in snapshot.jobs.values() if job.state is State.QUEUED), key=rank)


class Cycle:
    """The working state of one ``schedule`` call; each step is one method."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self.snapshot = snapshot
        self.policy = policy
        self.ledger = Ledger(snapshot)
        self.packing = Packing.of(snapshot, policy)
        self.limits = Limits(snapshot, policy)
        self.why: dict[JobId, Why] = {}
        self.blocked: list[Job] = []
        """Jobs that lack GPUs, in order."""
        self.promised: dict[JobId, tuple[Job, Placement]] = {}
        self.placed: dict[JobId, tuple[Job, Placement]] = {}
        self._notices: dict[JobId, Notice] = {}
        self._failed: dict[tuple[str, Kind, reasons.ShapeKey], bool] = {}
        self._explained = reasons.Explained()
        leaving = [job for _, job in sorted(snapshot.jobs.items()) if job.state in LEAVING]
        self.recalled = [job for job in leaving if recallable(job)]
        """Told to leave, and so far in this cycle nobody needs it."""
        self.leaving = [job for job in leaving if not recallable(job)]
        """In ``soon`` what they hold is free."""
        for job in self.leaving:
            self.ledger.leave(job)

    def bar(self, job: Job) -> Why | None:
        """Step 2."""
        if job.id in self.snapshot.barred:
            return Why(Blocked.DEGRADED, self.snapshot.barred[job.id])
        if job.attach and job.holder is None:
            return Why(Blocked.SERVER, "waits until its Jupyter server is up and asks for the GPU")
        return self.limits.bar(job)

    def fits_now(self, job: Job) -> Placement | None:
        """Step 3."""
        if self._has_failed("now", job):
            return None
        placement = fit(self.ledger, job, Column.BOTH, self.packing)
        if placement is None:
            self._fail("now", job)
        return placement

    def promise(self, job: Job) -> Way | None:
        """Step 4. What leaves for other waiting Jobs is taken only where nothing else will do,
        so that they need not ask more people."""
        own = [victim for victim in self._victims(job) if victim.told is Told.FOR_THIS]
        if not own and self._has_failed("soon", job):
            return None
        withheld = self._leaving_for_others(job)
        with self.ledger.trial():
            for other in withheld:
                if self.ledger.holds(lease_of(other).placement, other.request, Column.SOON):
                    self.ledger.stay(other)
            way = minimal(self.ledger, job, own, self.packing)
        if way is None and withheld:
            way = minimal(self.ledger, job, own, self.packing)
        if way is None and not own:
            self._fail("soon", job)
        return way

    def make_way(self, job: Job) -> Way | None:
        """Step 5."""
        candidates = self._victims(job)
        if not candidates or self._has_failed("way", job):
            return None
        considered = self.policy.nodes_considered
        way = make_way(self.ledger, job, candidates, self.packing, considered)
        if way is None:
            self._fail("way", job)
        return way

    def place(self, job: Job, placement: Placement) -> None:
        """The Job starts."""
        self.ledger.take(placement, job.request)
        self.limits.admit(job)
        self.placed[job.id] = (job, placement)
        self._explained.forget()

    def grant(self, job: Job, way: Way) -> None:
        """The Job is promised its place; who does not know yet is told, all with one deadline:
        not before those who know already have to go."""
        now = self.snapshot.now
        asked = [victim for victim in way.victims if victim.told is Told.NOT_YET]
        times = [now + victim.job.terms.grace for victim in asked]
        times += [victim.job.notice.deadline for victim in way.victims if victim.job.notice]
        deadline = max(times, default=now)
        for victim in asked:
            notice = Notice(victim.reason, deadline, job.id, _notice_id(victim, now))
            self._notices[victim.job.id] = notice
        for victim in way.victims:
            self.ledger.leave(victim.job)
            self.leaving.append(victim.job)
        gone = [victim.job.id for victim in way.victims]
        self.recalled = [other for other in self.recalled if other.id not in gone]
        self.ledger.promise(way.placement, job.request)
        self.limits.admit(job)
        self.promised[job.id] = (job, way.placement)
        self.why[job.id] = reasons.leaving(self, way.placement, deadline)
        if way.victims:
            self._failed.clear()
        self._explained.forget()

    def block(self, job: Job) -> None:
        """Step 6."""
        self.why[job.id] = self._explained.why(self, job)
        self.blocked.append(job)

    def holdings(self) -> list[reasons.Holding]:
        """All that is held and not leaving, and all that is promised; first to end first."""
        gone = [job.id for job in self.leaving]
        held = [
            reasons.Holding(job, job.lease.placement, ends(job) or inf)
            for job in self.snapshot.jobs.values()
            if job.lease is not None and job.id not in gone
        ]
        for job, placement in self.placed.values():
            limit = job.request.time_limit
            held.append(
                reasons.Holding(job, placement, self.snapshot.now + limit if limit else inf)
            )
        held += [reasons.Holding(job, where, inf) for job, where in self.promised.values()]
        return sorted(held, key=lambda holding: (holding.end, holding.job.id))

    def plan(self, line: Sequence[Job]) -> Plan:
        """The outcome, with a place in the line for everybody who still waits."""
        why: dict[JobId, Why] = {}
        for position, job in enumerate((job for job in line if job.id not in self.placed), 1):
            reason = self.why.get(job.id) or reasons.later(self.policy)
            why[job.id] = replace(reason, position=position)
        for _, job in sorted(self.snapshot.jobs.items()):
            if job.state is State.HELD:
                why[job.id] = Why(Blocked.HELD, "held back by its owner until released")
        return Plan(
            place=tuple((id_, where) for id_, (_, where) in self.placed.items()),
            notice=tuple(self._notices.items()),
            reprieve=tuple(job.id for job in self.recalled),
            why=why,
            next=self._next(line) if why else None,
            promise=tuple((id_, where) for id_, (_, where) in self.promised.items()),
        )

    def _victims(self, job: Job) -> tuple[Victim, ...]:
        return tuple(
            victim
            for victim in victims(job, self.snapshot, self.recalled)
            if victim.job.id not in self._notices
        )

    def _leaving_for_others(self, job: Job) -> tuple[Job, ...]:
        """Who leaves for another Job that still waits."""
        waiting = self.snapshot.jobs
        return tuple(
            other
            for other in self.leaving
            if other.notice is not None
            and other.notice.for_job not in (None, job.id)
            and other.notice.for_job in waiting
            and waiting[other.notice.for_job].state is State.QUEUED
        )

    def _has_failed(self, step: str, job: Job) -> bool:
        """True if an equal Request failed at that step, and nothing was given back since."""
        return (step, job.kind, reasons.shape(job.request)) in self._failed

    def _fail(self, step: str, job: Job) -> None:
        if Ask.of(job, self.packing).plain:
            self._failed[step, job.kind, reasons.shape(job.request)] = True

    def _next(self, line: Sequence[Job]) -> Seconds | None:
        """When a shield or an avoided node ends: the changes that are no event."""
        jobs, now = self.snapshot.jobs, self.snapshot.now
        shields = [jobs[id_].shield_until for id_ in self.snapshot.idle if id_ in jobs]
        avoided = [until for job in line for _, until in job.avoid]
        return min((time for time in (*shields, *avoided) if time > now), default=None)


def _notice_id(victim: Victim, now: Seconds) -> str:
    return f"{victim.job.id}.{victim.job.attempt}-{victim.reason}-{int(now)}"
