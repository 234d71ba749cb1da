# SPDX-License-Identifier: BSD-3-Clause
"""Which devices: shares packed, whole GPUs, gangs over nodes; deterministic.

Two rules choose among the devices that fit. *Best fit*: a share goes to the fullest
device that still takes it, whole GPUs to the node with the fewest free ones.
*Fragmentation* (the idea of FGD, Weng et al., ATC '23, on GPUs alone): where the least
of what stays free becomes useless to the Requests that wait and run now; best fit
breaks its ties. Last come the names of nodes and the indexes of devices.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .ledger import Column, DeviceRoom, Ledger, NodeRoom
from .model import (
    GPU_MILLI,
    LEASED,
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

SHAPES = 32
"""Shapes of the mix that fragmentation is judged by: the most frequent ones."""


class Shape(NamedTuple):
    """What a Request wants of one node."""

    gpus: int
    gpu_milli: int
    memory_mib: int
    flavors: tuple[str, ...]


class Free(NamedTuple):
    """What is free on one device, and of what kind it is."""

    milli: int
    memory_mib: int
    """Of the whole device."""
    flavor: str


@dataclass(frozen=True, slots=True)
class Packing:
    """What decides among the devices that fit, for one cycle."""

    at: Seconds
    rule: PlacementRule
    mix: tuple[tuple[Shape, int], ...] = ()
    """Shapes that wait or run, and how many of each."""
    promised: Mapping[JobId, Placement] = field(default_factory=dict)
    _lost: dict[tuple[Free, ...], int] = field(default_factory=dict, compare=False)

    @classmethod
    def of(cls, snapshot: Snapshot, policy: Policy) -> Packing:
        """The packing of a cycle."""
        mix = _mix(snapshot) if policy.placement is PlacementRule.FRAGMENTATION else ()
        return cls(snapshot.now, policy.placement, mix, snapshot.promised)

    def lost(self, frees: tuple[Free, ...]) -> int:
        """Free milli of a node that a Job of the mix could not use, summed over the mix."""
        known = self._lost.get(frees)
        if known is None:
            known = sum(count * _useless(frees, shape) for shape, count in self.mix)
            self._lost[frees] = known
        return known


def _mix(snapshot: Snapshot) -> tuple[tuple[Shape, int], ...]:
    counts: dict[Shape, int] = {}
    for job in snapshot.jobs.values():
        if job.state is State.QUEUED or job.state in LEASED:
            request = job.request
            shape = Shape(request.gpus, request.gpu_milli, request.memory_mib, request.flavors)
            counts[shape] = counts.get(shape, 0) + 1
    return tuple(sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:SHAPES])


def _useless(frees: tuple[Free, ...], shape: Shape) -> int:
    total = sum(free.milli for free in frees)
    fitting = [free for free in frees if not shape.flavors or free.flavor in shape.flavors]
    whole = sum(GPU_MILLI for free in fitting if free.milli == GPU_MILLI)
    if shape.gpus:
        return total - whole if whole >= shape.gpus * GPU_MILLI else total
    ask = Request(gpu_milli=shape.gpu_milli, memory_mib=shape.memory_mib)
    return total - sum(
        free.milli for free in fitting if free.milli >= ask.share_milli(free.memory_mib)
    )


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
    """(node, device) that it was promised."""

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
                (share.node, share.device) for share in packing.promised.get(job.id, ())
            ),
        )

    @property
    def plain(self) -> bool:
        """True if every other plain Ask of an equal Request fits in the same places."""
        return not (self.avoided or self.node or self.preferred)

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
    """True: not (only) the devices that were promised."""
    lost: int
    """What becomes useless there."""
    opened: int
    """What best fit looks at first: free milli of a share's device, else free GPUs."""
    free: int
    """Free milli of the node where shares are concerned."""
    node: str
    engine: str
    shares: tuple[Share, ...]


def fit(ledger: Ledger, job: Job, column: Column, packing: Packing) -> Placement | None:
    """Where the Job fits in that column, all nodes or none; ``None`` = nowhere.

    The nodes of a gang are distinct and of one engine, in the order of their names.
    """
    ask = Ask.of(job, packing)
    spots = (spot(room, ask, column, packing) for room in ledger.rooms)
    return gang((found for found in spots if found is not None), job.request.nodes)


