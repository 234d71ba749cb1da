# SPDX-License-Identifier: BSD-3-Clause
"""Small worlds of batch jobs, left alone: do they come to rest?

Nobody comes and nothing ends: the scheduler starts, preempts and starts again on a few
nodes until it wants nothing more. If the relations of preemption allowed a circle, some of
many such worlds would go on for ever. ``restless`` is the same with time, arrivals and
ends. Only the core takes part: ``schedule`` and ``advance``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from ..core import events as e
from ..core.ledger import lease_of
from ..core.lifecycle import advance
from ..core.model import (
    GPU_MILLI,
    LEASED,
    TERMINAL,
    Class,
    Cohort,
    Equals,
    Job,
    JobId,
    Kind,
    Lease,
    Levels,
    Mode,
    Node,
    Order,
    Placement,
    PlacementRule,
    Plan,
    Policy,
    Queue,
    Quota,
    Request,
    Snapshot,
    State,
    Terms,
)
from ..core.reclaim import reclaims
from ..core.relations import relation
from ..core.schedule import schedule
from .engine import cluster

CYCLES_MAX = 400
"""More than any world of this size needs."""
NOW = 1_000_000.0
NAMES = ("low", "middle", "high")
LIMITS = (60.0, 600.0, 6000.0, 60000.0)


class Restless(AssertionError):
    """What must not happen has happened."""


@dataclass
class World:
    """A few nodes, and batch jobs that wait or run."""

    nodes: dict[str, Node]
    policy: Policy
    jobs: dict[JobId, Job] = field(default_factory=dict)
    now: float = NOW
    plan: Plan = field(default_factory=Plan)
    cycles: int = 0
    preemptions: int = 0
    taken: dict[tuple[JobId, JobId], None] = field(default_factory=dict)
    """(taker, victim) of all preemptions."""

    def snapshot(self) -> Snapshot:
        """What the scheduler reads."""
        return Snapshot(self.now, self.nodes, dict(self.jobs))

    def cycle(self) -> bool:
        """Decide, and do it at once; False if there was nothing to do."""
        snapshot = self.snapshot()
        self.plan = schedule(snapshot, self.policy)
        self.cycles += 1
        told: dict[JobId, JobId] = {}
        for id_, notice in self.plan.notice:
            taker = self.jobs[notice.for_job or ""]
            gone = [other for other, whom in told.items() if whom != taker.id]
            self.check(taker, self.jobs[id_], snapshot, gone)
            told[id_] = taker.id
            self.move(id_, e.Notify(notice))
            self.move(id_, e.Exited(self.jobs[id_].attempt, -15))
            self.taken[taker.id, id_] = None
            self.preemptions += 1
        kept_free = dict(self.plan.reserve)
        for job in snapshot.jobs.values():
            if job.state is State.QUEUED and job.reserved != kept_free.get(job.id):
                self.move(job.id, e.Reserve(kept_free.get(job.id)))
        for id_, placement in self.plan.place:
            self._start(self.jobs[id_], placement)
        self._check_devices()
        return bool(self.plan.notice or self.plan.place)

    def check(
        self, taker: Job, victim: Job, snapshot: Snapshot, gone: Sequence[JobId] = ()
    ) -> None:
        """That it may be taken when those are gone; Restless if not."""
        back = reclaims(taker, victim, snapshot, self.policy, gone)
        if relation(taker, victim, snapshot, self.policy) is None and not back:
            raise Restless(f"{taker.id} may not take from {victim.id}")
        if (victim.id, taker.id) in self.taken:
            raise Restless(f"{victim.id} had taken from {taker.id}, which takes from it now")

    def _check_devices(self) -> None:
        used: dict[str, int] = {}
        for job in self.jobs.values():
            for share in lease_of(job).placement if job.state in LEASED else ():
                used[share.device] = used.get(share.device, 0) + share.milli
        if any(milli > GPU_MILLI for milli in used.values()):
            raise Restless("a GPU is granted twice")

    def _start(self, job: Job, placement: Placement) -> None:
        attempt, limit = job.attempt + 1, (job.request.time_limit or 0.0) - job.served
        lease = Lease("sim", placement, attempt, self.now, self.now + max(1.0, limit), Mode.HOSTED)
        self.move(job.id, e.Place(lease, job.terms, 60.0))
        self.move(job.id, e.Started(attempt))

    def move(self, id_: JobId, event: e.Event) -> None:
        """One transition; a Job that has ended is gone."""
        job, _ = advance(self.jobs[id_], event, self.now)
        if job.state in TERMINAL:
            del self.jobs[id_]
        else:
            self.jobs[id_] = job


def rest(seed: int) -> World:
    """The world of that number when it has come to rest; Restless if it does not."""
    world, draw = _world(Random(seed), shield=0.0)  # noqa: S311 - no secret
    for number in range(draw.randint(4, 9)):
        _submit(world, draw, number)
        if draw.random() < 0.3:  # those who come later find some running
            world.cycle()
    while world.cycle():
        if world.cycles > CYCLES_MAX:
            raise Restless(f"no rest after {world.cycles} cycles")
    return world


def restless(seed: int, cycles: int) -> World:
    """So many cycles of a world in which time passes, Jobs come and end."""
    world, draw = _world(Random(seed), shield=30.0)  # noqa: S311 - no secret
    for number in range(cycles):
        if len(world.jobs) < 16:
            _submit(world, draw, number)
        world.cycle()
        world.now += draw.choice((1.0, 10.0, 100.0, 1000.0))
        for job in list(world.jobs.values()):
            over = job.lease is not None and world.now >= job.lease.expires
            if job.state is State.RUNNING and (over or draw.random() < 0.03):
                world.move(job.id, e.Exited(job.attempt, 0))
    return world


def seeds(first: int, count: int) -> Iterator[tuple[int, str]]:
    """The worlds that do not come to rest, and why."""
    for seed in range(first, first + count):
        try:
            rest(seed)
        except Restless as error:
            yield seed, str(error)


def _world(draw: Random, shield: float) -> tuple[World, Random]:
    nodes = cluster(draw.choice((1, 2)), gpus := draw.choice((2, 4)))
    terms = Terms(shield=shield, max_restarts=10**6)
    classes = {
        name: Class(name, (Kind.BATCH,), priority=rank, terms=terms)
        for rank, name in enumerate(NAMES)
    }
    if draw.random() < 0.3:  # who yields is said, whatever the priorities are
        classes["high"] = replace(classes["high"], yields_to=("low",))
        classes["low"] = replace(classes["low"], yields_to=())
    queues = {name: _queue(name, draw) for name in ("p", "q")}
    cohorts = {}
    if draw.random() < 0.5:  # they own all GPUs, and lend each other what they do not use
        owned = GPU_MILLI * draw.randint(0, gpus * len(nodes))
        parts = {"p": owned, "q": GPU_MILLI * gpus * len(nodes) - owned}
        cohorts = {"lab": Cohort("lab")}
        queues = {
            name: replace(queue, cohort="lab", quota={"*": Quota(parts[name])})
            for name, queue in queues.items()
        }
    rule = draw.choice(list(PlacementRule))
    levels = Levels(first=100.0, factor=10.0)
    policy = Policy(
        classes, queues, cohorts=cohorts, default_queue="p", placement=rule, levels=levels
    )
    return World(nodes, policy), draw


def _queue(name: str, draw: Random) -> Queue:
    order = draw.choice(list(Order))
    equals = Equals.OFF if order is Order.FAIR else draw.choice(list(Equals))
    return Queue(name, order=order, preempt_equals=equals)


def _submit(world: World, draw: Random, number: int) -> None:
    size = sum(len(node.devices) for node in world.nodes.values()) // len(world.nodes)
    gang = draw.randint(1, len(world.nodes)) if draw.random() < 0.3 else 1
    world.jobs[f"j{number}"] = Job(
        id=f"j{number}",
        kind=Kind.BATCH,
        user=draw.choice("ab"),
        queue=draw.choice(list(world.policy.queues)),
        class_name=draw.choice(NAMES),
        request=Request(
            nodes=gang,
            gpus=draw.randint(1, size),
            time_limit=draw.choice(LIMITS),
        ),
        terms=world.policy.classes["low"].terms,
        submitted=world.now + number / 1000,
        eligible=world.now + number / 1000,
        gpu_seconds=draw.choice((0.0, 0.0, 150.0, 1500.0)),
    )
