# SPDX-License-Identifier: BSD-3-Clause
"""The frozen policy: classes, queues and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from .job import Terms
from .values import Kind, Seconds


@dataclass(frozen=True, slots=True)
class Class:
    """A named priority class with its times and limits; ``None`` = unlimited."""

    name: str
    kinds: tuple[Kind, ...]
    priority: int = 0
    time_default: Seconds = 3600.0
    time_max: Seconds = 7 * 86400.0
    idle: Seconds = 600.0
    """Reclaimable after this, all kernels idle."""
    idle_busy: Seconds = 1800.0
    """Reclaimable after this since the last GPU sample, a kernel busy."""
    waiting: int | None = None
    """Waiting Jobs a user may have."""
    running: int | None = None
    yields_to: tuple[str, ...] | None = None
    """Classes of batch that its Jobs of the same queue give way to while they are at work;
    ``None`` = batch to every class of higher priority, sessions to none."""
    terms: Terms = field(default_factory=Terms)


class Order(StrEnum):
    """Who is first in a queue, within a class."""

    FAIR = "fair"
    """The user who had less than their part, then who waits longer."""
    SHORTEST = "shortest"
    """Who has the least GPU-time left by its limit, less what it has waited."""
    ATTAINED = "attained"
    """Who has had the least GPU-time, in levels; then who came first. Limits do not count."""


class Equals(StrEnum):
    """Whether batch Jobs of one queue and class give way to each other."""

    OFF = "off"
    LEVELS = "levels"
    """To one of a lower level, see ``core.relations``."""


@dataclass(frozen=True, slots=True)
class Quota:
    """What a queue or cohort has of some flavors, in milli-GPU; see ``core.cohorts``."""

    nominal: int
    """What it owns."""
    borrow: int | None = None
    """The most above that; ``None`` = as much as its cohort has."""
    lend: int | None = None
    """The most that others may use of it; ``None`` = all."""


@dataclass(frozen=True, slots=True)
class Budget:
    """GPU time that may be granted in each window of so many days; the windows of whole weeks
    begin on Mondays (UTC)."""

    gpu_hours: int
    days: int

    def words(self) -> str:
        """``40 GPU-hours of 7 days``."""
        days = "a day" if self.days == 1 else f"{self.days} days"
        return f"{self.gpu_hours} GPU-hours of {days}"


@dataclass(frozen=True, slots=True)
class Cohort:
    """Queues, and other cohorts, that lend each other what they do not use."""

    name: str
    parent: str | None = None
    quota: Mapping[str, Quota] = field(default_factory=dict)
    """By flavor; what all its members may use besides their own."""


@dataclass(frozen=True, slots=True)
class Queue:
    """Where Jobs wait."""

    name: str
    running_gpus: int | None = None
    """Limit of leased GPUs of all its Jobs together; ``None`` = none."""
    shares: int = 1
    """Its part among the queues, see ``core.fairshare``."""
    user_shares: Mapping[str, int] = field(default_factory=dict)
    """The parts of its users; 1 where none is named."""
    cohort: str | None = None
    """With whom it shares its quota."""
    quota: Mapping[str, Quota] = field(default_factory=dict)
    """By flavor; without a quota and a cohort it may have all there is."""
    waiting: int | None = None
    """Waiting Jobs it may have."""
    running: int | None = None
    """Jobs of it that may have a Lease at once."""
    user_gpus: int | None = None
    """Limit of leased GPUs of each user."""
    budget: Budget | None = None
    user_budget: Budget | None = None
    """Of each user."""
    groups: tuple[str, ...] = ()
    """Whose users may submit to it; empty = all users."""
    order: Order = Order.FAIR
    preempt_equals: Equals = Equals.OFF


@dataclass(frozen=True, slots=True)
class Levels:
    """What the orders *attained* and *shortest* count with."""

    first: float = 10 * 3600.0
    """GPU-seconds that a Job has had when it leaves the lowest level of *attained*."""
    factor: float = 64.0
    """How much more it takes to leave each next one."""
    aging: float = 3.0
    """GPU-seconds that a second of waiting counts in *shortest*."""


class PlacementRule(StrEnum):
    """How devices are chosen among those that fit."""

    BEST_FIT = "best-fit"
    FRAGMENTATION = "fragmentation"


class RemovedUsers(StrEnum):
    """What becomes of the running batch Jobs of users who are not the Hub's any more."""

    FINISH = "finish"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class Policy:
    """What admins decide; frozen, replaced as a whole by one journaled event."""

    classes: Mapping[str, Class]
    queues: Mapping[str, Queue]
    cohorts: Mapping[str, Cohort] = field(default_factory=dict)
    default_queue: str = "default"
    groups: Mapping[str, str] = field(default_factory=dict)
    """Group -> queue of its users; of several the first that is named here."""
    revision: int = 0
    placement: PlacementRule = PlacementRule.FRAGMENTATION
    half_life: Seconds = 7 * 86400.0
    max_age: Seconds = 3 * 86400.0
    """A Job that waits longer leads its class."""
    reserve: int | None = 0
    """Sessions that batch leaves room for; ``None`` = as many as came lately, see
    ``core.reserve``."""
    parked_percent: int = 50
    """The most that parked sessions take of the host memory of a node."""
    removed_users: RemovedUsers = RemovedUsers.FINISH
    levels: Levels = field(default_factory=Levels)
    nodes_considered: int = 64
    """Nodes looked at for victims of one Job."""
    jobs_considered: int = 2000
    """Waiting Jobs looked at in one cycle."""
