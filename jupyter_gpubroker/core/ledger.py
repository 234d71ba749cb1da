# SPDX-License-Identifier: BSD-3-Clause
"""The working copy of one cycle: what is free, in three columns.

``now`` is free at this instant; ``soon`` is free when every leaving Job has left;
``then``, only where somebody has a Reservation, is free at its start when all have
ended who end before. A Job starts only where it fits ``now`` and ``soon``, and ``then``
too if it would still run at that time; a promise takes from ``soon`` and ``then``, a
Reservation from ``then``. What is unusable or quarantined is in no column.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import compress
from math import inf
from typing import Any, Generic, TypeVar

from .columns import BOTH, NOW, NOWHERE, SOON, Amount, Claim, Column, View
from .lending import lending
from .model import (
    GPU_MILLI,
    Device,
    Job,
    JobId,
    Layout,
    Lease,
    Node,
    Placement,
    Policy,
    Request,
    Seconds,
    Snapshot,
    State,
    nodes_of,
    serves,
)
from .parked import Image, coming, images, most_mib

__all__ = [
    "BOTH",
    "NOW",
    "SOON",
    "Amount",
    "Claim",
    "Column",
    "DeviceRoom",
    "Ledger",
    "NodeRoom",
    "View",
    "lease_of",
    "leased",
    "taken",
]

T = TypeVar("T")

Taken = tuple[Placement, Request, str]
"""What somebody has, what was asked for, and in which queue."""

MOVES = 100_000
"""Moves that a Ledger remembers for its tables; then it forgets them all."""


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
    parked: Amount | None
    """Host memory for what is parked, see ``parked``."""
    index: int
    """Among the rooms of the Ledger."""
    layout: Layout
    """Of its devices."""

    def frees(self, view: View) -> tuple[int, ...]:
        """Free milli of each device: ``Amount.free`` written out, for it is asked most of all."""
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
        if self.layout.gpus < len(frees):
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

    def __init__(self, snapshot: Snapshot, policy: Policy | None = None) -> None:
        """Book every Lease, every quarantined Share and every parked image in both columns.
        Without a policy there are no quotas."""
        percent = 100 if policy is None else policy.parked_percent
        self.rooms = tuple(
            _room(node, index, percent)
            for index, node in enumerate(
                snapshot.nodes[name]
                for name in sorted(snapshot.nodes)
                if snapshot.nodes[name].usable
            )
        )
        """The usable nodes by name, their usable devices by index."""
        kinds = [brand for room in self.rooms for each in room.layout.kinds for brand, _ in each]
        self._brands = tuple(sorted(dict.fromkeys(kinds)))
        self._nodes = {room.node.name: room for room in self.rooms}
        self.quotas = None if policy is None else lending(snapshot, policy)
        """``None`` = no queue has a quota."""
        self._starts: list[Seconds] = []
        self._log: list[tuple[Amount, int, int, int]] = []
        self._moved: list[int] = []
        self._tables: dict[Hashable, _Table[Any]] = {}
        for job in leased(snapshot):
            self._book(lease_of(job).placement, job.request, job.queue)
        for quarantined in snapshot.quarantined:
            self._book(quarantined.shares, None)
        self._memory_mib = snapshot.memory_mib
        self._images: Mapping[JobId, Claim] = {}
        """What those will have parked who leave in this cycle."""
        self._book_images(snapshot)
        for room in self.rooms:
            _settle(room)

    def _book(self, placement: Placement, request: Request | None, queue: str = "") -> None:
        for amount, need in self._amounts(placement, request):
            amount.now -= need
            amount.soon -= need
        if self.quotas is not None:
            for amount, need in self.quotas.amounts(placement, request, queue):
                amount.move(-need, -need, 0)

    def _book_images(self, snapshot: Snapshot) -> None:
        for job in snapshot.jobs.values():
            if not (job.kept or job.state is State.STOPPING):
                continue
            for image in images(job, snapshot):
                for amount in self._hosting(image):
                    amount.now -= image.mib
                    amount.soon -= image.mib

    def _hosting(self, image: Image) -> tuple[Amount, ...]:
        """Where an image takes its host memory from; nothing where the node reports none."""
        room = self._nodes.get(image.node)
        if room is None or room.memory is None or room.parked is None:
            return ()
        return room.memory, room.parked

    def take(
        self, placement: Placement, request: Request, until: Seconds = inf, queue: str = ""
    ) -> None:
        """A Job of that queue starts there, and ends then at the latest: gone from ``now`` and
        ``soon``."""
        self.shift(placement, request, now=-1, soon=-1, until=until, queue=queue)

    def promise(
        self, placement: Placement, request: Request, until: Seconds = inf, queue: str = ""
    ) -> None:
        """A Job will start there: gone from ``soon``."""
        self.shift(placement, request, now=0, soon=-1, until=until, queue=queue)

    def reserve(
        self,
        placement: Placement,
        request: Request,
        start: Seconds,
        ended: Iterable[Taken],
        queue: str = "",
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
        for amount, need in self.amounts(placement, request, queue):
            amount.reserve(need, start, back)
            self._note(amount)
        self._starts.append(start)

    def release(
        self, placement: Placement, request: Request, start: Seconds, queue: str = ""
    ) -> None:
        """The Reservation is no more."""
        for amount, _ in self.amounts(placement, request, queue):
            amount.release()
            self._note(amount)
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
        queue: str = "",
    ) -> None:
        """In each column the Placement is given back (1), taken (-1), or left alone (0); in
        ``then`` as in ``soon``, but by those alone who have not ended by its start."""
        for amount, need in self.amounts(placement, request, queue):
            then = soon * need if until > amount.start else 0
            self._move(amount, now * need, soon * need, then)

    def claim(self, placement: Placement, request: Request, queue: str = "") -> Claim:
        """Take from ``soon`` what somebody was promised, as far as it is there."""
        parts = []
        for amount, need in self.amounts(placement, request, queue):
            part = max(0, min(amount.soon, need))
            parts.append((amount, part))
            self._move(amount, 0, -part, 0)
        return tuple(parts)

    def give_back(self, claim: Claim) -> None:
        """The inverse of ``claim``."""
        for amount, part in claim:
            self._move(amount, 0, part, 0)

    def leave(self, job: Job) -> None:
        """A Job with a Lease will leave: ``soon`` gets its Shares back, and its image takes
        host memory there if enough is left."""
        image, left = self.image(job) or (None, 0)
        self._return(job, 1)
        if image is None or image.mib > left:
            return
        claim = tuple((amount, image.mib) for amount in self._hosting(image))
        for amount, mib in claim:
            self._move(amount, 0, -mib, -mib)
        self._images = {**self._images, job.id: claim}

    def stay(self, job: Job) -> None:
        """The inverse of ``leave``."""
        if job.id in self._images:
            for amount, mib in self._images[job.id]:
                self._move(amount, 0, mib, mib)
            self._images = {id_: it for id_, it in self._images.items() if id_ != job.id}
        self._return(job, -1)

    def image(self, job: Job) -> tuple[Image, int] | None:
        """What parking it would leave on its node, and how many MiB are left there for that
        when all who leave have left; ``None`` = nothing, or there is no cap. What is being
        parked already is booked."""
        image = None if job.state is State.STOPPING else coming(job, self._memory_mib)
        hosts = () if image is None else self._hosting(image)
        return (image, min(amount.soon for amount in hosts)) if image and hosts else None

    def _return(self, job: Job, soon: int) -> None:
        lease = lease_of(job)
        until, queue = lease.expires, job.queue
        self.shift(lease.placement, job.request, now=0, soon=soon, until=until, queue=queue)

    def holds(
        self, placement: Placement, request: Request | None, view: View, queue: str = ""
    ) -> bool:
        """True if all of the Placement is free in that view; ``None`` = the GPUs alone."""
        amounts = self.amounts(placement, request, queue)
        return all(amount.free(view) >= need for amount, need in amounts)

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
        trial, mark, parking = Trial(), len(self._log), self._images
        try:
            yield trial
        finally:
            if not trial.committed:
                self._images = parking
                while len(self._log) > mark:
                    amount, now, soon, then = self._log.pop()
                    amount.move(-now, -soon, -then)
                    self._note(amount)

    def open(self, view: View) -> list[int]:
        """The indexes of the rooms that have a part of a device free in that view: on a full
        cluster few, and no other can serve who wants GPUs."""
        frees = self.frees(view)
        answers = self.table(("open", view), lambda room: any(frees[room.index]))
        return [*compress(range(len(answers)), answers)]

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
        self, placement: Placement, request: Request | None, queue: str = ""
    ) -> Iterator[tuple[Amount, int]]:
        """What a Placement uses; nothing where the node or device is not usable now, but of a
        quota also there."""
        yield from self._amounts(placement, request)
        if self.quotas is not None:
            yield from self.quotas.amounts(placement, request, queue)

    def _amounts(
        self, placement: Placement, request: Request | None
    ) -> Iterator[tuple[Amount, int]]:
        for share in placement:
            room = self._nodes.get(share.node)
            place = None if room is None else room.layout.places.get(share.device)
            if room is not None and place is not None:
                device = room.devices[place]
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
        amount.move(now, soon, then)
        self._note(amount)
        self._log.append((amount, now, soon, then))

    def _note(self, amount: Amount) -> None:
        if amount.home != NOWHERE:
            self._moved.append(amount.home)


def lease_of(job: Job) -> Lease:
    """The Lease of a Job in a state that has one."""
    assert job.lease is not None, job
    return job.lease


def taken(job: Job) -> Taken:
    """What a Job has that is in a state with a Lease."""
    return lease_of(job).placement, job.request, job.queue


def leased(snapshot: Snapshot) -> list[Job]:
    """The Jobs that hold GPUs, by id."""
    found = [job for job in snapshot.jobs.values() if job.lease is not None]
    return sorted(found, key=lambda job: job.id)


def _room(node: Node, index: int, percent: int) -> NodeRoom:
    layout, most = node.layout, most_mib(node, percent)
    return NodeRoom(
        node=node,
        devices=tuple(
            [
                DeviceRoom(device, Amount(GPU_MILLI, index), Amount(device.memory_mib, index))
                for device in layout.devices
            ]
        ),
        cpu=Amount(node.cpu_milli, index) if node.cpu_milli else None,
        memory=Amount(node.host_memory_mib, index) if node.host_memory_mib else None,
        parked=None if most is None else Amount(most, index),
        index=index,
        layout=layout,
    )


def _settle(room: NodeRoom) -> None:
    """Check what was booked. A node may report less memory or fewer CPUs than it did when
    it granted them: it is full until those Leases end. Milli are ours alone."""
    for device in room.devices:
        assert device.milli.now >= 0, f"{device.device.uuid} is leased twice"
    memories = (device.memory for device in room.devices)
    for amount in (*memories, room.cpu, room.memory, room.parked):
        if amount is not None and amount.now < 0:
            amount.capacity -= amount.now
            amount.now = amount.soon = 0
