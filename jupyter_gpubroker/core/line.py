# SPDX-License-Identifier: BSD-3-Clause
"""The line: whose turn it is in a cycle.

Queues come in turn by Fair Tree. In one of order *fair* so do its users, and then who
waits longer. In one of another order its users do not matter:

- *shortest*: the least GPU-time left by its limit, less what it has waited. All who wait
  age alike, so their order does not change while time passes.
- *attained*: the lowest level of GPU-time that it has had, then who came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .fairshare import Account, fair_tree
from .model import Equals, Job, JobId, Order, Policy, Seconds, Snapshot, State
from .relations import level, remaining

Turn = tuple[bool, int, bool, bool, int, str, float]
"""The smaller, the sooner; equals as they came."""


def order(snapshot: Snapshot, policy: Policy) -> list[Job]:
    """QUEUED Jobs, the next one first.

    Who was promised a place goes first, for that is settled; then by class. In a class who
    has another Reservation (in a queue of order *fair*), who waits longer than ``max_age``,
    Fair Tree rank, the order of the queue, age since eligible, submit time, id."""
    waiting = [job for job in snapshot.jobs.values() if job.state is State.QUEUED]
    ranks = fair_tree(accounts(waiting, snapshot, policy), policy.queues)
    now, overdue = snapshot.now, snapshot.now - policy.max_age
    known: dict[tuple[str, str, str], Turn] = {}
    """What thousands of Jobs of one user, class and queue of order *fair* have in common."""

    def key(job: Job) -> tuple[Turn, Seconds, Seconds, JobId]:
        account = (job.class_name, job.queue, job.user)
        usual = job.reserved is None and job.eligible > overdue
        found = known.get(account) if usual else None
        if found is None:
            found = turn(job, ranks, now, policy)
            if usual and is_fair(job.queue, policy):
                known[account] = found
        return found, job.eligible, job.submitted, job.id

    return sorted(waiting, key=key)


def turn(job: Job, ranks: Mapping[Account, int], now: Seconds, policy: Policy) -> Turn:
    """What comes before the time since which a Job waits; ``ranks`` are those of Fair Tree."""
    queue, user = _account(job.queue, job.user, policy)
    return (
        not is_promised(job),
        -priority(job, policy),
        job.reserved is None or not is_fair(queue, policy),
        job.eligible > now - policy.max_age,
        ranks[queue, user],
        "" if user else queue,
        _own(job, now, policy),
    )


def is_promised(job: Job) -> bool:
    """True if it starts as soon as all who leave have left."""
    return job.reserved is not None and job.reserved.promised


def priority(job: Job, policy: Policy) -> int:
    """That of its class."""
    class_ = policy.classes.get(job.class_name)  # a broken policy may have been replaced
    return 0 if class_ is None else class_.priority


def is_fair(queue: str, policy: Policy) -> bool:
    """True if its users come in turn, and their Jobs in the order in which they came."""
    known = policy.queues.get(queue)
    return known is None or known.order is Order.FAIR


def overtakes(job: Job, other: Job, policy: Policy) -> bool:
    """True if the Job, ahead in line, need not heed what is kept free for the other: it is of
    a higher class, or came later in a queue that is not in the order of arrival."""
    if priority(job, policy) != priority(other, policy):
        return priority(job, policy) > priority(other, policy)
    return job.queue == other.queue and not is_fair(job.queue, policy)


def keeps_free(job: Job, now: Seconds, policy: Policy) -> bool:
    """True if GPUs may be kept free for the Job while it lacks others. Not where running Jobs
    give way by levels, which brings it in sooner, unless it waits longer than ``max_age``."""
    queue = policy.queues.get(job.queue)
    levels = queue is not None and queue.preempt_equals is Equals.LEVELS
    return not levels or job.eligible <= now - policy.max_age


def _account(queue: str, user: str, policy: Policy) -> Account:
    """All users of a queue are one where they do not matter."""
    return queue, user if is_fair(queue, policy) else ""


def accounts(jobs: Iterable[Job], snapshot: Snapshot, policy: Policy) -> dict[Account, float]:
    """What was used lately by all who used something or have one of these Jobs."""
    waiting = dict.fromkeys((job.queue, job.user) for job in jobs)
    usage = dict.fromkeys((_account(*account, policy) for account in waiting), 0.0)
    for (queue, user), used in snapshot.usage.items():
        account = _account(queue, user, policy)
        usage[account] = usage.get(account, 0.0) + used
    return usage


def _own(job: Job, now: Seconds, policy: Policy) -> float:
    """Within its queue."""
    queue = policy.queues.get(job.queue)
    match queue.order if queue is not None else Order.FAIR:
        case Order.SHORTEST:
            waited = now - job.eligible - job.served
            return remaining(job, now, policy) - policy.levels.aging * waited
        case Order.ATTAINED:
            return level(job, now, policy)
        case Order.FAIR:
            return 0.0
