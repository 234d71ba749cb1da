# SPDX-License-Identifier: BSD-3-Clause
"""A broker turned by hand: one machine, no engine, and time that goes on with each turn."""

from __future__ import annotations

from itertools import count

from jupyter_gpubroker import policy
from jupyter_gpubroker.broker import Broker, Turn
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.broker.world import World
from jupyter_gpubroker.core.model import Device, Job, Kind, Node, Request
from jupyter_gpubroker.store import LaunchRow
from jupyter_gpubroker.store.memory import MemoryStore

LAUNCH = LaunchRow(("true",), {}, "/", "", torchrun=False)


class Desk:
    """One machine of four GPUs."""

    def __init__(self) -> None:
        ids = count(1)
        self.store = MemoryStore()
        world = World.of(self.store.open(), policy.default(), 0.0)
        self.broker = Broker(world, {}, lambda kind: f"{kind.value}-{next(ids)}")
        self.now = 0.0

    def turn(self, *news: i.Input) -> Turn:
        """The next turn."""
        self.now += 1.0
        turn = self.broker.turn(news, self.now)
        self.store.commit(turn.writes)
        return turn

    def sees(self, broken: str = "") -> Turn:
        """The machine is looked at; one of its GPUs may be broken."""
        devices = [
            Device(
                f"GPU-{n}", "sim", 1000, n, usable=name != broken, note="Xid 79" * (name == broken)
            )
            for n, name in enumerate(f"GPU-{n}" for n in range(4))
        ]
        return self.turn(i.NodesSeen("toy", [Node("node1", "toy", "b1", tuple(devices))]))

    def job(self, job: Job) -> Job:
        """As it is now."""
        return self.broker.world.jobs[job.id]

    def submit(self, gpus: int, key: str = "", user: str = "ana") -> Job:
        """A batch job, as the turn leaves it."""
        asked = i.Submit(f"user:{user}", user, Request(gpus=gpus), LAUNCH, idempotency=key)
        (answer,) = self.turn(asked).answers
        assert answer.job is not None
        assert answer.job.kind is Kind.BATCH
        return answer.job
