# SPDX-License-Identifier: BSD-3-Clause
"""Virtual time: what happens when, from a heap."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import inf

from ..core.model import Seconds

Action = Callable[[], None]

FIRST, LOOK, TURN = range(3)
"""At one instant: what happens, then the looks at it, then the broker's turn."""


class Agenda:
    """Actions by time; those of one time by rank, then in the order in which they came."""

    def __init__(self, now: Seconds = 0.0) -> None:
        self.now = now
        self._heap: list[tuple[Seconds, int, int, Action]] = []
        self._count = 0

    def at(self, time: Seconds, do: Action, rank: int = FIRST) -> None:
        """Do it then; what is past already is done next. Never, if the time is infinite."""
        if time == inf:
            return
        self._count += 1
        heappush(self._heap, (max(time, self.now), rank, self._count, do))

    def after(self, seconds: Seconds, do: Action) -> None:
        """Do it so much later."""
        self.at(self.now + seconds, do)

    @property
    def next(self) -> Seconds | None:
        """When the next action is due; ``None`` = nothing will ever happen."""
        return self._heap[0][0] if self._heap else None

    def step(self) -> None:
        """The next action; time leaps to it."""
        self.now, _, _, do = heappop(self._heap)
        do()

    def run(self, until: Seconds) -> None:
        """Everything that is due until then, which is the time afterwards."""
        while self._heap and self._heap[0][0] <= until:
            self.step()
        self.now = max(self.now, until)
