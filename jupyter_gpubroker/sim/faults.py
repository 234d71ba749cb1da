# SPDX-License-Identifier: BSD-3-Clause
"""What can go wrong between the broker and the world, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random

from ..core.model import Seconds


class Unanswered(Exception):
    """No answer came: whether it was done is not known."""


class Fate(StrEnum):
    """What becomes of a call to the engine."""

    WELL = "well"
    FAILS = "fails"
    """Nothing is done, and the broker hears so."""
    UNHEARD = "unheard"
    """It is done, and the broker hears that it failed."""
    LOST = "lost"
    """Nothing is done, and the broker hears that it was: a launch that was lost."""
    LATE = "late"
    """It is done some time later."""
    TWICE = "twice"
    """It is done now and once more some time later."""
    REFUSED = "refused"
    """A start that the engine declines."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities; all 0 = nothing goes wrong."""

    call: float = 0.0
    """Of a call to the engine: that its fate is another than *well*."""
    look: float = 0.0
    """Of a look at the engine: that it fails, or is told late."""
    message: float = 0.0
    """Of what servers and people say: that it never arrives."""
    crash: float = 0.0
    """At each of the steps of a turn, and between two duties: that the broker dies."""
    commit: float = 0.0
    """Of a commit: that it fails, half of them although it was written."""
    late: Seconds = 4.0
    """The latest that a call comes; an engine's ``settle`` is longer."""
    old: Seconds = 8.0
    """The oldest that a look may be when it is told."""
    down: Seconds = 0.0
    """The longest that a dead broker is away."""
    clock: Seconds = 0.0
    """How far the clock may step, forward or back, while it is away."""


NONE = Faults()


def fate(faults: Faults, random: Random, *, start: bool) -> Fate:
    """Draw what becomes of one call."""
    if not faults.call or random.random() >= faults.call:
        return Fate.WELL
    bad = [item for item in Fate if item is not Fate.WELL and (start or item is not Fate.REFUSED)]
    return random.choice(bad)
