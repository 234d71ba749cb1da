# SPDX-License-Identifier: BSD-3-Clause
"""A real Jupyter server with our extension, and a broker whose state the test writes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

# As a plugin of the whole suite its cleanup would run after every test there is.
from pytest_jupyter.jupyter_server import *  # noqa: F403
from traitlets.config import Config

from jupyter_gpubroker.extension import GPUBrokerExtension

from ..until import until_async
from .standin import StandIn, serving

Fetch = Callable[..., Awaitable[Any]]


@pytest.fixture
def broker() -> Iterator[StandIn]:
    """A broker whose state the test writes."""
    logging.getLogger("tornado.access").setLevel(logging.WARNING)
    with serving(StandIn()) as standin:
        yield standin


@pytest.fixture
def under_a_hub(broker: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment that the spawner gives to a server."""
    monkeypatch.setenv("GPUBROKER_URL", broker.url)
    monkeypatch.setenv("GPUBROKER_SESSION", broker.key)
    monkeypatch.setenv("GPUBROKER_INCARNATION", "7")
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "secret")


@pytest.fixture
def jp_server_config() -> Config:
    """Our extension and the terminals."""
    extensions = {"jupyter_gpubroker": True, "jupyter_server_terminals": True}
    return Config({"ServerApp": {"jpserver_extensions": extensions}})


@pytest.fixture
def server(under_a_hub: None, jp_serverapp: ServerApp) -> Iterator[ServerApp]:
    """The server, with the extension loaded."""
    yield jp_serverapp
    loop: asyncio.AbstractEventLoop = jp_serverapp.io_loop.asyncio_loop
    loop.run_until_complete(jp_serverapp._cleanup())
    assert "CUDA_VISIBLE_DEVICES" not in os.environ, "the environment is as it was"


@pytest.fixture
def extension(server: ServerApp) -> GPUBrokerExtension:
    """The extension in that server."""
    found = server.extension_manager.extension_points["jupyter_gpubroker"].app
    assert isinstance(found, GPUBrokerExtension)
    return found


@pytest.fixture
def start_kernel(server: ServerApp, jp_fetch: Fetch) -> Callable[..., Awaitable[str]]:
    """Start a kernel over the REST API; its id."""

    async def start(name: str = "python3") -> str:
        answer = await jp_fetch(
            "api", "kernels", method="POST", body=json.dumps({"name": name}), request_timeout=120
        )
        kernel: str = json.loads(answer.body)["id"]
        return kernel

    return start


@pytest.fixture
def state(server: ServerApp, jp_fetch: Fetch) -> Callable[[], Awaitable[Any]]:
    """GET gpubroker/state."""

    async def get() -> Any:
        return json.loads((await jp_fetch("gpubroker", "state")).body)

    return get


async def linked(broker: StandIn) -> None:
    """Wait until the server's extension said hello."""
    await until_async(lambda: broker.posts("/servers/hello"), what="hello")
