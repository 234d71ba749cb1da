# SPDX-License-Identifier: BSD-3-Clause
"""The load generator, a process of its own: submit on time, follow the events, count.

``python -m jupyter_gpubroker.app.b4.load URL WORKLOAD`` prints the figures as JSON. Times
count from when a job was due, so that a broker that answers late gains nothing by it.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ...client import AsyncClient
from ...core.model import TERMINAL, Seconds, State
from ...wire import ListedIn
from .workload import SIZES, Workload


@dataclass
class Load:
    """One run."""

    client: AsyncClient
    workload: Workload
    due: dict[str, tuple[str, Seconds]] = field(default_factory=dict)
    """Job -> its class, and when it was due."""
    placed: dict[str, Seconds] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    """Job -> how it ended."""
    answered: list[Seconds] = field(default_factory=list)
    """How long submits took."""

    async def run(self) -> dict[str, Any]:
        """Submit everything, and return the figures when the last job has ended."""
        listens = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            follower = group.create_task(self._follow(listens))
            await listens.wait()
            began = time.time()
            for seconds, bodies in self.workload.arrivals().items():
                await asyncio.sleep(began + seconds - time.time())
                group.create_task(self._submit(bodies, began + seconds))
            last = await follower
        waits: dict[str, list[Seconds]] = {size.name: [] for size in SIZES}
        for job, (size, due) in self.due.items():
            waits[size].append(self.placed[job] - due)
        return {
            "wall_s": round(last - began, 2),
            "admission_s": {size: _mean(found) for size, found in waits.items()},
            "jobs": len(self.ended),
            "completed": sum(how == State.COMPLETED for how in self.ended.values()),
            "submit_s": {"mean": _mean(self.answered), "most": round(max(self.answered), 3)},
        }

    async def _submit(self, bodies: Sequence[ListedIn], due: Seconds) -> None:
        sent = time.time()
        jobs = await self.client.submit_list(bodies)
        self.answered.append(time.time() - sent)
        for body, job in zip(bodies, jobs, strict=True):
            self.due[job.id] = (body.class_name, due)

    async def _follow(self, listens: asyncio.Event) -> Seconds:
        """Until all have ended; when the last end was heard of."""
        async for event in self.client.events():
            listens.set()
            if event.event == "gap":
                raise RuntimeError("events were missed: the figures would be wrong")
            if event.event == "job.placed":
                self.placed.setdefault(event.job, event.time)
            elif event.state in TERMINAL:
                self.ended[event.job] = event.state
                if len(self.ended) == self.workload.total:
                    break
        return time.time()


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 3) if values else 0.0


async def main(url: str, workload: str) -> None:
    """Run it and print the figures."""
    async with AsyncClient(url) as client:
        print(json.dumps(await Load(client, Workload.of(json.loads(workload))).run()))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
