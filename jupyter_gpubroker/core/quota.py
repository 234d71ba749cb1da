# SPDX-License-Identifier: BSD-3-Clause
"""Limits of users and queues, budgets of GPU time, and the decay of usage.

A Limit holds for a group of Jobs together: those of one user in a class, those of a queue,
those of one user in a queue. How queues share what they own is told in ``cohorts``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce

from .amounts import words_gpus
from .ledger import lease_of, leased
from .model import (
    GPU_MILLI,
    Blocked,
    Budget,
    Job,
    JobId,
    Node,
    Policy,
    Request,
    Seconds,
    Snapshot,
    State,
    Why,
    serves,
)

DAY_S = 86400.0
MONDAY = 4
"""The first Monday of the epoch, as a day: there the windows of budgets begin."""
HOUR_MILLI_S = 3600.0 * GPU_MILLI


def decayed(value: float, dt: Seconds, half_life: Seconds) -> float:
    """``value`` after ``dt``: ``0.5 ** (dt / half_life)`` of it; a clock that went back
    decays nothing."""
    return float(value * 0.5 ** (max(dt, 0.0) / half_life))


def ends(job: Job) -> Seconds | None:
    """When the Lease ends at the latest; ``None`` without a Lease."""
    if job.lease is None:
        return None
    return job.lease.expires if job.state is State.STARTING else job.deadline


def latest(jobs: tuple[Job, ...]) -> Seconds | None:
    """When all of them have left at the latest; ``None`` if that is not known."""
    known = [end for job in jobs if (end := ends(job)) is not None]
    return max(known) if known and len(known) == len(jobs) else None


def day_of(time: Seconds) -> int:
    """The day (UTC, since the epoch) that a grant at that time counts in."""
    return int(time // DAY_S)


def window(budget: Budget, now: Seconds) -> tuple[int, Seconds]:
    """The first day of the budget's present window, and when the window ends."""
    first = (day_of(now) - MONDAY) // budget.days * budget.days + MONDAY
    return first, (first + budget.days) * DAY_S


