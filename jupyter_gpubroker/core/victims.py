# SPDX-License-Identifier: BSD-3-Clause
"""From whom a Job may take in one cycle, and how much each of them is regretted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from . import relations
from .ledger import lease_of, leased
from .lending import Lending
from .model import (
    Equals,
    Job,
    JobId,
    Kind,
    Policy,
    Reason,
    Seconds,
    Snapshot,
    State,
)
from .parked import Image, rung
from .reclaim import Excess


class Told(IntEnum):
    """Whether a Victim knows already; who knows is taken first."""

    FOR_THIS = 0
    """Its notice names the taker."""
    WHERE_PROMISED = 1
    """It has a device that the taker was promised."""
    FOR_ANOTHER = 2
    NOT_YET = 3


Standing = tuple[int, int, int]
"""Of whom nobody is taken while one of a smaller standing is enough: idle sessions, then by
the priority of their class, then the highest level."""
NOTHING: Standing = (0, 0, 0)
"""The standing of an idle session."""
Regret = tuple[Told, Standing, int, int, Seconds, float, Seconds, str]
"""Told, standing, loss, bytes, longest idle, least unsaved work, newest grant, id."""
Hunter = tuple[Kind, str, str, int, tuple[JobId, ...], tuple[str, ...]]
"""Kind, queue, class, level, from whom besides it may not take, and what it may reclaim."""


@dataclass(frozen=True, slots=True)
class Victim:
    """A Job that may be asked to leave, or a session that was and can still be reprieved."""

    job: Job
    reason: Reason
    """The relation along which it is taken."""
    told: Told
    memory_mib: int
    """What parking would move."""
    idle_since: Seconds
    standing: Standing = NOTHING
    unsaved: float = 0.0
    """GPU-seconds of work that its program has not saved, as far as it tells."""
    image: Image | None = None
    """What it would have parked in host memory, where that has a cap."""
    left_mib: int = 0
    """Host memory left there for that."""

    @property
    def loss(self) -> int:
        """What a session loses by the rung that would apply; of a batch Job see ``unsaved``."""
        room = self.image is None or self.image.mib <= self.left_mib
        return rung(self.job, room).loss if self.job.kind is Kind.SESSION else 0

    @property
    def regret(self) -> Regret:
        """The less, the sooner it is taken."""
        return (
            self.told,
            self.standing,
            self.loss,
            self.memory_mib,
            self.idle_since,
            self.unsaved,
            -lease_of(self.job).since,
            self.job.id,
        )


def recallable(job: Job) -> bool:
    """True if the Job was told to leave for another and can still be reprieved."""
    return (
        job.state is State.DRAINING
        and job.notice is not None
        and job.notice.for_job is not None
        and job.notice.reason in (Reason.IDLE, Reason.PREEMPTED)
    )


def leaves_for(job: Job, taker: JobId) -> bool:
    """True if its notice names that one."""
    return job.notice is not None and job.notice.for_job == taker


class Prey:
    """From whom Jobs may take in one cycle; what holds for one of them serves its equals."""

    def __init__(self, snapshot: Snapshot, policy: Policy, quotas: Lending | None = None) -> None:
        self._snapshot, self._policy = snapshot, policy
        self._excess = Excess(snapshot.jobs.values(), quotas)
        self._idle: list[Job] = []
        self._shielded: list[Job] = []
        self._at_work: dict[str, dict[tuple[Kind, str], list[Job]]] = {}
        """By queue, and there by kind and class: who could have to give way to a Job of it."""
        for job in leased(snapshot):
            if recallable(job):
                self._at_work.setdefault(job.queue, {})
            if job.state is not State.RUNNING:
                continue
            idle = relations.is_idle(job, snapshot)
            if not relations.exposed(job, snapshot.now):
                self._shielded.append(job)
            elif idle:
                self._idle.append(job)
            if not idle and relations.may_yield(job, policy):
                alike = self._at_work.setdefault(job.queue, {})
                alike.setdefault((job.kind, job.class_name), []).append(job)
        self._known: dict[tuple[Hunter, int], tuple[Victim, ...]] = {}

    def hunter(self, taker: Job) -> Hunter:
        """Equal for Jobs that may take from the same ones."""
        alike, rows = self._at_work.get(taker.queue), self._excess.rows(taker)
        if taker.kind is not Kind.BATCH or (alike is None and not rows):
            return taker.kind, "", "", 0, (), ()
        left_for = (
            taker.left_for
            if rows or not taker.left_for
            else tuple(
                job.id
                for group in (alike or {}).values()
                for job in group
                if job.id in taker.left_for
            )
        )
        return taker.kind, taker.queue, taker.class_name, self._level(taker), left_for, rows

    def _level(self, job: Job) -> int:
        queue = self._policy.queues.get(job.queue)
        if queue is None or queue.preempt_equals is Equals.OFF:
            return 0
        return relations.level(job, self._snapshot.now, self._policy)

    def victims(
        self, taker: Job, recalled: Sequence[Job] = (), gone: Collection[JobId] = ()
    ) -> tuple[Victim, ...]:
        """Whom the taker may take from: running Jobs but those ``gone``, who were told in this
        cycle, and those of ``recalled`` (see ``recallable``), who know already."""
        if taker.kind is not Kind.BATCH:
            return ()
        known = [victim for job in recalled for victim in self._recalled(taker, job)]
        hunter = self.hunter(taker)
        key = hunter, len(gone) if hunter[-1] else 0
        if key not in self._known:
            found = [self._victim(taker, job) for job in (*self._idle, *self._givers(taker))]
            taken = [victim.job.id for victim in found]
            excess = self._excess.givers(taker, hunter[-1], gone)
            found += [
                self._at_work_victim(job)
                for job in excess
                if relations.exposed(job, self._snapshot.now) and job.id not in taken
            ]
            self._known[key] = tuple(found)
        return (*known, *(found for found in self._known[key] if found.job.id not in gone))

    def _givers(self, taker: Job) -> Iterator[Job]:
        """Jobs at work that give way to the taker now."""
        now, policy = self._snapshot.now, self._policy
        for (_, class_name), alike in self._at_work.get(taker.queue, {}).items():
            if relations.by_class(taker, alike[0], policy):
                giving = alike
            elif class_name == taker.class_name:
                giving = [job for job in alike if relations.by_level(taker, job, now, policy)]
            else:
                continue
            for job in giving:
                if relations.exposed(job, now) and job.id not in taker.left_for:
                    yield job

    def changes(self, waiting: Iterable[Job]) -> Iterator[Seconds]:
        """When they may take from more than now without any event: a shield is over, or a
        running Job has had so much that it is of the next level."""
        yield from (
            job.shield_until
            for job in self._shielded
            if job.id in self._snapshot.idle or self._excess.governs(job.queue)
        )
        takers = {self.hunter(job)[1:4]: job for job in waiting if job.kind is Kind.BATCH}
        for (queue, class_name, level), taker in takers.items():
            for (kind, other), alike in self._at_work.get(queue, {}).items():
                if relations.by_class(taker, alike[0], self._policy):
                    yield from (job.shield_until for job in alike)
                elif other == class_name and kind is Kind.BATCH:
                    yield from self._of_equals(alike, level)

    def _of_equals(self, alike: Iterable[Job], level: int) -> Iterator[Seconds]:
        for job in alike:
            own = self._level(job)
            if own > level:
                yield job.shield_until
            elif own == level:
                yield relations.leaves_level(job, self._snapshot.now, self._policy)

    def _victim(self, taker: Job, job: Job) -> Victim:
        reason = relations.relation(taker, job, self._snapshot, self._policy)
        assert reason is not None, (taker.id, job.id)
        if reason is not Reason.IDLE:
            return self._at_work_victim(job)
        idle = self._snapshot.idle[job.id]
        return Victim(job, reason, Told.NOT_YET, idle.memory_mib, idle.since)

    def _at_work_victim(self, job: Job) -> Victim:
        now, parked = self._snapshot.now, self._snapshot.memory_mib.get(job.id, 0)
        unsaved = relations.unsaved(job, now)
        standing = self._standing(job)
        return Victim(job, Reason.PREEMPTED, Told.NOT_YET, parked, now, standing, unsaved)

    def _standing(self, job: Job) -> Standing:
        class_ = self._policy.classes[job.class_name]
        return 1, class_.priority, -self._level(job)

    def _recalled(self, taker: Job, job: Job) -> Iterator[Victim]:
        """What is at work is taken over only by a Job to which it gives way as well."""
        assert job.notice is not None
        reason, snapshot = job.notice.reason, self._snapshot
        idle = reason is Reason.IDLE
        back = job.notice.for_job == taker.id and job.queue != taker.queue
        if not (
            idle
            or relations.gives_way(job, taker, snapshot.now, self._policy)
            or (back and self._excess.rows(taker))
        ):
            return
        place = taker.reserved.placement if taker.reserved is not None else ()
        promised = [(share.node, share.device) for share in place]
        if job.notice.for_job == taker.id:
            told = Told.FOR_THIS
        elif any((share.node, share.device) in promised for share in lease_of(job).placement):
            told = Told.WHERE_PROMISED
        else:
            told = Told.FOR_ANOTHER
        standing = NOTHING if idle else self._standing(job)
        yield Victim(job, reason, told, snapshot.memory_mib.get(job.id, 0), job.since, standing)
