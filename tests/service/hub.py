# SPDX-License-Identifier: BSD-3-Clause
"""The one endpoint of the Hub that we ask, over real HTTP: whose token is this?"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from jupyterhub.httpclient import JupyterHubHTTPClient
from jupyterhub.services.auth import HubOAuth
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from jupyter_gpubroker.wire.endpoints import ADMIN, USE

OWN = "the-services-own-token"


class Hub:
    """Answers ``GET /hub/api/user`` for the tokens it knows."""

    def __init__(self) -> None:
        self.tokens: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.status = 0
        """Answered instead of the truth, if it is not 0."""
        self.open = asyncio.Event()
        """Cleared: answers are held back."""
        self.open.set()
        app = Application([("/hub/api/user", _User, {"hub": self})])
        self._server = HTTPServer(app)
        sockets = bind_sockets(0, "127.0.0.1")
        self._server.add_sockets(sockets)
        port = sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/hub/api"
        self.client = HubOAuth(api_url=self.url, api_token=OWN)

    def user(
        self,
        name: str,
        token: str = "",
        *,
        server: str | None = None,
        admin: bool = False,
        flag: bool = False,
        kind: str = "user",
        use: bool = True,
        groups: Sequence[str] = (),
    ) -> str:
        """Make a token. ``flag`` is the model's ``admin``, which grants nothing."""
        token = token or f"token-of-{name}"
        scopes = [f"read:users:name!user={name}"]
        scopes += [USE] if use else []
        scopes += [] if server is None else [f"access:servers!server={name}/{server}"]
        scopes += [ADMIN] if admin else []
        model = {"kind": kind, "name": name, "admin": flag, "scopes": scopes}
        self.tokens[token] = {**model, "groups": list(groups)}
        return token

    async def down(self) -> None:
        """Close the port."""
        self._server.stop()
        await self._server.close_all_connections()

    async def close(self) -> None:
        """Leave nothing open."""
        self.open.set()
        await self.down()
        await JupyterHubHTTPClient.loop_instance().close()


class _User(RequestHandler):
    def initialize(self, hub: Hub) -> None:
        self.hub = hub

    async def get(self) -> None:
        token = self.request.headers.get("Authorization", "").removeprefix("token ")
        self.hub.asked.append(token)
        await self.hub.open.wait()
        model = self.hub.tokens.get(token)
        if self.hub.status:
            self.set_status(self.hub.status)
        elif model is None:
            self.set_status(403)
            self.finish(json.dumps({"status": 403, "message": "Missing or invalid credentials."}))
        else:
            self.finish(json.dumps(model))
