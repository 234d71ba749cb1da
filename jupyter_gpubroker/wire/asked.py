# SPDX-License-Identifier: BSD-3-Clause
"""What is asked: request bodies and query parameters. Unknown keys are an error."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

from ..core.amounts import parse_duration, parse_memory, parse_share
from ..core.complaints import refuse_truth
from ..core.model import Kind, Refusal, Request, State

CODE_MAX = 4 * 2**20
"""Characters of one submitted file."""
FILE_NAME_MAX = 200
"""Bytes; file systems allow 255, and a draft of it needs some."""
KEY_MAX = 128
"""Characters of an idempotency key."""
LIST_MAX = 1000
"""Jobs submitted at once."""
BIG = 2**53
"""Integers stay exact in every JSON reader."""


def _amount(value: object) -> object:
    # Checked before the union below, so that an error names the field and not a branch.
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a number or text")
    return value


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("must not hold a NUL byte")
    return value


def _printable(value: str) -> str:
    if not value.isprintable():
        raise ValueError(f"{value!r} holds characters that cannot be shown")
    return value


def _file_name(value: str) -> str:
    if not value or "/" in value or "\0" in value or value.startswith("."):
        raise ValueError(f"{value!r} is not a file name")
    if len(value.encode()) > FILE_NAME_MAX:
        raise ValueError(f"a file name has at most {FILE_NAME_MAX} bytes, not {value[:32]!r}…")
    return value


def _folder(value: str) -> str:
    if value and not value.startswith("/"):
        raise ValueError(f"{value!r} is not an absolute path")
    return _no_nul(value)


def _variable(value: str) -> str:
    if not value or "=" in value or "\0" in value:
        raise ValueError(f"{value!r} is not the name of an environment variable")
    return value


Amount = Annotated[str | float, BeforeValidator(_amount)]
"""As people write it; ``core.amounts`` reads it."""
Text = Annotated[str, AfterValidator(_no_nul)]
Argument = Annotated[str, Field(max_length=2**17), AfterValidator(_no_nul)]
"""An argument or a value of the environment; Linux allows no longer ones."""
Code = Annotated[str, Field(max_length=CODE_MAX)]
FileName = Annotated[str, AfterValidator(_file_name)]
Folder = Annotated[str, AfterValidator(_folder)]
Variable = Annotated[str, Field(max_length=256), AfterValidator(_variable)]
Name = Annotated[str, Field(max_length=255, pattern=r"^[^/]*$"), AfterValidator(_printable)]
"""A user or a server: no slash, for the two make a key ``user/server``."""
Label = Annotated[str, Field(max_length=255), AfterValidator(_no_nul)]
Count = Annotated[int, Field(ge=0, le=BIG)]


class In(BaseModel):
    """A request body or query: unknown keys are an error that names them."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        allow_inf_nan=False,
        str_max_length=4096,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_numbers(cls, value: object, info: ValidationInfo) -> object:
        refuse_truth(cls.model_fields[info.field_name or ""].annotation, value)
        return value


class Nothing(In):
    """The body of an endpoint that needs none."""


FIELDS = {
    "gpu_milli": "gpus",
    "memory_mib": "memory",
    "cpu_milli": "cpus",
    "host_memory_mib": "host_memory",
    "time_limit": "time",
}
"""Fields of the core's Request by the names that people give them, see ``RequestIn``."""


class RequestIn(In):
    """The shape of a Job. ``gpus`` is per node; a fraction asks for a share of one GPU."""

    nodes: int = Field(1, le=10**6)
    gpus: Amount = 1.0
    memory: Amount | None = Field(
        None, description="instead of gpus: a share by memory, as 20GiB; a number counts MiB"
    )
    cpus: float = Field(0, ge=0, le=10**6)
    host_memory: Amount | None = Field(None, description="as 64GiB; a number counts MiB")
    flavors: tuple[str, ...] = Field((), max_length=32)
    time: Amount | None = Field(None, description="leased time, as 2h; default: the class's")

    def to_request(self) -> Request:
        """The core's Request; Refusal naming the field."""
        if self.memory is None:
            (gpus, milli), memory = parse_share(self.gpus), 0
        elif parse_share(self.gpus) != (1, 0):  # 1 is what forms send that leave it alone
            raise Refusal("memory", "give a share as gpus or as memory, not as both")
        else:
            gpus, milli, memory = 0, 0, parse_memory(self.memory)
        host = 0 if self.host_memory is None else parse_memory(self.host_memory, "host_memory")
        return Request(
            nodes=self.nodes,
            gpus=gpus,
            gpu_milli=milli,
            memory_mib=memory,
            cpu_milli=math.ceil(self.cpus * 1000),
            host_memory_mib=host,
            flavors=self.flavors,
            time_limit=None if self.time is None else parse_duration(self.time),
        )


