# SPDX-License-Identifier: BSD-3-Clause
"""What the broker keeps in its memory."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpubroker import policy
from jupyter_gpubroker.broker.world import ENDED_KEPT, World
from jupyter_gpubroker.core.model import Job, Kind, Request, State
from jupyter_gpubroker.store.memory import MemoryStore


def test_ended_jobs_that_are_too_many_leave_the_memory_and_living_ones_never() -> None:
    world = World.of(MemoryStore().open(), policy.default(), 1000.0)
    old = Job("b-old", Kind.BATCH, "ana", "default", "batch", Request(gpus=1))
    world.put(old)
    for number in range(2 * ENDED_KEPT):
        name = f"b-{number}"
        world.put(replace(old, id=name, state=State.COMPLETED))
        world.submits["ana", f"key of {name}"] = name
    world.forget()
    kept = [f"b-{number}" for number in range(ENDED_KEPT, 2 * ENDED_KEPT)]
    assert list(world.jobs) == ["b-old", *kept]
    assert list(world.submits.values()) == kept
