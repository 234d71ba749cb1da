# SPDX-License-Identifier: BSD-3-Clause
"""Why a Job waits, in one sentence: for whom, for which rule, and until when.

What ``waits_for`` names is what would have to go so that the Job starts: leaving Jobs,
Leases, and Jobs ahead in line that would take the room first. ``until`` is given only
where it holds by known ends: of notices, and of Leases taken in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Protocol

from .ledger import Column, Ledger
from .model import (
    GPU_MILLI,
    Blocked,
    Job,
    JobId,
    Kind,
    Placement,
    PlacementRule,
    Policy,
    Request,
    Seconds,
    Snapshot,
    Why,
    nodes_of,
)
from .placement import Ask, Packing, fit

EXPLAINED = 50
"""Jobs that lack GPUs and get the whole explanation; those behind them get a short one."""
NAMED = 3
"""People named in a sentence; the others are counted."""

ShapeKey = tuple[object, ...]


def shape(request: Request) -> ShapeKey:
    """Equal for Requests that fit in the same places."""
    return (
        request.nodes,
        request.gpus,
        request.gpu_milli,
        request.memory_mib,
        request.cpu_milli,
        request.host_memory_mib,
        request.flavors,
    )


@dataclass(frozen=True, slots=True)
class Holding:
    """Shares that a Job has or was promised in this cycle, and when they are free again."""

    job: Job
    placement: Placement
    end: Seconds
    """By its limit; infinite where that is not known yet."""


class Cycle(Protocol):
    """What an explanation reads of the cycle."""

    snapshot: Snapshot
    ledger: Ledger
    blocked: list[Job]
    leaving: list[Job]
    placed: dict[JobId, tuple[Job, Placement]]
    promised: dict[JobId, tuple[Job, Placement]]

    def holdings(self) -> list[Holding]:
        """All that is held and not leaving, and all that is promised; first to end first."""


def leaving(cycle: Cycle, placement: Placement, until: Seconds) -> Why:
    """It is promised what others leave; the last of them has to go by ``until``."""
    devices = [(share.node, share.device) for share in placement]
    names = nodes_of(placement)
    who = [
        job
        for job in cycle.leaving
        if job.lease is not None
        and any((share.node, share.device) in devices for share in job.lease.placement)
    ] or [
        job
        for job in cycle.leaving
        if job.lease is not None and any(share.node in names for share in job.lease.placement)
    ]
    known = [job.deadline for job in who if job.notice is not None and job.deadline is not None]
    return Why(
        Blocked.LEAVING,
        f"waiting for {jobs(who)} to leave ({people(who)})",
        waits_for=tuple(job.id for job in who),
        until=max([until, *known]),
    )


def later(policy: Policy) -> Why:
    """It is too far behind to be looked at."""
    return Why(Blocked.AHEAD, f"{policy.jobs_considered} jobs ahead of it are looked at first")


def jobs(some: Sequence[Job]) -> str:
    """``3 sessions``, ``1 job``, ``2 sessions and 1 job``."""
    sessions = sum(job.kind is Kind.SESSION for job in some)
    counts = ((sessions, "session"), (len(some) - sessions, "job"))
    return " and ".join(f"{n} {noun}{'s' if n > 1 else ''}" for n, noun in counts if n)


def people(some: Sequence[Job]) -> str:
    """The users of these Jobs, each once: ``ana, bo, cy and 2 more``."""
    users = list(dict.fromkeys(job.user for job in some))
    more = f" and {len(users) - NAMED} more" if len(users) > NAMED else ""
    return ", ".join(users[:NAMED]) + more


@dataclass(slots=True)
class Explained:
    """Explains Jobs that lack GPUs; what it found for one shape serves for all equal ones."""

    _room: dict[ShapeKey, tuple[Holding, ...] | None] = field(default_factory=dict)
    _rival: dict[tuple[ShapeKey, ShapeKey], bool] = field(default_factory=dict)

    def forget(self) -> None:
        """What is free changed."""
        self._room.clear()
        self._rival.clear()

    def why(self, cycle: Cycle, job: Job) -> Why:
        """Why the Job, which fits nowhere now or soon, waits."""
        if len(cycle.blocked) >= EXPLAINED:
            text = f"{len(cycle.blocked)} jobs ahead of it wait for GPUs as well"
            return Why(Blocked.CAPACITY, text)
        packing = Packing(cycle.snapshot.now, PlacementRule.BEST_FIT)
        ask = Ask.of(job, packing)
        if not ask.node and (ahead := _ahead(cycle, job, packing)):
            return Why(
                Blocked.AHEAD,
                f"what would be free is promised to {jobs(ahead)} ahead of it ({people(ahead)})",
                waits_for=tuple(other.id for other in ahead),
            )
        room = self._room_for(cycle, job, packing, ask)
        if room is None:
            return _impossible(cycle, job, packing, ask)
        rivals = self._rivals(cycle, job, packing, room)
        who = [holding.job for holding in room]
        last = max((holding.end for holding in room), default=inf)
        return Why(
            *_lack(cycle, ask, packing, job, rivals),
            waits_for=tuple(other.id for other in (*who, *rivals)),
            until=None if rivals or last == inf else last,
        )

    def _room_for(
        self, cycle: Cycle, job: Job, packing: Packing, ask: Ask
    ) -> tuple[Holding, ...] | None:
        if not ask.plain:
            return _room(cycle, job, packing)
        key = shape(job.request)
        if key not in self._room:
            self._room[key] = _room(cycle, job, packing)
        return self._room[key]

    def _rivals(
        self, cycle: Cycle, job: Job, packing: Packing, room: Sequence[Holding]
    ) -> list[Job]:
        """Jobs ahead in line that would take the room."""
        found: list[Job] = []
        with cycle.ledger.trial():
            _end(cycle, room)
            for other in cycle.blocked:
                key = (shape(job.request), shape(other.request))
                if key not in self._rival:
                    fits = fit(cycle.ledger, other, Column.SOON, packing) is not None
                    self._rival[key] = fits
                if self._rival[key]:
                    found.append(other)
        return found


def _ahead(cycle: Cycle, job: Job, packing: Packing) -> list[Job]:
    """The Jobs whose promises keep it from fitting; empty if without them it does not fit."""
    if not cycle.promised:
        return []
    with cycle.ledger.trial():
        for other, placement in cycle.promised.values():
            cycle.ledger.withdraw(placement, other.request)
        place = fit(cycle.ledger, job, Column.SOON, packing)
    names = nodes_of(place or ())
    return [
        other
        for other, placement in cycle.promised.values()
        if any(share.node in names for share in placement)
    ]


def _end(cycle: Cycle, holdings: Sequence[Holding]) -> None:
    for holding in holdings:
        cycle.ledger.withdraw(holding.placement, holding.job.request)


def _room(cycle: Cycle, job: Job, packing: Packing) -> tuple[Holding, ...] | None:
    """The first holdings to end that make room for the Job, and none that is not needed."""
    holdings = cycle.holdings()

    def place() -> Placement | None:
        return fit(cycle.ledger, job, Column.SOON, packing)

    def after(count: int) -> Placement | None:
        with cycle.ledger.trial():
            _end(cycle, holdings[:count])
            return place()

    low, high = 0, len(holdings)
    if after(high) is None:
        return None
    while low < high:
        middle = (low + high) // 2
        if after(middle) is None:
            low = middle + 1
        else:
            high = middle
    names = nodes_of(after(high) or ())
    near = [
        holding
        for holding in holdings[:high]
        if any(share.node in names for share in holding.placement)
    ]
    needed: list[Holding] = []
    with cycle.ledger.trial():
        _end(cycle, near)
        for holding in reversed(near):
            cycle.ledger.promise(holding.placement, holding.job.request)
            if place() is None:
                _end(cycle, [holding])
                needed.append(holding)
    return tuple(reversed(needed))


def _lack(
    cycle: Cycle, ask: Ask, packing: Packing, job: Job, rivals: Sequence[Job]
) -> tuple[Blocked, str]:
    """What is missing, and who has it."""
    held = f", held by {_holders(cycle, ask)}"
    also = f"; {jobs(rivals)} ahead of it ({people(rivals)}) would take it first" if rivals else ""
    if ask.node:
        text = f"its GPU memory is parked on {ask.node}, and it waits for its own GPU there"
        return Blocked.AFFINITY, text + held + also
    free, total = _free(cycle, ask), _total(cycle, ask)
    words = f"needs {job.request.words()}; {free / GPU_MILLI:g} of {total / GPU_MILLI:g} GPUs are"
    if free < _least(cycle, ask):
        return Blocked.CAPACITY, f"{words} free{held}{also}"
    bare = replace(job, request=replace(job.request, cpu_milli=0, host_memory_mib=0))
    if fit(cycle.ledger, bare, Column.BOTH, packing) is not None:
        return Blocked.FRAGMENTED, f"{words} free, but not the CPU or memory beside them{also}"
    return Blocked.FRAGMENTED, f"{words} free, but not together{held}{also}"


def _impossible(cycle: Cycle, job: Job, packing: Packing, ask: Ask) -> Why:
    """Not even when everybody has left."""
    if ask.avoided and _room(cycle, replace(job, avoid=()), packing) is not None:
        text = f"{', '.join(ask.avoided)} did not start it and is left alone for a while"
        until = min(until for _, until in job.avoid if until > packing.at)
        return Why(Blocked.IMPOSSIBLE, text, until=until)
    away = [
        node.name + (f" ({node.note})" if node.note else "")
        for _, node in sorted(cycle.snapshot.nodes.items())
        if not node.usable or not all(device.usable for device in node.devices)
    ]
    notes = f"; not usable now: {', '.join(away)}" if away else ""
    kept = len(cycle.snapshot.quarantined)
    if kept:
        notes += f"; held back until proven free: what {kept} ended jobs had"
    if ask.node:
        text = f"its GPU memory is parked on {ask.node}, which cannot take it now"
        return Why(Blocked.AFFINITY, text + notes)
    return Why(Blocked.IMPOSSIBLE, f"no node can take {job.request.words()} at present{notes}")


def _free(cycle: Cycle, ask: Ask) -> int:
    return sum(
        device.milli.free(Column.BOTH)
        for room in cycle.ledger.rooms
        for device in room.devices
        if ask.wants(device.device)
    )


def _total(cycle: Cycle, ask: Ask) -> int:
    return sum(
        GPU_MILLI
        for room in cycle.ledger.rooms
        for device in room.devices
        if ask.wants(device.device)
    )


def _least(cycle: Cycle, ask: Ask) -> int:
    """The least milli that the Request takes in sum."""
    request = ask.request
    shares = [
        request.share_milli(device.device.memory_mib)
        for room in cycle.ledger.rooms
        for device in room.devices
        if ask.wants(device.device)
    ]
    return request.nodes * request.gpus * GPU_MILLI + min(shares, default=0)


def _holders(cycle: Cycle, ask: Ask) -> str:
    """``ana (4), bo (2), cy (0.5) and 2 more``: who has what it could use."""
    amounts: dict[str, int] = {}
    for user, milli in _uses(cycle, ask):
        amounts[user] = amounts.get(user, 0) + milli
    most = sorted(amounts.items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{user} ({milli / GPU_MILLI:g})" for user, milli in most[:NAMED])
    return named + (f" and {len(most) - NAMED} more" if len(most) > NAMED else "")


def _uses(cycle: Cycle, ask: Ask) -> Iterator[tuple[str, int]]:
    flavors = {
        (name, device.uuid): ask.wants(device)
        for name, node in cycle.snapshot.nodes.items()
        for device in node.devices
    }
    jobs_ = cycle.snapshot.jobs.values()
    leases = [(job, job.lease.placement) for job in jobs_ if job.lease is not None]
    for job, placement in (*leases, *cycle.placed.values()):
        for share in placement:
            here = not ask.node or (share.node == ask.node and share.device in ask.pinned)
            if here and flavors.get((share.node, share.device), False):
                yield job.user, share.milli