def gang(spots: Iterable[Spot], nodes: int) -> Placement | None:
    """The best so many spots of one engine."""
    chosen: dict[str, list[Spot]] = {}
    for found in sorted(spots):
        parts = chosen.setdefault(found.engine, [])
        parts.append(found)
        if len(parts) == nodes:
            parts.sort(key=lambda part: part.node)
            return tuple(share for part in parts for share in part.shares)
    return None


def spot(room: NodeRoom, ask: Ask, column: Column, packing: Packing) -> Spot | None:
    """The best place on one node; ``None`` if it does not fit there."""
    request = ask.request
    if not ask.allows(room.node) or not room.hosts(request, column):
        return None
    rooms: Sequence[DeviceRoom] = room.devices
    if request.flavors:
        rooms = [device for device in rooms if ask.wants(device.device)]
    if len(rooms) < request.gpus:
        return None
    shared = _share(room, rooms, ask, column, packing) if request.shared else None
    if request.shared and shared is None:
        return None
    free = [
        device
        for device in rooms
        if device is not shared and device.milli.free(column) == GPU_MILLI
    ]
    if len(free) < request.gpus:
        return None
    free.sort(key=lambda device: _far(room, device, ask))
    chosen = free[: request.gpus] if shared is None else [shared, *free[: request.gpus]]
    uuids = [device.device.uuid for device in chosen]
    if any(uuid not in uuids for uuid in ask.pinned):
        return None
    only_share = shared is not None and not request.gpus
    return Spot(
        elsewhere=bool(ask.preferred) and any(_far(room, device, ask) == _ANY for device in chosen),
        lost=_loses(room, chosen, request, column, packing),
        opened=shared.milli.free(column) if shared is not None and only_share else len(free),
        free=room.milli(column) if only_share else 0,
        node=room.node.name,
        engine=room.node.engine,
        shares=tuple(
            _cut(room.node, device.device, request if device is shared else None)
            for device in chosen
        ),
    )


_PINNED, _PROMISED, _ANY = range(3)


def _far(room: NodeRoom, device: DeviceRoom, ask: Ask) -> int:
    """Which devices a Job takes first."""
    uuid = device.device.uuid
    if uuid in ask.pinned:
        return _PINNED
    return _PROMISED if (room.node.name, uuid) in ask.preferred else _ANY


def _share(
    room: NodeRoom, rooms: Sequence[DeviceRoom], ask: Ask, column: Column, packing: Packing
) -> DeviceRoom | None:
    """The device for the share part of a Request."""
    request = ask.request

    def fits(device: DeviceRoom) -> bool:
        milli = request.share_milli(device.device.memory_mib)
        memory = _share_memory(device.device, request)
        return milli <= device.milli.free(column) and memory <= device.memory.free(column)

    def rank(device: DeviceRoom) -> tuple[int, int, int]:
        lost = _loses(room, [device], request, column, packing) if not request.gpus else 0
        return _far(room, device, ask), lost, device.milli.free(column)

    return min(filter(fits, rooms), key=rank, default=None)


def _loses(
    room: NodeRoom,
    chosen: list[DeviceRoom],
    request: Request,
    column: Column,
    packing: Packing,
) -> int:
    """How much more of the node becomes useless to the mix if these devices are used."""
    if not packing.mix:
        return 0
    frees = [
        Free(device.milli.free(column), device.device.memory_mib, device.device.flavor)
        for device in room.devices
    ]
    after = list(frees)
    for index, device in enumerate(room.devices):
        if device in chosen:
            shared = request.shared and device is chosen[0]
            milli = request.share_milli(device.device.memory_mib) if shared else GPU_MILLI
            after[index] = after[index]._replace(milli=after[index].milli - milli)
    return packing.lost(tuple(sorted(after))) - packing.lost(tuple(sorted(frees)))


def _cut(node: Node, device: Device, request: Request | None) -> Share:
    """The Share: all of the device, or the share part of a Request."""
    if request is None:
        return Share(node.name, device.uuid, GPU_MILLI, device.memory_mib)
    milli = request.share_milli(device.memory_mib)
    return Share(node.name, device.uuid, milli, _share_memory(device, request))


def _share_memory(device: Device, request: Request) -> int:
    """MiB: what was asked for, or the part that goes with the milli."""
    milli = request.share_milli(device.memory_mib)
    return request.memory_mib or device.memory_mib * milli // GPU_MILLI
