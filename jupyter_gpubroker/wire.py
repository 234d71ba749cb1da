# SPDX-License-Identifier: BSD-3-Clause
"""The wire schema: what goes over REST and the event stream, for both sides.

Requests refuse unknown keys; answers may grow keys. Times are seconds since the
epoch (UTC), durations are seconds, ``_milli`` is a thousandth of a GPU.
"""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from .core.model import GPU_MILLI, Blocked, Kind, Mode, Reason, Refusal, Request, Rung, State

API = "/api/v1"

# --- values as people write them ------------------------------------------------------

_DURATION = re.compile(r"(?:(\d+)-)?(\d{1,3}):(\d{2})(?::(\d{2}))?")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
TIME_MAX_S = 366 * 86400.0
"""Longest time that can be asked for: a year; policy says less."""


def parse_duration(value: object, field: str = "time") -> float:
    """Seconds from ``90``, ``90s``, ``10m``, ``2h``, ``1d12h``, ``02:30:00`` or
    ``1-12:00:00``; Refusal naming ``field`` otherwise."""
    seconds = math.nan
    text = str(value).strip()
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif match := _DURATION.fullmatch(text):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        seconds = float(days * 86400 + hours * 3600 + minutes * 60 + rest)
    elif parts := re.fullmatch(r"(?:\d+(?:\.\d+)?[smhd])+", text):
        found = re.findall(r"(\d+(?:\.\d+)?)([smhd])", parts.group())
        seconds = sum(float(number) * _UNITS[unit] for number, unit in found)
    elif re.fullmatch(r"\d+(?:\.\d+)?", text):
        seconds = float(text)
    if not math.isfinite(seconds):
        raise Refusal(field, f"{text!r} is not a duration", "for example 90s, 10m, 2h, 1-12:00:00")
    if not 0 < seconds <= TIME_MAX_S:
        raise Refusal(field, f"{text!r} is out of range", "more than 0 and at most 366 days")
    return seconds


def parse_share(value: object, field: str = "gpus") -> tuple[int, int]:
    """``(whole GPUs, milli of one more)`` from ``2``, ``0.5``, ``1.25``; Refusal otherwise.

    Rounded up to a thousandth of a GPU."""
    text = str(value).strip()
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or isinstance(value, bool):
        raise Refusal(field, f"{text!r} is not a number of GPUs", "for example 1, 2 or 0.5")
    if number <= 0:
        raise Refusal(field, f"must be more than 0, got {text}", "for example 0.5")
    if number > 10**6:
        raise Refusal(field, f"{text} GPUs are out of range")
    milli = math.ceil(round(number * GPU_MILLI, 6))
    return divmod(milli, GPU_MILLI)


def parse_memory(value: object, field: str = "memory") -> int:
    """MiB, rounded up, from ``20GB`` (10**9), ``20GiB`` (2**30) or a number of MiB."""
    text = str(value).strip()
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?B)?", text.upper())
    if not match:
        raise Refusal(field, f"{text!r} is not an amount of memory", "for example 20GiB or 20GB")
    unit = _BYTES[match.group(2)] if match.group(2) else 2**20
    mib = math.ceil(float(match.group(1)) * unit / 2**20)
    if not 0 < mib < 10**9:
        raise Refusal(field, f"{text!r} is out of range")
    return mib


def words_duration(seconds: float) -> str:
    """``2 h 5 min``, ``40 s``: a duration for people."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (rest // 60, "min")) if n]
    return " ".join(parts[:2])


def _duration(value: object) -> object:
    return None if value is None else parse_duration(value)


Duration = Annotated[float, BeforeValidator(_duration)]


class In(BaseModel):
    """A request body: unknown keys are an error that names them."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Out(BaseModel):
    """An answer."""

    model_config = ConfigDict(frozen=True)


# --- what is asked ----------------------------------------------------------------------


