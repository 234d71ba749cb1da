# SPDX-License-Identifier: BSD-3-Clause
"""The working copy of one cycle: what is free, now and soon.

``now`` is free at this instant; ``soon`` is free when every leaving Job has left.
A Job may start only where it fits in both columns; a promise takes from ``soon``
alone. That one rule reserves GPUs for a gang without any stored reservation.
What is unusable or quarantined is in neither column.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from .model import (
    GPU_MILLI,
    LEASED,
    Brand,
    Device,
    Job,
    Lease,
    Node,
    Placement,
    Request,
    Snapshot,
    nodes_of,
)

T = TypeVar("T")

MOVES = 100_000
"""Moves that a Ledger remembers for its tables; then it forgets them all."""


class Column(Enum):
    """A view of what is free."""

    NOW = "now"
    SOON = "soon"
    BOTH = "both"
    """The smaller of the two: where a Job may start."""


class Amount:
    """How much of one countable thing is free, in both columns."""

    __slots__ = ("capacity", "home", "now", "soon")

    def __init__(self, capacity: int, home: int = 0) -> None:
        self.capacity = self.now = self.soon = capacity
        self.home = home
        """Index of its room."""

    def free(self, column: Column) -> int:
        """What is free in that column, in the unit of the amount."""
        if column is Column.SOON:
            return self.soon
        if column is Column.NOW:
            return self.now
        return min(self.now, self.soon)


@dataclass(frozen=True, slots=True, eq=False)
class DeviceRoom:
    """What is free on one usable device."""

    device: Device
    milli: Amount
    memory: Amount
    """MiB."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeRoom:
    """What is free on one usable node; ``None`` where the node does not report it."""

    node: Node
    devices: tuple[DeviceRoom, ...]
    cpu: Amount | None
    memory: Amount | None
    index: int
    """Among the rooms of the Ledger."""
    brands: tuple[tuple[Brand, tuple[int, ...]], ...]
    """The indexes of its devices by Brand."""

    def frees(self, column: Column) -> tuple[int, ...]:
        """Free milli of each device."""
        return tuple([room.milli.free(column) for room in self.devices])

    def milli(self, column: Column) -> int:
        """Free milli of all its devices together."""
        return sum(room.milli.free(column) for room in self.devices)

    def hosts(self, request: Request, column: Column) -> bool:
        """True if CPU and host memory suffice for one node of the Request."""
        return (self.cpu is None or self.cpu.free(column) >= request.cpu_milli) and (
            self.memory is None or self.memory.free(column) >= request.host_memory_mib
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
        self._nodes = {room.node.name: room for room in self.rooms}
        self._devices = {
            (room.node.name, device.device.uuid): device
            for room in self.rooms
            for device in room.devices
        }
        self._log: list[tuple[Amount, int, int]] = []
        self._moved: list[int] = []
        self._tables: dict[Hashable, _Table[Any]] = {}
        for job in snapshot.jobs.values():
            if job.state in LEASED:
                self._book(lease_of(job).placement, job.request)
        for quarantined in snapshot.quarantined:
            self._book(quarantined.shares, None)
        for room in self.rooms:
            _settle(room)

    def _book(self, placement: Placement, request: Request | None) -> None:
        for amount, need in self._amounts(placement, request):
            amount.now -= need
            amount.soon -= need

    def take(self, placement: Placement, request: Request) -> None:
        """A Job starts there: gone from both columns."""
        self.shift(placement, request, now=-1, soon=-1)

    def promise(self, placement: Placement, request: Request) -> None:
        """A Job will start there: gone from ``soon``."""
        self.shift(placement, request, now=0, soon=-1)

    def withdraw(self, placement: Placement, request: Request) -> None:
        """The inverse of ``promise``."""
        self.shift(placement, request, now=0, soon=1)

    def shift(self, placement: Placement, request: Request, *, now: int, soon: int) -> None:
        """In each column the Placement is given back (1), taken (-1), or left alone (0)."""
        for amount, need in self._amounts(placement, request):
            self._move(amount, now * need, soon * need)

    def due(self, jobs: Iterable[Job]) -> dict[Amount, int]:
        """What these Jobs would give back if they left."""
        due: dict[Amount, int] = {}
        for job in jobs:
            for amount, need in self._amounts(lease_of(job).placement, job.request):
                due[amount] = due.get(amount, 0) + need
        return due

    def reserve(self, placement: Placement, request: Request, due: dict[Amount, int]) -> bool:
        """Promise as much of it as ``soon`` has, less what is ``due``, which is then used up.
        False if nothing was promised."""
        reserved = False
        for amount, need in self._amounts(placement, request):
            given = min(need, due.get(amount, 0))
            part = min(amount.soon, need - given)
            if given:
                due[amount] -= given
            if part:
                self._move(amount, 0, -part)
                reserved = True
        return reserved

    def leave(self, job: Job) -> None:
        """A Job with a Lease will leave: ``soon`` gets its Shares back."""
        self.withdraw(lease_of(job).placement, job.request)

    def stay(self, job: Job) -> None:
        """The inverse of ``leave``."""
        self.promise(lease_of(job).placement, job.request)

    def holds(self, placement: Placement, request: Request | None, column: Column) -> bool:
        """True if all of the Placement is free in that column; ``None`` = the GPUs alone."""
        return all(
            amount.free(column) >= need for amount, need in self._amounts(placement, request)
        )

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
                    amount, now, soon = self._log.pop()
                    amount.now -= now
                    amount.soon -= soon
                    self._moved.append(amount.home)

    def table(self, question: Hashable, answer: Callable[[NodeRoom], T]) -> list[T]:
        """What each room answers, by its index; asked again only where anything moved since
        the question was put last. The answer may depend on room and question alone."""
        if len(self._moved) > MOVES:
            self._moved.clear()
            self._tables.clear()
        known: _Table[T] | None = self._tables.get(question)
        if known is None:
            known = self._tables[question] = _Table([answer(room) for room in self.rooms])
        else:
            for index in dict.fromkeys(self._moved[known.seen :]):
                known.answers[index] = answer(self.rooms[index])
        known.seen = len(self._moved)
        return known.answers

    def _amounts(
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

    def _move(self, amount: Amount, now: int, soon: int) -> None:
        amount.now += now
        amount.soon += soon
        assert 0 <= amount.now <= amount.capacity, "more was taken or given back than there is"
        assert 0 <= amount.soon <= amount.capacity, "more was taken or given back than there is"
        self._moved.append(amount.home)
        self._log.append((amount, now, soon))


def lease_of(job: Job) -> Lease:
    """The Lease of a Job in a state that has one."""
    assert job.lease is not None, job
    return job.lease


def _room(node: Node, index: int) -> NodeRoom:
    devices = [device for device in node.devices if device.usable]
    devices.sort(key=lambda device: (device.index, device.uuid))
    brands: dict[Brand, list[int]] = {}
    for place, device in enumerate(devices):
        brands.setdefault(device.brand, []).append(place)
    return NodeRoom(
        node=node,
        devices=tuple(
            DeviceRoom(device, Amount(GPU_MILLI, index), Amount(device.memory_mib, index))
            for device in devices
        ),
        cpu=Amount(node.cpu_milli, index) if node.cpu_milli else None,
        memory=Amount(node.host_memory_mib, index) if node.host_memory_mib else None,
        index=index,
        brands=tuple((brand, tuple(places)) for brand, places in sorted(brands.items())),
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