class Unit(Enum):
    """What a Limit counts."""

    JOBS = "jobs"
    MILLI = "milli"


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that a group of Jobs may have at once."""

    group: tuple[str, ...]
    """The same for all Jobs that count against it."""
    most: int
    """In its unit."""
    unit: Unit
    who: str
    """The group, in a sentence."""
    where: str
    rule: str
    """Its key in the policy."""

    @property
    def held(self) -> str:
        """``{} of at most 3 GPUs in use``: a sentence for what the group has."""
        most = words_gpus(self.most) if self.unit is Unit.MILLI else f"{self.most}"
        used = "in use" if self.unit is Unit.MILLI else "running"
        return f"{self.who} has {{}} of at most {most} {used}{self.where}"


@dataclass(frozen=True, slots=True)
class Spending:
    """A budget of a group of Jobs in its present window."""

    group: tuple[str, ...]
    budget: Budget
    who: str
    where: str
    rule: str


def limits_of(job: Job, policy: Policy) -> Iterator[Limit]:
    """Against what the Job counts."""
    class_, queue = policy.classes[job.class_name], policy.queues[job.queue]
    name, user = job.queue, job.user
    if class_.running is not None:
        where, rule = f" in class {class_.name}", f"classes.{class_.name}.running"
        yield Limit(("class", class_.name, user), class_.running, Unit.JOBS, user, where, rule)
    if queue.running is not None:
        rule = f"queues.{name}.running"
        yield Limit(("queue", name), queue.running, Unit.JOBS, f"queue {name}", "", rule)
    if queue.running_gpus is not None:
        most, rule = queue.running_gpus * GPU_MILLI, f"queues.{name}.running_gpus"
        yield Limit(("queue", name), most, Unit.MILLI, f"queue {name}", "", rule)
    if queue.user_gpus is not None:
        most, rule = queue.user_gpus * GPU_MILLI, f"queues.{name}.user_gpus"
        yield Limit(("user", name, user), most, Unit.MILLI, user, f" in queue {name}", rule)


def budgets_of(queue: str, user: str, policy: Policy) -> Iterator[Spending]:
    """From what the Jobs of that user in that queue are paid."""
    found, where = policy.queues[queue], f" in queue {queue}"
    if found.budget is not None:
        who, rule = f"queue {queue}", f"queues.{queue}.budget"
        yield Spending(("queue", queue), found.budget, who, "", rule)
    if found.user_budget is not None:
        rule = f"queues.{queue}.user_budget"
        yield Spending(("user", queue, user), found.user_budget, user, where, rule)


def milli_of(request: Request, nodes: Mapping[str, Node]) -> int:
    """The most a Request can take of these nodes."""
    devices = (device for node in nodes.values() for device in node.devices)
    return request.most_milli(d.memory_mib for d in devices if serves(request, d))


@dataclass(frozen=True, slots=True)
class _Held:
    """What one Job has, or was promised."""

    job: Job
    milli: int
    granted: Seconds
    cost: float
    """Milli-GPU-seconds, if it stays to its end."""


class Limits:
    """What counts against the limits in one cycle: Leases, starts and promises."""

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._groups: dict[tuple[str, ...], dict[JobId, _Held]] = {}
        self._sums: dict[tuple[str, ...], int] = {}
        self._ended: dict[tuple[tuple[str, ...], int], float] = {}
        self._limiting: dict[tuple[str, str, str], tuple[tuple[str, ...], ...]] = {}
        self.next: Seconds | None = None
        """When a budget that barred somebody begins anew."""
        for job in leased(snapshot):
            lease = lease_of(job)
            cost = lease.milli * (lease.expires - lease.since)
            self._add(_Held(job, lease.milli, lease.since, cost))

    def admit(self, job: Job) -> None:
        """The Job starts, or was promised where it will."""
        self._add(self._wish(job))

    def bar(
        self, job: Job, without: Collection[JobId] = (), besides: Sequence[Job] = ()
    ) -> Why | None:
        """Why a limit keeps the Job from starting; ``None`` if none does.

        As if those ``without`` had ended, and those ``besides`` had started.
        """
        bars: list[Why] = []
        for limit in limits_of(job, self._policy):
            gone = (*without, *(id_ for bar in bars for id_ in bar.waits_for))
            bar = self._limit_bar(limit, job, gone, besides)
            bars += [] if bar is None else [bar]
        for spending in budgets_of(job.queue, job.user, self._policy):
            bar = self._budget_bar(spending, job, without, besides)
            bars += [] if bar is None else [bar]
        return reduce(_both, bars) if bars else None

    def groups(self, job: Job) -> tuple[tuple[str, ...], ...]:
        """The groups against whose limits the Job counts: the same for all Jobs that are barred
        together."""
        account = (job.class_name, job.queue, job.user)
        if account not in self._limiting:
            groups = [limit.group for limit in limits_of(job, self._policy)]
            groups += [item.group for item in budgets_of(job.queue, job.user, self._policy)]
            self._limiting[account] = tuple(dict.fromkeys(groups))
        return self._limiting[account]

    def share_one(self, job: Job, other: Job) -> bool:
        """True if both count against the same limit."""
        groups = self.groups(job)
        return bool(groups) and any(group in groups for group in _groups(other))

    def _add(self, held: _Held) -> None:
        job, policy = held.job, self._policy
        # Its class or queue may be gone with a policy that was broken and has been replaced.
        known = job.class_name in policy.classes and job.queue in policy.queues
        for group in self.groups(job) if known else _groups(job):
            self._groups.setdefault(group, {})[held.job.id] = held
            self._sums[group] = self._sums.get(group, 0) + held.milli

    def _wish(self, job: Job) -> _Held:
        milli, now = milli_of(job.request, self._snapshot.nodes), self._snapshot.now
        left = job.remaining(self._policy.classes[job.class_name].time_default)
        return _Held(job, milli, now, milli * left)

    def _counted(
        self, group: tuple[str, ...], without: Collection[JobId], besides: Sequence[Job]
    ) -> list[_Held]:
        known = self._groups.get(group, {}).values()
        counted = [held for held in known if held.job.id not in without]
        return counted + [self._wish(job) for job in besides if group in _groups(job)]

    def _limit_bar(
        self, limit: Limit, job: Job, without: Collection[JobId], besides: Sequence[Job]
    ) -> Why | None:
        jobs = limit.unit is Unit.JOBS
        need = 1 if jobs else milli_of(job.request, self._snapshot.nodes)
        known = len(self._groups.get(limit.group, ())) if jobs else self._sums.get(limit.group, 0)
        if not besides and known + need <= limit.most:
            return None
        counted = self._counted(limit.group, without, besides)
        size = {held.job.id: 1 if jobs else held.milli for held in counted}
        used = sum(size.values())
        if used + need <= limit.most:
            return None
        text = limit.held.format(f"{used / (1 if jobs else GPU_MILLI):g}")
        if need > limit.most:
            text = f"{text}, and this needs {need / GPU_MILLI:g}"
            return Why(Blocked.LIMIT, text, rules=(limit.rule,))
        over: list[Job] = []
        for other in _first_to_end([held.job for held in counted]):
            if used + need <= limit.most:
                break
            used -= size[other.id]
            over.append(other)
        return Why(
            Blocked.LIMIT,
            text,
            waits_for=tuple(other.id for other in over),
            until=latest(tuple(over)),
            rules=(limit.rule,),
        )

    def _budget_bar(
        self, spending: Spending, job: Job, without: Collection[JobId], besides: Sequence[Job]
    ) -> Why | None:
        first, end = window(spending.budget, self._snapshot.now)
        counted = self._counted(spending.group, without, besides)
        used = sum(held.cost for held in counted if day_of(held.granted) >= first)
        used += self._spent(spending.group, first)
        most, need = spending.budget.gpu_hours * HOUR_MILLI_S, self._wish(job).cost
        if used + need <= most:
            return None
        waits = need <= most
        if waits:
            self.next = end if self.next is None else min(end, self.next)
        return Why(
            Blocked.LIMIT,
            f"{spending.who} has {used / HOUR_MILLI_S:.3g} of {spending.budget.words()} used or set"
            f" aside{spending.where}, and this may take {need / HOUR_MILLI_S:.3g}",
            until=end if waits else None,
            rules=(spending.rule,),
        )

    def _spent(self, group: tuple[str, ...], first: int) -> float:
        """What Leases that were granted since then, and ended, have cost the group."""
        if (group, first) not in self._ended:
            self._ended[group, first] = sum(
                cost
                for (queue, user, day), cost in self._snapshot.spent.items()
                if day >= first and group in (("queue", queue), ("user", queue, user))
            )
        return self._ended[group, first]


def _groups(job: Job) -> tuple[tuple[str, ...], ...]:
    """All the groups that a limit may hold for."""
    return (
        ("class", job.class_name, job.user),
        ("queue", job.queue),
        ("user", job.queue, job.user),
    )


def _both(first: Why, second: Why) -> Why:
    """Two limits bar it: if waiting helps at all, then for both."""
    helps = first.waits_for and second.waits_for
    known = [end for end in (first.until, second.until) if end is not None]
    return Why(
        Blocked.LIMIT,
        f"{first.text}, and {second.text}",
        waits_for=(*first.waits_for, *second.waits_for) if helps else (),
        until=max(known) if len(known) == 2 else None,
        rules=(*first.rules, *second.rules),
    )


def _first_to_end(jobs: list[Job]) -> tuple[Job, ...]:
    """Leases by their end, then Jobs that have none yet."""
    return tuple(
        sorted(jobs, key=lambda job: (job.lease is None, ends(job) or job.submitted, job.id))
    )
