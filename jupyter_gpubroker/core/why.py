# SPDX-License-Identifier: BSD-3-Clause
"""Why a Job waits, in one sentence: for whom, for which rule, and until when.

Each names the change that would help. When exactly those of ``waits_for`` have gone
(Leases, those who leave, Jobs ahead in line that would take the room first) the Job
starts; ``rules`` may be raised instead; ``nodes`` have to be usable again. Where more
than one thing bars it, the next one is told when the first is gone. ``until`` is given
only where it holds by known ends: of notices, and of Leases taken in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from .amounts import words_duration, words_gpus
from .feasible import possible
from .ledger import BOTH
from .model import (
    GPU_MILLI,
    Blocked,
    Job,
    JobId,
    Kind,
    Node,
    Refusal,
    Seconds,
    Why,
)
from .placement import Ask, fit
from .room import Cycle, Room, Rooms

EXPLAINED = 50
"""Jobs that get the whole explanation; those behind them get a short one."""
FIRST = 10
"""Jobs that such a short one names: the first in line."""
NAMED = 3
"""People named in a sentence; the others are counted."""


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


class Explainer:
    """Explains one cycle's Jobs, each after those ahead of it in line."""

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._rooms = Rooms(cycle)
        self._ahead: list[Job] = []
        """Those that would start if others went."""
        self._told: dict[JobId, Why] = {}

    def why(self, job: Job) -> Why:
        """Why the Job waits, whose turn has come and who did not start."""
        bar = self._cycle.barred.get(job.id)
        if bar is not None and not bar.waits_for:
            return bar  # for it, nobody needs to go
        if bar is not None:
            told = bar
        elif job.id in self._cycle.promised:
            told = self._leaving(job)
        elif job.id in self._cycle.limited:
            told = self._limited(job, self._cycle.limited[job.id])
        elif job.id in self._cycle.kept_back:
            told = _kept_back(self._cycle)
        elif job.id in self._cycle.short:
            told = self._short(job)
        else:
            told = self._blocked(job)
        if told.waits_for:
            self._ahead.append(job)
            self._told[job.id] = told
        return told

    def later(self) -> Why:
        """Why a Job waits that is too far behind to have its turn."""
        text = f"{self._cycle.policy.jobs_considered} jobs ahead of it are looked at first"
        return Why(Blocked.AHEAD, text, waits_for=self._first)

    @property
    def _first(self) -> tuple[JobId, ...]:
        """Some of those who have to go before a Job far behind is explained; when they are
        gone, the next ones are named."""
        return tuple(job.id for job in self._ahead[:FIRST])

    @property
    def _far(self) -> bool:
        return len(self._ahead) >= EXPLAINED

    def _rivals(self, job: Job, room: Room) -> list[Job]:
        """Jobs that could start first."""
        ahead = [*self._ahead, *self._rooms.overtakers(job, room, self._ahead)]
        return self._rooms.rivals(job, room, ahead)

    def _leaving(self, job: Job) -> Why:
        """It is promised what others leave."""
        _, placement = self._cycle.promised[job.id]
        room = self._rooms.promised_to(job, placement)
        rivals = [] if self._far else self._rivals(job, room)
        text = f"waiting for {jobs(room.jobs)} to leave ({people(room.jobs)})"
        ends = [holding.end for holding in room.holdings if holding.end < inf]
        for rival in rivals:
            told = self._told.get(rival.id)
            known = told is not None and told.code is Blocked.LEAVING
            ends.append(told.until if known and told is not None and told.until else inf)
        return Why(
            Blocked.LEAVING,
            text + _also(rivals),
            waits_for=_ids(room.jobs, rivals),
            until=_known(max([self._cycle.until[job.id], *ends])),
        )

    def _limited(self, job: Job, bar: Why) -> Why:
        """A limit bars it; who would have to go besides so that it starts."""
        if self._far or not bar.waits_for:
            return bar
        room = self._rooms.anywhere(job, bar.waits_for)
        if room is None:
            return self._nowhere(job)
        rivals = self._rivals(job, room)
        besides = [other for other in room.jobs if other.id not in bar.waits_for]
        then = f"; it also waits for {jobs(besides)} ({people(besides)})" if besides else ""
        return replace(
            bar,
            text=bar.text + then + _also(rivals),
            waits_for=_ids(room.jobs, rivals),
            until=None if rivals else _last(room),
        )

    def _short(self, job: Job) -> Why:
        """It lacks quota; who would have to go for that, and besides so that it starts."""
        bar = self._quota(job)
        if self._far:
            return replace(bar, waits_for=self._first)
        room = self._rooms.anywhere(job)
        if room is None:
            return self._nowhere(job)
        rivals = self._rivals(job, room)
        waits = f"; it waits for {jobs(room.jobs)} ({people(room.jobs)})" if room.jobs else ""
        return replace(
            bar,
            text=bar.text + waits + _also(rivals),
            waits_for=_ids(room.jobs, rivals),
            until=None if rivals else _last(room),
        )

    def _quota(self, job: Job) -> Why:
        quotas = self._cycle.ledger.quotas
        assert quotas is not None
        return Why(Blocked.LIMIT, quotas.words(job), rules=(f"queues.{job.queue}.quota",))

    def _nowhere(self, job: Job) -> Why:
        """Not even if everybody had left."""
        quotas = self._cycle.ledger.quotas
        if quotas is not None and quotas.governs(job.queue) and self._rooms.fits_empty(job):
            return self._quota(job)
        parked, there = self._rooms.crowded(job)
        if not parked:
            return _impossible(self._rooms, job)
        # It takes the host memory that the job needs, and goes with no lease.
        text = f"the memory that it needs beside its GPUs is taken by what {people(parked)} parked"
        return Why(Blocked.FRAGMENTED, text, waits_for=_ids(parked, there))

    def _blocked(self, job: Job) -> Why:
        """It lacks GPUs."""
        if self._far:
            text = f"{len(self._ahead)} jobs ahead of it wait for GPUs as well"
            return Why(Blocked.CAPACITY, text, waits_for=self._first)
        ask = Ask.of(job, self._rooms.packing)
        room = None if ask.node else self._rooms.behind_promises(job)
        room = room or self._rooms.anywhere(job)
        if room is None:
            return self._nowhere(job)
        rivals = self._rivals(job, room)
        return Why(
            *_lack(self._rooms, job, room, rivals),
            waits_for=_ids(room.jobs, rivals),
            until=None if rivals else _last(room),
        )


