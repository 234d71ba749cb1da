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


@dataclass(frozen=True, slots=True)
class Room:
    """Where a Job would fit, and what has to end before."""

    holdings: tuple[Holding, ...]
    placement: Placement


class Cycle(Protocol):
    """What an explanation reads of the cycle."""

    snapshot: Snapshot
    ledger: Ledger
    leaving: list[Job]
    placed: dict[JobId, tuple[Job, Placement]]
    promised: dict[JobId, tuple[Job, Placement]]

    def holdings(self) -> list[Holding]:
        """All that is held and not leaving, and all that is promised; first to end first."""

    def takeable(self, job: Job) -> list[Job]:
        """From whom the Job may take."""


def leaving(cycle: Cycle, job: Job, placement: Placement, until: Seconds) -> Why:
    """It is promised what others leave; the last of them has to go by ``until``."""
    who = _leavers(cycle, job, placement)
    known = [job.deadline for job in who if job.notice is not None and job.deadline is not None]
    return Why(
        Blocked.LEAVING,
        f"waiting for {jobs(who)} to leave ({people(who)})",
        waits_for=tuple(job.id for job in who),
        until=max([until, *known]),
    )


def _leavers(cycle: Cycle, taker: Job, placement: Placement) -> list[Job]:
    """Who still has to leave that place: its devices, or else its nodes' CPU and memory."""
    if cycle.ledger.holds(placement, taker.request, Column.NOW):
        return []
    taken = [share for share in placement if not cycle.ledger.holds((share,), None, Column.NOW)]
    devices = [(share.node, share.device) for share in taken]
    names = nodes_of(placement)
    there: list[Job] = []
    near: list[Job] = []
    for job in cycle.leaving:
        shares = job.lease.placement if job.lease is not None else ()
        if any((share.node, share.device) in devices for share in shares):
            there.append(job)
        elif any(share.node in names for share in shares):
            near.append(job)
    return there or near


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

    _room: dict[ShapeKey, Room | None] = field(default_factory=dict)
    _rival: dict[tuple[ShapeKey, ShapeKey, Kind], bool] = field(default_factory=dict)

    def why(self, cycle: Cycle, job: Job, ahead: Sequence[Job]) -> Why:
        """Why the Job, which fits nowhere now or soon, waits; those ``ahead`` of it do so too."""
        if len(ahead) >= EXPLAINED:
            text = f"{len(ahead)} jobs ahead of it wait for GPUs as well"
            return Why(Blocked.CAPACITY, text)
        packing = Packing(cycle.snapshot.now, PlacementRule.BEST_FIT)
        ask = Ask.of(job, packing)
        promised = _promised_to(cycle, job, packing)
        if promised is not None and not ask.node:
            return promised
        room = self._room_for(cycle, job, packing)
        if room is None:
            return _impossible(cycle, job, packing, ask)
        rivals = self._rivals(cycle, job, ahead, room, packing)
        gone = _leavers(cycle, job, room.placement)
        who = [*gone, *(holding.job for holding in room.holdings), *rivals]
        ends = [holding.end for holding in room.holdings]
        ends += [inf if other.deadline is None else other.deadline for other in gone]
        last = max(ends, default=inf)
        return Why(
            *_lack(cycle, ask, packing, job, rivals),
            waits_for=tuple(dict.fromkeys(other.id for other in who)),
            until=None if rivals or last == inf else last,
        )

    def _room_for(self, cycle: Cycle, job: Job, packing: Packing) -> Room | None:
        if not Ask.of(job, packing).plain:
            return _room(cycle, job, packing)
        key = shape(job.request)
        if key not in self._room:
            self._room[key] = _room(cycle, job, packing)
        return self._room[key]

    def _rivals(
        self, cycle: Cycle, job: Job, ahead: Sequence[Job], room: Room, packing: Packing
    ) -> list[Job]:
        """Jobs ahead in line that could take the room, or a part of it, first."""
        ended = [holding.job.id for holding in room.holdings]
        found: list[Job] = []
        with cycle.ledger.trial():
            _end(cycle, room.holdings)
            _end(cycle, [other for other in _promised(cycle) if other.job.id not in ended])
            for other in ahead:
                key = (shape(job.request), shape(other.request), other.kind)
                if key not in self._rival:
                    self._rival[key] = _could_start(cycle, other, packing, ended)
                if self._rival[key]:
                    found.append(other)
        return found


def _could_start(cycle: Cycle, job: Job, packing: Packing, ended: Sequence[JobId]) -> bool:
    """True if the Job fits when also those have left from whom it may take."""
    with cycle.ledger.trial():
        for victim in cycle.takeable(job):
            if victim.id not in ended:
                cycle.ledger.leave(victim)
        return fit(cycle.ledger, job, Column.SOON, packing) is not None


def _promised(cycle: Cycle) -> list[Holding]:
    return [Holding(who, where, inf) for who, where in cycle.promised.values()]


def _promised_to(cycle: Cycle, job: Job, packing: Packing) -> Why | None:
    """It would fit but for what others were promised; ``None`` if that is not so."""
    promised = _promised(cycle)
    if not promised:
        return None
    with cycle.ledger.trial():
        _end(cycle, promised)
        place = fit(cycle.ledger, job, Column.BOTH, packing)
        place = place or fit(cycle.ledger, job, Column.SOON, packing)
    if place is None:
        return None
    names = nodes_of(place)
    theirs = [
        holding.job
        for holding in promised
        if any(share.node in names for share in holding.placement)
    ]
    who = list({other.id: other for other in theirs}.values())
    text = f"what would be free is promised to {jobs(who)} ({people(who)})"
    gone = _leavers(cycle, job, place)
    return Why(Blocked.AHEAD, text, waits_for=tuple(other.id for other in (*who, *gone)))


def _end(cycle: Cycle, holdings: Sequence[Holding]) -> None:
    for holding in holdings:
        cycle.ledger.withdraw(holding.placement, holding.job.request)


def _room(cycle: Cycle, job: Job, packing: Packing) -> Room | None:
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
        found = place()
    assert found is not None
    return Room(tuple(reversed(needed)), found)


def _lack(
    cycle: Cycle, ask: Ask, packing: Packing, job: Job, rivals: Sequence[Job]
) -> tuple[Blocked, str]:
    """What is missing, and who has it."""
    holders = _holders(cycle, ask)
    held = f", held by {holders}" if holders else ""
    also = f"; {jobs(rivals)} ahead of it ({people(rivals)}) could take it first" if rivals else ""
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
        ended = f"{kept} ended job{'s' if kept > 1 else ''}"
        notes += f"; held back until proven free: the GPUs of {ended}"
    if ask.node:
        text = f"its GPU memory is parked on {ask.node}, which cannot take it now"
        return Why(Blocked.AFFINITY, text + notes)
    return Why(Blocked.IMPOSSIBLE, f"no node can take {job.request.words()} at present{notes}")


def _free(cycle: Cycle, ask: Ask) -> int:
    return sum(
        device.milli.free(Column.BOTH)
        for room in cycle.ledger.rooms
        for device in room.devices
        if ask.allows(room.node) and ask.wants(device.device)
    )


def _total(cycle: Cycle, ask: Ask) -> int:
    return sum(
        GPU_MILLI
        for room in cycle.ledger.rooms
        for device in room.devices
        if ask.allows(room.node) and ask.wants(device.device)
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
