# SPDX-License-Identifier: BSD-3-Clause
"""The living Jobs by what a turn looks for, so that no turn has to look at all that wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import TypeVar

from ..core.model import LEASED, TERMINAL, WAITING, Job, JobId, Kind, Request, Seconds, State

K = TypeVar("K")

STALE_MAX = 1000
"""Deadlines that are true no longer, beyond one for each Job, before they are swept out."""

Line = tuple[str, str, str]
"""(user, class, queue): where a Job waits, and what it counts against."""


@dataclass(slots=True)
class Index:
    """Changed by ``put`` only; at any time it is what one made anew from its Jobs would be."""

    alive: dict[JobId, Job] = field(default_factory=dict)
    """Every Job that is not terminal."""
    sessions: dict[JobId, Job] = field(default_factory=dict)
    leases: dict[JobId, Job] = field(default_factory=dict)
    """Those that hold GPUs."""
    reserved: dict[JobId, Job] = field(default_factory=dict)
    """Those that wait and have a Reservation."""
    waiting: dict[Line, int] = field(default_factory=dict)
    """How many wait, held ones included; never 0."""
    requests: dict[Request, int] = field(default_factory=dict)
    """What waits or runs, and of how many Jobs; never 0."""
    _deadlines: list[tuple[Seconds, JobId]] = field(default_factory=list)
    """A heap; an entry counts if it is its Job's deadline still."""

    def put(self, job: Job) -> None:
        """A new or changed Job."""
        before = self.alive.get(job.id)
        if before is not None:
            self._count(before, -1)
        self._count(job, 1)
        living = job.state not in TERMINAL
        _keep(self.alive, job, living)
        _keep(self.sessions, job, living and job.kind is Kind.SESSION)
        _keep(self.leases, job, job.state in LEASED)
        _keep(self.reserved, job, job.state is State.QUEUED and job.reserved is not None)
        if living and job.deadline != (before.deadline if before is not None else None):
            self.remind(job)

    def remind(self, job: Job) -> None:
        """Its deadline is to be told by ``due``, even if it was."""
        if job.deadline is None:
            return
        if len(self._deadlines) > 2 * len(self.alive) + STALE_MAX:
            times = [(each.deadline, each.id) for each in self.alive.values()]
            self._deadlines = [(time, job_id) for time, job_id in times if time is not None]
            heapify(self._deadlines)
        heappush(self._deadlines, (job.deadline, job.id))

    def due(self, now: Seconds) -> Sequence[Job]:
        """Whose deadline has passed, the earliest first; each is told once."""
        found: dict[JobId, Job] = {}
        while (time := self.next_deadline()) is not None and time <= now:
            _, job_id = heappop(self._deadlines)
            found[job_id] = self.alive[job_id]
        return list(found.values())

    def next_deadline(self) -> Seconds | None:
        """The first deadline of any Job."""
        heap = self._deadlines
        while heap:
            time, job_id = heap[0]
            job = self.alive.get(job_id)
            if job is not None and job.deadline == time:
                return time
            heappop(heap)
        return None

    def _count(self, job: Job, change: int) -> None:
        if job.state in WAITING:
            _add(self.waiting, (job.user, job.class_name, job.queue), change)
        if job.state is State.QUEUED or job.lease is not None:
            _add(self.requests, job.request, change)


def _add(counts: dict[K, int], key: K, change: int) -> None:
    count = counts.get(key, 0) + change
    if count:
        counts[key] = count
    else:
        del counts[key]


def _keep(jobs: dict[JobId, Job], job: Job, wanted: bool) -> None:
    if wanted:
        jobs[job.id] = job
    else:
        jobs.pop(job.id, None)
