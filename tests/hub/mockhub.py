# SPDX-License-Identifier: BSD-3-Clause
"""A Hub inside the test's process, driven over its REST API."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from jupyterhub.spawner import SpawnException
from jupyterhub.tests.mocking import MockHub, MockSpawner
from traitlets.config import Config

from jupyter_gpubroker.spawner import GPUBrokerMixin
from tests.until import until_async

from .brokers import Broker

TOKEN = "a-token-of-the-test"


class InProcessHub(MockHub):
    """Ends without ending whatever else runs in the loop."""

    async def shutdown_cancel_tasks(self, sig: Any = None) -> None:
        """The loop belongs to the test."""


class MockGPUSpawner(GPUBrokerMixin, MockSpawner):
    """Real processes, of a server that does nothing."""


class NeverStarts(MockSpawner):
    """A server whose start does not end."""

    async def start(self) -> Any:
        """Wait for ever."""
        await asyncio.get_running_loop().create_future()


class CannotStart(MockSpawner):
    """A server whose start fails."""

    async def start(self) -> Any:
        """Fail."""
        raise RuntimeError("the image cannot be pulled")


class NeverStartsGPU(GPUBrokerMixin, NeverStarts):
    """With a GPU."""


class CannotStartGPU(GPUBrokerMixin, CannotStart):
    """With a GPU."""


@dataclass
class Hub:
    """A JupyterHub with a spawner of ours in front of a broker."""

    broker: Broker
    app: Any = None
    _http: httpx.AsyncClient = field(default_factory=httpx.AsyncClient)

    async def start(self, **settings: Any) -> None:
        """``settings`` are traits of the spawner, and ``spawner_class``."""
        c = Config()
        c.MockHub.spawner_class = settings.pop("spawner_class", MockGPUSpawner)
        c.MockHub.allow_named_servers = True
        c.MockHub.cleanup_servers = True
        c.MockHub.services = [{"name": "test", "api_token": TOKEN}]
        scopes = ["admin:users", "admin:servers", "admin:groups", "read:servers"]
        c.MockHub.load_roles = [{"name": "test", "services": ["test"], "scopes": scopes}]
        c.MockHub.tornado_settings = {"slow_spawn_timeout": settings.pop("slow", 60)}
        c.MockSpawner.home_dir_template = str(self.broker.folder / "homes" / "{username}")
        c.MockSpawner.poll_interval = 1
        c.GPUBrokerMixin.broker_url = self.broker.url
        c.GPUBrokerMixin.broker_token_file = str(self.broker.token_file)
        c.GPUBrokerMixin.hello_timeout = 600  # its servers have no extension; tests speak for it
        for name, value in settings.items():
            setattr(c.GPUBrokerMixin, name, value)
        self.app = InProcessHub.instance(config=c)
        await self.app.initialize([])
        await self.app.start()
        self._http = httpx.AsyncClient(
            base_url=f"{self.app.hub.url}api",
            headers={"Authorization": f"token {TOKEN}"},
            timeout=120,
            trust_env=False,
        )

    async def stop(self) -> None:
        """End it and its servers."""
        await self._http.aclose()
        if self.app is not None:
            await self.app.stop()
            InProcessHub.clear_instance()

    # --- the REST API -------------------------------------------------------------------

    async def add(self, user: str) -> None:
        """A user."""
        (await self._http.post(f"/users/{user}")).raise_for_status()

    async def join(self, user: str, group: str) -> None:
        """A user, in a group that is made."""
        await self.add(user)
        (await self._http.post(f"/groups/{group}")).raise_for_status()
        answer = await self._http.post(f"/groups/{group}/users", json={"users": [user]})
        answer.raise_for_status()

    async def model(self, token: str) -> dict[str, Any]:
        """What the Hub tells of a token to who has it."""
        headers = {"Authorization": f"token {token}"}
        answer = await self._http.get("/user", headers=headers)
        return dict(answer.raise_for_status().json())

    def _path(self, key: str) -> str:
        user, _, server = key.partition("/")
        return f"/users/{user}/servers/{server}" if server else f"/users/{user}/server"

    async def spawn(self, key: str, **options: Any) -> httpx.Response:
        """Start the server ``user/name`` with these ``user_options``."""
        user = key.partition("/")[0]
        if (await self._http.get(f"/users/{user}")).status_code == 404:
            await self.add(user)
        return await self._http.post(self._path(key), json={"user_options": options})

    async def cancel(self, key: str) -> httpx.Response:
        """Stop the server, or what is still starting."""
        return await self._http.delete(self._path(key))

    async def progress(self, key: str) -> AsyncIterator[dict[str, Any]]:
        """The lines of a start, as the page shows them."""
        async with self._http.stream("GET", f"{self._path(key)}/progress") as response:
            async for line in response.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:])

    async def ready(self, key: str) -> None:
        """Wait until the server answers."""
        await until_async(lambda: self.spawner(key).ready, timeout=120, what=f"{key} to be up")

    # --- inside -------------------------------------------------------------------------

    def spawner(self, key: str) -> GPUBrokerMixin:
        """The spawner of ``user/name``."""
        user, _, server = key.partition("/")
        return self.app.users[user].spawners[server]  # type: ignore[no-any-return]

    def refusal(self, key: str) -> SpawnException:
        """Why the last start was none."""
        error = self.spawner(key)._spawn_future.exception()
        assert isinstance(error, SpawnException), error
        return error

    def stored_state(self, key: str) -> dict[str, Any]:
        """What a Hub that starts now would find of a server, read past this one."""
        user, _, server = key.partition("/")
        query = (
            "select spawners.state from spawners join users on users.id = spawners.user_id "
            "where users.name = ? and spawners.name = ?"
        )
        with sqlite3.connect(self.app.db_file.name) as database:
            row = database.execute(query, (user, server)).fetchone()
        return json.loads(row[0]) if row and row[0] else {}

    def environment(self, key: str) -> dict[str, str]:
        """Of the server's process."""
        text = Path(f"/proc/{self.spawner(key).pid}/environ").read_bytes().decode()
        return dict(item.partition("=")[::2] for item in text.split("\0") if item)

    def kill(self, key: str) -> None:
        """SIGKILL the server."""
        with suppress(ProcessLookupError):
            self.spawner(key).proc.send_signal(signal.SIGKILL)
