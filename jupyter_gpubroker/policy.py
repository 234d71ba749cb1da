# SPDX-License-Identifier: BSD-3-Clause
"""The policy document (``policy.yaml``) -> the core's frozen Policy.

Unknown keys are refused; every error names the line, the key and the remedy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from . import documents
from .core import relations
from .core.model import (
    GPU_MILLI,
    Budget,
    Class,
    Cohort,
    Equals,
    Kind,
    Levels,
    Order,
    PlacementRule,
    Policy,
    Queue,
    Quota,
    RemovedUsers,
    Terms,
)
from .documents import Difference, Strict, Time, TimeOrZero

DOCUMENT_MAX = 2**16
"""Characters of a policy: every user may have one checked, and YAML is slow to read."""

DAY_S = 86400.0
BUDGET_DAYS_MAX = 30
"""So long is kept what was used."""
Gpus = Annotated[int, Field(ge=0, le=1_000_000)]
Name = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
"""Of a class or a queue: people type it, and it stands in lists and on command lines."""


_LEVELS = Levels()


class TimeLimits(Strict):
    """``time``: how long a lease may last."""

    default: Time
    """Time of a request that names none."""
    max: Time
    """The most that can be asked for, extensions included."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.default > self.max:
            raise ValueError("default must not be above max")
        return self


class IdleTimes(Strict):
    """``idle``: when a session is reclaimable, as soon as somebody waits."""

    after: Time
    """All kernels and terminals quiet for so long."""
    busy: Time
    """A cell, or a program that a kernel or a terminal started, runs for so long. Only where
    it goes on while the session is parked; elsewhere what runs is never idle."""


class KeepTimes(Strict):
    """``keep``: what the Keep button gives, and how often."""

    for_: Time = Field(alias="for")
    """How long one Keep keeps the session from being taken."""
    times: int = Field(ge=0, le=100)
    """How many a session has."""


class ClassDoc(Strict):
    """One class of ``classes``."""

    kinds: tuple[Kind, ...] = Field(min_length=1)
    """What it is for: ``session``, ``batch``, or both."""
    priority: int = 0
    """Higher ones go first in the queue, and running jobs of lower ones in it give way to their
    jobs (``yields_to``)."""
    time: TimeLimits
    idle: IdleTimes = IdleTimes(after=600.0, busy=1800.0)
    shield: TimeOrZero = 600.0
    """So long after a start it is not asked to leave for another."""
    grace: Time = 60.0
    """From the notice until a session has to leave."""
    stop: Time = 30.0
    """From asking processes to end, as at the time limit of a job, to killing them."""
    fence: Time = 120.0
    """From killing them to giving up: then their GPUs are quarantined."""
    start: Time = 120.0
    """A start that takes longer is taken back."""
    keep: KeepTimes = KeepTimes(**{"for": 900.0, "times": 2})
    parked: Time = 12 * 3600.0
    """What a parked session kept is deleted after so long."""
    holder_grace: Time = 300.0
    """A server that died may come back so long and finds its session."""
    affinity_wait: Time = 600.0
    """A session waits so long for the GPUs on which its memory is parked; then it is told how to
    go on elsewhere, without that memory."""
    max_wait: Time | None = None
    """A job that waits longer fails; what is parked stays parked."""
    restarts: int = Field(3, ge=0, le=1000)
    """After failures or a lost machine; a job may ask for another number."""
    waiting: int | None = Field(None, ge=1)
    """Of each user at once; one more is refused."""
    running: int | None = Field(None, ge=1)
    """Of each user at once; more wait."""
    yields_to: tuple[Name, ...] | None = None
    """Classes whose jobs may have the GPUs of this one, in the same queue, while it is at work.
    If it is left out: jobs give way to every class of higher priority, sessions to none. Idle
    sessions give way to every job."""

    def to_class(self, name: str) -> Class:
        """The core's class."""
        terms = Terms(
            grace=self.grace,
            stop=self.stop,
            fence=self.fence,
            start=self.start,
            shield=self.shield,
            keep=self.keep.for_,
            keeps=self.keep.times,
            kept_for=self.parked,
            holder_grace=self.holder_grace,
            affinity_wait=self.affinity_wait,
            max_wait=self.max_wait,
            max_restarts=self.restarts,
        )
        return Class(
            name=name,
            kinds=self.kinds,
            priority=self.priority,
            time_default=self.time.default,
            time_max=self.time.max,
            idle=self.idle.after,
            idle_busy=self.idle.busy,
            waiting=self.waiting,
            running=self.running,
            yields_to=self.yields_to,
            terms=terms,
        )


