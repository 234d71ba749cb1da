# SPDX-License-Identifier: BSD-3-Clause
"""Starts that wait at a Hub for their GPUs: a place is kept while somebody asks for it.

No server of theirs is there yet that could be seen to be gone, and a Hub that was killed
tells nobody. So its spawner says again and again that it waits; silence is what is judged.
"""

from __future__ import annotations

from ..core import events as e
from ..core.model import Job, JobId, Seconds, State
from .batch import Batch

QUIET_S = 60.0
"""A spawner asks every quarter of a minute: after this, nobody would use the GPUs."""
KEPT_S = 600.0
"""So long after the last time that it was asked for, a place is given up."""
GIVEN_UP = "cancelled: its Hub has not asked for it for ten minutes"


def unasked(batch: Batch) -> Seconds | None:
    """Bar the starts that nobody asks for, give up those of long ago; when to look again.

    What was heard before a restart of the broker is not known: its clock starts anew."""
    world, now = batch.world, batch.now
    silent: dict[JobId, Seconds] = {}
    times: list[Seconds] = []
    for job in filter(_waits_at_hub, [*world.sessions.values()]):
        asked = world.asked.get(job.id, world.started)
        if now >= asked + KEPT_S:
            batch.apply(job.id, e.Withdraw(GIVEN_UP), "broker")
        elif now >= asked + QUIET_S:
            silent[job.id] = asked + KEPT_S
        times += [asked + limit for limit in (QUIET_S, KEPT_S) if now < asked + limit]
    batch.changed |= silent.keys() != world.unasked.keys()
    world.unasked = silent
    return min(times, default=None)


def _waits_at_hub(job: Job) -> bool:
    """A server that said hello is there: the Hub has nothing to wait for any more."""
    return job.state is State.QUEUED and not job.attach and job.holder is None
