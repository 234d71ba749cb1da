# SPDX-License-Identifier: BSD-3-Clause
"""A device that fails: nothing new is placed on it, what runs there goes on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from jupyter_gpubroker import policy
from jupyter_gpubroker.broker import Broker, Turn
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.broker.world import World
from jupyter_gpubroker.core.model import Device, Job, Kind, Node, Request, State
from jupyter_gpubroker.store import LaunchRow
from jupyter_gpubroker.store.memory import MemoryStore

LAUNCH = LaunchRow(("true",), {}, "/", "", torchrun=False)


class Desk:
    """A broker with one machine of four GPUs, and time that goes on with each turn."""

    def __init__(self) -> None:
        ids = count(1)
        world = World.of(MemoryStore().open(), policy.default(), 0.0)
        self.broker = Broker(world, {}, lambda kind: f"{kind.value}-{next(ids)}")
        self.now = 0.0

    def turn(self, *news: i.Input) -> Turn:
        """The next turn."""
        self.now += 1.0
        return self.broker.turn(news, self.now)

    def sees(self, broken: str = "") -> Turn:
        """The machine is looked at; one of its GPUs may be broken."""
        devices = [
            Device(
                f"GPU-{n}", "sim", 1000, n, usable=name != broken, note="Xid 79" * (name == broken)
            )
            for n, name in enumerate(f"GPU-{n}" for n in range(4))
        ]
        return self.turn(i.NodesSeen("toy", [Node("node1", "toy", "b1", tuple(devices))]))

    def submit(self, gpus: int) -> Job:
        """A batch job, as the turn leaves it."""
        (answer,) = self.turn(i.Submit("user:ana", "ana", Request(gpus=gpus), LAUNCH)).answers
        assert answer.job is not None
        assert answer.job.kind is Kind.BATCH
        return answer.job


def used(job: Job) -> Sequence[str]:
    """The devices of its lease."""
    assert job.lease is not None
    return [share.device for share in job.lease.placement]


def test_a_broken_device_is_granted_to_nobody_until_it_is_mended() -> None:
    desk = Desk()
    desk.sees(broken="GPU-2")
    assert "GPU-2" not in used(desk.submit(3))
    waiting = desk.submit(1)
    assert waiting.state is State.QUEUED
    desk.sees()
    assert used(desk.broker.world.jobs[waiting.id]) == ["GPU-2"]


def test_what_runs_on_a_device_that_breaks_goes_on() -> None:
    desk = Desk()
    desk.sees()
    job = desk.submit(1)
    (broken,) = used(job)
    turn = desk.sees(broken)
    assert desk.broker.world.jobs[job.id] == job
    assert [entry.event for entry in turn.writes.entries] == ["device.unusable"]
    assert broken not in used(desk.submit(3))


def test_what_is_usable_no_longer_or_again_is_in_the_journal_once() -> None:
    desk = Desk()
    entries = [
        entry for broken in ("", "GPU-1", "GPU-1", "") for entry in desk.sees(broken).writes.entries
    ]
    assert [(entry.actor, entry.event) for entry in entries] == [
        ("engine:toy", "device.unusable"),
        ("engine:toy", "device.usable"),
    ]
    assert entries[0].facts == {"node": "node1", "device": "GPU-1", "note": "Xid 79"}
