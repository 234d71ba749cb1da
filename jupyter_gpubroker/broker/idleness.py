# SPDX-License-Identifier: BSD-3-Clause
"""Is a session in use? Judged from what its server reports and its class allows.

Fail-safe: what cannot be read counts as in use (DESIGN, law 13).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from ..core.model import Binding, Idle, Job, Seconds, StageName, State
from .inputs import Activity
from .world import World

STALE_S = 90.0
"""A report older than this says nothing any more (servers report every 30 s)."""
JITTER_S = 0.5
"""Reports of the same silence differ by their time on the way."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Idle or not, and when that may change without news."""

    idle: Idle | None
    after: Seconds
    """How long it has to be quiet."""
    since: Seconds | None = None
    """Since when it is quiet; ``None`` = it is in use, or may be."""
    next: Seconds | None = None
    """When it would become idle if nothing happens."""


def judge(world: World, job: Job, now: Seconds) -> Judgement:
    """Judge one leased session (DESIGN §8, *Idle*)."""
    assert job.lease is not None
    if job.binding is Binding.SERVER:
        # Nobody reports what its kernels do, and its GPUs are not sampled.
        return Judgement(None, world.class_of(job).idle)
    activity, limits = world.activity.get(job.server), world.class_of(job)
    if activity is None or now - activity.at > STALE_S:
        return Judgement(None, limits.idle)
    quiet, busy = _sources(activity, job.lease.since)
    since, ready = max(quiet), max(quiet) + limits.idle
    if busy:
        ladder = job.terms.park
        if not ladder or ladder[0][0] is not StageName.PARK:
            # Only a rung that lets its cell go on may take it.
            return Judgement(None, limits.idle_busy)
        ready = max(ready, max(*busy, job.lease.since) + limits.idle_busy)
        since = max(since, *busy)
    after = limits.idle_busy if busy else limits.idle
    if now < ready:
        return Judgement(None, after, None if busy else since, ready)
    if busy and world.lacks_room(job):
        return Judgement(None, after)  # that rung has no room
    memory_mib = world.memory_mib.get(job.id, 0)
    facts = (
        f"{len(activity.kernels)} kernels, {len(busy)} sources of use still busy, "
        f"quiet for {now - since:.0f} s; {memory_mib} MiB on its GPUs"
    )
    return Judgement(Idle(since, memory_mib, facts), after, since)


def judged(world: World, job: Job, now: Seconds) -> Judgement | None:
    """The judgement of a session that is in use or asked to leave; ``None`` of any other."""
    return judge(world, job, now) if job.state in (State.RUNNING, State.DRAINING) else None


def matters(before: Judgement | None, after: Judgement | None) -> bool:
    """True if a Plan that knew the one could be another with the other."""
    if before is None or after is None:
        return False
    earlier = inf if before.next is None else before.next - JITTER_S
    sooner = after.next is not None and after.next < earlier
    return sooner or (before.idle is None) != (after.idle is None)


def _sources(activity: Activity, granted: Seconds) -> tuple[list[Seconds], list[Seconds]]:
    """When each source of use fell silent, and since when others have been busy."""
    quiet, busy = [granted], []
    for kernel in activity.kernels:
        if kernel.busy:
            busy.append(activity.busy_since.get(kernel.id, activity.at))
        else:
            quiet.append(activity.at - kernel.idle_for)
    if activity.terminals_idle_for is not None:
        quiet.append(activity.at - activity.terminals_idle_for)
    if activity.children:
        busy.append(activity.busy_since.get("children", activity.at))
    return quiet, busy
