# SPDX-License-Identifier: BSD-3-Clause
"""A small real desk: the production broker on a stage in virtual time, with logs in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

from jupyter_gpubroker import policy
from jupyter_gpubroker.broker.inputs import Question, Submit, SubmitList
from jupyter_gpubroker.broker.world import World
from jupyter_gpubroker.core.model import Job, Key
from jupyter_gpubroker.engines import LogChunk
from jupyter_gpubroker.store import Entry, PolicyRow
from tests.broker.theatre import Theatre


class Desk:
    """``service.Desk`` over a ``Theatre``."""

    def __init__(self, count: int = 2) -> None:
        self.stage = Theatre(count=count)
        self.written: dict[tuple[Key, int], bytes] = {}
        """(key, rank) -> what the rank has printed."""
        self.missing: Exception | None = None
        """Raised instead of every answer."""
        self._news = asyncio.Event()
        self._readers = 0

    @property
    def world(self) -> World:
        return self.stage.broker.world

    async def opened(self) -> None:
        """Open from the start."""

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        self.stage.run(seconds)
        self.tell()

    def tell(self) -> None:
        """Wake the readers of the journal."""
        self._news.set()
        self._news = asyncio.Event()

    def add_entries(self, count: int, user: str) -> None:
        """Entries about somebody's work, as if so much had happened."""
        world = self.world
        new = []
        for _ in range(count):
            world.seq += 1
            new.append(Entry(world.seq, self.stage.now, "broker", "job.active", "b-x", user))
        self.stage.store.data.entries.extend(new)
        self.tell()

    async def ask(self, question: Question) -> Job | None:
        if self.missing is not None:
            raise self.missing
        try:
            return self.stage.ask(question)
        finally:
            self.tell()

    async def submit(self, asked: Sequence[Submit]) -> Sequence[Job]:
        if self.missing is not None:
            raise self.missing
        try:
            return self.stage.ask_all(SubmitList(asked[0].actor, tuple(asked)))
        finally:
            self.tell()

    async def entries(self, after: int) -> AsyncIterator[Sequence[Entry]]:
        self._readers += 1
        try:
            while True:
                news = self._news
                batch = self.stage.store.entries(after)
                if batch:
                    after = batch[-1].seq
                    yield batch
                else:
                    await news.wait()
        finally:
            self._readers -= 1

    def readers(self) -> int:
        """How many follow the journal."""
        return self._readers

    async def story(self, job: str, limit: int) -> Sequence[Entry]:
        return [entry for entry in self.stage.store.data.entries if entry.job == job][-limit:]

    async def find(self, job: str) -> Job | None:
        return self.world.jobs.get(job)

    async def logs(self, key: Key, rank: int, offset: int, limit: int) -> LogChunk:
        try:
            data = self.written[key, rank]
        except KeyError:
            raise FileNotFoundError(f"{key} rank {rank}") from None
        part = data[offset : offset + limit]
        return LogChunk(part, offset + len(part), len(data))

    async def ranks(self, key: Key) -> Sequence[int]:
        return sorted(rank for of, rank in self.written if of == key)

    def environment(self, job: Job | None) -> dict[str, str]:
        lease = None if job is None else job.lease
        uuids = [share.device for share in lease.placement] if lease else []
        return {"CUDA_VISIBLE_DEVICES": ",".join(uuids)}

    def guarantees(self, job: Job) -> dict[str, object]:
        return {
            "memory": "none",
            "fault": False,
            "parkable": bool(job.terms.park),
            "sentence": "a stage guarantees nothing",
        }

    def policy(self) -> tuple[PolicyRow, str]:
        row = self.world.policy_row or PolicyRow(0, policy.DEFAULT_DOCUMENT, "default", 0.0)
        return row, ""

    def change(self, job: str, **fields: object) -> Job:
        """A Job as it would be after things that a stage does not play."""
        self.world.jobs[job] = replace(self.world.jobs[job], **fields)  # type: ignore[arg-type]
        return self.world.jobs[job]
