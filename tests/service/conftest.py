# SPDX-License-Identifier: BSD-3-Clause
"""A service on a free port and on a unix socket, in front of a desk and a Hub."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest_asyncio
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets, bind_unix_socket

from jupyter_gpubroker.client import AsyncClient
from jupyter_gpubroker.service.application import BODY_MAX, make_app
from jupyter_gpubroker.service.auth import Auth, HubAuth, PeerAuth

from .desk import Desk
from .hub import OWN, Hub

PREFIX = "/services/gpubroker/"


@dataclass
class House:
    """Everything that a test of the service needs."""

    desk: Desk
    hub: Hub
    url: str = ""
    now: float = 0.0
    """What the token cache takes for the time."""
    servers: list[HTTPServer] = field(default_factory=list)
    clients: list[AsyncClient] = field(default_factory=list)

    def client(self, token: str = "", url: str = "") -> AsyncClient:
        """A client, closed at the end."""
        client = AsyncClient(url or self.url, token)
        self.clients.append(client)
        return client

    def http(self, token: str = "") -> httpx.AsyncClient:
        """A client that speaks plain HTTP."""
        headers = {"Authorization": f"token {token}"} if token else {}
        return httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=60, trust_env=False, verify=False
        )

    def serve(self, auth: Auth, prefix: str = "/", heartbeat: float = 15.0) -> HTTPServer:
        """A server that listens nowhere yet."""
        app = make_app(
            self.desk, auth, prefix, clock=lambda: self.desk.stage.now, heartbeat=heartbeat
        )
        server = HTTPServer(app, max_body_size=BODY_MAX)
        self.servers.append(server)
        return server

    def hub_auth(self, timeout: float = 60.0) -> HubAuth:
        """The real thing, asking our Hub."""
        return HubAuth(OWN, hub=self.hub.client, clock=lambda: self.now, timeout=timeout)

    def listen(self, auth: Auth, heartbeat: float = 15.0) -> str:
        """Serve on a free port; the URL."""
        sockets = bind_sockets(0, "127.0.0.1")
        self.serve(auth, PREFIX, heartbeat).add_sockets(sockets)
        return f"http://127.0.0.1:{sockets[0].getsockname()[1]}{PREFIX}"

    def listen_unix(self, path: Path, *, shared: bool, heartbeat: float = 15.0) -> str:
        """Serve on a unix socket; the URL."""
        server = self.serve(PeerAuth(shared=shared), heartbeat=heartbeat)
        server.add_socket(bind_unix_socket(str(path), mode=0o666))
        return f"unix:{path}"

    async def close(self) -> None:
        for client in self.clients:
            await client.close()
        for server in self.servers:
            server.stop()
            await server.close_all_connections()
        await self.hub.close()


@pytest_asyncio.fixture
async def house() -> AsyncIterator[House]:
    made = House(Desk(), Hub())
    made.url = made.listen(made.hub_auth())
    yield made
    await made.close()
