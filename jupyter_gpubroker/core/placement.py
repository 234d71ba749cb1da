# SPDX-License-Identifier: BSD-3-Clause
"""Which devices: shares packed, whole GPUs, gangs over nodes; deterministic.

Two rules choose among the devices that fit. *Best fit*: a share goes to the fullest
device that still takes it, whole GPUs to the node with the fewest free ones.
*Fragmentation*: where the least of what stays free is lost to the Requests that wait and
run now (see ``fragmentation``); best fit breaks its ties. Last come the names of nodes
and the indexes of devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .fragmentation import Free, Mix, Shape, market, mix
from .ledger import DeviceRoom, Ledger, NodeRoom, View
from .model import (
    GPU_MILLI,
    LEASED,
    Brand,
    Device,
    Job,
    JobId,
    Node,
    Placement,
    PlacementRule,
    Policy,
    Request,
    Rung,
    Seconds,
    Share,
    Snapshot,
    State,
)

Frees = tuple[int, ...]
"""Free milli of the devices of a node."""


@dataclass(frozen=True, slots=True)
class Packing:
    """What decides among the devices that fit, for one cycle."""

    at: Seconds
    rule: PlacementRule
    mix: Mix = ()
    """Shapes that wait or run, and how frequent they are."""
    reserved: Mapping[JobId, Placement] = field(default_factory=dict)
    """What is reserved for Jobs: they keep it while nothing is better."""

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy) -> Packing:
        """The packing of a cycle."""
        known: Mix = ()
        if policy.placement is PlacementRule.FRAGMENTATION:
            counts: dict[Shape, int] = {}
            for job in snapshot.jobs.values():
                if job.state is State.QUEUED or job.state in LEASED:
                    shape = Shape.of(job.request)
                    counts[shape] = counts.get(shape, 0) + job.request.nodes
            known = mix(counts)
        reserved = {
            job.id: job.reserved.placement for job in snapshot.jobs.values() if job.reserved
        }
        return cls(snapshot.now, policy.placement, known, reserved)


@dataclass(frozen=True, slots=True)
class Ask:
    """What one Job wants, and where it may have it."""

    request: Request
    avoided: tuple[str, ...]
    """Nodes that refused a start lately."""
    node: str
    """Where its parked GPU state lies; empty = nothing is parked on a GPU's host."""
    boot: str
    pinned: tuple[str, ...]
    """Devices that its parked GPU state needs."""
    preferred: tuple[tuple[str, str], ...]
    """(node, device) reserved for it."""

    @classmethod
    def of(cls, job: Job, packing: Packing) -> Ask:
        """What the Job asks for at the time of the packing."""
        states = [kept for kept in job.kept if kept.rung is Rung.GPU_STATE]
        devices = dict.fromkeys(device for kept in states for device in kept.devices)
        return cls(
            request=job.request,
            avoided=tuple(node for node, until in job.avoid if until > packing.at),
            node=states[0].node if states else "",
            boot=states[0].boot if states else "",
            pinned=tuple(devices),
            preferred=tuple(
                (share.node, share.device) for share in packing.reserved.get(job.id, ())
            ),
        )

    @property
    def plain(self) -> bool:
        """True if every other plain Ask of an equal Request fits in the same places."""
        return not (self.avoided or self.node or self.preferred)

    def names(self, node: str) -> bool:
        """True if some devices of the node are not like others to it."""
        return bool(self.node) or any(node == name for name, _ in self.preferred)

    def allows(self, node: Node) -> bool:
        """True if the node may serve it at all."""
        if self.node and (node.name, node.boot) != (self.node, self.boot):
            return False
        return node.name not in self.avoided

    def wants(self, device: Device) -> bool:
        """True if the device is of a flavor that serves it."""
        return not self.request.flavors or device.flavor in self.request.flavors


class Spot(NamedTuple):
    """A place for one node's part of a Request; the smallest is the best."""

    elsewhere: bool
    """True: not (only) the devices that are reserved for it."""
    worthless: int
    """By how much a share's device is worth less to others (``Market.worthless``)."""
    lost: int
    """What the node loses beside that (``Market.grains``)."""
    opened: int
    """What best fit looks at first: free milli of a share's device, else free GPUs."""
    free: int
    """Free milli of the node where no whole GPUs are wanted."""
    node: str
    engine: str
    chosen: tuple[DeviceRoom, ...]
    """The device of a share comes first."""


