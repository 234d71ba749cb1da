# SPDX-License-Identifier: BSD-3-Clause
"""Placement rules as others published them, to calibrate B1: best fit and FGD.

They score nodes as the paper's simulator does, equal scores by the smallest name. Neither
is a rule of the product.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp

from ...core.fragmentation import Shape
from ...core.ledger import NOW, DeviceRoom, Ledger, NodeRoom
from ...core.model import GPU_MILLI, Job, Node, Placement, Request
from ...core.placement import cut

Score = Callable[[NodeRoom, Request, tuple[DeviceRoom, ...]], int]
"""What it costs to use these devices of a node; the smallest is the best."""


def best_fit(nodes: Iterable[Node]) -> Callable[[Ledger, Job], Placement | None]:
    """The least CPU and GPU left on the node, each in parts of the most that a node has."""
    sizes = [(node.cpu_milli, GPU_MILLI * len(node.devices)) for node in nodes]
    most_cpu, most_gpu = max(cpu for cpu, _ in sizes), max(milli for _, milli in sizes)

    def score(room: NodeRoom, request: Request, chosen: tuple[DeviceRoom, ...]) -> int:
        left = room.milli(NOW) - request.gpus * GPU_MILLI - request.gpu_milli
        return (_cpu(room) - request.cpu_milli) * most_gpu + left * most_cpu

    return _chooser("best-fit", score, fullest=True)


def fgd(counts: Mapping[Shape, int], popular: int) -> Callable[[Ledger, Job], Placement | None]:
    """The least growth of the GPUs that a next pod of the mix could not use: the most
    popular shapes, up to so many per cent of the pods."""
    total, seen = sum(counts.values()), 0
    chosen = []
    for shape, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if 100 * seen >= popular * total:
            break
        chosen.append((shape, count))
        seen += count
    return _chooser("fgd", _Fragments(tuple(chosen)).score, fullest=False)


@dataclass(slots=True)
class _Fragments:
    mix: Sequence[tuple[Shape, int]]
    _uses: dict[tuple[str, tuple[int, ...]], list[tuple[int, int, int]]] = field(
        default_factory=dict
    )

    def score(self, room: NodeRoom, request: Request, chosen: tuple[DeviceRoom, ...]) -> int:
        """The published scale: whole per cent of a sigmoid of the growth in GPUs."""
        flavor = room.devices[0].device.flavor if room.devices else ""
        frees = [device.milli.free(NOW) for device in room.devices]
        before = self._lost(flavor, frees, _cpu(room))
        for index, device in enumerate(room.devices):
            if device in chosen:
                frees[index] -= request.gpu_milli or GPU_MILLI
        after = self._lost(flavor, frees, _cpu(room) - request.cpu_milli)
        return -int(100 / (1 + exp((after - before) / GPU_MILLI)))

    def _lost(self, flavor: str, frees: Sequence[int], cpu: int) -> float:
        key = tuple(sorted(frees))
        uses = self._uses.get((flavor, key))
        if uses is None:
            uses = self._uses[flavor, key] = [
                (count, _usable(shape, key), shape.cpu_milli)
                for shape, count in self.mix
                if not shape.flavors or flavor in shape.flavors
            ]
        used = sum(count * usable for count, usable, need in uses if cpu >= need)
        return sum(key) - used / sum(count for _, count in self.mix)


def _usable(shape: Shape, frees: Sequence[int]) -> int:
    least = shape.gpu_milli or GPU_MILLI
    fitting = [free for free in frees if free >= least]
    wants = bool(shape.gpus or shape.gpu_milli)
    return sum(fitting) if wants and len(fitting) >= max(shape.gpus, 1) else 0


def _chooser(
    name: Hashable, score: Score, *, fullest: bool
) -> Callable[[Ledger, Job], Placement | None]:
    def choose(ledger: Ledger, job: Job) -> Placement | None:
        request = job.request
        question = name, Shape.of(request), request.host_memory_mib
        answers = ledger.table(question, lambda room: _best(room, request, score, fullest))
        known = [found for found in answers if found is not None]
        if not known:
            return None
        _, room, chosen = min(known, key=lambda found: found[0])
        return cut(room.node.name, [each.device for each in chosen], request)

    return choose


def _best(
    room: NodeRoom, request: Request, score: Score, fullest: bool
) -> tuple[int, NodeRoom, tuple[DeviceRoom, ...]] | None:
    if not room.hosts(request, NOW):
        return None
    scored = [(score(room, request, way), room, way) for way in _ways(room, request, fullest)]
    return min(scored, key=lambda found: found[0], default=None)


def _ways(room: NodeRoom, request: Request, fullest: bool) -> Iterator[tuple[DeviceRoom, ...]]:
    """The devices that may be used: of equal ones the first, of shares the fullest alone
    if that is the rule."""
    rooms = [
        device
        for device in room.devices
        if not request.flavors or device.device.flavor in request.flavors
    ]
    if not request.gpu_milli:
        free = [device for device in rooms if device.milli.free(NOW) == GPU_MILLI]
        if len(free) >= request.gpus and (rooms or not request.flavors):
            yield tuple(free[: request.gpus])
        return
    alike: dict[int, DeviceRoom] = {}
    for device in rooms:
        if device.milli.free(NOW) >= request.gpu_milli:
            alike.setdefault(device.milli.free(NOW), device)
    if alike and fullest:
        yield (alike[min(alike)],)
    elif alike:
        yield from ((device,) for device in alike.values())


def _cpu(room: NodeRoom) -> int:
    return room.cpu.free(NOW) if room.cpu is not None else 0
