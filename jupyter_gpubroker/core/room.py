# SPDX-License-Identifier: BSD-3-Clause
"""Room for a Job that waits: who would have to go, and who else could take it first.

Nothing here decides. ``why`` asks at the end of a cycle, when everything is booked, for
exactly those without whom the Job would start in the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from .ledger import Column, Ledger, lease_of
from .model import (
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
from .placement import Ask, Look, Packing, fit
from .quota import Limits

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

    def leavings(self) -> list[Holding]:
        """What those have who leave; first to end first."""

    def holdings(self) -> list[Holding]:
        """All that is held and not leaving, and all that is promised; first to end first."""

    def takeable(self, job: Job) -> list[Job]:
        """From whom the Job may take."""


@dataclass
class Rooms:
    """Searches one cycle; what it found for one shape serves for all equal ones."""

    cycle: Cycle
    packing: Packing = field(init=False)
    _leavings: list[Holding] = field(init=False)
    _holdings: list[Holding] = field(init=False)
    _known: dict[tuple[object, ...], Room | None] = field(default_factory=dict)
    _keys: dict[JobId, ShapeKey] = field(default_factory=dict)
    _victims: dict[Kind, list[Job]] = field(default_factory=dict)
    _fitting: dict[tuple[JobId, ...], dict[tuple[ShapeKey, Kind], bool]] = field(
        default_factory=dict
    )
    """For what was ended: whether these then fit."""

    def __post_init__(self) -> None:
        self.packing = Packing(self.cycle.snapshot.now, PlacementRule.BEST_FIT)
        self._leavings = self.cycle.leavings()
        self._holdings = self.cycle.holdings()

    @cached_property
    def _empty(self) -> Ledger:
        """As if everybody had left."""
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
            return self.cycle.ledger.holds(placement, job.request, Column.NOW)

        names = nodes_of(placement)
        near = [each for each in self._leavings if _touches(each, names)]
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
        """True if it would fit when everybody had left."""
        return fit(self._empty, job, Column.BOTH, self.packing) is not None

    def mended(self, job: Job) -> tuple[str, ...]:
        """Nodes that would have to be usable again, and their GPUs proven free, so that it
        fits when everybody has left; empty where even that would not help."""
        if fit(self._whole, job, Column.BOTH, self.packing) is None:
            return ()
        able = self._able(self._empty, job)
        return tuple(name for name in self._able(self._whole, job) if name not in able)

    def _able(self, ledger: Ledger, job: Job) -> list[str]:
        look = Look(Ask.of(job, self.packing), Column.BOTH, self.packing)
        spots = (look.at(room) for room in ledger.rooms)
        return [found.node for found in spots if found is not None]

    def rivals(self, job: Job, room: Room, ahead: Sequence[Job]) -> list[Job]:
        """Jobs ahead in line that could use the room, or up a limit, before the Job does."""
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
        takers = [other for other in able if not self._safe_from(other, job)]
        promised = [each for each in self._holdings if not each.now]
        with self.cycle.ledger.trial():
            self._end(room.holdings)
            self._end([each for each in promised if each.job.id not in gone])
            found = self._takers(takers, room, gone)
        return found + self._at_the_limit(job, able, (*uncounted, *(each.id for each in found)))

    def _key(self, job: Job) -> ShapeKey:
        """Equal for Jobs that fit in the same places."""
        if job.id not in self._keys:
            ask = Ask.of(job, self.packing)
            plain = not (ask.avoided or ask.node)
            self._keys[job.id] = shape(job.request) if plain else (job.id,)
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

        def place() -> Placement | None:
            return fit(self.cycle.ledger, job, Column.BOTH, self.packing)

        def after(count: int) -> Placement | None:
            with self.cycle.ledger.trial():
                self._end(candidates[:count])
                return place()

        with self.cycle.ledger.trial():
            self._end(gone)
            low, high = 0, len(candidates)
            if after(high) is None:
                return None
            while low < high:
                middle = (low + high) // 2
                if after(middle) is None:
                    low = middle + 1
                else:
                    high = middle
            names = nodes_of(after(high) or ())
            near = [each for each in candidates[:high] if _touches(each, names)]
            needed = self._needed(near, lambda: place() is not None)
            found = place()
        assert found is not None
        return Room((*gone, *needed), found)

    def _needed(
        self, holdings: Sequence[Holding], enough: Callable[[], bool]
    ) -> tuple[Holding, ...]:
        """End them all, less those that are not needed; the last to end stay first."""
        self._end(holdings)
        needed: list[Holding] = []
        for holding in reversed(holdings):
            self._end([holding], -1)
            if not enough():
                self._end([holding])
                needed.append(holding)
        return tuple(reversed(needed))

    def _end(self, holdings: Sequence[Holding], back: int = 1) -> None:
        for each in holdings:
            now, soon = back * each.now, back * each.soon
            self.cycle.ledger.shift(each.placement, each.job.request, now=now, soon=soon)

    def _safe_from(self, other: Job, job: Job) -> bool:
        """True if it takes nothing of what the Job was promised: sessions leave that to batch,
        and of whole GPUs nothing is there before all is."""
        request = job.request
        whole = not (request.shared or request.cpu_milli or request.host_memory_mib)
        promised = job.kind is Kind.BATCH and job.id in self.cycle.promised
        return promised and whole and other.kind is Kind.SESSION

    def _may_start(self, other: Job, gone: Sequence[JobId], without: Collection[JobId]) -> bool:
        """False if it is barred when ``gone`` have ended, whatever is free."""
        bar = self.cycle.snapshot.barred.get(other.id)
        if bar is not None:
            return any(id_ in gone for id_ in bar.waits_for)
        limited = other.id in self.cycle.limited
        return not limited or self.cycle.limits.bar(other, without) is None

    def _takers(self, able: Sequence[Job], room: Room, gone: tuple[JobId, ...]) -> list[Job]:
        """Those of whom at least a part fits in the room, and the whole somewhere."""
        names = nodes_of(room.placement)
        known: dict[tuple[ShapeKey, Kind], bool] = {}
        found = []
        for other in able:
            key = (self._key(other), other.kind)
            if key not in known:
                here = self._fits_on(names, other, gone)
                known[key] = here and (other.request.nodes == 1 or self._fits(other, gone))
            if known[key]:
                found.append(other)
        return found

    def _fits_on(self, names: Sequence[str], other: Job, gone: Sequence[JobId]) -> bool:
        ledger = self.cycle.ledger
        look = Look(Ask.of(other, self.packing), Column.SOON, self.packing)
        with ledger.trial():
            self._leave(other, gone, names)
            rooms = [ledger.room(name) for name in names]
            return any(look.at(room) is not None for room in rooms)

    def _fits(self, other: Job, gone: tuple[JobId, ...]) -> bool:
        known = self._fitting.setdefault(gone, {})
        key = (self._key(other), other.kind)
        if key not in known:
            with self.cycle.ledger.trial():
                self._leave(other, gone)
                found = fit(self.cycle.ledger, other, Column.SOON, self.packing)
            known[key] = found is not None
        return known[key]

    def _leave(self, other: Job, gone: Sequence[JobId], names: Sequence[str] = ()) -> None:
        """Those leave from whom it may take, on these nodes or all."""
        if other.kind not in self._victims:
            self._victims[other.kind] = self.cycle.takeable(other)
        for victim in self._victims[other.kind]:
            placement = lease_of(victim).placement
            near = not names or any(share.node in names for share in placement)
            if near and victim.id not in gone:
                self.cycle.ledger.leave(victim)

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


def _touches(holding: Holding, names: Sequence[str]) -> bool:
    return any(share.node in names for share in holding.placement)
