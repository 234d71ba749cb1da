# SPDX-License-Identifier: BSD-3-Clause
"""The real broker inside the test's process, and a stand-in for a server's extension."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.netutil import bind_sockets

from jupyter_gpubroker.app.serve import ServeApp
from jupyter_gpubroker.app.shell import Shell
from jupyter_gpubroker.app.wiring import make_setup
from jupyter_gpubroker.client import AsyncClient
from jupyter_gpubroker.devices.processes import boot_id, process_of
from jupyter_gpubroker.service.application import BODY_MAX, make_app
from jupyter_gpubroker.service.auth import Principal, PrincipalKind
from jupyter_gpubroker.wire import HolderIn, JobOut, RequestIn, SessionIn
from tests.until import until_async

HUB_TOKEN = "the-hubs-own-token"
ADMIN_TOKEN = "an-admins-token"
PREFIX = "/services/gpubroker"
POLICY = """\
default_queue: default
classes:
  interactive:
    kinds: [session]
    time: {default: 2h, max: 8h}
    stop: 5s
    fence: 10s
    holder_grace: 1s
    waiting: 3
  batch:
    kinds: [batch]
    time: {default: 1h, max: 7d}
queues:
  default: {}
"""
ENDED = ("completed", "failed", "cancelled")


class Tokens:
    """``user/server`` is the token of that server; the Hub and an admin have their own."""

    async def principal(self, request: HTTPServerRequest, *, fresh: bool) -> Principal:
        """Who sent the request."""
        token = request.headers["Authorization"].removeprefix("token ")
        if token == HUB_TOKEN:
            return Principal(PrincipalKind.HUB, "")
        if token == ADMIN_TOKEN:
            return Principal(PrincipalKind.ADMIN, "boss", admin=True)
        return Principal(PrincipalKind.USER, token.partition("/")[0], server=token)


@dataclass
class Broker:
    """Simulated devices under ``folder``; may be stopped and started again."""

    folder: Path
    devices: str = "simulated:1x1"
    policy: str = POLICY
    port: int = 0
    ahead: float = 0.0
    """Seconds by which its clock is ahead: so long has passed for it."""
    shell: Shell | None = None
    _server: HTTPServer | None = None
    _task: asyncio.Task[None] | None = None
    _clients: list[AsyncClient] = field(default_factory=list)

    @property
    def url(self) -> str:
        """As the spawner's ``broker_url``."""
        return f"http://127.0.0.1:{self.port}{PREFIX}"

    @property
    def now(self) -> float:
        """The time as it is for the broker."""
        assert self.shell is not None
        return self.shell.clock()

    @property
    def token_file(self) -> Path:
        """As the spawner's ``broker_token_file``."""
        path = self.folder / "hub-token"
        path.write_text(HUB_TOKEN + "\n")
        return path

    async def start(self) -> None:
        """Serve; on the same port as before, if it was started before."""
        policy = self.folder / "policy.yaml"
        policy.write_text(self.policy)
        app = ServeApp(
            state_dir=str(self.folder / "state"),
            devices=self.devices,
            policy_file=str(policy),
            run_as="self",
        )
        setup, lock = make_setup(app)
        clock = setup.clock
        shell = self.shell = Shell(replace(setup, clock=lambda: clock() + self.ahead))
        assert lock.acquire(blocking=False)

        async def run() -> None:
            try:
                await shell.run()
            finally:
                lock.release()

        self._task = asyncio.create_task(run())
        self._server = HTTPServer(make_app(shell, Tokens(), PREFIX), max_body_size=BODY_MAX)
        sockets = bind_sockets(self.port, "127.0.0.1")
        self.port = sockets[0].getsockname()[1]
        self._server.add_sockets(sockets)
        client = self.client()
        await until_async(client.nodes, what="the broker to see its GPUs")

    def client(self, token: str = HUB_TOKEN) -> AsyncClient:
        """With the rights of the Hub, or of the server ``user/name``."""
        client = AsyncClient(self.url, token)
        self._clients.append(client)
        return client

    async def stop(self) -> None:
        """End it; what it keeps stays."""
        for client in self._clients:
            await client.close()
        self._clients.clear()
        if self._server is not None:
            self._server.stop()
            await self._server.close_all_connections()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
        self._server = self._task = None

    async def change_policy(self, old: str, new: str) -> None:
        """Apply the policy with one change."""
        changed = self.policy.replace(old, new)
        assert changed != self.policy
        await self.client(ADMIN_TOKEN).apply_policy(changed)

    async def session(self, key: str) -> JobOut | None:
        """The living session of a server."""
        user, _, server = key.partition("/")
        return (await self.client().server_state(server, user=user)).session

    async def history(self, user: str) -> list[JobOut]:
        """All sessions that a user ever had, newest first."""
        return [job for job in await self.client().jobs(everybody=True) if job.user == user]

    async def ended(self, user: str) -> list[JobOut]:
        """The same, once none of them lives."""

        async def all_ended() -> list[JobOut] | None:
            found = await self.history(user)
            return found if found and all(job.state in ENDED for job in found) else None

        return await until_async(all_ended, timeout=120, what=f"the sessions of {user} to end")

    async def take_all(self, user: str = "rival") -> JobOut:
        """Let somebody hold one whole GPU until the session is released."""
        opened = await self.client().open_session(
            SessionIn(request=RequestIn(gpus=1), user=user, incarnation=1)
        )
        await Extension(self, f"{user}/", 1).hold()
        return opened


@dataclass
class Extension:
    """What the extension of a server says to the broker."""

    broker: Broker
    key: str
    incarnation: int
    pid: int = 0
    """Of the server; else a process that lives as long as the test: only the Hub can say
    that the server is gone."""

    async def hello(self) -> None:
        """The server is up."""
        process = process_of(self.pid or 1)
        assert process is not None
        holder = HolderIn(
            server=self.key.partition("/")[2],
            incarnation=self.incarnation,
            host=os.uname().nodename if self.pid else "elsewhere",
            boot=boot_id(),
            pid=process.pid,
            start=process.start,
        )
        await self.broker.client(self.key).hello(holder)

    async def hold(self) -> JobOut:
        """Hello, wait for the lease, say that the kernels are bound."""
        await self.hello()
        granted = await until_async(self._prepared, timeout=120, what=f"a lease for {self.key}")
        return await self.broker.client(self.key).started(granted.id, granted.attempt)

    async def _prepared(self) -> JobOut | None:
        session = await self.broker.session(self.key)
        ready = session is not None and session.lease is not None and session.lease.prepared
        return session if ready else None
