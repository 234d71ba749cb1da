# SPDX-License-Identifier: BSD-3-Clause
"""Room for a Job that waits: who would have to go, and who else could take it first.

Nothing here decides. ``why`` asks at the end of a cycle, when everything is booked, for
exactly those without whom the Job would start in the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Protocol

from .ledger import BOTH, NOW, Ledger
from .lending import Lending
from .model import (
    Job,
    JobId,
    Placement,
    PlacementRule,
    Policy,
    Request,
    Reservation,
    Seconds,
    Snapshot,
    Why,
    nodes_of,
)
from .parked import coming, images
from .placement import Ask, Look, Packing, fit
from .quota import Limits
from .reserve import Reserve
from .victims import Prey

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
    """By its limit or its notice; infinite where that is not known yet."""
    now: bool = True
    """It has them at present."""
    soon: bool = True
    """It has them when all who leave have left."""


@dataclass(frozen=True, slots=True)
class Room:
    """Where a Job would start, and what has to end before."""

    holdings: tuple[Holding, ...]
    placement: Placement

    @property
    def jobs(self) -> list[Job]:
        """Whose holdings they are."""
        return [holding.job for holding in self.holdings]


def opening(
    ledger: Ledger, holdings: Sequence[Holding], place: Callable[[], Placement | None]
) -> tuple[int, Placement] | None:
    """How many holdings have to end, the first ones first, until there is a place, and that
    one; ``None`` = not even all. The more have ended, the more fits."""
    ended = 0

    def after(count: int) -> Placement | None:
        nonlocal ended
        if count > ended:
            end(ledger, holdings[ended:count])
        else:
            end(ledger, holdings[count:ended], -1)
        ended = count
        return place()

    with ledger.trial():
        low, high = 0, 1  # ``low`` are too few; mostly few are enough
        if (found := after(0)) is not None:
            return 0, found
        while (found := after(min(high, len(holdings)))) is None:
            if high >= len(holdings):
                return None
            low, high = high, 2 * high
        high = min(high, len(holdings))
        while high - low > 1:
            middle = (low + high) // 2
            earlier = after(middle)
            low, high, found = (middle, high, found) if earlier is None else (low, middle, earlier)
    return high, found


def end(ledger: Ledger, holdings: Sequence[Holding], back: int = 1) -> None:
    """They end, or (-1) have not ended after all. What is reserved does not get more."""
    for each in holdings:
        now, soon = back * each.now, back * each.soon
        job = each.job
        ledger.shift(each.placement, job.request, now=now, soon=soon, until=-inf, queue=job.queue)


class Cycle(Protocol):
    """What an explanation reads of the cycle."""

    snapshot: Snapshot
    ledger: Ledger
    limits: Limits
    policy: Policy
    barred: dict[JobId, Why]
    placed: dict[JobId, tuple[Job, Placement]]
    promised: dict[JobId, tuple[Job, Placement]]
    limited: dict[JobId, Why]
    until: dict[JobId, Seconds]
    reserved: dict[JobId, Reservation]
    kept_back: dict[JobId, bool]
    reserve: Reserve
    short: dict[JobId, Job]
    line: Sequence[Job]
    places: dict[JobId, int]
    starts: dict[JobId, Seconds]
    kept: list[Job]
    prey: Prey

    def leavings(self) -> list[Holding]:
        """What those have who leave; first to end first."""

    def holdings(self) -> list[Holding]:
        """All that is held and not leaving, and all that is promised; first to end first."""


@dataclass
class Rooms:
    """Searches one cycle; what it found for one shape serves for all equal ones."""

    cycle: Cycle
    packing: Packing = field(init=False)
    _leavings: list[Holding] = field(init=False)
    _holdings: list[Holding] = field(init=False)
    _known: dict[tuple[object, ...], Room | None] = field(default_factory=dict)
    _keys: dict[JobId, ShapeKey] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.packing = Packing(self.cycle.snapshot.now, PlacementRule.BEST_FIT)
        self._leavings = self.cycle.leavings()
        self._holdings = self.cycle.holdings()

    @cached_property
    def _empty(self) -> Ledger:
        """As if everybody had left, and no quota kept anybody."""
        return Ledger(replace(self.cycle.snapshot, jobs={}))

    @cached_property
    def _whole(self) -> Ledger:
        """As if, besides, all were usable and proven free."""
        nodes = {
            name: replace(
                node,
                usable=True,
                devices=tuple(replace(device, usable=True) for device in node.devices),
            )
            for name, node in self.cycle.snapshot.nodes.items()
        }
        return Ledger(replace(self.cycle.snapshot, jobs={}, nodes=nodes, quarantined=()))

    def promised_to(self, job: Job, placement: Placement) -> Room:
        """The place that it was promised, with those who still have to leave it."""

        def free() -> bool:
            return self.cycle.ledger.holds(placement, job.request, NOW, job.queue)

        names = nodes_of(placement)
        near = [each for each in self._leavings if self._counts(each, names, job)]
        with self.cycle.ledger.trial():
            needed = self._needed(near, free)
        return Room(needed, placement)

    def behind_promises(self, job: Job) -> Room | None:
        """Where it would start but for what others were promised."""
        promised = [each for each in self._holdings if not each.now]
        if not promised:
            return None
        return self._search("promised", job, (), [*self._leavings, *promised])

    def anywhere(self, job: Job, first: Sequence[JobId] = ()) -> Room | None:
        """Where it would start if the first to end had ended; those of ``first`` have to in
        any case. ``None`` = not even if everybody had left."""
        known = [*self._leavings, *self._holdings]
        gone = [each for each in known if each.job.id in first]
        return self._search("all", job, gone, [each for each in known if each.job.id not in first])

    def fits_empty(self, job: Job) -> bool:
        """True if it would fit when everybody had left, but for quotas."""
        return fit(self._empty, job, BOTH, self.packing) is not None

    def crowded(self, job: Job) -> tuple[list[Job], list[Job]]:
        """Who has parked something, or will, and who holds something, on the first nodes where
        it would fit if neither were there."""
        if not job.request.host_memory_mib:
            return [], []
        snapshot, held = self.cycle.snapshot, [*self._leavings, *self._holdings]
        able = self._able(self._empty, job)[: job.request.nodes]
        names = [name for name in able if snapshot.nodes[name].host_memory_mib]
        there = [o.job for o in held if any(share.node in names for share in o.placement)]
        parked = [
            other
            for _, other in sorted(snapshot.jobs.items())
            if other.id != job.id and any(each.node in names for each in images(other, snapshot))
        ]
        leave = [each.job for each in self._leavings if coming(each.job, snapshot.memory_mib)]
        return [*parked, *(other for other in leave if other in there)], there

    def mended(self, job: Job) -> tuple[str, ...]:
        """Nodes that would have to be usable again, and their GPUs proven free, so that it
        fits when everybody has left; empty where even that would not help."""
        if fit(self._whole, job, BOTH, self.packing) is None:
            return ()
        able = self._able(self._empty, job)
        return tuple(name for name in self._able(self._whole, job) if name not in able)

    def _able(self, ledger: Ledger, job: Job) -> list[str]:
        look = Look(Ask.of(job, self.packing), BOTH, self.packing)
        spots = (look.at(room) for room in ledger.rooms)
        return [found.node for found in spots if found is not None]

    def rivals(self, job: Job, room: Room, ahead: Sequence[Job]) -> list[Job]:
        """Jobs ahead in line that could take the room first, have it kept free for them, or use
        up a limit."""
        gone = tuple(dict.fromkeys(other.id for other in room.jobs))
        before = dict.fromkeys(other.id for other in ahead)
        # What is promised to those behind counts in no limit when its turn comes.
        uncounted = (*gone, *(id_ for id_ in self.cycle.promised if id_ not in before), job.id)
        without = dict.fromkeys((*uncounted, *before))
        able = [
            other
            for other in ahead
            if other.id not in gone and self._may_start(other, gone, without)
        ]
        found = [other for other in able if self._meet(other, job)]
        return found + self._at_the_limit(job, able, (*uncounted, *(each.id for each in found)))

    def _key(self, job: Job) -> ShapeKey:
        """Equal for Jobs that fit in the same places."""
        if job.id not in self._keys:
            ask = Ask.of(job, self.packing)
            plain = not (ask.avoided or ask.node)
            quotas = self.cycle.ledger.quotas
            queue = job.queue if quotas is not None and quotas.governs(job.queue) else ""
            self._keys[job.id] = (queue, *shape(job.request)) if plain else (job.id,)
        return self._keys[job.id]

    def _search(
        self, word: str, job: Job, gone: Sequence[Holding], candidates: Sequence[Holding]
    ) -> Room | None:
        """The first candidates, known by that word, whose end makes room, and none that is not
        needed; ``gone`` have to end besides."""
        key = (word, self._key(job), tuple(each.job.id for each in gone))
        if key not in self._known:
            self._known[key] = self._find(job, gone, candidates)
        return self._known[key]

    def _find(
        self, job: Job, gone: Sequence[Holding], candidates: Sequence[Holding]
    ) -> Room | None:
        ledger = self.cycle.ledger

        def place() -> Placement | None:
            return fit(ledger, job, BOTH, self.packing)

        with ledger.trial():
            end(ledger, gone)
            first = opening(ledger, candidates, place)
            if first is None:
                return None
            count, placement = first
            names = nodes_of(placement)
            near = [each for each in candidates[:count] if self._counts(each, names, job)]
            needed = self._needed(near, lambda: place() is not None)
            found = place()
        assert found is not None
        return Room((*gone, *needed), found)

    def _needed(
        self, holdings: Sequence[Holding], enough: Callable[[], bool]
    ) -> tuple[Holding, ...]:
        """End them all, less those that are not needed; the last to end stay first."""
        end(self.cycle.ledger, holdings)
        needed: list[Holding] = []
        for holding in reversed(holdings):
            end(self.cycle.ledger, [holding], -1)
            if not enough():
                end(self.cycle.ledger, [holding])
                needed.append(holding)
        return tuple(reversed(needed))

    def _may_start(self, other: Job, gone: Sequence[JobId], without: Collection[JobId]) -> bool:
        """False if it is barred when ``gone`` have ended, whatever is free."""
        bar = self.cycle.snapshot.barred.get(other.id)
        if bar is not None:
            return any(id_ in gone for id_ in bar.waits_for)
        limited = other.id in self.cycle.limited
        return not limited or self.cycle.limits.bar(other, without) is None

    def overtakers(self, job: Job, room: Room, ahead: Sequence[Job]) -> list[Job]:
        """Jobs behind it that have something kept free for them, or their turn first when this
        room has been made: only then they stay inside what their queue owns."""
        quotas, ledger, cycle = self.cycle.ledger.quotas, self.cycle.ledger, self.cycle
        if quotas is None:
            return []
        before = dict.fromkeys([job.id, *(other.id for other in ahead), *cycle.placed])
        behind = [other for other in cycle.line if other.id not in before]
        with ledger.trial():
            end(ledger, room.holdings)
            # Those who were promised something may be named as well.
            gone = [each.job.id for each in room.holdings if not each.now]
            end(ledger, [o for o in self._holdings if not o.now and o.job.id not in gone])
            last = self._last(job, behind, quotas)
            return [other for other in behind if self._overtakes(other, job, last, quotas)]

    def _last(self, job: Job, behind: Sequence[Job], quotas: Lending) -> int:
        """Who is inside has a turn before the Job if its place in the line is before this."""
        places = self.cycle.places
        own = [each for each in behind if each.queue == job.queue]
        first = [each for each in own if places[each.id] < places[job.id]]
        # Who leaves for one of them may stay after all; and a queue keeps its order.
        inside = all(quotas.inside(each, BOTH) for each in (job, *first))
        return places[job.id] if inside else len(places)

    def _overtakes(self, other: Job, job: Job, last: int, quotas: Lending) -> bool:
        if other.id in self.cycle.promised and quotas.kin(job, other):
            return True
        if other.queue == job.queue:
            return False
        if other.id in self.cycle.reserved:
            return True
        inside = quotas.inside(other) or quotas.inside(other, NOW)
        return self.cycle.places[other.id] < last and inside

    def _counts(self, holding: Holding, names: Sequence[str], job: Job) -> bool:
        """True if its end may make room for the Job: there, or in the quota."""
        quotas = self.cycle.ledger.quotas
        kin = quotas is not None and quotas.kin(job, holding.job)
        return kin or any(share.node in names for share in holding.placement)

    def _meet(self, one: Job, other: Job) -> bool:
        """True if both could use the same GPUs, or the same quota."""
        quotas = self.cycle.ledger.quotas
        if quotas is not None and quotas.kin(one, other):
            return True
        wanted = self.cycle.ledger.flavors_for(one.request)
        theirs = self.cycle.ledger.flavors_for(other.request)
        return any(flavor in wanted for flavor in theirs)

    def _at_the_limit(self, job: Job, able: Sequence[Job], without: tuple[JobId, ...]) -> list[Job]:
        """Those who could start somewhere and count against a limit that the Job needs."""
        limits = self.cycle.limits
        same = [
            other
            for other in able
            if other.id not in without
            and other.id not in self.cycle.promised  # counted already
            and limits.share_one(job, other)
        ]
        return same if same and limits.bar(job, without, same) is not None else []
