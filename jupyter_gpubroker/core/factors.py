# SPDX-License-Identifier: BSD-3-Clause
"""What decides when it is a waiting Job's turn, in words, what counts most first."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from .amounts import words_duration
from .fairshare import level_factors
from .line import accounts, is_fair, priority
from .model import Job, Order, Policy, Snapshot, State
from .relations import attained, level, remaining


class Factor(NamedTuple):
    """One thing that ``line.order`` looks at."""

    name: str
    """``reserved``, ``quota``, ``class``, ``age``, ``queue``, ``user`` or ``order``."""
    text: str


def factors(job: Job, snapshot: Snapshot, policy: Policy) -> tuple[Factor, ...]:
    """Of a Job that waits; of ``snapshot``, its Jobs and usage are read."""
    found = []
    if job.reserved is not None:
        word = "promised to it" if job.reserved.promised else "reserved for it"
        found.append(Factor("reserved", f"a place is {word}: that is settled"))
    queue = policy.queues[job.queue]
    if queue.cohort or queue.quota:
        text = f"what stays inside the GPUs that {job.queue} owns goes before what borrows"
        found.append(Factor("quota", text))
    found.append(Factor("class", f"{job.class_name} has priority {priority(job, policy)}"))
    found.append(Factor("age", _age(job, snapshot, policy)))
    waiting = [other for other in snapshot.jobs.values() if other.state is State.QUEUED]
    usage = accounts(waiting, snapshot, policy)
    queues, users = level_factors(usage, policy.queues)
    used = dict.fromkeys(queues, 0.0)
    for (name, _), amount in usage.items():
        used[name] += amount
    found.append(Factor("queue", _part(job.queue, used, queues)))
    if is_fair(job.queue, policy):
        siblings = {user: amount for (name, user), amount in usage.items() if name == job.queue}
        among = {user: users[name, user] for name, user in users if name == job.queue}
        found.append(Factor("user", _part(job.user, siblings, among) + f" in {job.queue}"))
    else:
        found.append(Factor("order", _own(job, snapshot, policy)))
    return tuple(found)


def _age(job: Job, snapshot: Snapshot, policy: Policy) -> str:
    waited = words_duration(snapshot.now - job.eligible)
    limit = words_duration(policy.max_age)
    if snapshot.now - job.eligible >= policy.max_age:
        return f"waits for {waited}: longer than {limit}, so it leads its class"
    return f"waits for {waited}; after {limit} it leads its class"


def _part(name: str, used: dict[str, float], among: dict[str, float]) -> str:
    """How much of what was used lately, and where that puts it."""
    total = sum(used.values())
    part = used[name] / total if total else 0.0
    before = sum(other > among[name] for other in among.values())
    factor = "nothing used lately" if among[name] == inf else f"factor {among[name]:.2g}"
    place = f"{before} of {len(among) - 1} others come first" if len(among) > 1 else "no other"
    return f"{name} had {100 * part:.0f} % of the GPU time lately ({factor}): {place}"


def _own(job: Job, snapshot: Snapshot, policy: Policy) -> str:
    if policy.queues[job.queue].order is Order.SHORTEST:
        hours = remaining(job, snapshot.now, policy) / 3600
        return f"the shortest first: it has {hours:.3g} GPU-hours left by its limit"
    hours = attained(job, snapshot.now) / 3600
    return (
        f"who had the least first: it had {hours:.3g} GPU-hours,"
        f" which is level {level(job, snapshot.now, policy)}"
    )
