# SPDX-License-Identifier: BSD-3-Clause
"""Anything that can happen to a Job, for the walks through the state table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import (
    Holder,
    Job,
    Kept,
    Kind,
    Lease,
    Mode,
    Notice,
    Process,
    Reason,
    Reservation,
    Rung,
    Share,
)

PLACE = (Share("node1", "GPU-1", 500),)
IMAGE = Kept("k1", 1, Rung.GPU_STATE, node="node1", processes=(Process(7, 7),), memory_mib=10)


def lease(attempt: int, mode: Mode, since: float) -> Lease:
    """Half a GPU for an hour."""
    return Lease("local", PLACE, attempt, since, since + 3600, mode)


def mode_of(job: Job) -> Mode:
    """How its Lease is held."""
    return Mode.HELD if job.kind is Kind.SESSION else Mode.HOSTED


def happening(
    kind: type[e.Event], job: Job, now: float, choose: Callable[[Sequence[Any]], Any]
) -> e.Event:
    """Any event of that type, about the Job's present attempt and server or other ones."""
    attempt = job.attempt - choose([0, 0, 0, 1])
    incarnation = job.incarnation + choose([-1, 0, 0, 1])
    reason = choose([Reason.IDLE, Reason.PREEMPTED, Reason.DRAIN, Reason.OVER])
    code, kept = choose([0, 1, 75, -9]), choose([(), (IMAGE,)])
    made: dict[type[e.Event], Callable[[], e.Event]] = {
        e.Place: lambda: e.Place(lease(job.attempt + 1, mode_of(job), now), job.terms, 120.0),
        e.Reserve: lambda: e.Reserve(Reservation(PLACE, now) if kept else None),
        e.Notify: lambda: e.Notify(Notice(reason, now + 10, "b-9", "n1")),
        e.Prepared: lambda: e.Prepared(attempt),
        e.Started: lambda: e.Started(attempt),
        e.Refused: lambda: e.Refused(attempt, "node1"),
        e.Exited: lambda: e.Exited(attempt, code, all_zero=code == 0),
        e.Freed: lambda: e.Freed(attempt, kept),
        e.Lost: lambda: e.Lost(attempt),
        e.RestoreFailed: lambda: e.RestoreFailed(attempt),
        e.Hello: lambda: e.Hello(Holder("h", "b", 1, 1), incarnation),
        e.HolderGone: lambda: e.HolderGone(incarnation),
        e.KeptLost: lambda: e.KeptLost(kept),
        e.Mark: lambda: e.Mark(complete=choose([True, False, False, False, False]), step=code),
        e.Extend: lambda: e.Extend(60.0),
        e.Adopt: lambda: e.Adopt(incarnation, attach=True),
        e.Retune: lambda: e.Retune(replace(job.terms, grace=1.0)),
        e.Resume: lambda: e.Resume(person=choose([True, False])),
    }
    return made.get(kind, kind)()
