# SPDX-License-Identifier: BSD-3-Clause
"""Plain limits per user and queue, and the decay of usage."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from .amounts import words_gpus
from .ledger import lease_of
from .model import (
    GPU_MILLI,
    LEASED,
    Blocked,
    Job,
    JobId,
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
        self._classes: dict[tuple[str, str], dict[JobId, Job]] = {}
        self._queues: dict[str, dict[JobId, tuple[Job, int]]] = {}
        for _, job in sorted(snapshot.jobs.items()):
            if job.state in LEASED:
                self._add(job, lease_of(job).milli)

    def admit(self, job: Job) -> None:
        """The Job starts, or was promised where it will."""
        self._add(job, self._milli(job.request))

    def bar(
        self, job: Job, without: Collection[JobId] = (), besides: Sequence[Job] = ()
    ) -> Why | None:
        """Why a limit keeps the Job from starting; ``None`` if none does.

        As if those ``without`` had ended, and those ``besides`` had started.
        """
        own = self._class_bar(job, without, besides)
        gone = without if own is None else (*without, *own.waits_for)
        queue = self._queue_bar(job, gone, besides)
        return _both(own, queue) if own is not None and queue is not None else own or queue

    def share_one(self, job: Job, other: Job) -> bool:
        """True if both count against the same limit."""
        class_ = self._policy.classes[job.class_name]
        queue = self._policy.queues[job.queue]
        own = (job.class_name, job.user) == (other.class_name, other.user)
        return (own and class_.running is not None) or (
            job.queue == other.queue and queue.running_gpus is not None
        )

    def _add(self, job: Job, milli: int) -> None:
        self._classes.setdefault((job.class_name, job.user), {})[job.id] = job
        self._queues.setdefault(job.queue, {})[job.id] = (job, milli)

    def _class_bar(
        self, job: Job, without: Collection[JobId], besides: Sequence[Job]
    ) -> Why | None:
        limit = self._policy.classes[job.class_name].running
        if limit is None:
            return None
        key = (job.class_name, job.user)
        known = self._classes.get(key, {}).values()
        counted = [other for other in known if other.id not in without]
        counted += [other for other in besides if (other.class_name, other.user) == key]
        if len(counted) < limit:
            return None
        over = _first_to_end(counted)[: len(counted) - limit + 1]
        return Why(
            Blocked.LIMIT,
            f"{job.user} has {len(counted)} of at most {limit} running in class {job.class_name}",
            waits_for=tuple(other.id for other in over),
            until=latest(over),
            rules=(f"classes.{job.class_name}.running",),
        )

    def _queue_bar(
        self, job: Job, without: Collection[JobId], besides: Sequence[Job]
    ) -> Why | None:
        limit = self._policy.queues[job.queue].running_gpus
        if limit is None:
            return None
        known = self._queues.get(job.queue, {}).values()
        counted = [(other, milli) for other, milli in known if other.id not in without]
        counted += [(o, self._milli(o.request)) for o in besides if o.queue == job.queue]
        used, milli = sum(share for _, share in counted), self._milli(job.request)
        room = limit * GPU_MILLI
        if used + milli <= room:
            return None
        held = f"queue {job.queue} has {used / GPU_MILLI:g} of at most {words_gpus(room)} in use"
        rules = (f"queues.{job.queue}.running_gpus",)
        if milli > room:
            text = f"{held}, and this needs {milli / GPU_MILLI:g}"
            return Why(Blocked.LIMIT, text, rules=rules)
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
            rules=rules,
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


def _both(first: Why, second: Why) -> Why:
    """Two limits bar it: if waiting helps at all, then for both."""
    helps = first.waits_for and second.waits_for
    ends = (first.until, second.until)
    known = [end for end in ends if end is not None]
    return Why(
        Blocked.LIMIT,
        f"{first.text}, and {second.text}",
        waits_for=(*first.waits_for, *second.waits_for) if helps else (),
        until=max(known) if helps and len(known) == len(ends) else None,
        rules=(*first.rules, *second.rules),
    )


def _first_to_end(jobs: list[Job]) -> tuple[Job, ...]:
    """Leases by their end, then Jobs that have none yet."""
    return tuple(
        sorted(jobs, key=lambda job: (job.lease is None, ends(job) or job.submitted, job.id))
    )
