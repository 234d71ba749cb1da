# SPDX-License-Identifier: BSD-3-Clause
"""Fault simulation: a seed is a world, people, faults; safety while they last, then rest.

Phase 1: everything goes wrong, and after every commit what must hold is checked. Phase 2:
the faults stop and machines come back; then every Job ends, and nothing is left.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from random import Random

from .. import policy as policies
from ..core.model import Seconds, nodes_of
from .agenda import Agenda
from .engine import Engine, Work, cluster
from .faults import NONE, Faults
from .people import People, document
from .safety import Safety, Unsafe, at_rest
from .stage import Stage
from .story import story

BEGINS = 10_000.0
FAULTY_S: Seconds = 250.0
ACTS = 32
HOSTS = (0, 1000, 2000, 3000, 5000)
"""Host memory of the machines in MiB, for images of 250 to 2000: one seed in five has no cap."""
TURNS_MAX = 2000
REST_S: Seconds = 40 * 86400.0
"""Everything has ended by then; held jobs are cancelled after a month."""


@dataclass(frozen=True, slots=True)
class Result:
    """How a seed went."""

    seed: int
    turns: int
    digest: tuple[str, ...]
    """The journal, line by line."""
    error: str = ""
    """What did not hold; empty = all is well."""


def run(seed: int) -> Result:
    """One seed, from its number alone."""
    play = Play(seed)
    error = ""
    try:
        play.faulty()
        play.calm()
    except Unsafe as unsafe:
        error = str(unsafe)
    except Exception:  # whatever it is, the seed has found it
        error = traceback.format_exc()
    return Result(seed, play.stage.turns, story(play.stage.store.data.entries), error)


class Play:
    """The world of one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 - no secret
        draw = self.random
        count, gpus = draw.randint(1, 3), draw.choice([2, 4])
        machines = cluster(count, gpus, host_memory_mib=HOSTS[seed % len(HOSTS)])
        self.agenda = Agenda(BEGINS)
        self.engine = Engine(self.agenda, machines, usual=Work(20.0))
        text = document(draw)
        self.stage = Stage(
            self.engine,
            policies.parse(text),
            faults=_faults(draw),
            seed=draw.getrandbits(32),
            check=Safety(),
        )
        self.stage.moving_s, self.stage.calm_s = 2.0, 15.0
        self.stage.call_s = draw.choice([0.1, 0.8])
        self.people = People(self.stage, draw)

    def faulty(self) -> None:
        """Phase 1."""
        for _ in range(ACTS):
            self.agenda.after(self.random.uniform(0, FAULTY_S), self.people.act)
        self.agenda.run(BEGINS + FAULTY_S)

    def calm(self) -> None:
        """Phase 2."""
        self.stage.faults = NONE
        self.stage.moving_s, self.stage.calm_s = 5.0, 6 * 3600.0
        for node in list(self.engine.hidden):
            self.engine.show(node)
        while not self.stage.up:
            self.agenda.step()
        self.people.settle()
        self._repair()
        end = self.agenda.now + REST_S
        while not self._rests():
            if self.stage.turns > TURNS_MAX or self.agenda.now > end:
                alive = [f"{job.id} {job.state}" for job in self.stage.world.living()]
                raise Unsafe(f"no rest after {self.stage.turns} turns: {alive}")
            self.agenda.step()
        at_rest(self.stage)

    def _rests(self) -> bool:
        stage, engine = self.stage, self.engine
        return stage.up and not (stage.world.alive or engine.alive() or engine.uses)

    def _repair(self) -> None:
        """An admin boots machines anew on which something is quarantined."""
        items = self.stage.world.quarantined
        names = dict.fromkeys(name for item in items for name in nodes_of(item.shares))
        for name in names:
            self.engine.die(name)
            self.engine.show(name)
        self.agenda.after(300.0, self._repair)


def _faults(draw: Random) -> Faults:
    """Each kind of fault is there in two seeds of three."""

    def some(most: float) -> float:
        return draw.uniform(0, most) if draw.random() < 0.67 else 0.0

    return Faults(
        call=some(0.3),
        look=some(0.4),
        message=some(0.15),
        crash=some(0.02),
        commit=some(0.03),
        down=some(20.0),
        clock=some(100.0),
    )