class BudgetDoc(Strict):
    """A budget: GPU time that may be granted, again and again."""

    gpu_hours: int = Field(ge=1, le=10**9)
    """Hours of one whole GPU. What a lease may use counts in full at its start; what it did not
    use is given back at its end."""
    per: Time
    """In each window of so long, in whole days; it counts in the window in which it was granted.
    Windows of whole weeks begin on Mondays, and all at midnight, UTC."""

    @field_validator("per")
    @classmethod
    def _whole_days(cls, per: float) -> float:
        if per % DAY_S or not 1 <= per / DAY_S <= BUDGET_DAYS_MAX:
            raise ValueError(f"must be whole days, at most {BUDGET_DAYS_MAX}, for example 7d")
        return per

    def to_budget(self) -> Budget:
        """The core's budget."""
        return Budget(self.gpu_hours, int(self.per // DAY_S))


class QuotaDoc(Strict):
    """A quota of one flavor, in whole GPUs."""

    nominal: Gpus
    """What it owns. Jobs inside it go before those that borrow."""
    borrow: Gpus | None = None
    """The most that it may use above that, of what the others of its cohort do not use;
    without it as much as they lend."""
    lend: Gpus | None = None
    """The most that the others may use of it while it does not; without it all."""

    def to_quota(self) -> Quota:
        """The core's quota."""
        borrow = None if self.borrow is None else self.borrow * GPU_MILLI
        lend = None if self.lend is None else self.lend * GPU_MILLI
        return Quota(self.nominal * GPU_MILLI, borrow, lend)


class CohortDoc(Strict):
    """One cohort of ``cohorts``: queues that lend each other what they do not use."""

    parent: Name | None = None
    """The cohort that it is a part of."""
    quota: dict[str, QuotaDoc] = Field({}, max_length=64)
    """What all its queues may use besides their own, as ``quota`` of a queue."""

    def to_cohort(self, name: str) -> Cohort:
        """The core's cohort."""
        return Cohort(name, self.parent, _quotas(self.quota))


def _quotas(docs: Mapping[str, QuotaDoc]) -> Mapping[str, Quota]:
    return {flavor: doc.to_quota() for flavor, doc in docs.items()}


class QueueDoc(Strict):
    """One queue of ``queues``."""

    running_gpus: int | None = Field(None, ge=1)
    """GPUs that all its jobs have at once; more wait."""
    user_gpus: int | None = Field(None, ge=1)
    """GPUs that the jobs of each user have at once; more wait."""
    waiting: int | None = Field(None, ge=1)
    """Jobs that wait in it at once; one more is refused."""
    running: int | None = Field(None, ge=1)
    """Jobs of it that run at once; more wait."""
    budget: BudgetDoc | None = None
    """GPU time of all its jobs together; when it is used up, they wait for the next window."""
    user_budget: BudgetDoc | None = None
    """GPU time of each user."""
    groups: tuple[str, ...] = ()
    """Only users in one of these groups may submit to it; without it all may."""
    shares: int = Field(1, ge=1, le=1_000_000)
    """Its part of the GPU time, beside those of the other queues, while all have jobs."""
    users: dict[str, Annotated[int, Field(ge=1, le=1_000_000)]] = Field({})
    """The parts of its users, by name; a user that is not named has 1."""
    order: Order = Order.FAIR
    """Who is first within a class: whose user had less than their part; who has the least GPU
    time left by its limit, less what it has waited; who has had the least GPU time."""
    preempt_equals: Equals = Equals.OFF
    """``levels``: a running job gives way to one of the same class that has had, or has left,
    much less GPU time. Not with ``order: fair``."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.preempt_equals is Equals.LEVELS and self.order is Order.FAIR:
            raise ValueError("preempt_equals: levels needs order: shortest or order: attained")
        return self

    cohort: Name | None = None
    """The cohort with whose queues it shares what it owns."""
    quota: dict[str, QuotaDoc] = Field({}, max_length=64)
    """What it owns, by flavor of GPU; ``"*"`` stands for all flavors that no quota of its cohort
    names. A queue without quota and cohort may have all there is."""

    def to_queue(self, name: str) -> Queue:
        """The core's queue."""
        return Queue(
            name=name,
            running_gpus=self.running_gpus,
            shares=self.shares,
            user_shares=dict(self.users),
            order=self.order,
            preempt_equals=self.preempt_equals,
            waiting=self.waiting,
            running=self.running,
            user_gpus=self.user_gpus,
            budget=None if self.budget is None else self.budget.to_budget(),
            user_budget=None if self.user_budget is None else self.user_budget.to_budget(),
            groups=self.groups,
            cohort=self.cohort,
            quota=_quotas(self.quota),
        )


class LevelsDoc(Strict):
    """``levels``: what the orders ``attained`` and ``shortest`` count with."""

    first: Time = _LEVELS.first
    """Of ``attained``: GPU time that a job has had when it leaves the lowest level."""
    factor: Annotated[float, Field(gt=1, le=1_000_000, allow_inf_nan=False)] = _LEVELS.factor
    """Of ``attained``: how many times as much it takes to leave each next level."""
    aging: Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)] = _LEVELS.aging
    """Of ``shortest``: seconds of GPU time that a second of waiting counts."""


