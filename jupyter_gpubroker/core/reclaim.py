# SPDX-License-Identifier: BSD-3-Clause
"""The relation *reclaim*: a queue takes back what it owns and others borrowed.

A Job that stays inside what its queue owns takes, of any class, from other queues of its
cohort what they have beyond what they own: of the newest grants, until the rest fits. So
nobody takes back what was taken from it: who reclaims borrows nothing afterwards, and what
it then has is nobody's excess.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from .columns import Amount
from .ledger import lease_of
from .lending import Lending, lending
from .model import (
    LEASED,
    LEAVING,
    Job,
    JobId,
    Kind,
    Placement,
    Policy,
    Snapshot,
    State,
)

Row = tuple[str, str]
"""(queue, row of its quota)"""


class Excess:
    """What queues have beyond what they own, in one cycle."""

    def __init__(self, jobs: Iterable[Job], quotas: Lending | None) -> None:
        held = () if quotas is None else jobs
        leased = [job for job in held if job.state in LEASED and job.state not in LEAVING]
        self._quotas = quotas
        self._leased = sorted(leased, key=lambda job: (lease_of(job).since, job.id))
        self._known: tuple[int, dict[JobId, tuple[str, ...]]] = (-1, {})
        """For so many who are gone."""

    def rows(self, taker: Job) -> tuple[str, ...]:
        """Rows of which its queue owns enough for the Job; empty where it may not reclaim."""
        if self._quotas is None or taker.kind is not Kind.BATCH:
            return ()
        return self._quotas.owned(taker)

    def givers(self, taker: Job, rows: tuple[str, ...], gone: Container[JobId]) -> list[Job]:
        """From whom it takes back; ``gone`` are on their way already."""
        quotas = self._quotas
        if quotas is None or not rows:
            return []
        over = self._over(gone)
        return [
            job
            for job in self._leased
            if any(row in rows for row in over.get(job.id, ()))
            and job.queue != taker.queue
            and quotas.kin(taker, job)
            and job.id not in taker.left_for
        ]

    def governs(self, queue: str) -> bool:
        """True if its Jobs can be somebody's excess."""
        return self._quotas is not None and self._quotas.governs(queue)

    def _over(self, gone: Container[JobId]) -> dict[JobId, tuple[str, ...]]:
        """Whose grant does not fit in what the queue owns beside all older ones, and the rows."""
        here = [job for job in self._leased if job.id not in gone]
        count, known = self._known
        if count != len(here):
            known = dict(self._beyond(here))
            self._known = len(here), known
        return known

    def _beyond(self, jobs: Iterable[Job]) -> Iterable[tuple[JobId, tuple[str, ...]]]:
        assert self._quotas is not None
        used: dict[Row, int] = {}
        for job in jobs:
            rows = []
            for row, milli, owned in self._quotas.uses(job):
                total = used[job.queue, row] = used.get((job.queue, row), 0) + milli
                if total > owned:
                    rows.append(row)
            if rows:
                yield job.id, tuple(rows)


def borrows_more(
    job: Job, placement: Placement, at_work: Iterable[Job], quotas: Lending | None
) -> bool:
    """True if the Job takes from some of its own queue that are at work, and the queue then had
    more of what others own than before."""
    own = [other for other in at_work if other.queue == job.queue]
    if quotas is None or not own:
        return False
    back: dict[Amount, int] = {}
    for other in own:
        for amount, milli in quotas.amounts(lease_of(other).placement, other.request, job.queue):
            back[amount] = back.get(amount, 0) + milli
    return any(
        milli > back.get(amount, 0) and quotas.lacks(amount) + milli > back.get(amount, 0)
        for amount, milli in quotas.amounts(placement, job.request, job.queue)
    )


def reclaims(
    taker: Job, victim: Job, snapshot: Snapshot, policy: Policy, gone: Container[JobId] = ()
) -> bool:
    """Whether the taker may take back from the victim, when those ``gone`` are on their way."""
    quotas = lending(snapshot, policy)
    if quotas is None:
        return False
    for job in snapshot.jobs.values():
        if job.state in LEASED and job.state not in LEAVING and job.id not in gone:
            for amount, milli in quotas.amounts(lease_of(job).placement, job.request, job.queue):
                amount.move(-milli, -milli, 0)
    excess = Excess(snapshot.jobs.values(), quotas)
    exposed = victim.state is State.RUNNING and victim.shield_until <= snapshot.now
    return exposed and victim in excess.givers(taker, excess.rows(taker), gone)