def _ids(*groups: Sequence[Job]) -> tuple[JobId, ...]:
    return tuple(dict.fromkeys(job.id for group in groups for job in group))


def _known(until: Seconds) -> Seconds | None:
    return until if until < inf else None


def _last(room: Room) -> Seconds | None:
    """When all of it has ended; ``None`` where that is not known."""
    return _known(max((holding.end for holding in room.holdings), default=inf))


def _also(rivals: Sequence[Job]) -> str:
    if not rivals:
        return ""
    return f"; {jobs(rivals)} ahead of it ({people(rivals)}) could start first"


def _lack(rooms: Rooms, job: Job, room: Room, rivals: Sequence[Job]) -> tuple[Blocked, str]:
    """What is missing, and who has it."""
    cycle, ask, also = rooms.cycle, Ask.of(job, rooms.packing), _also(rivals)
    if not room.holdings:
        return Blocked.AHEAD, _kept_free(rooms, rivals)
    promised = [each.job for each in room.holdings if not each.now]
    if promised and not ask.node and not any(each.now and each.soon for each in room.holdings):
        text = f"what would be free is promised to {jobs(promised)} ({people(promised)})"
        return Blocked.AHEAD, text + also
    holders = _holders(cycle, ask)
    held = f", held by {holders}" if holders else ""
    if ask.node:
        text = f"its GPU memory is parked on {ask.node}, and it waits for its own GPU there"
        return Blocked.AFFINITY, text + held + also + _elsewhere(cycle, job)
    free, total = _free(cycle, ask), _total(cycle, ask)
    verb = "is" if GPU_MILLI in (free, total) else "are"
    words = f"needs {job.request.words()}; {free / GPU_MILLI:g} of {words_gpus(total)} {verb} free"
    if free < _least(cycle, ask):
        return Blocked.CAPACITY, words + held + also
    bare = replace(job, request=replace(job.request, cpu_milli=0, host_memory_mib=0))
    if fit(cycle.ledger, bare, BOTH, rooms.packing) is not None:
        return Blocked.FRAGMENTED, f"{words}, but not the CPU or memory beside them{also}"
    return Blocked.FRAGMENTED, f"{words}, but not together{held}{also}"


