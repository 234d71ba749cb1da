# SPDX-License-Identifier: BSD-3-Clause
"""What is countable, and how much of it is free: now, soon, and then."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from math import inf
from typing import NamedTuple

from .model import Seconds

NOWHERE = -1
"""Home of an Amount that is in no room."""


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

    def move(self, now: int, soon: int, then: int) -> None:
        """So much more is free in each column."""
        self.now += now
        self.soon += soon
        self.then += then
        assert 0 <= self.now <= self.capacity, "more was taken or given back than there is"
        assert 0 <= self.soon <= self.capacity, "more was taken or given back than there is"

    def reserve(self, need: int, start: Seconds, back: Mapping[Amount, int]) -> None:
        """Somebody needs it then, when this much has come ``back`` of every amount."""
        known = self.then if self.claims else self.capacity
        self.then = min(known, self.soon + back.get(self, 0)) - need
        self.start = min(self.start, start)
        self.claims += 1

    def release(self) -> None:
        """One Reservation less. What another one has a claim to as well stays as it is."""
        self.claims -= 1
        if not self.claims:
            self.start = inf


Claim = tuple[tuple[Amount, int], ...]
"""What was taken from ``soon`` of each Amount."""
