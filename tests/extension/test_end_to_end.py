# SPDX-License-Identifier: BSD-3-Clause
"""A real broker with simulated GPUs, a real Jupyter server, real kernels; no Hub."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_gpubroker.client import Client

from ..app.brokers import SoloBroker
from ..conftest import ROOT
from ..until import until_async
from .conftest import Fetch
from .shell import Shell

Holding = Callable[[], Awaitable[Shell]]
State = Callable[[], Awaitable[Any]]
HOLD = (
    "from jupyter_gpubroker.devices.simulated import hold\n"
    "memory, x = hold(1024), 41\n"
    "import os; print(os.getpid(), len(memory.devices))"
)


@pytest.fixture
def real_broker(short_tmp: Path) -> Iterator[SoloBroker]:
    """One node with one GPU."""
    broker = SoloBroker(short_tmp, "simulated:1x1").start()
    yield broker
    broker.close()


@pytest.fixture
def client(real_broker: SoloBroker) -> Iterator[Client]:
    """The same user as the server: this process."""
    with real_broker.client() as found:
        yield found


@pytest.fixture
def under_a_hub(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not: only the address of the broker is known."""
    monkeypatch.setenv("GPUBROKER_URL", client.address.url)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def post(server: ServerApp, jp_fetch: Fetch) -> Callable[..., Awaitable[Any]]:
    """A verb, as the sidebar sends it."""

    async def send(path: str, body: Any = None) -> Any:
        answer = await jp_fetch(
            "gpubroker", "api", *path.split("/"), method="POST", body=json.dumps(body or {})
        )
        return json.loads(answer.body)

    return send


async def reached(state: State, *words: str) -> Any:
    """The session, once it is in one of these states and its kernels follow it."""

    async def look() -> Any:
        found = await state()
        session = found["session"]
        done = session and session["state"] in words
        bound = all(k["bound"] for k in found["kernels"]) or "running" not in words
        return session if done and bound else None

    return await until_async(look, timeout=120, what=f"the session to be {' or '.join(words)}")


@pytest.fixture
def holding(
    server: ServerApp,
    state: State,
    post: Callable[..., Awaitable[Any]],
    start_kernel: Callable[..., Awaitable[str]],
) -> Holding:
    """A kernel that is given the GPU while it runs, holds memory on it and has a variable."""

    async def hold() -> Shell:
        shell = Shell(server, await start_kernel())

        async def ready() -> Any:
            return (await state())["broker"]["ok"]

        await until_async(ready, what="the broker")
        await post("sessions", {"request": {"gpus": 1, "time": "2h"}})
        await reached(state, "running")
        assert (await shell.run(HOLD)).split()[1:] == ["1"]
        return shell

    return hold


async def test_a_parked_kernel_lives_on_and_a_cell_brings_its_gpu_back(
    holding: Holding, state: State, post: Callable[..., Awaitable[Any]]
) -> None:
    shell = await holding()
    pid = (await shell.run("print(os.getpid())")).strip()
    session = (await state())["session"]["id"]
    await post(f"sessions/{session}/park")
    parked = await reached(state, "parked")
    await shell.held_back()
    assert [(kept["kernel"], kept["rung"]) for kept in parked["kept"]] == [
        (shell.kernel, "gpu_state")
    ]
    said = await shell.run("memory.touch(); print(x + 1, os.getpid(), memory.parked)")
    assert f"42 {pid} False" in said
    assert (await reached(state, "running"))["id"] == session
    shell.close()


async def test_an_interrupted_cell_is_not_run_and_the_session_stays_parked(
    holding: Holding,
    server: ServerApp,
    state: State,
    post: Callable[..., Awaitable[Any]],
    client: Client,
    real_broker: SoloBroker,
) -> None:
    shell = await holding()
    session = (await state())["session"]["id"]
    await post(f"sessions/{session}/park")
    await reached(state, "parked")
    await shell.held_back()
    taker = real_broker.submit(client, "import threading; threading.Event().wait()", gpus=1)
    await until_async(lambda: client.show(taker.id).state == "running", what="another's job")
    cell = shell.client.execute("x = 'ran'")
    await reached(state, "queued")
    await server.kernel_manager.interrupt_kernel(shell.kernel)
    assert "The cell was not run" in await shell.end(cell)
    assert (await reached(state, "parked"))["id"] == session
    client.cancel(taker.id)
    assert "41" in await shell.run("print(x)"), "the next cell brings the GPU back"
    shell.close()


async def test_a_release_from_the_notebook_gives_the_gpu_back(
    holding: Holding, state: State, client: Client
) -> None:
    shell = await holding()
    await shell.run("memory.release()")
    await shell.run("%gpu_release")

    async def gone() -> bool:
        return (await state())["session"] is None

    await until_async(gone, timeout=120, what="the end of the session")
    assert (await shell.run("print(x)")).strip() == "41", "it let go, so it was not restarted"
    assert await shell.env("CUDA_VISIBLE_DEVICES") == ""
    assert client.shapes().free_gpus == 1
    shell.close()


async def test_the_session_ends_with_the_server(
    holding: Holding, server: ServerApp, client: Client
) -> None:
    shell = await holding()
    (session,) = client.sessions()
    shell.close()
    await server._cleanup()
    await until_async(
        lambda: client.show(session.id).state == "completed", timeout=120, what="its end"
    )
