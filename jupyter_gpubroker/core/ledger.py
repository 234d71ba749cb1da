# SPDX-License-Identifier: BSD-3-Clause
"""The working copy of one cycle: what is free, in three columns.

``now`` is free at this instant; ``soon`` is free when every leaving Job has left;
``then``, only where somebody has a Reservation, is free at its start when all have
ended who end before. A Job starts only where it fits ``now`` and ``soon``, and ``then``
too if it would still run at that time; a promise takes from ``soon`` and ``then``, a
Reservation from ``then``. What is unusable or quarantined is in no column.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Any, Generic, NamedTuple, TypeVar

from .model import (
    GPU_MILLI,
    Brand,
    Device,
    Job,
    Lease,
    Node,
    Placement,
    Request,
    Seconds,
    Snapshot,
    nodes_of,
    serves,
)

T = TypeVar("T")

Taken = tuple[Placement, Request]
"""What somebody has, and what was asked for."""

MOVES = 100_000
"""Moves that a Ledger remembers for its tables; then it forgets them all."""


class Column(Enum):
    """When something has to be free."""

    NOW = "now"
    SOON = "soon"
    BOTH = "both"
    """The smaller of the two: where a Job may start."""


class View(NamedTuple):
    """What one Job sees of an Amount."""

    column: Column
    late: Seconds = -inf
    """It still runs at the start of the Reservations that begin at or before this time."""


NOW, SOON, BOTH = (View(column) for column in Column)


class Amount:
    """How much of one countable thing is free, in all columns."""

    __slots__ = ("capacity", "claims", "home", "now", "soon", "start", "then")

    def __init__(self, capacity: int, home: int = 0) -> None:
        self.capacity = self.now = self.soon = self.then = capacity
        self.start: Seconds = inf
        """When ``then`` is; infinite where nobody has a Reservation."""
        self.claims = 0
        """How many have a Reservation of it."""
        self.home = home
        """Index of its room."""

    def free(self, view: View) -> int:
        """What is free in that view, in the unit of the amount."""
        if view.column is Column.SOON:
            found = self.soon
        elif view.column is Column.NOW:
            found = self.now
        else:
            found = min(self.now, self.soon)
        return max(0, min(found, self.then)) if self.start <= view.late else found


Claim = tuple[tuple[Amount, int], ...]
"""What was taken from ``soon`` of each Amount."""


@dataclass(slots=True, eq=False)  # frozen ones are slow to make, and each cycle makes all
class DeviceRoom:
    """What is free on one usable device."""

    device: Device
    milli: Amount
    memory: Amount
    """MiB."""


@dataclass(slots=True, eq=False)
class NodeRoom:
    """What is free on one usable node; ``None`` where the node does not report it."""

    node: Node
    devices: tuple[DeviceRoom, ...]
    cpu: Amount | None
    memory: Amount | None
    index: int
    """Among the rooms of the Ledger."""
    islands: tuple[int, ...]
    """The island of each device, counted from 0."""
    kinds: tuple[tuple[tuple[Brand, tuple[int, ...]], ...], ...]
    """For each island the indexes of its devices by Brand."""
    gpus: int
    """How many of its devices are no MIG slices."""

    def frees(self, view: View) -> tuple[int, ...]:
        """Free milli of each device."""
        amounts = [room.milli for room in self.devices]
        if view.column is Column.BOTH:
            found = [it.now if it.now < it.soon else it.soon for it in amounts]
        else:
            found = [it.now if view.column is Column.NOW else it.soon for it in amounts]
        for index, it in enumerate(amounts):
            if it.start <= view.late and it.then < found[index]:
                found[index] = max(0, it.then)
        return tuple(found)

    def whole(self, frees: Sequence[int]) -> int:
        """How many GPUs are free if these milli of its devices are; no slices."""
        if self.gpus < len(frees):
            frees = [f for f, room in zip(frees, self.devices, strict=True) if not room.device.mig]
        return frees.count(GPU_MILLI)

    def milli(self, view: View) -> int:
        """Free milli of all its devices together."""
        return sum(room.milli.free(view) for room in self.devices)

    def hosts(self, request: Request, view: View) -> bool:
        """True if CPU and host memory suffice for one node of the Request."""
        return (self.cpu is None or self.cpu.free(view) >= request.cpu_milli) and (
            self.memory is None or self.memory.free(view) >= request.host_memory_mib
        )


@dataclass(slots=True)
class _Table(Generic[T]):
    """What the rooms answered to one question, and how many moves they knew of."""

    answers: list[T]
    seen: int = 0


class Trial:
    """Handed out by ``Ledger.trial``: what happens in it is undone unless committed."""

    def __init__(self) -> None:
        self.committed = False

    def commit(self) -> None:
        """Keep what was done."""
        self.committed = True


class Ledger:
    """Free GPUs, CPUs and memory of one cycle. Every move is checked and can be undone."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Book every Lease and every quarantined Share in both columns."""
        self.rooms = tuple(
            _room(node, index)
            for index, node in enumerate(
                snapshot.nodes[name]
                for name in sorted(snapshot.nodes)
                if snapshot.nodes[name].usable
            )
        )
        """The usable nodes by name, their usable devices by index."""
        kinds = [brand for room in self.rooms for each in room.kinds for brand, _ in each]
        self._brands = tuple(sorted(dict.fromkeys(kinds)))
        self._nodes = {room.node.name: room for room in self.rooms}
        self._devices = {
            (room.node.name, device.device.uuid): device
            for room in self.rooms
            for device in room.devices
        }
        self._starts: list[Seconds] = []
        self._log: list[tuple[Amount, int, int, int]] = []
        self._moved: list[int] = []
        self._tables: dict[Hashable, _Table[Any]] = {}
        for job in leased(snapshot):
            self._book(lease_of(job).placement, job.request)
        for quarantined in snapshot.quarantined:
            self._book(quarantined.shares, None)
        for room in self.rooms:
            _settle(room)

    def _book(self, placement: Placement, request: Request | None) -> None:
        for amount, need in self.amounts(placement, request):
            amount.now -= need
            amount.soon -= need

    def take(self, placement: Placement, request: Request, until: Seconds = inf) -> None:
        """A Job starts there, and ends then at the latest: gone from ``now`` and ``soon``."""
        self.shift(placement, request, now=-1, soon=-1, until=until)

    def promise(self, placement: Placement, request: Request, until: Seconds = inf) -> None:
        """A Job will start there: gone from ``soon``."""
        self.shift(placement, request, now=0, soon=-1, until=until)

    def reserve(
        self, placement: Placement, request: Request, start: Seconds, ended: Iterable[Taken]
    ) -> None:
        """A Job will start there when those are over that have ``ended`` by then. A trial does
        not undo it."""
        back: dict[Amount, int] = {}
        names = nodes_of(placement)
        for other in ended:
            if not any(share.node in names for share in other[0]):
                continue
            for amount, need in self.amounts(*other):
                back[amount] = back.get(amount, 0) + need
        for amount, need in self.amounts(placement, request):
            known = amount.then if amount.claims else amount.capacity
            amount.then = min(known, amount.soon + back.get(amount, 0)) - need
            amount.start = min(amount.start, start)
            amount.claims += 1
            self._moved.append(amount.home)
        self._starts.append(start)

    def release(self, placement: Placement, request: Request, start: Seconds) -> None:
        """The Reservation is no more. What another one has a claim to as well stays as it is."""
        for amount, _ in self.amounts(placement, request):
            amount.claims -= 1
            if not amount.claims:
                amount.start = inf
            self._moved.append(amount.home)
        self._starts.remove(start)

    def view(self, column: Column, until: Seconds) -> View:
        """What a Job sees that ends at that time; equal for all who see the same."""
        return View(column, max((start for start in self._starts if start < until), default=-inf))

    def shift(
        self,
        placement: Placement,
        request: Request,
        *,
        now: int,
        soon: int,
        until: Seconds = inf,
    ) -> None:
        """In each column the Placement is given back (1), taken (-1), or left alone (0); in
        ``then`` as in ``soon``, but by those alone who have not ended by its start."""
        for amount, need in self.amounts(placement, request):
            then = soon * need if until > amount.start else 0
            self._move(amount, now * need, soon * need, then)

    def claim(self, placement: Placement, request: Request) -> Claim:
        """Take from ``soon`` what somebody was promised, as far as it is there."""
        parts = []
        for amount, need in self.amounts(placement, request):
            part = min(amount.soon, need)
            parts.append((amount, part))
            self._move(amount, 0, -part, 0)
        return tuple(parts)

    def give_back(self, claim: Claim) -> None:
        """The inverse of ``claim``."""
        for amount, part in claim:
            self._move(amount, 0, part, 0)

    def leave(self, job: Job) -> None:
        """A Job with a Lease will leave: ``soon`` gets its Shares back."""
        lease = lease_of(job)
        self.shift(lease.placement, job.request, now=0, soon=1, until=lease.expires)

    def stay(self, job: Job) -> None:
        """The inverse of ``leave``."""
        lease = lease_of(job)
        self.shift(lease.placement, job.request, now=0, soon=-1, until=lease.expires)

    def holds(self, placement: Placement, request: Request | None, view: View) -> bool:
        """True if all of the Placement is free in that view; ``None`` = the GPUs alone."""
        return all(amount.free(view) >= need for amount, need in self.amounts(placement, request))

    def flavors_for(self, request: Request) -> tuple[str, ...]:
        """What it can use."""
        serving = (brand.flavor for brand in self._brands if serves(request, brand))
        return request.flavors or tuple(dict.fromkeys(serving))

    def room(self, name: str) -> NodeRoom:
        """The usable node of that name."""
        return self._nodes[name]

    @contextmanager
    def trial(self) -> Iterator[Trial]:
        """What is done in the block is undone at its end, unless ``commit`` was called."""
        trial, mark = Trial(), len(self._log)
        try:
            yield trial
        finally:
            if not trial.committed:
                while len(self._log) > mark:
                    amount, now, soon, then = self._log.pop()
                    amount.now -= now
                    amount.soon -= soon
                    amount.then -= then
                    self._moved.append(amount.home)

    def open(self, view: View) -> list[int]:
        """The indexes of the rooms that have a part of a device free in that view: on a full
        cluster few, and no other can serve who wants GPUs."""
        frees = self.frees(view)
        answers = self.table(("open", view), lambda room: any(frees[room.index]))
        return [index for index, answer in enumerate(answers) if answer]

    def frees(self, view: View) -> list[tuple[int, ...]]:
        """Free milli of the devices of each room."""
        return self.table(view, lambda room: room.frees(view))

    def table(
        self,
        question: Hashable,
        answer: Callable[[NodeRoom], T],
        among: Sequence[int] | None = None,
    ) -> list[T]:
        """What each room answers, by its index; asked again only where anything moved since
        the question was put last. The answer may depend on room and question alone.

        ``among``: the rooms to ask where the question is new; ``None`` is the answer of others,
        as it would be if they were asked."""
        if len(self._moved) > MOVES:
            self._moved.clear()
            self._tables.clear()
        known: _Table[T] | None = self._tables.get(question)
        if known is None:
            known = self._tables[question] = _Table(self._asked(answer, among))
        else:
            for index in dict.fromkeys(self._moved[known.seen :]):
                known.answers[index] = answer(self.rooms[index])
        known.seen = len(self._moved)
        return known.answers

    def _asked(self, answer: Callable[[NodeRoom], T], among: Sequence[int] | None) -> list[T]:
        if among is None:
            return [answer(room) for room in self.rooms]
        answers: list[Any] = [None] * len(self.rooms)
        for index in among:
            answers[index] = answer(self.rooms[index])
        return answers

    def amounts(
        self, placement: Placement, request: Request | None
    ) -> Iterator[tuple[Amount, int]]:
        """What a Placement uses; nothing where the node or device is not usable now."""
        for share in placement:
            device = self._devices.get((share.node, share.device))
            if device is not None:
                yield device.milli, share.milli
                yield device.memory, share.memory_mib
        if request is None or not (request.cpu_milli or request.host_memory_mib):
            return
        for name in nodes_of(placement):
            room = self._nodes.get(name)
            if room is not None and room.cpu is not None:
                yield room.cpu, request.cpu_milli
            if room is not None and room.memory is not None:
                yield room.memory, request.host_memory_mib

    def _move(self, amount: Amount, now: int, soon: int, then: int) -> None:
        amount.now += now
        amount.soon += soon
        amount.then += then
        assert 0 <= amount.now <= amount.capacity, "more was taken or given back than there is"
        assert 0 <= amount.soon <= amount.capacity, "more was taken or given back than there is"
        self._moved.append(amount.home)
        self._log.append((amount, now, soon, then))


