# SPDX-License-Identifier: BSD-3-Clause
"""What is answered. Answers may grow keys."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..core.model import Blocked, Kind, Mode, Reason, Rung, State


class Out(BaseModel):
    """An answer."""

    model_config = ConfigDict(frozen=True, populate_by_name=True)


class RequestOut(Out):
    """The shape, normalised."""

    nodes: int
    gpus: int
    gpu_milli: int
    memory_mib: int
    flavors: tuple[str, ...]
    time_limit: float | None
    words: str


class ShareOut(Out):
    """Part of a device."""

    node: str
    device: str
    milli: int
    memory_mib: int


class GuaranteesOut(Out):
    """What a lease guarantees, honestly."""

    memory: str
    fault: bool
    parkable: bool
    sentence: str


class LeaseOut(Out):
    """A granted Placement."""

    attempt: int
    since: float
    expires: float
    mode: Mode
    shares: tuple[ShareOut, ...]
    guarantees: GuaranteesOut
    prepared: bool
    env: dict[str, str] = Field({}, description="owner and job only: what binds a process")


class NoticeOut(Out):
    """Told to a leaving Job."""

    id: str
    reason: Reason
    deadline: float
    for_job: str | None
    for_user: str | None
    text: str
    can_keep: bool


class WhyOut(Out):
    """Why a Job waits."""

    code: Blocked
    text: str
    position: int
    waits_for: tuple[str, ...] = Field(description="it starts when exactly these have gone")
    waits_for_users: tuple[str, ...]
    until: float | None
    rules: tuple[str, ...] = Field((), description="keys of the policy that bar it")
    nodes: tuple[str, ...] = Field((), description="would have to be usable for it again")


class KeptOut(Out):
    """What one kernel kept."""

    kernel: str
    rung: Rung
    memory_mib: int
    node: str


class IdleOut(Out):
    """The idle clock of a session."""

    idle: bool
    since: float | None = Field(description="None = in use")
    after: float = Field(description="seconds after which it is reclaimable")
    facts: str = ""


class JobOut(Out):
    """A Job as its owner sees it."""

    id: str
    kind: Kind
    user: str
    queue: str
    class_name: str = Field(alias="class")
    name: str
    state: State
    stage: str = Field("", description="step of STOPPING")
    since: float
    submitted: float
    deadline: float | None
    request: RequestOut
    lease: LeaseOut | None
    notice: NoticeOut | None
    why: WhyOut | None
    kept: tuple[KeptOut, ...]
    parked_for: Reason | None
    server: str = Field("", description="session key: user/server name")
    incarnation: int = 0
    idle: IdleOut | None = None
    keeps_left: int = 0
    attempt: int
    restarts: int
    max_restarts: int
    preemptions: int
    checkpoint: int | None
    code: int | None
    failed_rank: int | None
    outcome: str
    gpu_seconds: float


class SubmittedOut(Out):
    """One Job of a list that was submitted, in the order of the list."""

    id: str
    state: State
    new: bool = Field(description="false: its key had made it before")


class QueueRow(Out):
    """A waiting Job as everybody sees it."""

    id: str
    kind: Kind
    user: str
    queue: str
    class_name: str = Field(alias="class")
    name: str
    words: str
    submitted: float
    why: WhyOut | None
    mine: bool


class DeviceOut(Out):
    """One device on the cluster map."""

    uuid: str
    index: int
    flavor: str
    memory_mib: int
    mig: bool = Field(description="a MIG slice: a job without flavors gets it only as memory")
    island: int = Field(description="GPUs of a node with the same number lie close together")
    usable: bool
    note: str
    free_milli: int
    users: tuple[str, ...] = Field(description="who holds a share")
    kinds: tuple[str, ...] = Field(description="state words: session, batch, leaving, quarantined")
    mine: bool


class NodeOut(Out):
    """One machine."""

    name: str
    usable: bool
    note: str
    devices: tuple[DeviceOut, ...]


class ClassOut(Out):
    """What people may ask for in a class."""

    name: str
    kinds: tuple[Kind, ...]
    time_default: float
    time_max: float


class ShapesOut(Out):
    """GET /shapes: what is possible at all, for forms; impossible choices are not in it."""

    gpus_per_node: tuple[int, ...]
    nodes: int
    flavors: tuple[str, ...]
    device_memory_mib: int
    queues: tuple[str, ...]
    classes: tuple[ClassOut, ...]
    free_gpus: float


class PrincipalOut(Out):
    """GET /me."""

    kind: Literal["hub", "user", "admin", "peer"]
    user: str
    admin: bool
    server: str | None = Field(None, description="the server its token belongs to")


class PolicyOut(Out):
    """The current policy."""

    revision: int
    author: str
    time: float
    document: str
    drift: str = Field("", description="how policy.yaml differs from it; empty = it does not")


class LogOut(Out):
    """Part of a rank's log."""

    rank: int
    text: str
    next_offset: int
    size: int
    ranks: tuple[int, ...]
    ended: bool = Field(description="the attempt is over: no more will come after size")


class EventOut(Out):
    """One event of the stream. Others' work is only a hint that something changed."""

    seq: int
    time: float
    event: str
    job: str = ""
    state: str = ""
    actor: str = ""
    facts: dict[str, Any] = {}


class FactorOut(Out):
    """One thing that decides when it is a Job's turn."""

    name: str = Field(description="reserved, quota, class, age, queue, user or order")
    text: str


class ExplainOut(Out):
    """GET /jobs/ID/explain: the Job, its wait and its story."""

    job: JobOut
    factors: tuple[FactorOut, ...] = Field(
        description="of its place in the line while it waits, what counts most first"
    )
    story: tuple[EventOut, ...]


class HealthOut(Out):
    """GET /health: never an error; a degraded broker says what is missing."""

    status: Literal["ok", "degraded"]
    problems: tuple[str, ...]
    version: str
    seq: int


class ErrorOut(Out):
    """Every error: 4xx changes nothing."""

    error: str = Field(description="refused, conflict, not-found, forbidden, unauthenticated …")
    message: str
    field: str = ""
    remedy: str = ""


class SessionState(Out):
    """GET /servers/state: all that an extension needs to bind its kernels, in one answer."""

    seq: int
    key: str
    session: JobOut | None = Field(description="the newest living Session of this server")
    empty_env: dict[str, str] = Field(description="what binds a kernel to no GPU at all")
