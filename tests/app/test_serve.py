# SPDX-License-Identifier: BSD-3-Clause
"""Who serves when several want to."""

from __future__ import annotations

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from jupyter_gpubroker.app.serve import ServeApp, Serving
from jupyter_gpubroker.client import AsyncClient, Unavailable
from tests.until import until_async

pytestmark = pytest.mark.asyncio


@contextmanager
def locked(state: Path) -> Iterator[None]:
    """Somebody else has the lock of the store in this folder."""
    with open(state / "broker.sqlite.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


async def test_a_broker_waits_for_the_last_child_of_one_that_was_killed(short_tmp: Path) -> None:
    """A child on its way to exec has the lock of its parent, and is not a broker."""
    state, socket = short_tmp / "state", short_tmp / "socket"
    state.mkdir(mode=0o700)
    app = ServeApp(state_dir=str(state), socket=str(socket), devices="simulated:1x1", solo=True)
    with locked(state):
        running = asyncio.create_task(Serving(app).run())
        await asyncio.wait([running], timeout=0.5)
        assert not running.done()

    async def serves() -> bool:
        async with AsyncClient(f"unix:{socket}") as client:
            try:
                return (await client.health()).status == "ok"
            except Unavailable:
                return False

    await until_async(serves, what="the broker to serve")
    running.cancel()
    await asyncio.wait([running])


async def test_a_second_broker_of_a_user_leaves(short_tmp: Path) -> None:
    state, socket = short_tmp / "state", short_tmp / "socket"
    state.mkdir(mode=0o700)
    app = ServeApp(state_dir=str(state), socket=str(socket), devices="simulated:1x1", solo=True)
    with locked(state):
        async with asyncio.timeout(60):
            await Serving(app).run()
    assert not socket.exists()