def lease_of(job: Job) -> Lease:
    """The Lease of a Job in a state that has one."""
    assert job.lease is not None, job
    return job.lease


def leased(snapshot: Snapshot) -> list[Job]:
    """The Jobs that hold GPUs, by id."""
    found = [job for job in snapshot.jobs.values() if job.lease is not None]
    return sorted(found, key=lambda job: job.id)


def _room(node: Node, index: int) -> NodeRoom:
    devices = [device for device in node.devices if device.usable]
    devices.sort(key=lambda device: (device.index, device.uuid))
    numbers = sorted({device.island for device in devices})
    islands = tuple(numbers.index(device.island) for device in devices)
    kinds: list[dict[Brand, list[int]]] = [{} for _ in numbers]
    for place, device in enumerate(devices):
        kinds[islands[place]].setdefault(device.brand, []).append(place)
    return NodeRoom(
        node=node,
        devices=tuple(
            DeviceRoom(device, Amount(GPU_MILLI, index), Amount(device.memory_mib, index))
            for device in devices
        ),
        cpu=Amount(node.cpu_milli, index) if node.cpu_milli else None,
        memory=Amount(node.host_memory_mib, index) if node.host_memory_mib else None,
        index=index,
        islands=islands,
        kinds=tuple(
            tuple((brand, tuple(places)) for brand, places in sorted(brands.items()))
            for brands in kinds
        ),
        gpus=sum(not device.mig for device in devices),
    )


def _settle(room: NodeRoom) -> None:
    """Check what was booked. A node may report less memory or fewer CPUs than it did when
    it granted them: it is full until those Leases end. Milli are ours alone."""
    for device in room.devices:
        assert device.milli.now >= 0, f"{device.device.uuid} is leased twice"
    memories = (device.memory for device in room.devices)
    for amount in (*memories, room.cpu, room.memory):
        if amount is not None and amount.now < 0:
            amount.capacity -= amount.now
            amount.now = amount.soon = 0
