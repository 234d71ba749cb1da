# SPDX-License-Identifier: BSD-3-Clause
"""What a broker's turn is fed with, and what it asks the shell to do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum

from ..core.events import Event
from ..core.model import (
    Binding,
    Conflict,
    Holder,
    Job,
    JobId,
    Kept,
    Key,
    Mode,
    Node,
    Placement,
    Policy,
    Process,
    Refusal,
    Request,
    Seconds,
)
from ..engines import Poll, Report
from ..store import LaunchRow

# --- questions: somebody waits for the answer -----------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """Asked by a person or program; answered after the commit with the Job it is about.

    Answers may also be ``Refusal``, ``Conflict`` or ``Unknown``, raised to the asker."""

    actor: str
    """For the journal: ``user:ana``, ``hub``, ``admin:eve``, ``peer:bo``."""


class Unknown(LookupError):
    """No such Job, for this asker."""


@dataclass(frozen=True, slots=True)
class Submit(Question):
    """A batch Job. The same ``idempotency`` of the same user gives the Job it made."""

    user: str
    request: Request
    launch: LaunchRow
    name: str = ""
    queue: str = ""
    class_name: str = ""
    groups: tuple[str, ...] = ()
    """Of the user."""
    max_restarts: int | None = None
    requeue: bool = True
    exit_zero_done: bool = False
    idempotency: str = ""


@dataclass(frozen=True, slots=True)
class SubmitList(Question):
    """Several batch Jobs, all of them or none. Answered with ``Answer.jobs`` in their order;
    an error names the place in the list."""

    submits: tuple[Submit, ...]


@contextmanager
def about(place: int) -> Iterator[None]:
    """What is wrong in the block is wrong with the job at that place of a list."""
    try:
        yield
    except Refusal as refusal:
        field = f"jobs.{place}.{refusal.field}"
        raise Refusal(field, refusal.message, refusal.remedy) from None
    except Conflict as conflict:
        raise Conflict(f"jobs.{place}: {conflict}") from None


@dataclass(frozen=True, slots=True)
class OpenSession(Question):
    """A Session for one server; adopts the living one of the same Request."""

    user: str
    server: str
    """Session key, ``user/server name``."""
    request: Request
    incarnation: int
    attach: bool = True
    binding: Binding = Binding.KERNEL
    queue: str = ""
    class_name: str = ""
    groups: tuple[str, ...] = ()
    """Of the user."""


@dataclass(frozen=True, slots=True)
class Ask(Question):
    """A verb about one Job; who may ask was checked by the service."""

    job: JobId
    event: Event


@dataclass(frozen=True, slots=True)
class StillWaits(Question):
    """A start at the Hub still waits for this Session."""

    job: JobId


@dataclass(frozen=True, slots=True)
class ServerHello(Question):
    """The extension of a server is up. Answered with its Session, or None."""

    server: str
    incarnation: int
    holder: Holder


class HowGone(StrEnum):
    """How the Hub saw a server end."""

    STOPPED = "stopped"
    """Asked for: the session is over."""
    WITHDRAWN = "withdrawn"
    """A spawn that waited was cancelled."""
    FAILED = "failed"
    """The start failed: park where something is kept, else release."""
    GONE = "gone"
    """The process is gone without being asked."""
    MUTE = "mute"
    """It answers, but no extension of ours in it has said hello."""


@dataclass(frozen=True, slots=True)
class ServerGone(Question):
    """A server ended, or is of no use. Answered with its Session, or None. Older incarnations
    are ignored."""

    server: str
    incarnation: int
    how: HowGone


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of a server, as its extension sees it."""

    id: str
    busy: bool
    idle_for: Seconds
    process: Process | None = None
    name: str = ""
    managed: bool = True


@dataclass(frozen=True, slots=True)
class ServerActivity(Question):
    """What a server's kernels do. Answered with its Session, or None."""

    server: str
    incarnation: int
    kernels: tuple[Kernel, ...]
    terminals_idle_for: Seconds | None
    children: int


@dataclass(frozen=True, slots=True)
class ApplyPolicy(Question):
    """A new policy, checked by ``policy.parse`` before. Answered with None."""

    document: str
    policy: Policy


@dataclass(frozen=True, slots=True)
class DrainNode(Question):
    """Nothing new on this node; an empty note ends it. Answered with None."""

    node: str
    note: str


# --- facts: nobody waits --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NodesSeen:
    """An engine's machines as they are now."""

    engine: str
    nodes: Sequence[Node]


@dataclass(frozen=True, slots=True)
class PollSeen:
    """One look at everything an engine knows."""

    engine: str
    poll: Poll
    dead_holders: Sequence[Holder] = ()
    """Of the holders the broker knows, those proven gone (same host and boot, no process)."""


@dataclass(frozen=True, slots=True)
class ReportsSeen:
    """An engine told by itself how some keys are."""

    engine: str
    reports: Sequence[Report]


@dataclass(frozen=True, slots=True)
class EngineDown:
    """An engine does not answer; nothing new is placed on it."""

    engine: str
    text: str


@dataclass(frozen=True, slots=True)
class UsersGone:
    """The Hub has no such users any more."""

    users: Sequence[str]


@dataclass(frozen=True, slots=True)
class Tidy:
    """A day is over: what ended long ago may be forgotten."""


class Did(StrEnum):
    """How a duty ended."""

    DONE = "done"
    REFUSED = "refused"
    """Start: nothing ran and nothing will."""
    RESTORE_REFUSED = "restore-refused"
    FAILED = "failed"
    """Tried again later."""


@dataclass(frozen=True, slots=True)
class DutyDone:
    """The shell performed a duty."""

    duty: Duty
    did: Did
    text: str = ""
    node: str = ""


# --- duties ---------------------------------------------------------------------------


class Act(StrEnum):
    """What the shell has to do with an engine."""

    START = "start"
    PARK = "park"
    TERM = "term"
    KILL = "kill"
    FORGET = "forget"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Duty:
    """One thing that must become true of an engine; computed from committed state only,
    so that doing it again is harmless and forgetting it is impossible."""

    act: Act
    engine: str
    key: Key
    mode: Mode = Mode.HOSTED
    binding: Binding = Binding.KERNEL
    placement: Placement = ()
    user: str = ""
    server: str = ""
    time_limit: Seconds = 0.0
    kept: tuple[Kept, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one question: a Job, Jobs, None, or an error to raise."""

    job: Job | None = None
    error: Exception | None = None
    jobs: tuple[Job, ...] = ()


Fact = NodesSeen | PollSeen | ReportsSeen | EngineDown | UsersGone | Tidy | DutyDone
Input = Question | Fact


@dataclass(frozen=True, slots=True)
class Activity:
    """The last report of a server, kept in memory only: after a restart it is unknown,
    and unknown counts as in use."""

    at: Seconds
    kernels: tuple[Kernel, ...]
    terminals_idle_for: Seconds | None
    children: int
    busy_since: Mapping[str, Seconds] = field(default_factory=dict)