def fit(ledger: Ledger, job: Job, view: View, packing: Packing) -> Placement | None:
    """Where the Job fits in that view, all nodes or none; ``None`` = nowhere.

    The nodes of a gang are distinct and of one engine, in the order of their names.
    """
    look = Look(Ask.of(job, packing), view, packing)
    frees = ledger.table(view, lambda room: room.frees(view))
    question = view, packing.rule, packing.mix, look.shape, job.request.host_memory_mib
    answers = ledger.table(question, lambda room: look.search(room, frees[room.index], plain=True))
    if not look.ask.plain:
        answers = [look.among(room, answers[room.index]) for room in ledger.rooms]
    return gang([found for found in answers if found is not None], job.request)


def gang(spots: Sequence[Spot], request: Request) -> Placement | None:
    """The best so many spots of one engine."""
    if request.nodes == 1:
        return cut(min(spots), request) if spots else None
    chosen: dict[str, list[Spot]] = {}
    for found in sorted(spots):
        parts = chosen.setdefault(found.engine, [])
        parts.append(found)
        if len(parts) == request.nodes:
            parts.sort(key=lambda part: part.node)
            return tuple(share for part in parts for share in cut(part, request))
    return None


def cut(found: Spot, request: Request) -> Placement:
    """The Shares of a Spot."""
    if not found.chosen:
        return (Share(found.node, "", 0),)
    whole = len(found.chosen) - request.gpus
    return tuple(
        _cut(found.node, room.device, request if index < whole else None)
        for index, room in enumerate(found.chosen)
    )


