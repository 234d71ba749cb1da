# SPDX-License-Identifier: BSD-3-Clause
"""What is lost when a part of a node is used: the score of the rule *fragmentation*.

Two losses, both judged by the Mix of what waits and runs:

- *worth* of a share's device. The least number of GPUs that serve all shares of the Mix
  is a cutting-stock problem (Gilmore and Gomory, 1961); its duals price each share in
  GPUs, and what is left of a device is worth the best shares that still fit there.
- *lost* of the node: if one Shape of the Mix were all that came, so much of what is free
  could never be used, for it is too little for one more, or the node's CPUs are gone
  before its GPUs. Weighted over the Mix. (FGD, Weng et al., ATC '23, asks the same for
  one more Job; to fill the node instead is what keeps CPUs beside the last GPUs.)

Everything here depends on the Mix alone; ``market`` remembers what it computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from .model import GPU_MILLI, Brand, Request, serves

POPULAR = 95
"""Per cent of the Jobs whose Shapes make the Mix, the most frequent first."""
SHAPES = 64
"""Shapes of a Mix at most."""
GRAIN = 125
"""Milli. Losses of a node that differ by less than about an eighth of a GPU count as
equal: the fuller node then matters more."""
STEP = 10
"""Milli: shares are priced in these."""
STEPS = GPU_MILLI // STEP
PIVOTS = 200
"""Steps of the search for prices; it ends long before with the shares that people ask for."""
REMEMBERED = 50_000
"""States of a node whose loss a Market remembers."""


class Shape(NamedTuple):
    """What a Request wants of one node, as far as it decides what is lost."""

    gpus: int
    gpu_milli: int
    memory_mib: int
    cpu_milli: int
    flavors: tuple[str, ...]

    @classmethod
    def of(cls, request: Request) -> Shape:
        """The shape of one node's part of a Request."""
        return cls(
            request.gpus,
            request.gpu_milli,
            request.memory_mib,
            request.cpu_milli,
            request.flavors,
        )

    def share_milli(self, device_memory_mib: int) -> int:
        """The share part on a device of that memory; 0 = it wants none."""
        if not self.memory_mib:
            return self.gpu_milli
        return Request(memory_mib=self.memory_mib).share_milli(device_memory_mib)


Free = tuple[tuple[tuple[Brand, tuple[int, ...]], ...], ...]
"""For each island of a node the free milli of its devices, the least first, by Brand."""
Mix = tuple[tuple[Shape, int], ...]
"""Shapes and how frequent they are."""


def mix(counts: Mapping[Shape, int]) -> Mix:
    """The most frequent Shapes that want GPUs, with their first three binary digits, so that
    in a long queue a Job that comes or goes seldom makes another Mix."""
    total, seen = sum(counts.values()), 0
    chosen: list[tuple[Shape, int]] = []
    for shape, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if 100 * seen >= POPULAR * total or len(chosen) == SHAPES:
            break
        seen += count
        if shape.gpus or shape.gpu_milli or shape.memory_mib:
            digits = max(count.bit_length() - 3, 0)
            chosen.append((shape, count >> digits << digits))
    return tuple(chosen)


@lru_cache(maxsize=4)
def market(mix: Mix) -> Market:
    """The Market of a Mix; made once for each of the last few."""
    return Market(mix)


class _Use(NamedTuple):
    """What one Shape could use of free devices if it were all that came."""

    weight: int
    milli: int
    one_cpu_milli: int
    """What the first one needs; less, and nothing can be used."""
    all_cpu_milli: int
    """What all need; less, and so much less can be used."""


