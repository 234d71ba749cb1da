# SPDX-License-Identifier: BSD-3-Clause
"""The line: whose turn it is in a cycle."""

from __future__ import annotations

from .fairshare import fair_tree
from .model import Job, JobId, Policy, Seconds, Snapshot, State


def order(snapshot: Snapshot, policy: Policy) -> list[Job]:
    """QUEUED Jobs, the next one first.

    Who was promised a place goes first, for that is settled; then by class. In a class who
    has another Reservation, who waits longer than ``max_age``, Fair Tree rank of the user in
    that queue, age since eligible, submit time, id."""
    waiting = [job for job in snapshot.jobs.values() if job.state is State.QUEUED]
    accounts = dict.fromkeys(((job.queue, job.user) for job in waiting), 0.0)
    ranks = fair_tree({**accounts, **snapshot.usage}, policy.queues)
    overdue = snapshot.now - policy.max_age

    def key(job: Job) -> tuple[bool, int, bool, bool, int, Seconds, Seconds, JobId]:
        return (
            job.reserved is None or not job.reserved.promised,
            -priority(job, policy),
            job.reserved is None,
            job.eligible > overdue,
            ranks[job.queue, job.user],
            job.eligible,
            job.submitted,
            job.id,
        )

    return sorted(waiting, key=key)


def priority(job: Job, policy: Policy) -> int:
    """That of its class."""
    class_ = policy.classes.get(job.class_name)  # a broken policy may have been replaced
    return 0 if class_ is None else class_.priority
