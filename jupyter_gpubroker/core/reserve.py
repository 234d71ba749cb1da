# SPDX-License-Identifier: BSD-3-Clause
"""Room that batch leaves to people: how much, and whether it is still there.

Sessions come and go within minutes, and batch gives nothing back before its Jobs end. So it
does not count how many sessions there are, but how *deep* they dig: by how much what they
took exceeds what was given back since, by them or by ended batch (a Lindley recursion). If
batch always left R GPUs free, a session would find its GPUs at once where the depth is at
most R. ``auto`` is twice the least R that was enough for 99 of 100 sessions that came lately:
what was just enough for those is too little as soon as more people come.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf

from .ledger import BOTH, Column, Ledger, View
from .model import (
    GPU_MILLI,
    LEASED,
    Job,
    Kind,
    Node,
    Placement,
    PlacementRule,
    Policy,
    Request,
    Seconds,
    Snapshot,
    State,
)
from .placement import Packing, fit

ENOUGH = 0.99
"""Share of the sessions that ``auto`` is enough for."""
SAFETY = 2
"""``auto`` is so many times what was enough lately."""
HALF_LIFE: Seconds = 86400.0
"""After so long a session that came counts half."""
FORGOTTEN = 0.25
"""What all those together weigh who need more than ``auto`` and are too long ago to count."""
LEAST = 8
"""GPUs of a cluster on which ``auto`` reserves anything."""
MOST = 0.25
"""Share of the GPUs that ``auto`` reserves at most."""
SESSIONS = 200
"""Sessions that room is kept for at most."""
SHAPES = 32
"""Shapes that are remembered: those that came most often."""


@dataclass(slots=True)
class Demand:
    """What sessions asked for lately; fed with every change of a Job."""

    depth: int = 0
    """Milli-GPU that sessions took and nobody gave back since."""
    time: Seconds = 0.0
    """As of when the weights are."""
    depths: dict[int, float] = field(default_factory=dict)
    """Depth in GPUs, rounded up -> the weight of the sessions that met it when they came."""
    shapes: dict[Request, float] = field(default_factory=dict)
    """What they asked for, and how often."""

    def saw(self, before: Job | None, after: Job, now: Seconds) -> None:
        """A Job changed, or is new."""
        if after.kind is Kind.SESSION:
            was, is_ = before is not None and _wants(before), _wants(after)
            if is_ and not was:
                self._came(after.request, now)
            elif was and not is_:
                self.depth = max(0, self.depth - after.request.most_milli())
        elif before is not None and before.lease is not None and after.lease is None:
            self.depth = max(0, self.depth - before.lease.milli)

    def sessions(self, policy: Policy, nodes: Iterable[Node], now: Seconds) -> tuple[Request, ...]:
        """For whom room has to be kept, the largest first."""
        gpus = sum(device.usable for node in nodes if node.usable for device in node.devices)
        if policy.reserve is not None:
            return self._like(min(policy.reserve, SESSIONS)) if policy.reserve else ()
        room = int(MOST * gpus * GPU_MILLI)
        wanted = SAFETY * self._enough(now) * GPU_MILLI
        if gpus < LEAST or not wanted:
            return ()
        total = sum(self.shapes.values())
        mean = sum(shape.most_milli() * weight for shape, weight in self.shapes.items()) / total
        found: list[Request] = []
        for request in self._like(min(SESSIONS, ceil(wanted / mean))):
            if (milli := request.most_milli()) <= room:
                found.append(request)
                room -= milli
        return tuple(found)

    def _came(self, request: Request, now: Seconds) -> None:
        self._age(now)
        self.depth += request.most_milli()
        step = -(-self.depth // GPU_MILLI)
        self.depths[step] = self.depths.get(step, 0.0) + 1.0
        shape = replace(request, time_limit=None)
        self.shapes[shape] = self.shapes.get(shape, 0.0) + 1.0
        if len(self.shapes) > SHAPES:
            del self.shapes[min(self.shapes, key=self.shapes.__getitem__)]

    def _age(self, now: Seconds) -> None:
        factor = 0.5 ** (max(0.0, now - self.time) / HALF_LIFE)
        self.time = max(self.time, now)
        self.depths = {step: weight * factor for step, weight in self.depths.items()}
        self.shapes = {shape: weight * factor for shape, weight in self.shapes.items()}

    def _enough(self, now: Seconds) -> int:
        """GPUs that were enough lately."""
        factor = 0.5 ** (max(0.0, now - self.time) / HALF_LIFE)
        spare = max((1.0 - ENOUGH) * sum(self.depths.values()) * factor, FORGOTTEN)
        for step in sorted(self.depths, reverse=True):
            spare -= self.depths[step] * factor
            if spare < 0:
                return step
        return 0

    def _like(self, count: int) -> tuple[Request, ...]:
        """So many sessions as they came lately, the largest first; of one GPU if none came."""
        shapes = sorted(self.shapes, key=lambda shape: (-shape.most_milli(), shape.words()))
        total, left = sum(self.shapes.values()), count
        found: list[Request] = []
        for shape in shapes:
            some = min(left, ceil(count * self.shapes[shape] / total))
            found += [shape] * some
            left -= some
        return tuple(found) if shapes else (Request(gpus=1),) * count


def _wants(job: Job) -> bool:
    """True if the session has GPUs or waits for some."""
    return job.state is State.QUEUED or job.state in LEASED


class Reserve:
    """What is kept free in one cycle. While there is not room enough batch waits, so that what is
    given back makes some."""

    def __init__(self, snapshot: Snapshot, ledger: Ledger) -> None:
        self.sessions = snapshot.reserve
        self._milli = sum(each.most_milli() for each in self.sessions)
        self._snapshot, self._ledger = snapshot, ledger
        self._never: dict[Request, bool] = {}

    def concerns(self, job: Job) -> bool:
        """True if the Job may have to wait for it."""
        return bool(self.sessions) and job.kind is Kind.BATCH

    def allows(
        self, job: Job, placement: Placement, column: Column, victims: Iterable[Job] = ()
    ) -> bool:
        """True if all the sessions fit when the Job has its place: now (``BOTH``), or when all
        who leave, and these, have left (``SOON``)."""
        if not self.concerns(job) or _is_its_own(job, placement):
            return True
        view = self._ledger.view(column, inf)
        with self._ledger.trial():
            for victim in victims:
                self._ledger.leave(victim)
            _occupy(self._ledger, placement, job.request, column)
            enough = self._enough(self._ledger, view)
        return enough or self._could_never(job)

    def _enough(self, ledger: Ledger, view: View) -> bool:
        return room_for(ledger, self.sessions, view, self._snapshot.now) >= self._milli

    def _could_never(self, job: Job) -> bool:
        """True if not even an empty cluster had room for both: such a Job is not held up."""
        shape = replace(job.request, time_limit=None)
        if shape not in self._never:
            self._never[shape] = not self._fits_empty(job)
        return self._never[shape]

    def _fits_empty(self, job: Job) -> bool:
        request = job.request
        if all(map(_is_plain, (*self.sessions, replace(request, nodes=1, time_limit=None)))):
            free = sorted(len(room.devices) for room in self._ledger.rooms)
            able = [index for index, count in enumerate(free) if count >= request.gpus]
            for index in able[: request.nodes]:
                free[index] -= request.gpus
            found = GPU_MILLI * _whole(free, self.sessions)
            return len(able) >= request.nodes and found >= self._milli
        empty = Ledger(replace(self._snapshot, jobs={}, reserve=()))
        packing = Packing(self._snapshot.now, PlacementRule.BEST_FIT)
        place = fit(empty, job, BOTH, packing)
        if place is None:
            return False
        empty.take(place, request)
        return self._enough(empty, BOTH)


def _is_its_own(job: Job, placement: Placement) -> bool:
    """True if all of it is kept free for the Job: nobody else could have it."""
    known = () if job.reserved is None else job.reserved.placement
    return bool(known) and all(share in known for share in placement)


def room_for(ledger: Ledger, sessions: Sequence[Request], view: View, at: Seconds) -> int:
    """Milli-GPU of those sessions that fit together, one after the other as they come."""
    if all(map(_is_plain, sessions)):
        frees = ledger.table(view, lambda room: room.frees(view))
        free = ledger.table(("whole", view), lambda room: room.whole(frees[room.index]))
        return GPU_MILLI * _whole(free, sessions)
    packing, found = Packing(at, PlacementRule.BEST_FIT), 0
    with ledger.trial():
        for request in sessions:
            place = fit(ledger, _session(request), view, packing)
            if place is not None:
                _occupy(ledger, place, request, view.column)
                found += request.most_milli()
    return found


def _occupy(ledger: Ledger, placement: Placement, request: Request, column: Column) -> None:
    """For good, from when that column is about."""
    if column is Column.SOON:
        ledger.promise(placement, request)
    else:
        ledger.take(placement, request)


def _is_plain(request: Request) -> bool:
    """True if it wants whole GPUs of any kind, and nothing else."""
    return request == Request(gpus=request.gpus) if request.gpus else False


def _whole(free: Iterable[int], sessions: Sequence[Request]) -> int:
    """The same in GPUs, where only the number of free ones on each node counts."""
    rooms: dict[int, int] = {}
    for count in free:
        rooms[count] = rooms.get(count, 0) + 1
    found = 0
    for request in sessions:
        fitting = [count for count, some in rooms.items() if some and count >= request.gpus]
        if fitting:
            fullest = min(fitting)
            rooms[fullest] -= 1
            rooms[fullest - request.gpus] = rooms.get(fullest - request.gpus, 0) + 1
            found += request.gpus
    return found


def _session(request: Request) -> Job:
    return Job("", Kind.SESSION, "", "", "", request)
