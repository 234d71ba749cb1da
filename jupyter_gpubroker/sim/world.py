# SPDX-License-Identifier: BSD-3-Clause
"""A world as a literal (``plan --world``): nodes, policy and jobs with their states.

Times are seconds on one clock of the document's own, on which ``now`` lies; durations are
written as in the policy.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from .. import policy as policies
from ..core.leaving import LEFT_FOR_MAX
from ..core.model import Kind, Reason, State
from ..core.reserve import SESSIONS
from ..documents import Strict, Time, TimeOrZero
from ..policy import Name, PolicyDoc

WORLD_MAX = 2**24
"""Characters of a world."""
Count = Annotated[int, Field(ge=0, le=1_000_000)]
Mib = Annotated[int, Field(ge=0, le=10**9)]
Amount = Annotated[float, Field(ge=0)]
Id = Annotated[str, Field(min_length=1, max_length=64)]


class DeviceDoc(Strict):
    """One of ``devices``: a GPU or MIG slice that differs from the others of its node."""

    uuid: Id
    """Its name in the world."""
    flavor: Id = "gpu"
    """Its kind."""
    memory_mib: Mib = 81920
    """Its memory."""
    mig: bool = False
    """``true``: it is a MIG slice, which a job without ``flavors`` gets only as GPU memory."""
    usable: bool = True
    """``false``: unhealthy, or somebody else's program is on it."""