class Market:
    """The losses by one Mix."""

    def __init__(self, mix: Mix) -> None:
        self._mix = mix
        self._weight = sum(weight for _, weight in mix)
        self._worth: dict[Brand, tuple[float, ...]] = {}
        self._lost: dict[tuple[int | None, Free], int] = {}
        self._uses: dict[Free, tuple[int, tuple[_Use, ...]]] = {}

    def lost(self, cpu_milli: int | None, free: Free) -> int:
        """Milli of a node that would be lost, summed over the Mix (see ``grains``), if so
        much CPU (``None`` = not limited) and these devices are free."""
        known = self._lost.get((cpu_milli, free))
        if known is None:
            if len(self._lost) >= REMEMBERED:
                self._lost.clear()
                self._uses.clear()
            known = self._lost[cpu_milli, free] = self._sum(cpu_milli, free)
        return known

    def _sum(self, cpu_milli: int | None, free: Free) -> int:
        if free not in self._uses:
            self._uses[free] = self._use(free)
        total, uses = self._uses[free]
        used = 0
        for weight, milli, one, all_ in uses:
            if cpu_milli is None or cpu_milli >= all_:
                used += weight * milli
            elif cpu_milli >= one:
                used += weight * milli * cpu_milli // all_
        return self._weight * total - used

    def grains(self, lost: int) -> int:
        """A difference of ``lost`` as so many eighths of a GPU of the average Shape."""
        return round(lost / (self._weight * GRAIN)) if self._weight else 0

    def worthless(self, brand: Brand, milli: int, share: int) -> int:
        """Hundredths of a GPU by which a device of so much free milli is worth less to
        shares of the Mix when a share of it is taken. A whole GPU is worth one more: it
        serves those as well who want nothing less, and shares that cost nothing elsewhere."""
        worth = self._worth.get(brand)
        if worth is None:
            worth = self._worth[brand] = prices(self._shares(brand))
        less = worth[milli // STEP] - worth[(milli - share) // STEP]
        return round(100 * less) + (milli == GPU_MILLI)

    def _use(self, free: Free) -> tuple[int, tuple[_Use, ...]]:
        uses = []
        for shape, weight in self._mix:
            count, milli = _fill(shape, free)
            if count:
                uses.append(_Use(weight, milli, shape.cpu_milli, count * shape.cpu_milli))
        return sum(sum(millis) for island in free for _, millis in island), tuple(uses)

    def _shares(self, brand: Brand) -> dict[int, int]:
        """Steps of a share on such a device -> how frequent it is."""
        demand: dict[int, int] = {}
        for shape, weight in self._mix:
            milli = shape.share_milli(brand.memory_mib)
            if 0 < milli <= GPU_MILLI and serves(shape, brand):
                steps = -(-milli // STEP)
                demand[steps] = demand.get(steps, 0) + weight
        return demand


def _fill(shape: Shape, free: Free) -> tuple[int, int]:
    """How many of the Shape fit on these devices, and the milli that they use; a share
    beside whole GPUs is taken for one more. What an island could take as a whole does not
    fit across islands: it runs there, but so that it loses what islands are for."""
    fitting = [[each for each in island if serves(shape, each[0])] for island in free]
    if shape.gpus:
        each = shape.gpus + bool(shape.gpu_milli or shape.memory_mib)
        wholes = [sum(millis.count(GPU_MILLI) for _, millis in island) for island in fitting]
        sizes = [sum(len(millis) for _, millis in island) for island in fitting]
        if max(sizes, default=0) >= each:
            count = sum(whole // each for whole in wholes)
        else:
            count = sum(wholes) // each
        return count, count * each * GPU_MILLI
    count = used = 0
    for brand, millis in chain.from_iterable(fitting):
        share = shape.share_milli(brand.memory_mib)
        fits = sum(milli // share for milli in millis)
        count += fits
        used += fits * share
    return count, used


def prices(demand: Mapping[int, int]) -> tuple[float, ...]:
    """What 0 … all steps of a device are worth to shares in that demand (steps -> weight),
    in GPUs, by the duals of the cutting-stock problem.

    Column generation: a revised simplex whose columns, ways to cut a device, are found by
    a knapsack at the current duals.
    """
    sizes = sorted(demand)
    inverse = [
        [1 / (STEPS // size) if row == column else 0.0 for column in range(len(sizes))]
        for row, size in enumerate(sizes)
    ]
    amounts = [demand[size] / (STEPS // size) for size in sizes]
    for _ in range(PIVOTS):
        duals = [max(sum(column), 0.0) for column in zip(*inverse, strict=True)]
        worth, cut = _knapsack(sizes, duals)
        if worth[STEPS] <= 1 + 1e-9:
            break
        _pivot(inverse, amounts, cut)
    return worth


def _knapsack(sizes: Sequence[int], values: Sequence[float]) -> tuple[tuple[float, ...], list[int]]:
    """The best value of 0 … all steps, and how often each size is in the best of all."""
    worth, last = [0.0] * (STEPS + 1), [-1] * (STEPS + 1)
    for steps in range(1, STEPS + 1):
        worth[steps] = worth[steps - 1]
        for index, size in enumerate(sizes):
            if size <= steps and worth[steps - size] + values[index] > worth[steps] + 1e-12:
                worth[steps], last[steps] = worth[steps - size] + values[index], index
    counts, steps = [0] * len(sizes), STEPS
    while steps:
        if last[steps] < 0:
            steps -= 1
        else:
            counts[last[steps]] += 1
            steps -= sizes[last[steps]]
    return tuple(worth), counts


def _pivot(inverse: list[list[float]], amounts: list[float], cut: Sequence[int]) -> None:
    """Let the cut enter the basis."""
    enters = [sum(a * b for a, b in zip(row, cut, strict=True)) for row in inverse]
    _, leaves = min((amounts[i] / d, i) for i, d in enumerate(enters) if d > 1e-9)
    step = amounts[leaves] / enters[leaves]
    base = [value / enters[leaves] for value in inverse[leaves]]
    for row, amount in enumerate(enters):
        if row != leaves:
            amounts[row] -= step * amount
            inverse[row] = [a - amount * b for a, b in zip(inverse[row], base, strict=True)]
    amounts[leaves], inverse[leaves] = step, base
