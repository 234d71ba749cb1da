# SPDX-License-Identifier: BSD-3-Clause
"""Small worlds as literals, and what a Plan does to them.

``World`` collects nodes and Jobs in a few words; ``snapshot()`` is what ``schedule``
reads. ``apply`` moves the Jobs of a Plan as the lifecycle would.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from jupyter_gpubroker.core.events import Notify
from jupyter_gpubroker.core.lifecycle import advance
from jupyter_gpubroker.core.model import (
    GPU_MILLI,
    LEASED,
    Class,
    Device,
    Holder,
    Idle,
    Job,
    JobId,
    Kept,
    Kind,
    Lease,
    Mode,
    Node,
    Notice,
    Placement,
    PlacementRule,
    Plan,
    Policy,
    Quarantined,
    Queue,
    Reason,
    Request,
    Reservation,
    Rung,
    Share,
    Snapshot,
    Stage,
    StageName,
    State,
    Terms,
    Why,
    check,
    nodes_of,
)
from jupyter_gpubroker.core.schedule import schedule

NOW = 100_000.0
MEMORY = 80 * 1024
"""MiB of a device."""
PARKABLE = ((StageName.PARK, 60.0), (StageName.RESTART, 60.0))


def policy(**changes: Any) -> Policy:
    """Interactive and batch as in the defaults, one queue, best fit, no limits."""
    base = Policy(
        classes={
            "interactive": Class(
                "interactive", (Kind.SESSION,), time_default=7200.0, time_max=8 * 3600.0
            ),
            "batch": Class("batch", (Kind.BATCH,)),
            "urgent": Class("urgent", (Kind.BATCH,), priority=10),
        },
        queues={"default": Queue("default"), "vision": Queue("vision")},
        placement=PlacementRule.BEST_FIT,
    )
    return replace(base, **changes)


def node(name: str, gpus: int = 4, **changes: Any) -> Node:
    """A node whose devices are called ``name/0``, ``name/1`` …"""
    flavor = changes.pop("flavor", "h100")
    memory = changes.pop("memory_mib", MEMORY)
    devices = tuple(Device(f"{name}/{i}", flavor, memory, i) for i in range(gpus))
    return replace(Node(name, "local", "boot-1", devices), **changes)


def ask(gpus: float = 1, nodes: int = 1, **more: Any) -> Request:
    """``ask(0.5)`` is half a GPU, ``ask(3, nodes=2)`` a gang; a limit of one hour."""
    more.setdefault("time_limit", 3600.0)
    whole, share = divmod(round(gpus * GPU_MILLI), GPU_MILLI)
    return Request(nodes=nodes, gpus=whole, gpu_milli=share, **more)


def on(*devices: str, milli: int = GPU_MILLI) -> Placement:
    """``on("node1/0", "node1/1")``: these devices, whole or a share of each."""
    return tuple(
        Share(device.split("/", maxsplit=1)[0], device, milli, MEMORY * milli // GPU_MILLI)
        for device in devices
    )


@dataclass(repr=False)
class World:
    """A world under construction."""

    nodes: dict[str, Node] = field(default_factory=dict)
    jobs: dict[JobId, Job] = field(default_factory=dict)
    idle: dict[JobId, Idle] = field(default_factory=dict)
    memory_mib: dict[JobId, int] = field(default_factory=dict)
    """GPU memory that sessions use; of idle ones it is told with their idleness too."""
    usage: dict[tuple[str, str], float] = field(default_factory=dict)
    spent: dict[tuple[str, str, int], float] = field(default_factory=dict)
    quarantined: list[Quarantined] = field(default_factory=list)
    barred: dict[JobId, Why] = field(default_factory=dict)
    reserve: tuple[Request, ...] = ()
    """Sessions that batch leaves room for."""
    now: float = NOW
    policy: Policy = field(default_factory=policy)

    def __repr__(self) -> str:
        lines = [
            f"{node.name}: {len(node.devices)} x {node.engine}" for node in self.nodes.values()
        ]
        for job in self.jobs.values():
            where = " ".join(
                f"{share.device}:{share.milli}"
                for share in (job.lease.placement if job.lease else ())
            )
            lines.append(f"{job.id} {job.kind} {job.state} {job.request.words()} {where}")
        return "World(" + "; ".join(lines) + ")"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(repr(self))

    def add(self, *nodes: Node) -> World:
        """Nodes."""
        self.nodes.update({each.name: each for each in nodes})
        return self

    def put(self, job: Job) -> Job:
        """Any Job, checked."""
        self.jobs[job.id] = check(job)
        return job

    def waits(self, id_: str, request: Request, **changes: Any) -> Job:
        """A batch Job in the queue; each one is a second younger than the one before."""
        at = changes.pop("submitted", self.now - 1000 + len(self.jobs))
        base = Job(id_, Kind.BATCH, changes.pop("user", id_), "default", "batch", request)
        return self.put(replace(base, submitted=at, eligible=at, since=at, **changes))

    def session(self, id_: str, request: Request, **changes: Any) -> Job:
        """A session in the queue."""
        changes.setdefault("class_name", "interactive")
        return self.waits(id_, request, kind=Kind.SESSION, server=f"{id_}/", **changes)

    def runs(self, id_: str, placement: Placement, **changes: Any) -> Job:
        """A running session, or batch Job with ``kind=Kind.BATCH``, granted an hour ago."""
        kind = changes.pop("kind", Kind.SESSION)
        since = changes.pop("granted", self.now - 3600)
        expires = changes.pop("expires", self.now + 7200)
        mode = Mode.HELD if kind is Kind.SESSION else Mode.HOSTED
        per_node = len(placement) // len(nodes_of(placement))
        milli = placement[0].milli
        request = changes.pop(
            "request",
            ask(milli / GPU_MILLI)
            if milli < GPU_MILLI
            else ask(per_node, nodes=len(nodes_of(placement))),
        )
        names = {Kind.SESSION: "interactive", Kind.BATCH: "batch"}
        changes.setdefault("terms", Terms(park=PARKABLE) if kind is Kind.SESSION else Terms())
        return self.put(
            replace(
                Job(id_, kind, changes.pop("user", id_), "default", names[kind], request),
                state=State.RUNNING,
                since=since,
                attempt=1,
                started_attempt=1,
                lease=Lease("local", placement, 1, since, expires, mode),
                holder=Holder("local", "boot-1", 1, 1) if kind is Kind.SESSION else None,
                **changes,
            )
        )

    def idles(self, id_: str, placement: Placement, memory_mib: int = 1024, **more: Any) -> Job:
        """A running session that is judged idle, for ten minutes if ``idle_since`` is not given."""
        since = more.pop("idle_since", self.now - 600)
        self.idle[id_], self.memory_mib[id_] = Idle(since, memory_mib), memory_mib
        return self.runs(id_, placement, **more)

    def drains(self, id_: str, placement: Placement, for_job: str | None, **more: Any) -> Job:
        """A session with a notice."""
        notice = Notice(
            more.pop("reason", Reason.IDLE), more.pop("deadline", self.now + 60), for_job, id_
        )
        job = self.runs(id_, placement, **more)
        return self.put(replace(job, state=State.DRAINING, notice=notice))

    def stops(self, id_: str, placement: Placement, for_job: str | None = None, **more: Any) -> Job:
        """A session that is past its notice and has to prove that its GPUs are free."""
        notice = Notice(more.pop("reason", Reason.IDLE), self.now, for_job, id_)
        job = self.runs(id_, placement, **more)
        stages = (Stage(StageName.KILL, 30.0), Stage(StageName.FENCE, 120.0))
        stopping = replace(job, state=State.STOPPING, notice=notice, stages=stages)
        return self.put(replace(stopping, until=self.now + 30))

    def reserves(self, id_: str, placement: Placement, start: float | None = None) -> None:
        """Something was kept free for a waiting Job until that time; promised without one."""
        reservation = Reservation(placement, start or self.now, promised=start is None)
        self.put(replace(self.jobs[id_], reserved=reservation))

    def quarantine(self, placement: Placement) -> None:
        """Shares whose owner left without proof."""
        boots = dict.fromkeys(nodes_of(placement), "boot-1")
        self.quarantined.append(Quarantined(placement, "gone", 1, boots, self.now - 60))

    def snapshot(self) -> Snapshot:
        """What ``schedule`` reads."""
        return Snapshot(
            now=self.now,
            nodes=dict(self.nodes),
            jobs=dict(self.jobs),
            usage=dict(self.usage),
            spent=dict(self.spent),
            idle=dict(self.idle),
            memory_mib=dict(self.memory_mib),
            quarantined=tuple(self.quarantined),
            barred=dict(self.barred),
            reserve=self.reserve,
        )

    def plan(self) -> Plan:
        """What the scheduler wants now."""
        return schedule(self.snapshot(), self.policy)

    def remove(self, *ids: str) -> None:
        """Jobs that are over."""
        for id_ in ids:
            self.jobs.pop(id_)
            self.idle.pop(id_, None)

    def apply(self, plan: Plan) -> None:
        """Do what the Plan says, as the lifecycle and the broker would."""
        kept_free = dict(plan.reserve)
        for job in [*self.jobs.values()]:
            if job.state is State.QUEUED:
                self.put(replace(job, reserved=kept_free.get(job.id)))
        for id_, placement in plan.place:
            self._start(self.jobs[id_], placement)
        for id_, notice in plan.notice:
            self.idle.pop(id_, None)
            self.put(advance(self.jobs[id_], Notify(notice), self.now)[0])
        for id_ in plan.reprieve:
            self.put(replace(self.jobs[id_], state=State.RUNNING, since=self.now, notice=None))

    def _start(self, job: Job, placement: Placement) -> None:
        end = self.now + job.remaining(3600.0)
        attempt = job.attempt + 1
        lease = Lease("local", placement, attempt, self.now, end, Mode.HOSTED)
        starting = replace(job, state=State.STARTING, since=self.now, until=self.now + 120)
        self.put(replace(starting, lease=lease, attempt=attempt, reserved=None))


def kept(node_name: str, *devices: str, boot: str = "boot-1", rung: Rung = Rung.GPU_STATE) -> Kept:
    """What a parked kernel keeps on that node."""
    return Kept("kernel", 1, rung, node=node_name, boot=boot, devices=devices, memory_mib=1024)


def milli_by_device(world: World) -> dict[str, int]:
    """What is leased or quarantined of each device."""
    used: dict[str, int] = {}
    leases = [job.lease.placement for job in world.jobs.values() if job.lease is not None]
    assert all(job.state in LEASED for job in world.jobs.values() if job.lease is not None)
    for placement in [*leases, *(held.shares for held in world.quarantined)]:
        for share in placement:
            used[share.device] = used.get(share.device, 0) + share.milli
    return used


def cpu_by_node(world: World) -> dict[str, int]:
    """The CPU milli that leased Jobs asked for on each node."""
    used: dict[str, int] = {}
    for job in world.jobs.values():
        for name in nodes_of(job.lease.placement) if job.lease is not None else ():
            used[name] = used.get(name, 0) + job.request.cpu_milli
    return used


def placed(plan: Plan) -> dict[str, list[str]]:
    """Job -> devices."""
    return {id_: [share.device for share in placement] for id_, placement in plan.place}


def noticed(plan: Plan) -> list[str]:
    """Who is asked to leave."""
    return sorted(id_ for id_, _ in plan.notice)
