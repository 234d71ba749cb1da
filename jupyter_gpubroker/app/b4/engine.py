# SPDX-License-Identifier: BSD-3-Clause
"""An engine whose jobs are timers: what is measured with it is everything else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace

from ...core.model import JobId, Kept, Key, Mode, Node, Seconds
from ...engines import Caps, Launch, LogChunk, Phase, Poll, Report, Stop
from .workload import ENGINE


class NullEngine:
    """Keeps the promises of the seam: a key starts once, and is told until it is forgotten."""

    name = ENGINE
    caps = Caps()

    def __init__(self, nodes: Sequence[Node], clock: Callable[[], Seconds]) -> None:
        self._nodes = nodes
        self._clock = clock
        self._began: dict[Key, Report] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._news: list[Report] = []
        self._told = asyncio.Event()

    async def nodes(self) -> Sequence[Node]:
        """The pools."""
        return self._nodes

    async def start(self, key: Key, launch: Launch) -> None:
        """Set a timer of as many seconds as the command's argument says."""
        if key in self._began:
            return
        _, seconds = launch.argv
        self._tell(Report(key, Phase.RUNNING, Mode.HOSTED))
        self._timers[key] = asyncio.get_running_loop().call_later(float(seconds), self._end, key, 0)

    def _end(self, key: Key, code: int) -> None:
        self._timers.pop(key).cancel()
        self._tell(replace(self._began[key], phase=Phase.EXITED, codes=(code,), code=code))

    def _tell(self, report: Report) -> None:
        self._began[report.key] = report
        self._news.append(report)
        self._told.set()

    async def watch(self) -> AsyncIterator[Sequence[Report]]:
        """Starts and ends as they happen."""
        while True:
            await self._told.wait()
            self._told.clear()
            news, self._news = self._news, []
            yield news

    async def signal(self, key: Key, signum: int) -> None:
        """Ends it, as an unhandled signal does."""
        if key in self._timers:
            self._end(key, -signum)

    async def stop(self, key: Key, how: Stop) -> None:
        """The same."""
        await self.signal(key, 15 if how is Stop.TERM else 9)

    async def poll(self) -> Poll:
        """All that is not forgotten."""
        return Poll(self._clock(), dict(self._began))

    async def logs(self, key: Key, rank: int, offset: int, limit: int) -> LogChunk:
        """There are none."""
        raise FileNotFoundError(str(key))

    async def ranks(self, key: Key) -> Sequence[int]:
        """There are none."""
        return ()

    async def drop(self, kept: Kept) -> None:
        """Nothing is ever parked."""

    async def forget(self, key: Key) -> None:
        """It is told no more."""
        if key not in self._timers:
            self._began.pop(key, None)

    async def prune(self, before: Seconds, living: Collection[JobId]) -> None:
        """Nothing is left of what was forgotten."""
