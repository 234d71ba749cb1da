# SPDX-License-Identifier: BSD-3-Clause
"""Is a session in use? Judged from what its server reports and its class allows.

Fail-safe: what cannot be read counts as in use (DESIGN, law 13).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.model import Class, Idle, Job, Seconds, StageName
from .inputs import Activity

STALE_S = 90.0
"""A report older than this says nothing any more (servers report every 30 s)."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """Idle or not, and when that may change without news."""

    idle: Idle | None
    next: Seconds | None
    """When it would become idle if nothing happens."""


def judge(
    job: Job, activity: Activity | None, limits: Class, memory_mib: int, now: Seconds
) -> Judgement:
    """Judge one leased session (DESIGN §8, *Idle*)."""
    assert job.lease is not None
    if activity is None or now - activity.at > STALE_S:
        return Judgement(None, None)
    granted = job.lease.since
    quiet = [granted]
    """When each source of use fell silent."""
    busy = []
    for kernel in activity.kernels:
        if kernel.busy:
            busy.append(activity.busy_since.get(kernel.id, activity.at))
        else:
            quiet.append(activity.at - kernel.idle_for)
    if activity.terminals_idle_for is not None:
        quiet.append(activity.at - activity.terminals_idle_for)
    if activity.children:
        busy.append(activity.busy_since.get("children", activity.at))
    since = max(quiet)
    ready = since + limits.idle
    if busy:
        ladder = job.terms.park
        if not ladder or ladder[0][0] is not StageName.PARK:
            return Judgement(None, None)  # only a rung that lets its cell go on may take it
        ready = max(ready, max(*busy, granted) + limits.idle_busy)
        since = max(since, *busy)
    if now < ready:
        return Judgement(None, ready)
    facts = (
        f"{len(activity.kernels)} kernels, {len(busy)} busy without GPU use, "
        f"quiet for {now - since:.0f} s; {memory_mib} MiB on its GPUs"
    )
    return Judgement(Idle(since, memory_mib, facts), None)
