# SPDX-License-Identifier: BSD-3-Clause
"""Plain limits per user and queue, and the decay of usage."""

from __future__ import annotations

from .ledger import lease_of
from .model import (
    GPU_MILLI,
    LEASED,
    Blocked,
    Job,
    Policy,
    Request,
    Seconds,
    Snapshot,
    State,
    Why,
)


def decayed(value: float, dt: Seconds, half_life: Seconds) -> float:
    """``value`` after ``dt``: ``0.5 ** (dt / half_life)`` of it; a clock that went back
    decays nothing."""
    return float(value * 0.5 ** (max(dt, 0.0) / half_life))


def ends(job: Job) -> Seconds | None:
    """When the Lease ends at the latest; ``None`` without a Lease."""
    if job.lease is None:
        return None
    return job.lease.expires if job.state is State.STARTING else job.deadline


def latest(jobs: tuple[Job, ...]) -> Seconds | None:
    """When all of them have left at the latest; ``None`` if that is not known."""
    known = [end for job in jobs if (end := ends(job)) is not None]
    return max(known) if known and len(known) == len(jobs) else None


class Limits:
    """What counts against the limits in one cycle: Leases, starts and promises."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._classes: dict[tuple[str, str], list[Job]] = {}
        self._queues: dict[str, list[tuple[Job, int]]] = {}
        for _, job in sorted(snapshot.jobs.items()):
            if job.state in LEASED:
                self._add(job, lease_of(job).milli)

    def admit(self, job: Job) -> None:
        """The Job starts, or was promised where it will."""
        self._add(job, self._milli(job.request))

    def bar(self, job: Job) -> Why | None:
        """Why a limit keeps the Job from starting; ``None`` if none does."""
        return self._class_bar(job) or self._queue_bar(job)

    def _add(self, job: Job, milli: int) -> None:
        self._classes.setdefault((job.class_name, job.user), []).append(job)
        self._queues.setdefault(job.queue, []).append((job, milli))

    def _class_bar(self, job: Job) -> Why | None:
        limit = self._policy.classes[job.class_name].running
        counted = self._classes.get((job.class_name, job.user), [])
        if limit is None or len(counted) < limit:
            return None
        over = _first_to_end(counted)[: len(counted) - limit + 1]
        return Why(
            Blocked.LIMIT,
            f"{job.user} has {len(counted)} of at most {limit} running in class {job.class_name}",
            waits_for=tuple(other.id for other in over),
            until=latest(over),
        )

    def _queue_bar(self, job: Job) -> Why | None:
        limit = self._policy.queues[job.queue].running_gpus
        if limit is None:
            return None
        counted = self._queues.get(job.queue, [])
        used, milli = sum(milli for _, milli in counted), self._milli(job.request)
        room = limit * GPU_MILLI
        if used + milli <= room:
            return None
        held = f"queue {job.queue} has {used / GPU_MILLI:g} of at most {limit} GPUs in use"
        if milli > room:
            return Why(Blocked.LIMIT, f"{held}, and this needs {milli / GPU_MILLI:g}")
        over: list[Job] = []
        size = {other.id: share for other, share in counted}
        for other in _first_to_end([other for other, _ in counted]):
            if used + milli <= room:
                break
            used -= size[other.id]
            over.append(other)
        return Why(
            Blocked.LIMIT,
            held,
            waits_for=tuple(other.id for other in over),
            until=latest(tuple(over)),
        )

    def _milli(self, request: Request) -> int:
        """The most a Request can take: a share given by its memory differs by device."""
        share = request.gpu_milli
        if request.memory_mib:
            sizes = [
                request.share_milli(device.memory_mib)
                for node in self._snapshot.nodes.values()
                for device in node.devices
                if not request.flavors or device.flavor in request.flavors
            ]
            share = max((size for size in sizes if size <= GPU_MILLI), default=GPU_MILLI)
        return request.nodes * request.gpus * GPU_MILLI + share


def _first_to_end(jobs: list[Job]) -> tuple[Job, ...]:
    """Leases by their end, then Jobs that have none yet."""
    return tuple(
        sorted(jobs, key=lambda job: (job.lease is None, ends(job) or job.submitted, job.id))
    )
