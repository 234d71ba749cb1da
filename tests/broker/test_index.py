# SPDX-License-Identifier: BSD-3-Clause
"""The index that the broker carries is, after any changes, the one made anew from its Jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpubroker.broker.index import STALE_MAX, Index
from jupyter_gpubroker.core.model import (
    TERMINAL,
    Job,
    Kind,
    Lease,
    Mode,
    Notice,
    Reason,
    Request,
    Reservation,
    Share,
    State,
)
from jupyter_gpubroker.core.placement import requests_of

LEASE = Lease("toy", (Share("n1", "GPU-1", 1000),), 1, 0.0, 60.0, Mode.HOSTED)


def job(number: int, state: State, until: float) -> Job:
    """One of few Jobs in any state; each has one deadline, as ``Job.deadline`` tells."""
    leased = state in (State.STARTING, State.RUNNING, State.DRAINING, State.STOPPING)
    return Job(
        f"j-{number}",
        Kind.SESSION if number % 3 == 0 else Kind.BATCH,
        f"user-{number % 2}",
        "default",
        "batch",
        Request(gpus=1 + number % 2),
        state=state,
        until=None if state in TERMINAL or (state is State.QUEUED and number % 2) else until,
        lease=LEASE if leased else None,
        reserved=Reservation(LEASE.placement, until) if number == 1 and not leased else None,
        notice=Notice(Reason.IDLE, until) if state is State.DRAINING else None,
    )


JOBS = st.builds(job, st.integers(0, 5), st.sampled_from(State), st.integers(1, 9).map(float))


def looked_up(index: Index) -> tuple[object, ...]:
    """All that a turn can learn from it, in no order."""
    names = (index.alive, index.sessions, index.leases, index.reserved)
    counts = (index.waiting, index.requests)
    return (*(sorted(each.items()) for each in names), *counts, index.next_deadline())


@given(changes=st.lists(JOBS, max_size=40), now=st.integers(0, 10).map(float))
def test_it_equals_one_that_is_made_anew(changes: list[Job], now: float) -> None:
    carried, jobs = Index(), dict[str, Job]()
    for change in changes:
        carried.put(change)
        jobs[change.id] = change
    assert carried.requests == requests_of(jobs.values())
    anew = Index()
    for change in jobs.values():
        anew.put(change)
    assert looked_up(carried) == looked_up(anew)
    late = [each for each in jobs.values() if each.deadline is not None and each.deadline <= now]
    due = carried.due(now)
    assert [each.deadline for each in due] == sorted(each.deadline or 0.0 for each in late)
    assert {each.id for each in due} == {each.id for each in late if each.state not in TERMINAL}
    assert not carried.due(now), "told once"
    for each in due:
        carried.remind(each)
    assert list(carried.due(now)) == list(due), "and again when asked to"


def test_deadlines_that_moved_are_swept_out() -> None:
    index = Index()
    for number in range(10 * STALE_MAX):
        index.put(job(1, State.RUNNING, 0.0))
        index.put(job(0, State.PARKED, 1e6 + number))
    assert index.next_deadline() == LEASE.expires
    assert len(index._deadlines) <= STALE_MAX + 10