class SubmitIn(In):
    """POST /jobs: a batch Job. The header ``Idempotency-Key`` makes it repeatable."""

    request: RequestIn = RequestIn()
    argv: tuple[Argument, ...] = Field(
        min_length=1,
        max_length=4096,
        description="a program and its arguments, or a .py file or Python's options and theirs; "
        "arguments that name one of files mean the submitted copy",
    )
    files: dict[FileName, Code] = Field({}, max_length=64, description="submitted code: name, text")
    cwd: Folder = Field("", description="absolute; default: the folder of the attempt")
    env: dict[Variable, Argument] = Field({}, max_length=10_000)
    python: Text = Field("", description="interpreter of the submitting kernel")
    torchrun: bool | None = Field(None, description="default: nodes > 1 or gpus > 1")
    name: Text = Field("", max_length=80)
    queue: str = ""
    class_name: str = Field("", alias="class")
    max_restarts: int | None = Field(None, ge=0, le=1000)
    requeue: bool = True
    exit_zero_done: bool = False


class ListedIn(SubmitIn):
    """One of the ``jobs`` of POST /jobs/list."""

    key: Text = Field(
        "", max_length=KEY_MAX, description="sent again, it gives the job that it made"
    )


class SubmitListIn(In):
    """POST /jobs/list: several batch Jobs in one transaction, all of them or none."""

    jobs: tuple[ListedIn, ...] = Field(min_length=1, max_length=LIST_MAX)


class SessionIn(In):
    """POST /sessions: a Session for one Jupyter server; adopts the one that lives."""

    request: RequestIn = RequestIn()
    user: Name = Field("", description="only the Hub may name a user")
    server: Name = Field("", description="server name; empty = the default server")
    incarnation: Count = 0
    attach: bool = Field(True, description="placed only after its server said hello")
    binding: Literal["kernel", "server"] = Field(
        "kernel", description="server: launched with its GPUs (only the Hub may say so)"
    )
    queue: str = ""
    class_name: str = Field("", alias="class")
    groups: tuple[Label, ...] = Field(
        (), max_length=1000, description="of the user, in the Hub; only the Hub says them"
    )


class ProcessIn(In):
    """A process: pid and start time (field 22 of /proc/PID/stat)."""

    pid: int = Field(gt=0, le=BIG)
    start: Count


class HolderIn(In):
    """POST /servers/hello: the server's extension is up."""

    user: Name = ""
    server: Name = ""
    incarnation: Count = 0
    host: Label
    boot: Label
    pid: int = Field(gt=0, le=BIG)
    start: Count


class KernelIn(In):
    """One kernel in an activity report."""

    id: Label
    name: Label = ""
    busy: bool = False
    idle_for: float = Field(0, ge=0, description="seconds since a cell ended; 0 while busy")
    process: ProcessIn | None = None
    managed: bool = True


class ActivityIn(In):
    """POST /servers/activity: on change and every 30 s."""

    user: Name = ""
    server: Name = ""
    incarnation: Count = 0
    kernels: tuple[KernelIn, ...] = Field((), max_length=1000)
    terminals_idle_for: float | None = Field(None, ge=0, description="None = no terminal is open")
    children: int = Field(
        0, ge=0, le=BIG, description="processes that kernels or terminals started"
    )


class StartedIn(In):
    """POST /sessions/ID/started: the kernels are bound to this attempt."""

    attempt: int = Field(gt=0, le=BIG)


class GoneIn(In):
    """POST /servers/gone (Hub): the server's process ended, or (``mute``) it runs and no
    extension of ours in it has said hello."""

    user: Name
    server: Name = ""
    incarnation: Count = 0
    how: Literal["stopped", "gone", "withdrawn", "failed", "mute"]


class ExtendIn(In):
    """POST /jobs|sessions/ID/extend."""

    time: Amount


class ResumeIn(In):
    """POST /sessions/ID/resume."""

    person: bool = True


class PolicyIn(In):
    """PUT /policy and POST /policy/check: the document as YAML text."""

    document: str = Field(max_length=2**16)


# --- queries ----------------------------------------------------------------------------


class JobsQuery(In):
    """GET /jobs."""

    all: bool = Field(False, description="everybody's (admin)")
    kind: Kind | None = None
    state: State | None = None
    limit: int = Field(200, ge=1, le=1000)


class SessionsQuery(In):
    """GET /sessions."""

    all: bool = Field(False, description="everybody's (admin)")


class StateQuery(In):
    """GET /servers/state."""

    user: Name = ""
    server: Name = ""


class LogQuery(In):
    """GET /jobs/ID/logs."""

    rank: Count = 0
    offset: Count = 0
    limit: int = Field(65536, ge=16, le=2**20, description="bytes")
    attempt: int | None = Field(None, ge=1, le=BIG, description="default: the newest")


class EventsQuery(In):
    """GET /events."""

    after: Count | None = Field(None, description="seq of the last event seen; default: now")
