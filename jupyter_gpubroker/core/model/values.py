# SPDX-License-Identifier: BSD-3-Clause
"""Values: states, reasons, requests, devices, leases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple, Protocol

GPU_MILLI = 1000
"""One whole device."""

JobId = str
Seconds = float


class Kind(StrEnum):
    """What a Job is: processes that run to exit, or a GPU lease for one Jupyter server."""

    BATCH = "batch"
    SESSION = "session"


class State(StrEnum):
    """Where a Job is in its life; ``core.lifecycle.TABLE`` says how it moves."""

    HELD = "held"
    """Not eligible yet: its owner holds it."""
    QUEUED = "queued"
    """Waiting for GPUs; the Plan says why."""
    STARTING = "starting"
    """Has a Lease; the engine was asked to start, or the holder to bind."""
    RUNNING = "running"
    DRAINING = "draining"
    """Has a Notice; still usable until its deadline."""
    STOPPING = "stopping"
    """Asked to leave; its GPUs are held until proof that they are free."""
    PARKED = "parked"
    """A session without GPUs that can come back."""
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


WAITING = (State.HELD, State.QUEUED)
LEASED = (State.STARTING, State.RUNNING, State.DRAINING, State.STOPPING)
LEAVING = (State.DRAINING, State.STOPPING)
TERMINAL = (State.COMPLETED, State.FAILED, State.CANCELLED)


class Reason(StrEnum):
    """Why a Job has to leave. Members are in rank order: a later one wins a merge."""

    IDLE = "idle"
    PREEMPTED = "preempted"
    USER = "user"
    CELL = "cell"
    START = "start"
    DRAIN = "drain"
    TIME = "time"
    OVER = "over"
    LOST = "lost"
    HOLDER = "holder"
    RELEASE = "release"
    CANCEL = "cancel"

    @property
    def rank(self) -> int:
        """Strength in a merge; PREEMPTED, USER, CELL and START are equals."""
        return _REASON_RANK[self]


_REASON_RANK: Mapping[Reason, int] = {
    Reason.IDLE: 0,
    Reason.PREEMPTED: 1,
    Reason.USER: 1,
    Reason.CELL: 1,
    Reason.START: 1,
    Reason.DRAIN: 2,
    Reason.TIME: 3,
    Reason.OVER: 4,
    Reason.LOST: 5,
    Reason.HOLDER: 6,
    Reason.RELEASE: 7,
    Reason.CANCEL: 8,
}


class Mode(StrEnum):
    """Who owns the processes of a Lease."""

    HOSTED = "hosted"
    """The engine launched them."""
    HELD = "held"
    """A Jupyter server on that host binds its own kernels."""


class Binding(StrEnum):
    """Who binds processes to the GPUs of a session."""

    KERNEL = "kernel"
    """Our extension in the server binds each kernel, and lets go of the GPUs when asked."""
    SERVER = "server"
    """The server was launched with them and its kernels inherit them: nothing is parked, and
    to take them is to stop it."""


class Rung(StrEnum):
    """What a parked kernel kept, best first."""

    GPU_STATE = "gpu_state"
    """Everything: the process lives, its GPU memory is in host RAM."""
    VARIABLES = "variables"
    """The saved namespace; the process ended."""
    SERVER = "server"
    """Documents and outputs; variables are lost."""
    NOTHING = "nothing"

    @property
    def loss(self) -> int:
        """0 = nothing is lost; greater = more."""
        return list(Rung).index(self)


class Refusal(ValueError):
    """A request that is wrong or cannot be met; nothing was changed.

    ``field`` names the input, ``remedy`` says what would work (may be empty).
    """

    def __init__(self, field: str, message: str, remedy: str = "") -> None:
        super().__init__(f"{field}: {message}" + (f" ({remedy})" if remedy else ""))
        self.field = field
        self.message = message
        self.remedy = remedy


class Conflict(Exception):
    """A verb that the Job's state does not allow; nothing was changed."""


class Key(NamedTuple):
    """One attempt of one Job: the key of every engine verb."""

    job: JobId
    attempt: int

    def __str__(self) -> str:
        return f"{self.job}.{self.attempt}"


