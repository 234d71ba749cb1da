# SPDX-License-Identifier: BSD-3-Clause
"""Start the service, let the load generator run against it, and say what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_unix_socket

from ... import policy as policies
from ...devices.simulated import SimulatedDevices
from ...service.application import BODY_MAX, make_app
from ...service.auth import PeerAuth
from ...store.lock import open_store
from ..setup import Setup, steady_clock
from ..shell import Shell
from .engine import NullEngine
from .workload import SIZES, Workload

PUBLISHED = {
    "wall_s": 351.1,
    "admission_s": {"large": 6.67, "medium": 76.8, "small": 215.5},
}
"""Kueue's own figures."""
BOUND = {
    "wall_s": 66.1,
    "admission_s": {"large": 0.21, "medium": 11.4, "small": 44.7},
}
"""Of a scheduler that takes no time at all."""

Say = Callable[[str], None]


def run(folder: Path | None, read: Callable[[str], str], say: Say) -> dict[str, Any]:
    """The figures; no data are needed."""
    return asyncio.run(measure(Workload(), say))


async def measure(workload: Workload, say: Say) -> dict[str, Any]:
    """One run of a workload."""
    with tempfile.TemporaryDirectory(prefix="gpubroker-b4-") as folder:
        async with serving(Path(folder), workload) as url:
            say(f"{workload.total} jobs are submitted to {url}")
            found = await _load(url, workload)
    return _result(found)


@contextlib.asynccontextmanager
async def serving(folder: Path, workload: Workload) -> AsyncIterator[str]:
    """The service with the null engine; the URL that it answers at."""
    store, lock = open_store(f"sqlite:///{folder / 'broker.sqlite'}")
    lock.acquire(blocking=False)
    document = workload.policy()
    clock = steady_clock()
    engine = NullEngine(workload.nodes(), clock)
    setup = Setup(
        store=store,
        engines={engine.name: engine},
        devices=SimulatedDevices.create(folder / "devices", "1x1"),
        policy=policies.parse(document),
        policy_document=document,
        jobs_folder=lambda account: folder / "jobs",
        parse_policy=policies.parse,
        account=lambda user: "",
        clock=clock,
    )
    shell = Shell(setup)
    server = HTTPServer(
        make_app(shell, PeerAuth(shared=False), clock=clock), max_body_size=BODY_MAX
    )
    socket = folder / "socket"
    server.add_socket(bind_unix_socket(str(socket)))
    running = asyncio.create_task(shell.run())
    try:
        await shell.opened()
        yield f"unix:{socket}"
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        server.stop()
        await server.close_all_connections()
        lock.release()


async def _load(url: str, workload: Workload) -> dict[str, Any]:
    command = [sys.executable, "-m", f"{__package__}.load", url, json.dumps(asdict(workload))]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        printed, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        raise RuntimeError(f"the load generator ended with {process.returncode}")
    found: dict[str, Any] = json.loads(printed)
    return found


def _result(found: dict[str, Any]) -> dict[str, Any]:
    names = [size.name for size in SIZES]
    return {
        "id": "b4",
        "value": found["wall_s"],
        "unit": "s from the first submit to the last end",
        **found,
        "admission_s": {name: found["admission_s"][name] for name in names},
        "published": PUBLISHED,
        "bound": BOUND,
    }
