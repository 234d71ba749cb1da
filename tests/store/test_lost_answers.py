# SPDX-License-Identifier: BSD-3-Clause
"""The connection breaks around a COMMIT: the store knows whether it landed, or stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path

import pytest

from jupyter_gpubroker.store import StaleEpoch, StoreError, Writes

from .conftest import Cluster, Ground
from .samples import batch, entry

pytestmark = pytest.mark.filterwarnings("error")

SOCKET = ".s.PGSQL.5432"


class Cut(Enum):
    """Where the next COMMIT breaks the connection."""

    NEVER = 0
    BEFORE = 1
    """It does not reach the server."""
    AFTER = 2
    """It is done, but its answer does not come back."""


class Wire:
    """A unix socket that leads to the server's, until it is cut."""

    def __init__(self, folder: Path, server: Path) -> None:
        self.cut = Cut.NEVER
        self.cuts = 0
        self.dead = False
        """Nobody gets through any more once a cut has happened."""
        self._ends = (str(folder / SOCKET), str(server / SOCKET))
        self._carriers: list[asyncio.Task[None]] = []
        self._up = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._serve(),))
        self._thread.start()
        assert self._up.wait(60)

    def close(self) -> None:
        """Let nobody in any more, once all who are in have left."""
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()

        def carry(*client: *tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
            self._carriers.append(asyncio.create_task(self._carry(*client)))

        async with await asyncio.start_unix_server(carry, self._ends[0]):
            self._up.set()
            await self._over.wait()
            await asyncio.gather(*self._carriers)

    async def _carry(self, asked: asyncio.StreamReader, told: asyncio.StreamWriter) -> None:
        if self.dead and self.cuts:
            told.close()
            await told.wait_closed()
            return
        answers, server = await asyncio.open_unix_connection(self._ends[1])
        lost = asyncio.Event()

        async def ask() -> None:
            while data := await asked.read(65536):
                if b"COMMIT" in data and self.cut is not Cut.NEVER:
                    cut, self.cut = self.cut, Cut.NEVER
                    self.cuts += 1
                    if cut is Cut.BEFORE:
                        return
                    lost.set()
                server.write(data)

        async def answer() -> None:
            while data := await answers.read(65536):
                if lost.is_set():
                    return
                told.write(data)

        ways = [asyncio.create_task(ask()), asyncio.create_task(answer())]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for writer in (server, told):
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


@pytest.fixture
def wire(cluster: Cluster, short_tmp: Path) -> Iterator[Wire]:
    wire = Wire(short_tmp, cluster.folder)
    yield wire
    wire.close()


@pytest.fixture
def ground(cluster: Cluster, wire: Wire, short_tmp: Path) -> Iterator[Ground]:
    """A new database, reached over the wire."""
    ground = Ground(cluster.url(cluster.new_database(), folder=short_tmp))
    yield ground
    for store in ground.made:
        store.close()


def test_a_commit_that_landed_without_an_answer_is_taken_as_done(
    ground: Ground, wire: Wire
) -> None:
    store = ground.store()
    store.open()
    wire.cut = Cut.AFTER
    store.commit(Writes(jobs=[batch()], entries=[entry(1)]))
    assert wire.cuts == 1
    assert store.job("b-1") == batch()
    store.commit(Writes(entries=[entry(2)]))
    assert [item.seq for item in store.entries(0)] == [1, 2]


def test_a_commit_that_never_arrived_is_refused_and_may_be_tried_again(
    ground: Ground, wire: Wire
) -> None:
    store = ground.store()
    store.open()
    wire.cut = Cut.BEFORE
    with pytest.raises(StoreError, match="check that PostgreSQL runs"):
        store.commit(Writes(jobs=[batch()], entries=[entry(1)]))
    assert wire.cuts == 1
    assert store.job("b-1") is None
    store.commit(Writes(jobs=[batch()], entries=[entry(1)]))
    assert [item.seq for item in store.entries(0)] == [1]


@pytest.mark.parametrize("cut", [Cut.BEFORE, Cut.AFTER])
def test_where_nobody_can_say_the_store_closes(ground: Ground, wire: Wire, cut: Cut) -> None:
    store = ground.store()
    store.open()
    wire.cut, wire.dead = cut, True
    with pytest.raises(StoreError, match="nobody can say"):
        store.commit(Writes(jobs=[batch()], entries=[entry(1)]))
    with pytest.raises(StoreError, match="not open"):
        store.commit(Writes(entries=[entry(1)]))
    wire.dead = False
    assert store.open().seq == (1 if cut is Cut.AFTER else 0)


def test_another_opener_meanwhile_is_seen(ground: Ground, wire: Wire, cluster: Cluster) -> None:
    name = ground.url.split("@/")[1].split("?")[0]
    store = ground.store()
    store.open()
    cluster.run("UPDATE meta SET epoch = epoch + 1", name)
    wire.cut = Cut.AFTER
    with pytest.raises(StaleEpoch):
        store.commit(Writes(entries=[entry(1)]))
