# SPDX-License-Identifier: BSD-3-Clause
"""Users who left the Hub: what they wait for and hold is given back."""

from __future__ import annotations

from ..core import events as e
from ..core.leaving import ENDS_FOR_GOOD
from ..core.model import LEASED, Job, Kind, RemovedUsers, State
from . import inputs as i
from .batch import Batch

WHY = "its user was removed from JupyterHub"


def users_gone(batch: Batch, seen: i.UsersGone) -> None:
    """Cancel what waits or is parked, release sessions; jobs that run, as the policy says."""
    for job in batch.world.living():
        if job.user in seen.users and (event := _end(job, batch.world.policy.removed_users)):
            batch.apply(job.id, event, "hub", {"why": WHY})


def _end(job: Job, rule: RemovedUsers) -> e.Event | None:
    if job.state not in LEASED:
        return e.Cancel(WHY)
    if job.state is State.STOPPING and job.notice and job.notice.reason in ENDS_FOR_GOOD:
        return None
    if job.kind is Kind.SESSION:
        return e.Release()
    return e.Cancel(WHY) if rule is RemovedUsers.CANCEL else None