class Process(NamedTuple):
    """A process that cannot be confused with a later one of the same pid.

    ``start`` is field 22 of ``/proc/PID/stat`` (clock ticks since boot).
    """

    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class Request:
    """What a Job wants: ``nodes`` times the same shape."""

    nodes: int = 1
    gpus: int = 0
    """Whole GPUs on each node."""
    gpu_milli: int = 0
    """One share of one device, 1..999; only with ``nodes`` = 1."""
    memory_mib: int = 0
    """A share given by its GPU memory instead; rounded up to milli per device."""
    cpu_milli: int = 0
    host_memory_mib: int = 0
    flavors: tuple[str, ...] = ()
    """Any of these device flavors; empty = any, but no MIG slice (see ``serves``)."""
    time_limit: Seconds | None = None
    """Leased seconds; ``None`` = the default of its class."""

    def __post_init__(self) -> None:
        for name in ("gpus", "gpu_milli", "memory_mib", "cpu_milli", "host_memory_mib"):
            if getattr(self, name) < 0:
                raise Refusal(name, f"must not be negative, got {getattr(self, name)}")
        if self.nodes < 1:
            raise Refusal("nodes", f"must be at least 1, got {self.nodes}")
        if self.gpu_milli >= GPU_MILLI:
            raise Refusal("gpu_milli", "must be below 1000", "ask for whole GPUs with gpus")
        if self.gpu_milli and self.memory_mib:
            raise Refusal("memory_mib", "give a share as gpu_milli or as memory_mib, not both")
        if not self.cpu_milli:
            self.for_people()
        if self.nodes > 1 and self.shared:
            raise Refusal("nodes", "a share of a GPU needs nodes = 1", "ask for whole GPUs")
        if self.time_limit is not None and not self.time_limit > 0:
            raise Refusal("time_limit", f"must be positive, got {self.time_limit:g} s")

    def for_people(self) -> Request:
        """The same; Refusal if it wants CPUs alone, which only a benchmark asks for."""
        if not (self.gpus or self.shared):
            raise Refusal("gpus", "must be at least 1, or a share of one GPU", "for example 0.5")
        return self

    @property
    def shared(self) -> bool:
        """True if a part of the Request is a share of one device."""
        return bool(self.gpu_milli or self.memory_mib)

    def share_milli(self, device_memory_mib: int) -> int:
        """The share part in milli on a device of that memory; above 1000 = does not fit."""
        if not self.memory_mib:
            return self.gpu_milli
        return -(-self.memory_mib * GPU_MILLI // max(device_memory_mib, 1))

    def most_milli(self, memories_mib: Iterable[int] = ()) -> int:
        """The most milli that it takes of devices with so much memory: a share given by its
        memory differs by device, and counts as a whole one where none is known."""
        share = self.gpu_milli
        if self.memory_mib:
            sizes = map(self.share_milli, memories_mib)
            share = max((size for size in sizes if size <= GPU_MILLI), default=GPU_MILLI)
        return self.nodes * self.gpus * GPU_MILLI + share

    def words(self) -> str:
        """``2 × 3 GPUs, ``0.5 GPU``, ``20480 MiB of a GPU``: the shape for people."""
        parts = []
        if self.gpus:
            parts.append(f"{self.gpus} GPU" + ("s" if self.gpus > 1 else ""))
        if self.gpu_milli:
            parts.append(f"{self.gpu_milli / GPU_MILLI:g} GPU")
        if self.memory_mib:
            parts.append(f"{self.memory_mib} MiB of a GPU")
        shape = " + ".join(parts)
        if self.flavors:
            shape += f" ({' or '.join(self.flavors)})"
        return f"{self.nodes} × {shape}" if self.nodes > 1 else shape


class Brand(NamedTuple):
    """What distinguishes devices of which as much is free."""

    flavor: str
    memory_mib: int
    mig: bool = False


class Wish(Protocol):
    """What decides which devices serve a Request."""

    @property
    def flavors(self) -> tuple[str, ...]:
        """Any of these."""

    @property
    def gpus(self) -> int:
        """Whole GPUs."""

    @property
    def memory_mib(self) -> int:
        """GPU memory of a share."""


def serves(wish: Wish, kind: Brand | Device) -> bool:
    """True if a device of that kind serves it. Who says "a GPU" or "half a GPU" means a GPU,
    and gets no MIG slice that is not asked for by flavor; who asks for GPU memory alone gets
    it from either."""
    if wish.flavors:
        return kind.flavor in wish.flavors
    return not kind.mig or bool(wish.memory_mib and not wish.gpus)


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU or one MIG slice: 1000 milli, addressed by UUID."""

    uuid: str
    flavor: str
    memory_mib: int
    index: int = 0
    usable: bool = True
    """False: unhealthy, or a foreign process is on it."""
    note: str = ""
    """Why it is not usable, for people."""
    island: int = 0
    """Which devices of its node are joined more closely than the others (NVLink, NUMA)."""
    mig: bool = False
    """A MIG slice: a fixed part of a GPU, with memory and processors of its own."""

    @property
    def brand(self) -> Brand:
        """Its kind."""
        return Brand(self.flavor, self.memory_mib, self.mig)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the usable devices of a node lie, in the order of their indexes."""

    devices: tuple[Device, ...]
    places: Mapping[str, int]
    """Where each is among them, by UUID."""
    islands: tuple[int, ...]
    """The island of each device, counted from 0."""
    kinds: tuple[tuple[tuple[Brand, tuple[int, ...]], ...], ...]
    """For each island the places of its devices by Brand."""
    gpus: int
    """How many are no MIG slices."""

    @classmethod
    def of(cls, devices: Iterable[Device]) -> Layout:
        """That of these, less the unusable ones."""
        usable = [device for device in devices if device.usable]
        usable.sort(key=lambda device: (device.index, device.uuid))
        numbers = sorted({device.island for device in usable})
        islands = tuple(numbers.index(device.island) for device in usable)
        kinds: list[dict[Brand, list[int]]] = [{} for _ in numbers]
        for place, device in enumerate(usable):
            kinds[islands[place]].setdefault(device.brand, []).append(place)
        return cls(
            devices=tuple(usable),
            places={device.uuid: place for place, device in enumerate(usable)},
            islands=islands,
            kinds=tuple(
                tuple((brand, tuple(places)) for brand, places in sorted(brands.items()))
                for brands in kinds
            ),
            gpus=sum(not device.mig for device in usable),
        )


@dataclass(frozen=True)  # without slots, so that it can keep its layout
class Node:
    """A machine as its engine reports it. Identity is (name, boot)."""

    name: str
    engine: str
    boot: str
    devices: tuple[Device, ...]
    cpu_milli: int = 0
    host_memory_mib: int = 0
    usable: bool = True
    """False: drained, fenced or lost; nothing new is placed there."""
    note: str = ""

    @cached_property
    def layout(self) -> Layout:
        """Found once: it is asked for in every cycle and changes with the node alone."""
        return Layout.of(self.devices)


@dataclass(frozen=True, slots=True)
class Share:
    """Part of one device; without one it says on which node CPUs alone are used."""

    node: str
    device: str
    milli: int
    memory_mib: int = 0

    def __post_init__(self) -> None:
        assert 0 < self.milli <= GPU_MILLI if self.device else self.milli == 0, self


Placement = tuple[Share, ...]
"""The Shares that satisfy a Request, grouped by node in rank order."""


def nodes_of(placement: Placement) -> tuple[str, ...]:
    """The nodes of a Placement in rank order, each once."""
    return tuple(dict.fromkeys(share.node for share in placement))


@dataclass(frozen=True, slots=True)
class Reservation:
    """Where a waiting Job will start, and when at the latest by the known ends of Leases."""

    placement: Placement
    start: Seconds
    promised: bool = False
    """It starts as soon as all who leave have left; else when those have ended who hold it."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A Placement granted to a Job."""

    engine: str
    placement: Placement
    attempt: int
    since: Seconds
    expires: Seconds
    mode: Mode

    @property
    def milli(self) -> int:
        """Leased milli-GPU over all devices."""
        return sum(share.milli for share in self.placement)


@dataclass(frozen=True, slots=True)
class Notice:
    """Told to a leaving Job: why, until when, and the Job that needs its GPUs."""

    reason: Reason
    deadline: Seconds
    for_job: JobId | None = None
    id: str = ""
    """Stable name for browsers: shown once per id."""


class StageName(StrEnum):
    """The steps of STOPPING, each with a deadline; the next is tried when it passes."""

    PARK = "park"
    """Driver checkpoint by the broker's side of the host (P0)."""
    SAVE = "save"
    """The extension saves the namespace and stops the kernel (P3)."""
    RESTART = "restart"
    """The extension restarts the kernel without GPUs (P4)."""
    SIGNAL = "signal"
    """SIGTERM to all ranks."""
    KILL = "kill"
    FENCE = "fence"
    """Nothing more can be done; without proof the Shares are quarantined."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of STOPPING and how long it may take."""

    name: StageName
    seconds: Seconds


@dataclass(frozen=True, slots=True)
class Holder:
    """The Jupyter server process that holds a held Lease."""

    host: str
    boot: str
    pid: int
    start: int


@dataclass(frozen=True, slots=True)
class Kept:
    """What one kernel keeps while its session has no GPU."""

    kernel: str
    attempt: int
    rung: Rung
    server: str = ""
    """Session key of its owner, so that an image can be told from an orphan."""
    node: str = ""
    boot: str = ""
    devices: tuple[str, ...] = ()
    memory_mib: int = 0
    processes: tuple[Process, ...] = ()
    path: str = ""
