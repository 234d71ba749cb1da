# SPDX-License-Identifier: BSD-3-Clause
"""Two ways to the same end, measured in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

RUNS = 12


@dataclass(frozen=True)
class Pair:
    """Seconds of each run of ours, and of what it is compared with."""

    ours: tuple[float, ...]
    other: tuple[float, ...]

    @property
    def more(self) -> float:
        """Seconds that ours takes longer, by the medians."""
        return median(self.ours) - median(self.other)

    @property
    def times(self) -> float:
        """How many times as long ours takes, by the medians."""
        return median(self.ours) / median(self.other)


def in_turn(ours: Callable[[], float], other: Callable[[], float], runs: int = RUNS) -> Pair:
    """Measure both ``runs`` times, A B A B, after one run of each that does not count."""
    ours()
    other()
    pairs = [(ours(), other()) for _ in range(runs)]
    return Pair(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))


def spread(seconds: tuple[float, ...]) -> str:
    """Median (lowest to highest), in milliseconds."""
    low, middle, high = (1000 * value for value in (min(seconds), median(seconds), max(seconds)))
    return f"{middle:.0f} ms ({low:.0f} to {high:.0f})"
