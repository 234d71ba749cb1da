# SPDX-License-Identifier: BSD-3-Clause
"""Who may take from whom: nobody is ever asked to leave but along one of these relations.

*Idle*: batch takes a session that is judged idle. *Class*: batch takes a Job of its queue
whose class yields to its own. *Level*: batch takes batch of its queue and class that is of
a higher level, where the queue says so. A running Job is shielded for a while after it has
started, sessions take from nobody, and nobody takes from whom they had to leave for.

That no Jobs take from each other in a circle follows from three facts: the classes have no
circle (``circle``, which a policy is refused for), only batch takes, and a level moves by
nothing but a Job's own service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, log2

from .model import (
    GPU_MILLI,
    Class,
    Equals,
    Job,
    Kind,
    Levels,
    Order,
    Policy,
    Reason,
    Request,
    Seconds,
    Snapshot,
    State,
)

SLACK = 1e-3
"""GPU-seconds by which a level may be early: times are rounded."""

Pair = tuple[Kind, str]
"""A kind of Job and its class."""


def relation(taker: Job, victim: Job, snapshot: Snapshot, policy: Policy) -> Reason | None:
    """Whether, and for which reason, ``taker`` may take from ``victim`` now."""
    if taker.kind is not Kind.BATCH or not exposed(victim, snapshot.now):
        return None
    if is_idle(victim, snapshot):
        return Reason.IDLE
    return Reason.PREEMPTED if gives_way(victim, taker, snapshot.now, policy) else None


def exposed(victim: Job, now: Seconds) -> bool:
    """True if it runs, and was not granted its GPUs or told *Keep* a short while ago."""
    return victim.state is State.RUNNING and victim.shield_until <= now


def is_idle(victim: Job, snapshot: Snapshot) -> bool:
    """A session that does nothing with its GPUs."""
    return victim.kind is Kind.SESSION and victim.id in snapshot.idle


def gives_way(victim: Job, taker: Job, now: Seconds, policy: Policy) -> bool:
    """True if the victim is taken though it is at work."""
    if victim.id in taker.left_for:
        return False
    return by_class(taker, victim, policy) or by_level(taker, victim, now, policy)


def by_class(taker: Job, victim: Job, policy: Policy) -> bool:
    """The class of the victim yields to that of the taker, and both are of one queue."""
    over, under = policy.classes.get(taker.class_name), policy.classes.get(victim.class_name)
    if over is None or under is None or taker.queue != victim.queue:
        return False
    return yields(under, victim.kind, over)


def yields(under: Class, kind: Kind, over: Class) -> bool:
    """True if Jobs of that kind at work give way to batch of the class ``over``."""
    if under.yields_to is not None:
        return over.name in under.yields_to
    return kind is Kind.BATCH and under.priority < over.priority


def by_level(taker: Job, victim: Job, now: Seconds, policy: Policy) -> bool:
    """Batch of one queue and class, where the taker's level is the lower one."""
    same = (taker.queue, taker.class_name) == (victim.queue, victim.class_name)
    queue = policy.queues.get(taker.queue)
    if not same or victim.kind is not Kind.BATCH or queue is None:
        return False
    if queue.preempt_equals is Equals.OFF or not may_yield(victim, policy):
        return False
    return level(taker, now, policy) < level(victim, now, policy)


def may_yield(victim: Job, policy: Policy) -> bool:
    """False where its class yields to nobody at all."""
    class_ = policy.classes.get(victim.class_name)
    return class_ is not None and class_.yields_to != ()


# --- levels -------------------------------------------------------------------------


def level(job: Job, now: Seconds, policy: Policy) -> int:
    """How much GPU-time it has had (*attained*), or has left by its limit (*shortest*: in
    powers of two); 0 in a queue of another order. Lower ones go first."""
    queue = policy.queues.get(job.queue)
    match queue.order if queue is not None else Order.FAIR:
        case Order.ATTAINED:
            return sum(attained(job, now) >= each - SLACK for each in _steps(job, now, policy))
        case Order.SHORTEST:
            return int(log2(max(1.0, remaining(job, now, policy))))
        case _:
            return 0


