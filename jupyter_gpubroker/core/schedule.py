# SPDX-License-Identifier: BSD-3-Clause
"""``schedule(snapshot, policy) -> Plan``: who starts, who is asked to leave, why others wait.

The steps are in the order of what they disturb. Nobody is told anything unless the Job
that needs it then fits whole, and who was told is reprieved as soon as no Job needs it.
"""

from __future__ import annotations

from itertools import islice

from .cycle import Cycle
from .line import order
from .model import Plan, Policy, Snapshot


def schedule(snapshot: Snapshot, policy: Policy) -> Plan:
    """What to do now. Pure: the same input gives the same Plan."""
    # 1. The line: every queue's Jobs in their order, merged.
    line = order(snapshot, policy)
    cycle = Cycle(snapshot, policy, line)
    for job in islice(cycle.turns(), policy.jobs_considered):
        # 2. Who may not start now, whatever is free: no server yet, or a limit.
        cycle.decide(job)
        if cycle.waits_in_vain(job) or cycle.bars(job):
            continue
        # 3. It fits now, and takes nothing that was promised or reserved: it starts.
        if (placement := cycle.fits_now(job)) is not None:
            cycle.place(job, placement)
        # 4. It fits when those have left who leave anyway or leave for it: a promise.
        # 5. It fits when idle sessions leave: they get a notice, it gets the promise.
        elif (way := cycle.promise(job) or cycle.make_way(job)) is not None:
            cycle.grant(job, way)
        # 6. It waits: say for whom, and until when. The first one has its place kept free.
        else:
            cycle.block(job)
    return cycle.plan()
