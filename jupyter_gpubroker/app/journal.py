# SPDX-License-Identifier: BSD-3-Clause
"""The newest journal entries in memory, for everybody who follows the stream."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from ..store import Entry

KEPT = 10_000
"""Entries kept in memory; whoever is further behind reads the store."""
PAGE = 500

Read = Callable[[int, int], Awaitable[Sequence[Entry]]]
"""(after, limit) -> entries from the store."""


class Journal:
    """One tail, many readers; a slow reader falls back to the store and is never buffered."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._tail: deque[Entry] = deque(maxlen=KEPT)
        self._seq = 0
        """Of the last entry that was committed."""
        self._news = asyncio.Event()

    def begin(self, seq: int) -> None:
        """The store was opened and its last entry is ``seq``, whoever wrote it."""
        if seq != self._seq:
            self._tail.clear()
            self._seq = seq
            self._wake()

    def add(self, entries: Sequence[Entry]) -> None:
        """Entries that were just committed."""
        if entries:
            self._tail.extend(entries)
            self._seq = entries[-1].seq
            self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def follow(self, after: int) -> AsyncIterator[Sequence[Entry]]:
        """Batches with seq > ``after``, in order, for ever."""
        while True:
            news = self._news
            batch = await self._batch(after)
            if batch:
                after = batch[-1].seq
                yield batch
            else:
                await news.wait()

    async def _batch(self, after: int) -> Sequence[Entry]:
        if self._seq <= after:
            return ()
        first = self._tail[0].seq if self._tail else self._seq + 1
        if after + 1 < first:
            return await self._read(after, PAGE)
        start = after + 1 - first
        return [self._tail[k] for k in range(start, min(start + PAGE, len(self._tail)))]