class PolicyDoc(Strict):
    """The whole document."""

    default_queue: str = "default"
    """Where jobs go that name no queue."""
    groups: dict[str, Name] = Field({}, max_length=1000)
    """Where jobs go that name no queue, by group of their user: group and queue. Of several the
    first one counts. On a Hub these are its groups, on a shared workstation those of accounts."""
    placement: PlacementRule = PlacementRule.FRAGMENTATION
    """Which of the GPUs that fit: those that leave the most useful rest, or the fullest."""
    half_life: Time = 7 * 86400.0
    """After so long, GPU time that somebody used counts half when the queue is ordered."""
    max_age: Time = 3 * 86400.0
    """A job that waits longer goes before all others of its class."""
    reserve: Annotated[int, Field(ge=0, le=200)] | Literal["auto", "off"] = "auto"
    """Sessions for which batch leaves room, of the shapes that people use: a number; ``auto``:
    twice as many as were enough for 99 of 100 sessions that came lately, on at most a quarter of
    the GPUs, and none on fewer than 8; ``off``. Nobody is asked to leave for it."""
    parked_percent: Annotated[int, Field(ge=0, le=100)] = 50
    """The most that parked sessions take of the host memory of a machine, in percent. A session
    that does not fit keeps what needs none: its notebook and outputs."""
    removed_users: RemovedUsers = RemovedUsers.FINISH
    """What becomes of the running jobs of users who were removed from the Hub: they finish, or
    they are cancelled. What such a user waits for is cancelled, and their sessions end."""
    levels: LevelsDoc = LevelsDoc()
    """What the orders ``attained`` and ``shortest`` count with."""
    classes: dict[Name, ClassDoc] = Field(min_length=1)
    """Terms by name. What names no class gets the first one of its kind."""
    cohorts: dict[Name, CohortDoc] = Field({})
    """Cohorts by name."""
    queues: dict[Name, QueueDoc] = Field(min_length=1)
    """Queues by name."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.default_queue not in self.queues:
            raise ValueError(f"default_queue {self.default_queue!r} is not one of queues")
        for group, queue in self.groups.items():
            if queue not in self.queues:
                raise ValueError(f"groups.{group} {queue!r} is not one of queues")
        for kind in Kind:
            if not any(kind in doc.kinds for doc in self.classes.values()):
                raise ValueError(f"no class of classes has kind {kind.value}")
        for name, doc in self.classes.items():
            unknown = [other for other in doc.yields_to or () if other not in self.classes]
            if unknown:
                raise ValueError(f"classes.{name}.yields_to: {unknown[0]!r} is not one of classes")
        circle = relations.circle(self.core_classes())
        if circle:
            raise ValueError(f"classes: {relations.words(circle)}; change a yields_to or priority")
        self._check_cohorts()
        return self

    def core_classes(self) -> dict[str, Class]:
        """The core's classes."""
        return {name: item.to_class(name) for name, item in self.classes.items()}

    def _check_cohorts(self) -> None:
        """Every tree has a root, and at a root nothing can be borrowed or lent."""
        for name, queue in self.queues.items():
            self._check_parent(f"queues.{name}.cohort", queue.cohort)
            if queue.cohort is None:
                _check_root(f"queues.{name}", queue.quota, "cohort")
        for name, cohort in self.cohorts.items():
            self._check_parent(f"cohorts.{name}.parent", cohort.parent)
            if cohort.parent is None:
                _check_root(f"cohorts.{name}", cohort.quota, "parent")
        for name in self.cohorts:
            path: list[str | None] = [name]
            while (above := self.cohorts[path[-1] or ""].parent) is not None:
                if above in path:
                    words = " → ".join(map(str, [*path, above]))
                    raise ValueError(f"cohorts.{name}.parent leads back to itself: {words}")
                path.append(above)

    def _check_parent(self, key: str, name: str | None) -> None:
        if name is not None and name not in self.cohorts:
            known = ", ".join(self.cohorts) or "there are none"
            raise ValueError(f"{key} {name!r} is not one of cohorts ({known})")