class NodeDoc(Strict):
    """One of ``nodes``."""

    name: Id
    """Its name."""
    gpus: Count = 0
    """So many equal GPUs, called ``NAME/0``, ``NAME/1`` …; or give ``devices``."""
    flavor: Id = "gpu"
    """Their kind."""
    gpu_memory_mib: Mib = 81920
    """The memory of each."""
    devices: tuple[DeviceDoc, ...] = ()
    """Its GPUs one by one, where they differ."""
    islands: tuple[tuple[Count, ...], ...] = ()
    """Which of them NVLink or a NUMA node joins, by number from 0, as ``[[0, 1], [2, 3]]``; all
    of them, if it is left out."""
    cpu_milli: Count = 0
    """Thousandths of a CPU; 0 = not looked at."""
    memory_mib: Mib = 0
    """Host memory; 0 = not looked at."""
    engine: Id = "local"
    """Gangs stay within one engine."""
    boot: Id = "1"
    """Which boot it is: what was parked before another is gone."""
    usable: bool = True
    """``false``: drained or lost; nothing new is placed there."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if bool(self.gpus) == bool(self.devices):
            raise ValueError("give its GPUs either as gpus: N or as devices")
        return self

    @model_validator(mode="after")
    def _every_one_once(self) -> Self:
        there = [*range(self.gpus or len(self.devices))]
        if self.islands and sorted(index for each in self.islands for index in each) != there:
            raise ValueError(f"name each GPU, 0 to {len(there) - 1}, in one of its islands")
        return self


class NoticeDoc(Strict):
    """``notice`` of a job that is draining or stopping."""

    reason: Reason
    """Why it has to leave."""
    deadline: float
    """Until when."""
    for_: Id | None = Field(None, alias="for")
    """The job that needs its GPUs."""


class ReservedDoc(Strict):
    """``reserved`` of a job that waits: where it will start."""

    placement: tuple[str, ...] = Field(min_length=1)
    """As in a running job."""
    start: float
    """When, at the latest."""
    promised: bool = False
    """``true``: as soon as all have left who are leaving."""


class IdleDoc(Strict):
    """``idle`` of a running session: it is judged idle."""

    since: float
    """Since when."""
    memory_mib: Mib = 0
    """GPU memory that parking would move."""


class ParkedDoc(Strict):
    """``parked_on``: where the GPU memory of a session that is parked, waits or starts lies."""

    node: Id
    """The node."""
    devices: tuple[Id, ...] = Field(min_length=1)
    """The GPUs that it left, and needs again."""
    memory_mib: Mib = 0
    """Host memory of the node that it takes."""


class JobDoc(Strict):
    """One of ``jobs``: what it wants, where it is in its life, what it holds."""

    id: Id
    """Its name in the world."""
    kind: Kind = Kind.BATCH
    """``batch``, or ``session`` of a notebook server."""
    state: State = State.QUEUED
    """Where it is in its life."""
    user: Id = "user"
    """Whose it is."""
    queue: Name | None = None
    """Where it waits, if not in the default queue."""
    class_: Name | None = Field(None, alias="class")
    """Its class, if not the first one of its kind."""
    nodes: Annotated[int, Field(ge=1, le=100_000)] = 1
    """On how many nodes, all or none."""
    gpus: Count = 0
    """Whole GPUs on each."""
    gpu_milli: Annotated[int, Field(ge=0, lt=1000)] = 0
    """Or one share of a GPU, in thousandths."""
    memory_mib: Mib = 0
    """Or one share by its GPU memory."""
    cpu_milli: Count = 0
    """CPU on each node, in thousandths."""
    host_memory_mib: Mib = 0
    """Host memory on each node."""
    flavors: tuple[Id, ...] = ()
    """Any of these kinds of GPU; empty = any, but no MIG slice."""
    time_limit: Time | None = None
    """How long, if not the default of its class."""
    submitted: float | None = None
    """When; ``now``, if it is left out."""
    eligible: float | None = None
    """Since when it may start; as submitted, if it is left out."""
    placement: tuple[str, ...] = ()
    """What it holds: GPUs, or shares as ``n1/0:500`` (thousandths)."""
    granted: float | None = None
    """Since when it holds it; ``now``, if it is left out."""
    expires: float | None = None
    """When its time is over; its time limit after the grant, if it is left out."""
    notice: NoticeDoc | None = None
    """It was told to leave."""
    idle: IdleDoc | None = None
    """It is judged idle."""
    shield_until: float | None = None
    """Until then it is not asked to leave for another."""
    served: TimeOrZero = 0.0
    """How long it held GPUs in leases that ended; its time limit counts that."""
    extended: TimeOrZero = 0.0
    """What extensions added to its time limit."""
    gpu_seconds: Amount = 0.0
    """What it has had in leases that ended, as the order *attained* counts it."""
    saved: float | None = None
    """When the program of a running batch job said last that it saved its state."""
    used_mib: Mib = 0
    """GPU memory that a session which is not judged idle uses: parking would move it; 0 = not
    known, as much as it has."""
    left_for: Annotated[tuple[Id, ...], Field(max_length=LEFT_FOR_MAX)] = ()
    """Batch jobs that a batch job had to leave for: it takes nothing back from them."""
    avoid: dict[Id, float] = Field(default_factory=dict)
    """Nodes that refused to start it, and until when they are not tried again."""
    barred: Annotated[str, Field(max_length=200)] = ""
    """Why a job that waits must not start now, whatever is free."""
    reserved: ReservedDoc | None = None
    """The last plan keeps that free for it: it keeps it while nothing is better."""
    server_up: bool = True
    """``false``: a session whose server has not said hello waits for it."""
    parked_on: ParkedDoc | None = None
    """Its GPU memory is parked there."""


class UsageDoc(Strict):
    """One of ``usage``: what somebody has used lately, as fair share sees it."""

    user: Id
    """Who."""
    queue: Name | None = None
    """In which queue, if not the default one."""
    gpu_seconds: Amount
    """Decayed to ``now``."""


class SpentDoc(Strict):
    """One of ``spent``: what leases that have ended count in budgets."""

    user: Id
    """Who."""
    queue: Name | None = None
    """In which queue, if not the default one."""
    gpu_seconds: Amount
    """How much."""
    granted: float | None = None
    """When they were granted, to the day; ``now``, if it is left out."""


class ReserveDoc(Strict):
    """One of ``reserve``: sessions that batch leaves room for, as those lately asked for it."""

    sessions: Annotated[int, Field(ge=1, le=SESSIONS)] = 1
    """How many of this shape."""
    gpus: Count = 0
    """Whole GPUs of each."""
    gpu_milli: Annotated[int, Field(ge=0, lt=1000)] = 0
    """Or one share of a GPU, in thousandths."""
    memory_mib: Mib = 0
    """Or one share by its GPU memory."""
    flavors: tuple[Id, ...] = ()
    """Any of these kinds of GPU."""


class QuarantineDoc(Strict):
    """One of ``quarantined``: GPUs of a job that ended without proof that they are free."""

    placement: tuple[str, ...] = Field(min_length=1)
    """Which, as in a job."""
    job: Id = "gone"
    """Whose they were."""


class WorldDoc(Strict):
    """The whole world."""

    now: float = 0.0
    """What time it is."""
    policy: PolicyDoc = Field(
        default_factory=lambda: policies.document(policies.DEFAULT_DOCUMENT), validate_default=True
    )
    """The policy document; the shipped one, if it is left out."""
    nodes: tuple[NodeDoc, ...] = ()
    """The machines."""
    jobs: tuple[JobDoc, ...] = ()
    """All jobs and sessions that have not ended."""
    usage: tuple[UsageDoc, ...] = ()
    """Who has used how much lately."""
    spent: tuple[SpentDoc, ...] = ()
    """What counts in budgets already."""
    reserve: tuple[ReserveDoc, ...] = ()
    """Room for sessions, where the policy says ``auto``: what came lately is not known here."""
    quarantined: tuple[QuarantineDoc, ...] = ()
    """GPUs that nobody may have."""
