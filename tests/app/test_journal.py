# SPDX-License-Identifier: BSD-3-Clause
"""The journal's tail: everybody reads every entry once, from memory or from the store."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from jupyter_gpubroker.app.journal import KEPT, Journal
from jupyter_gpubroker.store import Entry


class Stored:
    """Entries that are committed, and a journal over them."""

    def __init__(self, last: int) -> None:
        self.entries = [Entry(seq, 0.0, "broker", "job.placed") for seq in range(1, last + 1)]
        self.reads = 0
        self.journal = Journal(self.read)
        self.journal.begin(last)

    async def read(self, after: int, limit: int) -> Sequence[Entry]:
        self.reads += 1
        return self.entries[after : after + limit]

    def commit(self, count: int, *, told: bool = True) -> None:
        new = [
            Entry(len(self.entries) + n, 0.0, "broker", "job.placed") for n in range(1, count + 1)
        ]
        self.entries += new
        if told:
            self.journal.add(new)

    async def follow(self, after: int) -> list[int]:
        """What a reader gets until it has the last entry."""
        seqs: list[int] = []
        async for batch in self.journal.follow(after):
            seqs += [entry.seq for entry in batch]
            if seqs[-1] == len(self.entries):
                return seqs
        return seqs


@pytest.mark.asyncio
async def test_who_follows_gets_every_entry_once_and_new_ones_from_memory() -> None:
    stored = Stored(0)
    stored.commit(3)
    stored.commit(4)
    assert await stored.follow(2) == [3, 4, 5, 6, 7]
    assert stored.reads == 0


@pytest.mark.asyncio
async def test_who_comes_back_to_a_broker_that_was_restarted_gets_what_it_has_missed() -> None:
    stored = Stored(5)
    assert await stored.follow(2) == [3, 4, 5]
    stored.commit(1)
    assert await stored.follow(1) == [2, 3, 4, 5, 6]


@pytest.mark.asyncio
async def test_entries_that_landed_although_the_store_had_failed_are_told_too() -> None:
    stored = Stored(0)
    stored.commit(2)
    stored.commit(3, told=False)
    stored.journal.begin(5)
    stored.commit(1)
    assert await stored.follow(1) == [2, 3, 4, 5, 6]


@pytest.mark.asyncio
async def test_who_is_further_behind_than_the_memory_reads_the_store() -> None:
    stored = Stored(0)
    stored.commit(KEPT + 10)
    assert await stored.follow(0) == list(range(1, KEPT + 11))
    assert stored.reads