class RequestIn(In):
    """The shape of a Job. ``gpus`` is per node; a fraction asks for a share of one GPU."""

    nodes: int = 1
    gpus: str | float = 1
    memory: str | None = Field(None, description="a share by its GPU memory, as 20GiB")
    cpus: float = Field(0, ge=0)
    host_memory: str | None = None
    flavors: tuple[str, ...] = ()
    time: str | float | None = Field(None, description="leased time, as 2h; default: the class's")

    def to_request(self) -> Request:
        """The core's Request; Refusal naming the field."""
        if self.memory is not None:
            gpus, milli, memory = 0, 0, parse_memory(self.memory)
        else:
            (gpus, milli), memory = parse_share(self.gpus), 0
        return Request(
            nodes=self.nodes,
            gpus=gpus,
            gpu_milli=milli,
            memory_mib=memory,
            cpu_milli=math.ceil(self.cpus * 1000),
            host_memory_mib=parse_memory(self.host_memory, "host_memory")
            if self.host_memory is not None
            else 0,
            flavors=self.flavors,
            time_limit=None if self.time is None else parse_duration(self.time),
        )


class SubmitIn(In):
    """POST /jobs: a batch Job. The header ``Idempotency-Key`` makes it repeatable."""

    request: RequestIn = RequestIn()
    argv: tuple[str, ...] = Field(description="program and arguments; code files by their name")
    files: dict[str, str] = Field({}, description="submitted code: name -> text")
    cwd: str = ""
    env: dict[str, str] = {}
    python: str = Field("", description="interpreter of the submitting kernel")
    torchrun: bool | None = Field(None, description="default: nodes > 1 or gpus > 1")
    name: str = Field("", max_length=80)
    queue: str = ""
    class_name: str = Field("", alias="class")
    max_restarts: int | None = Field(None, ge=0, le=1000)
    requeue: bool = True
    exit_zero_done: bool = False

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class SessionIn(In):
    """POST /sessions: a Session for one Jupyter server; adopts the one that lives."""

    request: RequestIn = RequestIn()
    user: str = Field("", description="only the Hub may name another user")
    server: str = Field("", description="server name; empty = the default server")
    incarnation: int = Field(0, ge=0)
    attach: bool = Field(True, description="placed only after its server said hello")
    queue: str = ""
    class_name: str = Field("", alias="class")

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class ProcessIn(In):
    """A process: pid and start time (field 22 of /proc/PID/stat)."""

    pid: int = Field(gt=0)
    start: int = Field(ge=0)


class HolderIn(In):
    """POST /servers/hello: the server's extension is up."""

    user: str = ""
    server: str = ""
    incarnation: int = Field(0, ge=0)
    host: str
    boot: str
    pid: int = Field(gt=0)
    start: int = Field(ge=0)


class KernelIn(In):
    """One kernel in an activity report."""

    id: str
    name: str = ""
    busy: bool = False
    idle_for: float = Field(0, ge=0, description="seconds since a cell ended; 0 while busy")
    process: ProcessIn | None = None
    managed: bool = True


class ActivityIn(In):
    """POST /servers/activity: on change and every 30 s."""

    user: str = ""
    server: str = ""
    incarnation: int = Field(0, ge=0)
    kernels: tuple[KernelIn, ...] = ()
    terminals_idle_for: float | None = Field(None, description="None = no terminal is open")
    children: int = Field(0, ge=0, description="processes that kernels or terminals started")


class StartedIn(In):
    """POST /sessions/ID/started: the kernels are bound to this attempt."""

    attempt: int = Field(gt=0)


class GoneIn(In):
    """POST /servers/gone (Hub): the server's process ended, or never answers again."""

    user: str
    server: str = ""
    incarnation: int = Field(0, ge=0)
    how: Literal["stopped", "gone", "withdrawn", "failed"]


class ExtendIn(In):
    """POST /jobs|sessions/ID/extend."""

    time: str | float


class ResumeIn(In):
    """POST /sessions/ID/resume."""

    person: bool = True


class PolicyIn(In):
    """PUT /policy and POST /policy/check: the document as YAML text."""

    document: str


# --- what is answered -------------------------------------------------------------------


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
    waits_for: tuple[str, ...]
    waits_for_users: tuple[str, ...]
    until: float | None


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

    model_config = ConfigDict(frozen=True, populate_by_name=True)


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

    model_config = ConfigDict(frozen=True, populate_by_name=True)


class DeviceOut(Out):
    """One device on the cluster map."""

    uuid: str
    index: int
    flavor: str
    memory_mib: int
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


class ExplainOut(Out):
    """GET /jobs/ID/explain: the Job, its wait and its story."""

    job: JobOut
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
