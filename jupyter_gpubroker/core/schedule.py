# SPDX-License-Identifier: BSD-3-Clause
"""``schedule(snapshot, policy) -> Plan``: who starts, who is asked to leave, why others wait.

The steps are in the order of what they disturb. Nobody is told anything unless the Job
that needs it then fits whole, and who was told is reprieved as soon as no Job needs it.
"""

from __future__ import annotations

from .cycle import Cycle
from .fairshare import fair_tree
from .model import Job, JobId, Plan, Policy, Seconds, Snapshot, State

PASSES = 3
"""How often a cycle is run at most, see step 7."""


def schedule(snapshot: Snapshot, policy: Policy) -> Plan:
    """What to do now. Pure: the same input gives the same Plan."""
    # 1. The line: every queue's Jobs in their order, merged.
    line = order(snapshot, policy)
    cycle = run(Cycle(snapshot, policy), line)
    for _ in range(PASSES - 1):
        # 7. Some were denied what others count on. Now it is known what those really get.
        if cycle.withheld_in_vain:
            cycle = run(cycle.again(), line)
    return cycle.plan(line)


def run(cycle: Cycle, line: list[Job]) -> Cycle:
    """Give every Job in the line its turn."""
    for job in line[: cycle.policy.jobs_considered]:
        # 2. Who may not start now, whatever is free: no server yet, or a limit.
        if cycle.bars(job):
            continue
        # 3. It fits now, and what is promised to those ahead stays free: it starts.
        if (placement := cycle.fits_now(job)) is not None:
            cycle.place(job, placement)
        # 4. It fits when those have left who leave anyway or leave for it: a promise.
        # 5. It fits when idle sessions leave: they get a notice, it gets the promise.
        elif (way := cycle.promise(job) or cycle.make_way(job)) is not None:
            cycle.grant(job, way)
        # 6. It waits: say for whom, and until when.
        else:
            cycle.block(job)
    return cycle


def order(snapshot: Snapshot, policy: Policy) -> list[Job]:
    """QUEUED Jobs, the next one first: class, Fair Tree rank of the user in that queue, age
    since eligible, submit time, id."""
    waiting = [job for job in snapshot.jobs.values() if job.state is State.QUEUED]
    accounts = dict.fromkeys(((job.queue, job.user) for job in waiting), 0.0)
    ranks = fair_tree({**accounts, **snapshot.usage}, policy.queues)

    def key(job: Job) -> tuple[int, int, Seconds, Seconds, JobId]:
        class_ = policy.classes.get(job.class_name)  # a broken policy may have been replaced
        priority = 0 if class_ is None else class_.priority
        return -priority, ranks[job.queue, job.user], job.eligible, job.submitted, job.id

    return sorted(waiting, key=key)
