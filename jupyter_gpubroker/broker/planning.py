# SPDX-License-Identifier: BSD-3-Clause
"""World -> Snapshot -> Plan -> events."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from ..core import events as e
from ..core.model import (
    Binding,
    Blocked,
    Idle,
    Job,
    JobId,
    Kind,
    Lease,
    Mode,
    Placement,
    Reason,
    Reservation,
    Seconds,
    Snapshot,
    StageName,
    State,
    Terms,
    Why,
    nodes_of,
)
from ..core.quota import decayed
from ..core.schedule import schedule
from .batch import Batch
from .idleness import judge
from .world import World

ENTRY_PENALTY_S = 3600.0
"""A grant counts as so much use at once (or its limit), which real use then replaces."""
MUTE = (
    "its Jupyter server is up, but jupyter-gpubroker in it has not said hello: install it where"
    " the server runs, or let the Hub use binding='server'"
)
SERVER_START_S = 600.0
"""How long STARTING may last where the server itself waited for its GPUs and only starts now.
Its spawner says earlier if that fails; this bounds a Hub that is gone."""
PARK_S = 60.0
PARK_MIB_PER_S = 1907
"""2 GB/s, the slowest checkpoint to plan for."""


def judge_all(batch: Batch) -> tuple[Mapping[JobId, Idle], Seconds | None]:
    """Idle sessions, sessions rescued by use, and when the next may become idle."""
    world = batch.world
    idle: dict[JobId, Idle] = {}
    next_look: Seconds | None = None
    for job in [*world.sessions.values()]:
        if job.state not in (State.RUNNING, State.DRAINING):
            continue
        found = judge(world, job, batch.now)
        if found.idle is not None:
            idle[job.id] = found.idle
        elif job.state is State.DRAINING and job.server in world.activity:
            batch.apply(job.id, e.Active(), f"user:{job.user}")
        if found.next is not None:
            next_look = found.next if next_look is None else min(next_look, found.next)
    return idle, next_look


def may_be_in_use(world: World, job: Job, now: Seconds) -> bool:
    """True if the Job has to leave for being idle, and it is not known that it still is:
    nothing is taken on the word of a report that is too old, or lost with another broker."""
    notice = job.notice
    if job.state is not State.DRAINING or notice is None or notice.reason is not Reason.IDLE:
        return False
    return judge(world, job, now).idle is None


def snapshot(world: World, idle: Mapping[JobId, Idle], now: Seconds) -> Snapshot:
    """What the scheduler may read; it shares the world's Jobs."""
    nodes = world.usable_nodes()
    return Snapshot(
        now=now,
        nodes=nodes,
        jobs=dict(world.alive),
        usage=usage(world, now),
        spent={key: item.milli_seconds for key, item in world.spent.items()},
        idle=idle,
        memory_mib=dict(world.memory_mib),
        quarantined=tuple(world.quarantined),
        barred=_barred(world),
        requests=dict(world.index.requests),
        reserve=world.demand.sessions(world.policy, nodes.values(), now),
    )


def usage(world: World, now: Seconds) -> Mapping[tuple[str, str], float]:
    """(queue, user) -> what was used lately, running Leases included; see ``Snapshot.usage``."""
    half_life = world.policy.half_life
    used = {
        key: decayed(item.milli_seconds, now - item.time, half_life)
        for key, item in world.usage.items()
    }
    for job in world.leased():
        assert job.lease is not None
        limit = job.request.time_limit or ENTRY_PENALTY_S
        seconds = max(now - job.lease.since, min(limit, ENTRY_PENALTY_S))
        key = (job.queue, job.user)
        used[key] = used.get(key, 0.0) + job.lease.milli * seconds
    return used