class Look:
    """A look at rooms for one Ask."""

    def __init__(self, ask: Ask, view: View, packing: Packing) -> None:
        self.ask = ask
        self.shape = Shape.of(ask.request)
        self._request = ask.request
        self._view = view
        self._market = market(packing.mix) if packing.mix else None

    def at(self, room: NodeRoom) -> Spot | None:
        """The best place on one node; ``None`` if it does not fit there."""
        if not self.ask.allows(room.node):
            return None
        return self.search(room, room.frees(self._view), plain=self.ask.plain)

    def among(self, room: NodeRoom, plain: Spot | None) -> Spot | None:
        """The same, if that place is known which a plain Ask would get."""
        if not self.ask.allows(room.node):
            return None
        if self.ask.names(room.node.name):
            return self.search(room, room.frees(self._view), plain=False)
        return plain._replace(elsewhere=True) if plain is not None and self.ask.preferred else plain

    def search(self, room: NodeRoom, frees: Frees, *, plain: bool) -> Spot | None:
        """The best place among what is free of the devices; ``plain`` as if no node was
        named by the Ask."""
        request = self._request
        whole = frees.count(GPU_MILLI) if request.gpus else 0
        if request.gpus > whole or (request.shared and not any(frees)):
            return None
        if not room.hosts(request, self._view):
            return None
        fars = None if plain else [self._far(room, device) for device in room.devices]
        wanted: Sequence[int] = range(len(frees))
        if request.flavors:
            wanted = [index for index in wanted if self.ask.wants(room.devices[index].device)]
        chosen = self._choose(room, frees, wanted, fars)
        return None if chosen is None else self._spot(room, frees, chosen, fars)

    def _choose(
        self, room: NodeRoom, frees: Frees, wanted: Sequence[int], fars: Sequence[int] | None
    ) -> tuple[int, ...] | None:
        """The indexes of the devices, that of the share first; ``None`` = it does not fit."""
        gpus = self._request.gpus
        chosen: tuple[int, ...] = ()
        if self._request.shared:
            chosen = self._share(room, frees, wanted, fars)
            if not chosen:
                return None
        if gpus:
            free = [i for i in wanted if frees[i] == GPU_MILLI and i not in chosen]
            if len(free) < gpus:
                return None
            if fars is not None:
                free.sort(key=fars.__getitem__)
            chosen = (*chosen, *free[:gpus])
        pinned = self.ask.pinned if fars is not None else ()
        uuids = [room.devices[index].device.uuid for index in chosen] if pinned else []
        return None if any(uuid not in uuids for uuid in pinned) else chosen

    def _share(
        self, room: NodeRoom, frees: Frees, wanted: Sequence[int], fars: Sequence[int] | None
    ) -> tuple[int, ...]:
        """The index of the device for the share part of a Request; empty = there is none."""
        request, view = self._request, self._view
        alike: dict[tuple[int, Brand, int], int] = {}
        for index in wanted:
            room_, free = room.devices[index], frees[index]
            milli = request.share_milli(room_.device.memory_mib)
            if milli <= free and _share_memory(room_.device, request) <= room_.memory.free(view):
                # Of devices of which as much is free the first one stands for all.
                far = fars[index] if fars is not None else _ANY
                alike.setdefault((free, room_.device.brand, far), index)

        def rank(item: tuple[tuple[int, Brand, int], int]) -> tuple[int, int, int, int, int]:
            (free, brand, far), index = item
            lost = 0 if request.gpus else self._lost(room, frees, (index,))
            return far, self._worthless(brand, free), lost, free, index

        if len(alike) < 2:
            return tuple(alike.values())
        return (min(alike.items(), key=rank)[1],)

    def _spot(
        self, room: NodeRoom, frees: Frees, chosen: tuple[int, ...], fars: Sequence[int] | None
    ) -> Spot:
        request = self._request
        far = fars is not None and any(fars[index] == _ANY for index in chosen)
        worthless = opened = 0
        if request.shared:
            worthless = self._worthless(room.devices[chosen[0]].device.brand, frees[chosen[0]])
        if self._market is None:
            opened = frees.count(GPU_MILLI) if request.gpus else frees[chosen[0]] if chosen else 0
        return Spot(
            elsewhere=far and bool(self.ask.preferred),
            worthless=worthless,
            lost=self._lost(room, frees, chosen),
            opened=opened,
            free=0 if request.gpus and self._market is None else sum(frees),
            node=room.node.name,
            engine=room.node.engine,
            chosen=tuple([room.devices[index] for index in chosen]),
        )

    def _far(self, room: NodeRoom, device: DeviceRoom) -> int:
        """Which devices a Job takes first."""
        uuid = device.device.uuid
        if uuid in self.ask.pinned:
            return _PINNED
        return _RESERVED if (room.node.name, uuid) in self.ask.preferred else _ANY

    def _worthless(self, brand: Brand, free: int) -> int:
        """By how much such a device is worth less to others when the share is taken."""
        if self._market is None:
            return 0
        return self._market.worthless(brand, free, self._request.share_milli(brand.memory_mib))

    def _lost(self, room: NodeRoom, frees: Frees, chosen: Sequence[int]) -> int:
        """How much more of the node is lost to others if these devices are used."""
        if self._market is None:
            return 0
        request = self._request
        after = list(frees)
        for place, index in enumerate(chosen):
            shared = request.shared and not place
            memory = room.devices[index].device.memory_mib
            after[index] -= request.share_milli(memory) if shared else GPU_MILLI
        cpu = room.cpu.free(self._view) if room.cpu is not None else None
        left = None if cpu is None else cpu - request.cpu_milli
        before = self._market.lost(cpu, _by_brand(room, frees))
        return self._market.grains(self._market.lost(left, _by_brand(room, after)) - before)


def _by_brand(room: NodeRoom, frees: Sequence[int]) -> Free:
    return tuple(
        [(brand, tuple(sorted([frees[index] for index in those]))) for brand, those in room.brands]
    )


_PINNED, _RESERVED, _ANY = range(3)


def _cut(node: str, device: Device, request: Request | None) -> Share:
    """The Share: all of the device, or the share part of a Request."""
    if request is None:
        return Share(node, device.uuid, GPU_MILLI, device.memory_mib)
    milli = request.share_milli(device.memory_mib)
    return Share(node, device.uuid, milli, _share_memory(device, request))


def _share_memory(device: Device, request: Request) -> int:
    """MiB: what was asked for, or the part that goes with the milli."""
    milli = request.share_milli(device.memory_mib)
    return request.memory_mib or device.memory_mib * milli // GPU_MILLI
