# SPDX-License-Identifier: BSD-3-Clause
"""B6: how long one decision takes on a large cluster that is full.

1,250 nodes of 8 GPUs, 10,000 Jobs that wait (200 pairs of shape and queue), and from each
decision to the next one per cent of all Jobs is another: some end, others come. What a
decision says is done before the next. Once nobody may be asked to leave, and once every
tenth GPU is a session's that is idle: then each decision looks for victims.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from ... import policy as policies
from ...broker.index import Index
from ...core import events as e
from ...core.lifecycle import advance
from ...core.model import (
    Device,
    Holder,
    Idle,
    Job,
    JobId,
    Kind,
    Lease,
    Mode,
    Node,
    Placement,
    Policy,
    Request,
    Reservation,
    Seconds,
    Share,
    Snapshot,
    StageName,
    State,
)
from ...core.schedule import schedule

GPUS = 8
"""Of a node."""
MEMORY_MIB = 80 * 1024
CYCLES = 50
CHANGED = 0.01
"""Of the Jobs, from one cycle to the next."""
IDLE = 0.1
"""Of the GPUs, those of idle sessions, where there are victims to find."""
QUEUES = 4
SHAPES = (
    *(
        Request(nodes, gpus, cpu_milli=1000 * cpus, flavors=flavors, time_limit=3600.0)
        for nodes, gpus in ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 8), (1, 3), (2, 4))
        for cpus in (4, 8, 12)
        for flavors in ((), ("small",))
    ),
    Request(gpu_milli=500, time_limit=3600.0),
    Request(gpu_milli=250, time_limit=3600.0),
)
"""Fifty; each is asked for in every queue."""
SIZES = ((125, 1_000), (312, 2_500), (625, 5_000), (1_250, 10_000), (2_500, 20_000))
"""(nodes, waiting Jobs); the figure is that of ``TYPICAL``."""
TYPICAL = (1_250, 10_000)
POLICY = "\n".join(
    [
        "default_queue: q0",
        "classes:",
        "  interactive: {kinds: [session], time: {default: 8h, max: 8h}}",
        "  batch: {kinds: [batch], time: {default: 1h, max: 7d}}",
        "queues:",
        *(f"  q{number}: {{}}" for number in range(QUEUES)),
        "",
    ]
)

Say = Callable[[str], None]


@dataclass
class Crowd:
    """A full cluster, who has it, and who waits; it goes on from cycle to cycle."""

    nodes: dict[str, Node]
    draw: random.Random
    now: Seconds = 1e6
    index: Index = field(default_factory=Index)
    """As the broker carries it from decision to decision."""
    idle: dict[JobId, Idle] = field(default_factory=dict)
    made: int = 0

    @classmethod
    def full(cls, nodes: int, waiting: int, idle: float, policy: Policy) -> Crowd:
        """Whole nodes and halves are leased to batch, the first nodes to sessions."""
        made = cls(dict(map(_node, range(nodes))), random.Random(nodes))  # noqa: S311 - a workload
        for number, node in enumerate(made.nodes.values()):
            if number < idle * nodes:
                for device in node.devices:
                    made._session(node, device, policy)
            else:
                for first in range(0, GPUS, parts := made.draw.choice((2, 4, 8))):
                    made._running(node, node.devices[first : first + parts])
        for _ in range(waiting):
            made._waits()
        return made

    def snapshot(self) -> Snapshot:
        """What ``schedule`` reads."""
        return Snapshot(
            self.now,
            self.nodes,
            dict(self.jobs),
            idle=dict(self.idle),
            requests=dict(self.index.requests),
        )

    @property
    def jobs(self) -> Mapping[JobId, Job]:
        """All of them."""
        return self.index.alive

    def goes_on(self) -> None:
        """A minute later, with as many new Jobs as have ended."""
        self.now += 60.0
        leased = [job for job in self.jobs.values() if job.lease is not None]
        leaving = [job for job in leased if job.state is not State.RUNNING]
        count = max(1, round(CHANGED * len(self.jobs) / 2))
        ending = {job.id: job for job in (*leaving, *self.draw.sample(leased, count))}
        for job in ending.values():
            gone = replace(job, state=State.CANCELLED, lease=None, notice=None, stages=())
            self.index.put(replace(gone, until=None))
            self.idle.pop(job.id, None)
        for _ in range(count):
            self._waits()

    def decided(self, policy: Policy) -> float:
        """Decide, and do what was decided; how long the decision took, in milliseconds."""
        began = perf_counter()
        plan = schedule(self.snapshot(), policy)
        took = perf_counter() - began
        for job_id, notice in plan.notice:
            self._apply(job_id, e.Notify(notice))
        for job_id in plan.reprieve:
            self._apply(job_id, e.Reprieve())
        self._reserve(dict(plan.reserve))
        for job_id, placement in plan.place:
            job = self.jobs[job_id]
            lease = self._lease(placement, job.attempt + 1, Mode.HOSTED, 3600.0)
            self._apply(job_id, e.Place(lease, job.terms, job.terms.start))
            self._apply(job_id, e.Started(lease.attempt))
        return 1000 * took

    def _reserve(self, found: Mapping[JobId, Reservation]) -> None:
        """What is kept free for those who wait is now this, as in the broker."""
        for job_id in dict.fromkeys((*self.index.reserved, *found)):
            job = self.jobs[job_id]
            if job.state is State.QUEUED and job.reserved != found.get(job_id):
                self._apply(job_id, e.Reserve(found.get(job_id)))

    def _apply(self, job_id: JobId, event: e.Event) -> None:
        self.index.put(advance(self.jobs[job_id], event, self.now)[0])

    def _job(self, kind: Kind, request: Request, class_name: str) -> Job:
        self.made += 1
        queue = f"q{self.draw.randrange(QUEUES)}"
        user = f"user-{self.draw.randrange(20)}"
        name = f"{kind}-{self.made:07}"
        return Job(
            name, kind, user, queue, class_name, request, submitted=self.now, eligible=self.now
        )

    def _lease(self, placement: Placement, attempt: int, mode: Mode, limit: Seconds) -> Lease:
        return Lease("crowd", placement, attempt, self.now, self.now + limit, mode)

    def _waits(self) -> None:
        job = self._job(Kind.BATCH, self.draw.choice(SHAPES), "batch")
        self.index.put(job)

    def _running(self, node: Node, devices: tuple[Device, ...]) -> None:
        job = self._job(Kind.BATCH, Request(gpus=len(devices), time_limit=3600.0), "batch")
        places = tuple(Share(node.name, device.uuid, 1000, MEMORY_MIB) for device in devices)
        lease = self._lease(places, 1, Mode.HOSTED, self.draw.uniform(600.0, 7200.0))
        self.index.put(replace(job, state=State.RUNNING, attempt=1, lease=lease))

    def _session(self, node: Node, device: Device, policy: Policy) -> None:
        job = self._job(Kind.SESSION, Request(gpus=1), "interactive")
        terms = replace(policy.classes["interactive"].terms, park=((StageName.PARK, 60.0),))
        started = replace(
            job,
            terms=terms,
            state=State.RUNNING,
            attempt=1,
            server=f"{job.user}/{job.id}",
            holder=Holder("host", "boot", 1, 1),
            lease=self._lease(
                (Share(node.name, device.uuid, 1000, MEMORY_MIB),), 1, Mode.HELD, 8 * 3600.0
            ),
        )
        self.index.put(started)
        self.idle[job.id] = Idle(self.now - 3600.0, self.draw.randrange(MEMORY_MIB))


def _node(number: int) -> tuple[str, Node]:
    name = f"node-{number:05}"
    flavor = "small" if number % 3 else "large"
    devices = tuple(Device(f"{name}/{n}", flavor, MEMORY_MIB, n) for n in range(GPUS))
    return name, Node(name, "crowd", "boot", devices, 128_000, 1024 * 1024)


def measure(nodes: int, waiting: int, idle: float, cycles: int) -> list[float]:
    """Milliseconds of each decision."""
    policy = policies.parse(POLICY)
    crowd = Crowd.full(nodes, waiting, idle, policy)
    crowd.decided(policy)  # the first one has to fill what the workload left over
    return [*_cycles(crowd, policy, cycles)]


def _cycles(crowd: Crowd, policy: Policy, cycles: int) -> Iterator[float]:
    for _ in range(cycles):
        crowd.goes_on()
        yield crowd.decided(policy)


def table(sizes: Sequence[tuple[int, int]], cycles: int, say: Say) -> list[dict[str, Any]]:
    """Typical and worst times for each size, without and with victims."""
    rows = []
    for nodes, waiting in sizes:
        row: dict[str, Any] = {"nodes": nodes, "waiting": waiting}
        for name, idle in (("full", 0.0), ("victims", IDLE)):
            times = measure(nodes, waiting, idle, cycles)
            row[name] = {"typical": round(median(times), 1), "worst": round(max(times), 1)}
            say(f"{nodes:6} nodes {waiting:7} waiting {name:8} {row[name]}")
        rows.append(row)
    return rows


def run(folder: Path | None, read: Callable[[str], str], say: Say) -> dict[str, Any]:
    """All sizes; no data are needed."""
    rows = table(SIZES, CYCLES, say)
    typical = next(row for row in rows if (row["nodes"], row["waiting"]) == TYPICAL)
    both = [typical["full"], typical["victims"]]
    return {
        "id": "b6",
        "value": max(each["typical"] for each in both),
        "unit": "ms of one decision, median; the larger of the two",
        "worst": max(each["worst"] for each in both),
        "cycles": CYCLES,
        "sizes": rows,
    }
