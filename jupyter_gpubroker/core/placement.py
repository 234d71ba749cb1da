# SPDX-License-Identifier: BSD-3-Clause
"""Which devices: shares packed, whole GPUs, gangs over nodes; deterministic.

Two rules choose among the devices that fit. *Best fit*: a share goes to the fullest
device that still takes it, whole GPUs to the node with the fewest free ones.
*Fragmentation*: where the least of what stays free is lost to the Requests that wait and
run now (see ``fragmentation``); best fit breaks its ties. Before both, GPUs of as few
islands of a node as possible (NVLink, NUMA); within a node, and where all else is equal, of
islands with the fewest free ones. Last come the names of nodes and the indexes of devices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .fragmentation import Free, Mix, Shape, market, mix
from .ledger import DeviceRoom, Ledger, NodeRoom, View
from .model import (
    GPU_MILLI,
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
    serves,
)

Frees = tuple[int, ...]
"""Free milli of the devices of a node."""
Chosen = tuple[int, ...]
"""Indexes of devices of a node; that of a share comes first."""


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
            requests = snapshot.requests
            if requests is None:
                requests = requests_of(snapshot.jobs.values())
            for request, number in requests.items():
                shape = Shape.of(request)
                counts[shape] = counts.get(shape, 0) + number * request.nodes
            known = mix(counts)
        reserved = {
            job.id: job.reserved.placement for job in snapshot.jobs.values() if job.reserved
        }
        return cls(snapshot.now, policy.placement, known, reserved)


def requests_of(jobs: Iterable[Job]) -> Mapping[Request, int]:
    """See ``Snapshot.requests``."""
    found: dict[Request, int] = {}
    for job in jobs:
        if job.state is State.QUEUED or job.lease is not None:
            found[job.request] = found.get(job.request, 0) + 1
    return found


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
        """True if the device is of a kind that serves it."""
        return serves(self.request, device)


class Spot(NamedTuple):
    """A place for one node's part of a Request; the smallest is the best."""

    elsewhere: bool
    """True: not (only) the devices that are reserved for it."""
    islands: int
    """On how many of its node it is."""
    worthless: int
    """By how much a share's device is worth less to others (``Market.worthless``)."""
    lost: int
    """What the node loses beside that (``Market.grains``)."""
    opened: int
    """What best fit looks at first for a share: free milli of its device."""
    around: int
    """What is free of its islands: whole GPUs by best fit if such are wanted, else milli."""
    free: int
    """The same of the node."""
    node: str
    engine: str
    chosen: tuple[DeviceRoom, ...]
    """The device of a share comes first."""


def fit(ledger: Ledger, job: Job, view: View, packing: Packing) -> Placement | None:
    """Where the Job fits in that view, all nodes or none; ``None`` = nowhere, or not within the
    quota of its queue.

    The nodes of a gang are distinct and of one engine, in the order of their names.
    """
    ask, quotas = Ask.of(job, packing), ledger.quotas
    for request in (job.request,) if quotas is None else quotas.wishes(job, view):
        wish = ask if request is job.request else replace(ask, request=request)
        found = _fit(ledger, wish, view, packing)
        if found is not None:
            return found
    return None


def _fit(ledger: Ledger, ask: Ask, view: View, packing: Packing) -> Placement | None:
    look = Look(ask, view, packing)
    frees = ledger.frees(view)
    wants_gpus = ask.request.gpus or ask.request.shared
    answers = ledger.table(
        (view, packing.rule, packing.mix, look.shape, ask.request.host_memory_mib),
        lambda room: look.search(room, frees[room.index], plain=True),
        ledger.open(view) if wants_gpus else None,
    )
    if not look.ask.plain:
        named = dict.fromkeys([look.ask.node, *(name for name, _ in look.ask.preferred)])
        answers = [
            look.among(room, found) if found is not None or room.node.name in named else None
            for room, found in zip(ledger.rooms, answers, strict=True)
        ]
    return gang([found for found in answers if found is not None], ask.request)


def gang(spots: Sequence[Spot], request: Request) -> Placement | None:
    """The best so many spots of one engine."""
    if request.nodes == 1:
        return _shares(min(spots), request) if spots else None
    chosen: dict[str, list[Spot]] = {}
    for found in sorted(spots):
        parts = chosen.setdefault(found.engine, [])
        parts.append(found)
        if len(parts) == request.nodes:
            parts.sort(key=lambda part: part.node)
            return tuple(share for part in parts for share in _shares(part, request))
    return None


def _shares(found: Spot, request: Request) -> Placement:
    return cut(found.node, [room.device for room in found.chosen], request)


def cut(node: str, devices: Sequence[Device], request: Request) -> Placement:
    """The Shares of these devices of a node, of which that of a share comes first."""
    if not devices:
        return (Share(node, "", 0),)
    whole = len(devices) - request.gpus
    return tuple(
        _cut(node, device, request if index < whole else None)
        for index, device in enumerate(devices)
    )


