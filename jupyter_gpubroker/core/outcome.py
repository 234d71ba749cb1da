# SPDX-License-Identifier: BSD-3-Clause
"""What a cycle came to, beside who starts: reasons, promises, and when to look again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf

from .model import Blocked, Job, JobId, Reservation, Rung, Seconds, State, Why
from .room import Cycle
from .why import Explainer


def reasons(cycle: Cycle) -> dict[JobId, Why]:
    """A place in the line and a reason for everybody in it."""
    explainer = Explainer(cycle)
    considered = cycle.policy.jobs_considered
    why: dict[JobId, Why] = {}
    for index, job in enumerate(cycle.line):
        if job.id not in cycle.placed:
            reason = explainer.why(job) if index < considered else explainer.later()
            why[job.id] = replace(reason, position=len(why) + 1)
    for _, job in sorted(cycle.snapshot.jobs.items()):
        if job.state is State.HELD:
            why[job.id] = Why(Blocked.HELD, "held back by its owner until released")
    return why


def promises(cycle: Cycle) -> Iterator[tuple[JobId, Reservation]]:
    """Where promised Jobs start; one that stands stays as it was."""
    for job, placement in cycle.promised.values():
        found = Reservation(placement, cycle.starts[job.id], promised=True)
        before = job.reserved
        same = before is not None and (before.placement, before.promised) == (placement, True)
        yield job.id, before if same and before is not None else found


def next_look(cycle: Cycle) -> Seconds | None:
    """When somebody may be taken, an avoided node be tried, or a Job has waited too long, for
    its turn or for its own GPUs: the changes that are no event. At once where some started,
    and others were too far behind to have their turn."""
    now, line = cycle.snapshot.now, cycle.line
    if cycle.placed and len(line) > cycle.policy.jobs_considered:
        return now
    if any(_is_free_after_all(cycle, job) for job in cycle.kept):
        return now  # others were denied it
    changes = cycle.prey.changes([job for job in line if job.id not in cycle.placed])
    avoided = [until for job in line if job.avoid for _, until in job.avoid]
    young = now - cycle.policy.max_age
    eligible = min((job.eligible for job in line if job.eligible > young), default=inf)
    aged = [eligible + cycle.policy.max_age] if eligible < inf else []
    budgets = [] if cycle.limits.next is None else [cycle.limits.next]
    parked = [job for job in line if any(kept.rung is Rung.GPU_STATE for kept in job.kept)]
    waits = [job.eligible + job.terms.affinity_wait for job in parked]
    times = (*changes, *avoided, *aged, *budgets, *waits)
    return min((time for time in times if now < time < inf), default=None)


def _is_free_after_all(cycle: Cycle, job: Job) -> bool:
    """What was reserved for it is not any more, and it did not start there."""
    if job.reserved is None:
        return False
    found = cycle.promised.get(job.id) or cycle.placed.get(job.id)
    kept = cycle.reserved.get(job.id)
    where = found[1] if found is not None else kept.placement if kept is not None else ()
    return where != job.reserved.placement