def _elsewhere(cycle: Cycle, job: Job) -> str:
    """That it need not wait for its own GPU, when it has for a while."""
    if cycle.snapshot.now < job.eligible + job.terms.affinity_wait:
        return ""
    return "; to go on elsewhere without it, discard what is kept and ask anew"


def _kept_free(rooms: Rooms, rivals: Sequence[Job]) -> str:
    """It would fit, but is too long: what is free is reserved."""
    reserved = rooms.cycle.reserved
    heads = [other for other in rivals if other.id in reserved]
    first = min((reserved[other.id].start for other in heads), default=0.0)
    left = words_duration(first - rooms.cycle.snapshot.now)
    return (
        f"what is free is kept for {jobs(heads)} ({people(heads)}), to start in {left} at most;"
        f" with a time limit up to that it could start first"
    )


def _kept_back(cycle: Cycle) -> Why:
    """It fits, but not beside the sessions that may come."""
    sessions = cycle.reserve.sessions
    kinds = {request: sessions.count(request) for request in sessions}
    shapes = ", ".join(f"{count} with {request.words()}" for request, count in kinds.items())
    text = f"what is free is room for sessions that may come ({shapes})"
    return Why(Blocked.RESERVE, text, rules=("reserve",))


def _impossible(rooms: Rooms, job: Job) -> Why:
    """Not even when everybody has left."""
    cycle, ask = rooms.cycle, Ask.of(job, rooms.packing)
    for name, until in sorted(job.avoid, key=lambda item: item[1]):
        avoid = tuple(item for item in job.avoid if item[1] > until)
        if name in ask.avoided and rooms.fits_empty(replace(job, avoid=avoid)):
            are = "is" if len(ask.avoided) == 1 else "are"
            text = f"{' and '.join(ask.avoided)} did not start it and {are} left alone for a while"
            return Why(Blocked.IMPOSSIBLE, text, until=until, nodes=ask.avoided)
    names = rooms.mended(replace(job, avoid=()))
    notes = _notes(cycle, names)
    if ask.node:
        text = f"its GPU memory is parked on {ask.node}, which cannot take it now"
        return Why(Blocked.AFFINITY, text + notes + _elsewhere(cycle, job), nodes=names)
    text = f"no node can take {job.request.words()} at present{notes}"
    return Why(Blocked.IMPOSSIBLE, text if names else _never(cycle, job), nodes=names)


def _never(cycle: Cycle, job: Job) -> str:
    """No node could take it if all were usable and empty; what could run instead."""
    request = replace(job.request, time_limit=None)
    try:
        possible(request, cycle.snapshot.nodes.values(), cycle.policy.classes[job.class_name])
    except Refusal as refusal:
        return f"{refusal.message} ({refusal.remedy})"
    return f"no node can take {request.words()}, not even when all are usable and free"


def _notes(cycle: Cycle, names: Sequence[str]) -> str:
    """What is wrong with these nodes."""
    nodes = [cycle.snapshot.nodes[name] for name in names]
    away = [node for node in nodes if not node.usable or not all(d.usable for d in node.devices)]
    notes = f"; not usable now: {', '.join(_broken(node) for node in away)}" if away else ""
    kept = [
        held
        for held in cycle.snapshot.quarantined
        if any(share.node in names for share in held.shares)
    ]
    if kept:
        ended = f"{len(kept)} ended job{'s' if len(kept) > 1 else ''}"
        there = {share.node for held in kept for share in held.shares}
        on = ", ".join(name for name in names if name in there)
        notes += f"; held back until proven free: the GPUs of {ended} on {on}"
    return notes


def _broken(node: Node) -> str:
    notes = (node.note, *(device.note for device in node.devices if not device.usable))
    words = ", ".join(dict.fromkeys(note for note in notes if note))
    return f"{node.name} ({words})" if words else node.name


def _free(cycle: Cycle, ask: Ask) -> int:
    return sum(
        device.milli.free(BOTH)
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