class _Here(NamedTuple):
    """One node, as an Ask sees it."""

    room: NodeRoom
    frees: Frees
    wanted: Sequence[int]
    """The indexes of the devices that serve it."""
    fars: Sequence[int]
    """Which devices it takes first."""

    def has(self, chosen: Chosen, uuids: Sequence[str]) -> bool:
        """True if these devices are among them."""
        return all(
            any(self.room.devices[index].device.uuid == uuid for index in chosen) for uuid in uuids
        )

    def far(self, chosen: Chosen) -> bool:
        """True if some of them are like any other."""
        return any(self.fars[index] == _ANY for index in chosen)

    def islands(self, chosen: Chosen) -> Sequence[int]:
        """Each once."""
        return list(dict.fromkeys([self.room.layout.islands[index] for index in chosen]))


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
        wanted: Sequence[int] = range(len(frees))
        if request.flavors or room.layout.gpus < len(frees):
            wanted = [index for index in wanted if self.ask.wants(room.devices[index].device)]
        fars = (
            [_ANY] * len(frees) if plain else [self._far(room, device) for device in room.devices]
        )
        here = _Here(room, frees, wanted, fars)
        chosen = self._choose(here, () if plain else self.ask.pinned)
        return None if chosen is None else self._spot(here, chosen)

    def _choose(self, here: _Here, pinned: Sequence[str]) -> Chosen | None:
        """The best devices, that of the share first; ``None`` = it does not fit."""
        shares = self._shares(here) if self._request.shared else ((),)
        tries = (self._wholes(here, share) for share in shares)
        found = (each for each in tries if each is not None and here.has(each, pinned))
        if len(here.room.layout.kinds) == 1:
            return next(found, None)
        return min(found, key=lambda each: (here.far(each), len(here.islands(each))), default=None)

    def _wholes(self, here: _Here, share: Chosen) -> Chosen | None:
        """Whole GPUs beside that device of a share."""
        gpus = self._request.gpus
        if not gpus:
            return share
        free = [i for i in here.wanted if here.frees[i] == GPU_MILLI and i not in share]
        if len(free) < gpus:
            return None
        free.sort(key=here.fars.__getitem__)
        if len(here.room.layout.kinds) == 1:
            return (*share, *free[:gpus])
        chosen = (*share, *[i for i in free if here.fars[i] != _ANY][:gpus])
        while len(chosen) < gpus + len(share):
            left = [index for index in free if index not in chosen]
            chosen += self._near(here, chosen, left)[: gpus + len(share) - len(chosen)]
        return chosen

    def _near(self, here: _Here, chosen: Chosen, left: Sequence[int]) -> Chosen:
        """What is left of the island that is best beside the chosen ones: one that is used
        already; then the fullest that suffices, by the rule; then the emptiest."""
        rest = self._request.gpus + self._request.shared - len(chosen)
        used = here.islands(chosen)
        islands: dict[int, Chosen] = {}
        for index in left:
            island = here.room.layout.islands[index]
            islands[island] = (*islands.get(island, ()), index)

        def rank(island: int) -> tuple[bool, bool, int, int, int]:
            those = islands[island]
            if len(those) < rest:
                return island not in used, True, 0, -len(those), island
            lost = self._lost(here, (*chosen, *those[:rest]))
            return island not in used, False, lost, len(those), island

        return islands[min(islands, key=rank)]

    def _shares(self, here: _Here) -> Sequence[Chosen]:
        """Each device that may be that of the share, the best first."""
        request, view = self._request, self._view
        alike: dict[tuple[int, int, Brand, int], int] = {}
        for index in here.wanted:
            room, free = here.room.devices[index], here.frees[index]
            milli = request.share_milli(room.device.memory_mib)
            if milli <= free and _share_memory(room.device, request) <= room.memory.free(view):
                # Of devices of which as much is free the first one stands for all.
                key = here.fars[index], here.room.layout.islands[index], room.device.brand, free
                alike.setdefault(key, index)
        if len(alike) < 2:
            return [(index,) for index in alike.values()]

        def rank(key: tuple[int, int, Brand, int]) -> tuple[int, ...]:
            far, island, brand, free = key
            lost = 0 if request.gpus else self._lost(here, (alike[key],))
            around = self._free(here, [island])
            return far, self._worthless(brand, free), lost, free, around, alike[key]

        return [(alike[key],) for key in sorted(alike, key=rank)]

    def _spot(self, here: _Here, chosen: Chosen) -> Spot:
        request, room, islands = self._request, here.room, here.islands(chosen)
        worthless = opened = 0
        if request.shared:
            first = here.frees[chosen[0]]
            worthless = self._worthless(room.devices[chosen[0]].device.brand, first)
            opened = first if self._market is None and not request.gpus else 0
        return Spot(
            elsewhere=bool(self.ask.preferred) and here.far(chosen),
            islands=len(islands),
            worthless=worthless,
            lost=self._lost(here, chosen),
            opened=opened,
            around=self._free(here, islands),
            free=self._free(here, range(len(room.layout.kinds))),
            node=room.node.name,
            engine=room.node.engine,
            chosen=tuple([room.devices[index] for index in chosen]),
        )

    def _free(self, here: _Here, islands: Collection[int]) -> int:
        """What is free of these islands, in the unit of ``Spot.around``."""
        frees = here.frees
        if len(islands) < len(here.room.layout.kinds):
            of = here.room.layout.islands
            frees = tuple([free for index, free in enumerate(frees) if of[index] in islands])
        if self._request.gpus and self._market is None:
            return frees.count(GPU_MILLI)
        return sum(frees)

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

    def _lost(self, here: _Here, chosen: Chosen) -> int:
        """How much more of the node is lost to others if these devices are used."""
        if self._market is None:
            return 0
        request, room, frees = self._request, here.room, here.frees
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
        [
            tuple([(brand, tuple(sorted([frees[i] for i in those]))) for brand, those in kinds])
            for kinds in room.layout.kinds
        ]
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
