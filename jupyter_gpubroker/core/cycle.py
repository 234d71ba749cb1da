# SPDX-License-Identifier: BSD-3-Clause
"""The working state of one cycle: each step of ``schedule`` is one method here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from math import inf
from typing import TypeVar

from . import why as reasons
from .leaving import notice_id
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
from .on_demand import OnDemand
from .placement import Ask, Packing, fit
from .preemption import Told, Victim, Way, make_way, minimal, recallable, victims
from .quota import Limits, ends
from .room import Holding, ShapeKey, shape

T = TypeVar("T")


class Cycle:
    """The working state of one ``schedule`` call; each step is one method."""

    def __init__(
        self, snapshot: Snapshot, policy: Policy, asked: Mapping[JobId, Notice] | None = None
    ) -> None:
        """``asked`` have their notices in the Snapshot, but only from an earlier pass."""
        self.snapshot = snapshot
        self.policy = policy
        self.ledger = Ledger(snapshot)
        self.packing = Packing.of(snapshot, policy)
        self.limits = Limits(snapshot, policy)
        self.barred: dict[JobId, Why] = {}
        """May not start now, whatever is free."""
        self.limited: dict[JobId, Why] = {}
        """A limit keeps them from starting."""
        self.until: dict[JobId, Seconds] = {}
        """When those have left, at the latest, for whom promised Jobs wait."""
        self.reserved = {
            id_: placement
            for id_, placement in sorted(snapshot.promised.items())
            if placement and id_ in snapshot.jobs and snapshot.jobs[id_].state is State.QUEUED
        }
        """What Jobs were promised whose turn has not come yet."""
        self.promised: dict[JobId, tuple[Job, Placement]] = {}
        self.placed: dict[JobId, tuple[Job, Placement]] = {}
        self._asked = dict(asked or {})
        self._notices: dict[JobId, Notice] = {}
        self._failed: dict[tuple[str, Kind, ShapeKey], bool] = {}
        self._withheld: dict[JobId, bool] = {}
        leaving = [job for _, job in sorted(snapshot.jobs.items()) if job.state in LEAVING]
        self.recalled = [job for job in leaving if recallable(job)]
        """Told to leave, and so far in this cycle nobody needs it."""
        self.leaving = [job for job in leaving if not recallable(job)]
        """In ``soon`` what they hold is free."""
        for job in self.leaving:
            self.ledger.leave(job)

    def bars(self, job: Job) -> bool:
        """Step 2. Its turn has come: what it was promised is decided now."""
        self.reserved.pop(job.id, None)
        bar = self.snapshot.barred.get(job.id)
        if bar is None and job.attach and job.holder is None:
            bar = Why(Blocked.SERVER, "waiting for its Jupyter server to come up")
        limit = self.limits.bar(job) if bar is None else None
        self.barred |= {} if bar is None else {job.id: bar}
        self.limited |= {} if limit is None else {job.id: limit}
        return bar is not None or limit is not None

    def fits_now(self, job: Job) -> Placement | None:
        """Step 3."""
        if self._has_failed("now", job):
            return None
        found = self._attempt(job, lambda: fit(self.ledger, job, Column.BOTH, self.packing))
        if found is None:
            self._fail("now", job)
        return found

    def promise(self, job: Job) -> Way | None:
        """Step 4."""
        victims = self._victims(job) if self.recalled else ()
        own = [victim for victim in victims if victim.told <= Told.WHERE_PROMISED]
        if not own and self._has_failed("soon", job):
            return None
        found = self._attempt(job, lambda: minimal(self.ledger, job, own, self.packing))
        if found is None and not own:
            self._fail("soon", job)
        return found

    def _attempt(self, job: Job, find: Callable[[], T | None]) -> T | None:
        """First without what others count on, so that they need not ask more people."""
        for politely in (True, False):
            with self.withheld(job, politely) as claims:
                found = find()
            if found is not None or not claims:
                break
        if isinstance(found, Way) and found.victims:
            self._note(claims)
        return found

    @contextmanager
    def withheld(self, job: Job, politely: bool) -> Iterator[list[JobId]]:
        """Within the block, what others count on is not there; who they are is told.

        Politely, that is all that was promised to Jobs whose turn has not come, and all that
        leaves for one. Otherwise nothing is withheld from batch, but from sessions still what
        batch counts on: people may have left for it, and sessions take from nobody.
        """
        claims: list[JobId] = []
        with self.ledger.trial():
            if politely or job.kind is Kind.SESSION:
                claims += self._reserve(tuple(Kind) if politely else (Kind.BATCH,))
                claims += self._keep_for_others(job)
            yield claims

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

    def grant(self, job: Job, way: Way) -> None:
        """The Job is promised its place; who does not know yet is told, all with one deadline:
        not before those who know already have to go."""
        now = self.snapshot.now
        asked = [victim for victim in way.victims if victim.told is Told.NOT_YET]
        times = [now + victim.job.terms.grace for victim in asked]
        times += [victim.job.notice.deadline for victim in way.victims if victim.job.notice]
        deadline = max(times, default=now)
        for victim in asked:
            notice = Notice(
                victim.reason, deadline, job.id, notice_id(victim.job, victim.reason, now)
            )
            self._notices[victim.job.id] = notice
        soon = [(amount, amount.soon) for amount in self.ledger.due(v.job for v in way.victims)]
        for victim in way.victims:
            self.ledger.leave(victim.job)
            self.leaving.append(victim.job)
            if victim.job.id in self._asked:
                notice = self._asked[victim.job.id]
                self._asked[victim.job.id] = replace(notice, for_job=job.id)
        gone = [victim.job.id for victim in way.victims]
        self.recalled = [other for other in self.recalled if other.id not in gone]
        self.ledger.promise(way.placement, job.request)
        self.limits.admit(job)
        self.promised[job.id] = (job, way.placement)
        self.until[job.id] = deadline
        if any(amount.soon > before for amount, before in soon):
            self._failed.clear()  # they leave more than it takes

    def block(self, job: Job) -> None:
        """Step 6."""
        with self.withheld(job, politely=False) as claims:
            self._note(claims)

    def _note(self, claims: Sequence[JobId]) -> None:
        """Because of what these count on somebody waits, or has to leave."""
        self._withheld |= dict.fromkeys(claims, True)

    @property
    def found(self) -> dict[JobId, Placement]:
        """Where Jobs start now or will start; empty for those that others waited for in vain."""
        found = {id_: where for id_, (_, where) in {**self.placed, **self.promised}.items()}
        return {**dict.fromkeys(self._withheld, ()), **found}

    @property
    def withheld_in_vain(self) -> bool:
        """True if a Job was denied what another counts on, which then starts elsewhere or not."""
        found, before = self.found, self.snapshot.promised
        return any(found[id_] != before.get(id_) for id_ in self._withheld)

    def again(self) -> Cycle:
        """A new pass that knows what this one found and whom it asked."""
        asked = {**self._asked, **self._notices}
        draining = {
            id_: replace(self.snapshot.jobs[id_], state=State.DRAINING, notice=notice)
            for id_, notice in self._notices.items()
        }
        jobs = {**self.snapshot.jobs, **draining}
        snapshot = replace(self.snapshot, promised=self.found, jobs=jobs)
        return Cycle(snapshot, self.policy, asked)

    def leavings(self) -> list[Holding]:
        """What those have who leave; first to end first."""
        found = []
        for job in self.leaving:
            notice = self._notices.get(job.id)
            end = job.deadline if notice is None else notice.deadline
            found.append(Holding(job, lease_of(job).placement, end or inf, soon=False))
        return sorted(found, key=lambda holding: (holding.end, holding.job.id))

    def holdings(self) -> list[Holding]:
        """All that is held and not leaving, and all that is promised; first to end first."""
        gone = dict.fromkeys(job.id for job in self.leaving)
        found = [
            Holding(job, job.lease.placement, ends(job) or inf)
            for job in self.snapshot.jobs.values()
            if job.lease is not None and job.id not in gone
        ]
        for job, placement in self.placed.values():
            limit = job.request.time_limit
            end = self.snapshot.now + limit if limit else inf
            found.append(Holding(job, placement, end))
        for job, placement in self.promised.values():
            found.append(Holding(job, placement, inf, now=False))
        return sorted(found, key=lambda holding: (holding.end, holding.job.id))

    def takeable(self, job: Job) -> list[Job]:
        """From whom the Job may take."""
        return [victim.job for victim in self._victims(job)]

    def plan(self, line: Sequence[Job]) -> Plan:
        """The outcome, with a reason for everybody who still waits."""
        asked = {**self._asked, **self._notices}
        spared = [job.id for job in self.recalled]
        return Plan(
            place=tuple((id_, where) for id_, (_, where) in self.placed.items()),
            notice=tuple((id_, notice) for id_, notice in asked.items() if id_ not in spared),
            reprieve=tuple(id_ for id_ in spared if id_ not in asked),
            why=OnDemand(lambda: self._why(line)),
            next=self._next(line) if len(line) > len(self.placed) else None,
            promise=tuple((id_, where) for id_, (_, where) in self.promised.items()),
        )

    def _why(self, line: Sequence[Job]) -> dict[JobId, Why]:
        """A place in the line and a reason for everybody in it."""
        explainer = reasons.Explainer(self)
        considered = self.policy.jobs_considered
        why: dict[JobId, Why] = {}
        for index, job in enumerate(line):
            if job.id not in self.placed:
                reason = explainer.why(job) if index < considered else explainer.later()
                why[job.id] = replace(reason, position=len(why) + 1)
        for _, job in sorted(self.snapshot.jobs.items()):
            if job.state is State.HELD:
                why[job.id] = Why(Blocked.HELD, "held back by its owner until released")
        return why

    def _victims(self, job: Job) -> tuple[Victim, ...]:
        return tuple(
            victim
            for victim in victims(job, self.snapshot, self.recalled)
            if victim.job.id not in self._notices
        )

    def _reserve(self, kinds: tuple[Kind, ...]) -> Iterator[JobId]:
        """Promise what is reserved, less what those give back who can still be reprieved: that
        is not in ``soon`` before the Job's turn."""
        due = self.ledger.due(self.recalled)
        for id_, placement in self.reserved.items():
            job = self.snapshot.jobs[id_]
            if job.kind in kinds and self.ledger.reserve(placement, job.request, due):
                yield id_

    def _keep_for_others(self, job: Job) -> Iterator[JobId]:
        """Undo that those leave who leave for another batch Job that waits. Only while no
        promise is remembered: else that says better what the other counts on."""
        for leaver in self.leaving if not self.snapshot.promised else ():
            other = self.snapshot.jobs.get(leaver.notice.for_job or "") if leaver.notice else None
            if other is None or other.id == job.id or other.id in self.placed:
                continue
            placement = lease_of(leaver).placement
            waits = other.kind is Kind.BATCH and other.state is State.QUEUED
            if waits and self.ledger.holds(placement, leaver.request, Column.SOON):
                self.ledger.stay(leaver)
                yield other.id

    def _batch_is_reserved(self) -> bool:
        return any(self.snapshot.jobs[id_].kind is Kind.BATCH for id_ in self.reserved)

    def _has_failed(self, step: str, job: Job) -> bool:
        """True if an equal Request failed at that step, and nothing was given back since."""
        return (step, job.kind, shape(job.request)) in self._failed

    def _fail(self, step: str, job: Job) -> None:
        reserved = job.kind is Kind.SESSION and self._batch_is_reserved()
        if Ask.of(job, self.packing).plain and not reserved:
            self._failed[step, job.kind, shape(job.request)] = True

    def _next(self, line: Sequence[Job]) -> Seconds | None:
        """When a shield or an avoided node ends: the changes that are no event. At once where
        some started, and others were too far behind to have their turn."""
        jobs, now = self.snapshot.jobs, self.snapshot.now
        if self.placed and len(line) > self.policy.jobs_considered:
            return now
        shields = [jobs[id_].shield_until for id_ in self.snapshot.idle if id_ in jobs]
        avoided = [until for job in line for _, until in job.avoid]
        return min((time for time in (*shields, *avoided) if time > now), default=None)
