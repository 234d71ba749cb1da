# SPDX-License-Identifier: BSD-3-Clause
"""What the scheduler reads (Snapshot) and says (Plan)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .job import Job
from .values import JobId, Node, Notice, Placement, Request, Reservation, Seconds


@dataclass(frozen=True, slots=True)
class Idle:
    """A session judged idle: since when, and how much GPU memory parking would move."""

    since: Seconds
    memory_mib: int = 0
    facts: str = ""
    """The samples the judgement rests on, for the journal."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Shares whose owner left without proof; held until proof, a new boot or an admin."""

    shares: Placement
    job: JobId
    attempt: int
    boots: Mapping[str, str]
    """node -> boot at that time; another boot frees it."""
    since: Seconds


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that ``schedule`` may read; it shares the broker's objects and changes none."""

    now: Seconds
    nodes: Mapping[str, Node]
    jobs: Mapping[JobId, Job]
    """Every Job that is not terminal."""
    usage: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(queue, user) -> decayed milli-GPU-seconds at ``now``."""
    spent: Mapping[tuple[str, str, int], float] = field(default_factory=dict)
    """(queue, user, day of the grant) -> milli-GPU-seconds of Leases that ended."""
    idle: Mapping[JobId, Idle] = field(default_factory=dict)
    """Sessions judged idle; a session that is missing counts as in use."""
    memory_mib: Mapping[JobId, int] = field(default_factory=dict)
    """GPU memory in use by a session, where known."""
    quarantined: tuple[Quarantined, ...] = ()
    barred: Mapping[JobId, Why] = field(default_factory=dict)
    """Waiting Jobs that must not be placed now, whatever is free."""
    requests: Mapping[Request, int] | None = None
    """What waits or runs, and of how many Jobs, where that is known; else it is counted."""
    reserve: tuple[Request, ...] = ()
    """Sessions that batch leaves room for, the largest first."""


class Blocked(StrEnum):
    """Why a Job waits."""

    LEAVING = "leaving"
    """Others are leaving for it."""
    CAPACITY = "capacity"
    """Not enough free GPUs, and nobody may be asked to leave."""
    FRAGMENTED = "fragmented"
    """Enough in sum, but not together."""
    AHEAD = "ahead"
    """What is free is promised to Jobs ahead of it."""
    RESERVE = "reserve"
    """What is free is kept for sessions that may come."""
    LIMIT = "limit"
    """Its user, class or queue is at a limit."""
    SERVER = "server"
    """Its Jupyter server has not said hello yet."""
    AFFINITY = "affinity"
    """Waits for the node where its parked state lies."""
    IMPOSSIBLE = "impossible"
    """No such nodes at present."""
    HELD = "held"
    DEGRADED = "degraded"
    """The broker cannot place anything now."""


@dataclass(frozen=True, slots=True)
class Why:
    """Why a Job waits, for whom, and until when (where known)."""

    code: Blocked
    text: str
    """One sentence for people."""
    position: int = 0
    """1 = next; over all queues."""
    waits_for: tuple[JobId, ...] = ()
    """When exactly these are gone it starts, or what else bars it is told."""
    until: Seconds | None = None
    rules: tuple[str, ...] = ()
    """Keys of the policy that bar it, as ``classes.batch.running``."""
    nodes: tuple[str, ...] = ()
    """Nodes that would have to be usable for it again, and their GPUs proven free."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What ``schedule`` wants done."""

    place: tuple[tuple[JobId, Placement], ...] = ()
    notice: tuple[tuple[JobId, Notice], ...] = ()
    reprieve: tuple[JobId, ...] = ()
    why: Mapping[JobId, Why] = field(default_factory=dict)
    """Made at the first look, for it costs more than all else: few Plans are looked at."""
    next: Seconds | None = None
    """When to look again without an event (shields, idleness, affinity)."""
    reserve: tuple[tuple[JobId, Reservation], ...] = ()
    """What waiting Jobs were promised, and what is kept free for the first ones that lack GPUs.
    What was reserved before for others is not any more."""

    @property
    def promise(self) -> tuple[tuple[JobId, Placement], ...]:
        """Where waiting Jobs will start when others have left."""
        return tuple((id_, found.placement) for id_, found in self.reserve if found.promised)