def _barred(world: World) -> Mapping[JobId, Why]:
    """A batch Job only where a broken policy has been replaced by the default one."""
    busy = {job.server: job for job in world.leased() if job.server}
    barred = {}
    known = all(
        class_ in world.policy.classes and queue in world.policy.queues
        for _, class_, queue in world.index.waiting
    )
    for job in world.sessions.values() if known else world.alive.values():
        if job.state is not State.QUEUED:
            continue
        if job.class_name not in world.policy.classes:
            text = f"class {job.class_name} is not in the policy that is in force"
            barred[job.id] = Why(Blocked.LIMIT, text)
        elif job.queue not in world.policy.queues:
            text = f"queue {job.queue} is not in the policy that is in force"
            barred[job.id] = Why(Blocked.LIMIT, text)
        elif job.server in busy:
            text = "waiting for your earlier session to give its GPUs back"
            barred[job.id] = Why(Blocked.LEAVING, text, waits_for=(busy[job.server].id,))
        elif job.server in world.gone:
            # Nobody would use the GPUs; the place is kept until the holder's grace is over.
            text = "waiting for your Jupyter server to be started again"
            barred[job.id] = Why(Blocked.SERVER, text)
        elif job.holder is None and world.mute.get(job.server, 0) == job.incarnation > 0:
            barred[job.id] = Why(Blocked.SERVER, MUTE)
        elif job.id in world.unasked:
            text = "its Hub no longer asks for it: start the server again; the place is kept"
            barred[job.id] = Why(Blocked.SERVER, text, until=world.unasked[job.id])
    return barred


def plan(batch: Batch, ladders: Mapping[str, tuple[StageName, ...]]) -> Seconds | None:
    """Judge, schedule, apply; when to look again without an event."""
    world = batch.world
    idle, next_idle = judge_all(batch)
    world.idle = idle
    made = schedule(snapshot(world, idle, batch.now), world.policy)
    world.plan = made
    for job_id in made.reprieve:
        batch.apply(job_id, e.Reprieve(), "broker")
    for job_id, notice in made.notice:
        found = idle.get(job_id)
        facts = {} if found is None else {"idle_since": found.since, "samples": found.facts}
        taker = world.jobs.get(notice.for_job or "")
        facts |= {"for_user": taker.user} if taker is not None else {}
        batch.apply(job_id, e.Notify(notice), "broker", facts)
    _reserve(batch, dict(made.reserve), dict(made.place))
    for job_id, placement in made.place:
        job = world.jobs[job_id]
        batch.apply(job_id, _place(world, job, placement, ladders, batch.now), "broker")
    times = [time for time in (made.next, next_idle) if time is not None]
    return min(times, default=None)


def _reserve(batch: Batch, found: Mapping[JobId, Reservation], placed: Container[JobId]) -> None:
    """What is kept free for Jobs that go on waiting is now this."""
    world = batch.world
    for job_id in dict.fromkeys((*world.index.reserved, *found)):
        job, reservation = world.jobs[job_id], found.get(job_id)
        if job.state is not State.QUEUED or job.reserved == reservation or job_id in placed:
            continue
        facts: dict[str, object] = {}
        if reservation is not None:
            facts = {"start": reservation.start, "nodes": list(nodes_of(reservation.placement))}
        batch.apply(job.id, e.Reserve(reservation), "broker", facts)


def _place(
    world: World,
    job: Job,
    placement: Placement,
    ladders: Mapping[str, tuple[StageName, ...]],
    now: Seconds,
) -> e.Place:
    engine = world.nodes[placement[0].node].engine
    limits = world.class_of(job)
    session = job.kind is Kind.SESSION
    terms = replace(limits.terms, max_restarts=job.terms.max_restarts)
    if session:
        rungs = ladders.get(engine, ()) if job.binding is Binding.KERNEL else ()
        terms = replace(terms, park=_ladder(terms, placement, rungs))
    lease = Lease(
        engine=engine,
        placement=placement,
        attempt=job.attempt + 1,
        since=now,
        expires=now + job.remaining(limits.time_default),
        mode=Mode.HELD if session else Mode.HOSTED,
    )
    slow = session and not job.attach
    return e.Place(lease, terms, max(terms.start, SERVER_START_S) if slow else terms.start)


def _ladder(
    terms: Terms, placement: Placement, names: tuple[StageName, ...]
) -> tuple[tuple[StageName, Seconds], ...]:
    """The parking rungs an engine has, each with its time."""
    memory = sum(share.memory_mib for share in placement)
    times = {StageName.PARK: PARK_S + memory / PARK_MIB_PER_S, StageName.RESTART: terms.stop}
    return tuple((name, times[name]) for name in names)