def _check_root(key: str, quota: Mapping[str, QuotaDoc], parent: str) -> None:
    for flavor, doc in quota.items():
        for word in ("borrow", "lend"):
            if getattr(doc, word) is not None:
                raise ValueError(
                    f"{key}.quota.{flavor}.{word} needs a {parent}: there is nobody else"
                )


DEFAULT_DOCUMENT = """\
# Policy of jupyter-gpubroker. Durations: 90s 10m 2h 1-12:00:00.
# Check with `jupyter gpubroker policy check FILE`, apply with `policy apply FILE`.
default_queue: default
placement: fragmentation    # or best-fit
half_life: 7d               # decay of the usage that fair share looks at
max_age: 3d                 # who waits longer leads the class
reserve: auto               # room that batch leaves for notebooks: auto, off, or a number of them
parked_percent: 50          # of a machine's memory: the most that parked notebooks take

classes:
  interactive:              # notebooks
    kinds: [session]
    time: {default: 2h, max: 8h}
    idle: {after: 10m, busy: 30m}   # reclaimable when somebody waits: all kernels idle / one busy
    shield: 10m             # not reclaimable so soon after a grant
    grace: 120s             # from the notice until the GPU is taken
    stop: 30s               # from asking to killing
    keep: {for: 15m, times: 2}      # the Keep button
    parked: 12h             # how long a parked session is kept
    holder_grace: 5m        # a server that died may come back
    waiting: 5              # per user
    running: 2              # per user
  batch:                    # training jobs
    kinds: [batch]
    time: {default: 1h, max: 7d}
    shield: 10m
    grace: 60s
    stop: 30s
    restarts: 3
    waiting: 200

queues:
  default: {}
"""


def parse(text: str, revision: int = 0) -> Policy:
    """The Policy of a YAML document; Refusal naming line, key and remedy."""
    return frozen(document(text), revision)


def document(text: str) -> PolicyDoc:
    """A YAML document as it is written; Refusal naming line, key and remedy."""
    return documents.read(text, PolicyDoc, "policy", DOCUMENT_MAX)


ORDERED = ("classes", "groups")
"""Mappings in which the order of the names means something."""


def differences(old: str, new: str) -> list[Difference]:
    """What the new document changes, by key; Refusal if one of them is no policy.

    Other words for the same, and comments, are no difference."""
    values = [document(text).model_dump(by_alias=True) for text in (old, new)]
    return documents.differences(values, [old, new], ORDERED)


def frozen(doc: PolicyDoc, revision: int = 0) -> Policy:
    """What the scheduler reads of a document."""
    return Policy(
        classes=doc.core_classes(),
        queues={name: item.to_queue(name) for name, item in doc.queues.items()},
        cohorts={name: item.to_cohort(name) for name, item in doc.cohorts.items()},
        default_queue=doc.default_queue,
        groups=dict(doc.groups),
        revision=revision,
        placement=doc.placement,
        half_life=doc.half_life,
        max_age=doc.max_age,
        reserve={"auto": None, "off": 0}[doc.reserve]
        if isinstance(doc.reserve, str)
        else doc.reserve,
        parked_percent=doc.parked_percent,
        removed_users=doc.removed_users,
        levels=Levels(doc.levels.first, doc.levels.factor, doc.levels.aging),
    )


def default() -> Policy:
    """The Policy of ``DEFAULT_DOCUMENT``."""
    return parse(DEFAULT_DOCUMENT)