def leaves_level(job: Job, now: Seconds, policy: Policy) -> Seconds:
    """When a Job that runs is of the next higher level; infinite if never."""
    queue = policy.queues.get(job.queue)
    if queue is None or queue.order is not Order.ATTAINED or queue.preempt_equals is Equals.OFF:
        return inf
    if job.lease is None or not job.lease.milli:
        return inf
    had = attained(job, now)
    above = next(each for each in _steps(job, now, policy) if each - SLACK > had)
    return now + (above - had) * GPU_MILLI / job.lease.milli


def _steps(job: Job, now: Seconds, policy: Policy) -> Iterator[float]:
    """Where levels end, up to the first one that the Job has not reached."""
    levels: Levels = policy.levels
    had, step = attained(job, now), levels.first
    yield step
    while step - SLACK <= had:
        step *= levels.factor
        yield step


def attained(job: Job, now: Seconds) -> float:
    """GPU-seconds that it has had, in all its Leases."""
    if job.lease is None:
        return job.gpu_seconds
    return job.gpu_seconds + max(0.0, now - job.lease.since) * job.lease.milli / GPU_MILLI


def remaining(job: Job, now: Seconds, policy: Policy) -> float:
    """GPU-seconds that it has left by its limit."""
    class_ = policy.classes.get(job.class_name)
    limit = job.request.time_limit or (0.0 if class_ is None else class_.time_default)
    held = 0.0 if job.lease is None else max(0.0, now - job.lease.since)
    return max(0.0, limit + job.extended - job.served - held) * gpus(job.request)


def gpus(request: Request) -> float:
    """GPUs of a Request; a share by its memory, which differs by device, counts as one."""
    return request.most_milli() / GPU_MILLI


def unsaved(job: Job, now: Seconds) -> float:
    """GPU-seconds of work since the program said that it saved its state.

    0 where it never did: who stays silent must not be spared longer for it than who tells."""
    if job.lease is None or job.saved_at is None:
        return 0.0
    since = max(job.saved_at, job.lease.since)
    return max(0.0, now - since) * job.lease.milli / GPU_MILLI


# --- the policy ---------------------------------------------------------------------


def circle(classes: Mapping[str, Class]) -> tuple[Pair, ...]:
    """Kinds and classes that may take from each other all around, each from the next one and
    the last one from the first; empty if there are none. (Levels order the Jobs of one class.)"""
    done: dict[Pair, None] = {}
    for name, class_ in classes.items():
        if Kind.BATCH in class_.kinds and (found := _walk((Kind.BATCH, name), classes, done)):
            return found
    return ()


def _takes(taker: Pair, classes: Mapping[str, Class]) -> Iterator[Pair]:
    """From whom; sessions take from nobody."""
    kind, name = taker
    for under in classes.values() if kind is Kind.BATCH else ():
        if Kind.SESSION in under.kinds:
            yield Kind.SESSION, under.name
        if Kind.BATCH in under.kinds and yields(under, Kind.BATCH, classes[name]):
            yield Kind.BATCH, under.name


def _walk(start: Pair, classes: Mapping[str, Class], done: dict[Pair, None]) -> tuple[Pair, ...]:
    """Depth first; ``done`` are known to lead into no circle."""
    path = {start: _takes(start, classes)}
    while path:
        last = next(reversed(path))
        after = next(path[last], None)
        if after is None:
            done[last] = None
            del path[last]
        elif after in path:
            names = tuple(path)
            return names[names.index(after) :]
        elif after not in done:
            path[after] = _takes(after, classes)
    return ()


def words(around: tuple[Pair, ...]) -> str:
    """``batch of a could take from batch of b, and batch of b from batch of a``."""
    names = [f"{kind} of {name}" for kind, name in around]
    first, *rest = zip(names, [*names[1:], names[0]], strict=True)
    return ", and ".join(
        [f"{first[0]} could take from {first[1]}"] + [f"{one} from {other}" for one, other in rest]
    )
