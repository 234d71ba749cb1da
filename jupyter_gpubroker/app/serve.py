# SPDX-License-Identifier: BSD-3-Clause
"""`jupyter gpubroker serve`: configuration -> the broker's process."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import logging
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import httpx
from jupyter_core.application import JupyterApp
from jupyter_core.paths import jupyter_data_dir
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets, bind_unix_socket
from traitlets import Bool, Enum, Unicode, default

from ..client import SHARED_SOCKET, solo_socket_path
from ..service.application import BODY_MAX, make_app
from ..service.auth import HUB_TIMEOUT_S, HubAuth, PeerAuth
from ..store import StoreError
from ..store.lock import WriterLock
from .people import People
from .shell import Shell
from .tuning import tune
from .wiring import make_setup

log = logging.getLogger(__name__)

PR_SET_PDEATHSIG = 1
BIND_PATIENCE_S = 60.0
LOCK_RETRY_S = 0.2
HUB_API_URL = "http://127.0.0.1:8081/hub/api"
"""JupyterHub's own default; it tells its services in JUPYTERHUB_API_URL."""
TAKEN_S = 2.0
"""A lock that is held for longer is another broker's."""
SOLO_LINGER_S = 600.0
"""A solo broker ends so long after its last client, if nothing runs, waits or is parked."""


class ServeApp(JupyterApp):
    """Run the broker: as a Hub service, for all users of a workstation, or for one."""

    name = "jupyter-gpubroker-serve"
    description = __doc__

    config_file_name = Unicode("jupyter_gpubroker_config", help="Name of the config file.")
    state_dir = Unicode(help="Folder of the database, records and a simulated world (0700).").tag(
        config=True
    )
    store = Unicode(help="Database URL; default: SQLite in state_dir.").tag(config=True)
    devices = Unicode("auto", help="auto, nvml or simulated:NODESxGPUS.").tag(config=True)
    run_as = Enum(
        ("user", "self", ""),
        default_value="",
        help="Account of jobs: `user` (theirs; default for root) or `self` (the broker's).",
    ).tag(config=True)
    jobs_dir = Unicode(
        help="Where jobs have their folders; default: ~/.local/share/jupyter-gpubroker/jobs "
        "of the job's account."
    ).tag(config=True)
    policy_file = Unicode(help="policy.yaml, imported at first start.").tag(config=True)
    managed = Bool(False, help="End when the parent (the Hub) is gone.").tag(config=True)
    solo = Bool(False, help="For this user alone, on a unix socket.").tag(config=True)
    shared = Bool(False, help="For all users of this machine, on a unix socket.").tag(config=True)
    socket = Unicode(help="Path of the unix socket of --solo and --shared.").tag(config=True)

    aliases = {  # noqa: RUF012 - traitlets reads these class attributes
        "state-dir": "ServeApp.state_dir",
        "store": "ServeApp.store",
        "devices": "ServeApp.devices",
        "run-as": "ServeApp.run_as",
        "jobs-dir": "ServeApp.jobs_dir",
        "policy-file": "ServeApp.policy_file",
        "socket": "ServeApp.socket",
        "config": "JupyterApp.config_file",
        "log-level": "Application.log_level",
    }
    flags = {  # noqa: RUF012
        "managed": ({"ServeApp": {"managed": True}}, "End when the parent (the Hub) is gone."),
        "solo": ({"ServeApp": {"solo": True}}, "For this user alone, on a unix socket."),
        "shared": ({"ServeApp": {"shared": True}}, "For all users of this machine."),
        "debug": ({"Application": {"log_level": logging.DEBUG}}, "Log everything."),
    }

    @default("state_dir")
    def _state_dir(self) -> str:
        if self.shared:
            return "/var/lib/jupyter-gpubroker"
        return str(Path(jupyter_data_dir()) / "gpubroker")

    @default("store")
    def _store(self) -> str:
        return f"sqlite:///{Path(self.state_dir) / 'broker.sqlite'}"

    @default("socket")
    def _socket(self) -> str:
        return str(SHARED_SOCKET if self.shared else solo_socket_path())

    def start(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        super().start()
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        logging.getLogger("jupyter_gpubroker").setLevel(self.log.level)
        if not (self.solo or self.shared or os.environ.get("JUPYTERHUB_SERVICE_URL")):
            self.exit_with(
                "serve needs --solo, --shared, or to be started as a service of a JupyterHub "
                "(see jupyter_gpubroker.hub.configure)"
            )
        if self.managed:
            die_with_parent()
        with contextlib.suppress(KeyboardInterrupt):
            asyncio.run(Serving(self).run())

    def exit_with(self, text: str) -> NoReturn:
        """Wrong use: say it and leave with 2."""
        self.log.error(text)
        self.exit(2)
        raise SystemExit(2)


def die_with_parent() -> None:
    """SIGTERM when the Hub is gone; at once if it is gone already (DESIGN §2)."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent or parent == 1:
        os.kill(os.getpid(), signal.SIGTERM)


class Serving:
    """One run of the broker's process: listen, take the lock, open, serve, close."""

    def __init__(self, app: ServeApp) -> None:
        self.app = app
        self.end = asyncio.Event()

    async def run(self) -> None:
        """Until SIGTERM, SIGINT, the end of the parent or of a solo broker's use."""
        tune()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.end.set)
        setup, lock = make_setup(self.app)
        shell = Shell(setup)
        app = make_app(shell, self._auth(), self._prefix(), clock=setup.clock)
        server = Server(app, max_body_size=BODY_MAX)
        if self.app.solo and await self._taken(lock):
            log.info("another broker of this user runs already")
            return
        await self._listen(server)
        try:
            await self._serve(shell, lock, server)
        finally:
            server.stop()
            await server.close_all_connections()
            lock.release()

    async def _people(self, shell: Shell) -> None:
        """On a Hub: users may be removed."""
        headers = {"Authorization": f"token {os.environ['JUPYTERHUB_API_TOKEN']}"}
        url = os.environ.get("JUPYTERHUB_API_URL", HUB_API_URL)
        async with httpx.AsyncClient(
            base_url=url, headers=headers, timeout=HUB_TIMEOUT_S, trust_env=False
        ) as hub:
            await People(lambda: shell.world, shell.put, hub).run()

    async def _taken(self, lock: WriterLock) -> bool:
        """Whether another broker has the lock; a store that does not answer has no broker.

        Of a broker that was killed, a child on its way to exec may have it for a moment."""
        end = time.monotonic() + TAKEN_S
        try:
            while not await asyncio.to_thread(lock.acquire, blocking=False):
                if time.monotonic() > end:
                    return True
                await asyncio.sleep(LOCK_RETRY_S)
        except StoreError as error:
            log.warning("store: %s", error)
        return False

    async def _serve(self, shell: Shell, lock: WriterLock, server: Server) -> None:
        async def work() -> None:
            await self._locked(shell, lock)
            await shell.run()

        tasks = [asyncio.create_task(work()), asyncio.create_task(self.end.wait())]
        if self.app.managed:
            tasks.append(asyncio.create_task(_parent_gone()))
        if self.app.solo:
            tasks.append(asyncio.create_task(_unused(server, shell)))
        if not self._on_socket():
            tasks.append(asyncio.create_task(self._people(shell)))
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        for task in done:
            task.result()

    async def _locked(self, shell: Shell, lock: WriterLock) -> None:
        """One writer: a second broker answers /health and waits."""
        while True:
            try:
                if await asyncio.to_thread(lock.acquire, blocking=False):
                    shell.world.problems.pop("lock", None)
                    return
                text = "another broker holds the lock of this store; waiting for it"
            except StoreError as error:
                text = str(error)
            if shell.world.problems.get("lock") != text:
                log.warning(text)
            shell.world.problems["lock"] = text
            await asyncio.sleep(LOCK_RETRY_S)

    # --- where to listen ----------------------------------------------------------------

    def _hub_url(self) -> str:
        return os.environ.get("JUPYTERHUB_SERVICE_URL", "")

    def _prefix(self) -> str:
        return "/" if self._on_socket() else os.environ.get("JUPYTERHUB_SERVICE_PREFIX", "/")

    def _on_socket(self) -> bool:
        return self.app.solo or self.app.shared

    def _auth(self) -> HubAuth | PeerAuth:
        if self._on_socket():
            return PeerAuth(shared=self.app.shared)
        return HubAuth(os.environ["JUPYTERHUB_API_TOKEN"])

    async def _listen(self, server: Server) -> None:
        if self._on_socket():
            server.add_socket(_unix_socket(Path(self.app.socket), shared=self.app.shared))
            log.info("listening on %s", self.app.socket)
            return
        url = urlsplit(self._hub_url())
        assert url.port is not None
        for sock in await _tcp_sockets(url.port, url.hostname or "127.0.0.1"):
            server.add_socket(sock)
        log.info("listening on %s%s", self._hub_url(), self._prefix())


class Server(HTTPServer):
    """Knows when it was used last: a solo broker ends when nobody needs it."""

    connections = 0
    last_used = 0.0

    def start_request(self, server_conn: object, request_conn: Any) -> Any:
        """A connection begins a request; counted once per connection."""
        if not getattr(server_conn, "counted", False):
            server_conn.counted = True  # type: ignore[attr-defined]  # tornado's own object
            self.connections += 1
        return super().start_request(server_conn, request_conn)

    def on_close(self, server_conn: object) -> None:
        """A connection is closed."""
        if getattr(server_conn, "counted", False):
            self.connections -= 1
        self.last_used = time.monotonic()
        super().on_close(server_conn)


async def _unused(server: Server, shell: Shell) -> None:
    """Return when a solo broker has had no client for long and has nothing to look after."""
    server.last_used = time.monotonic()
    while True:
        await asyncio.sleep(5.0)
        if server.connections or shell.world.alive:
            server.last_used = time.monotonic()
        elif time.monotonic() - server.last_used > SOLO_LINGER_S:
            log.info("nobody has used this broker for %.0f s", SOLO_LINGER_S)
            return


async def _parent_gone() -> None:
    parent = os.getppid()
    while os.getppid() == parent:  # noqa: ASYNC110 - nothing else tells of another parent
        await asyncio.sleep(1.0)
    log.warning("the Hub is gone: ending; jobs and sessions live on")


async def _tcp_sockets(port: int, host: str) -> list[socket.socket]:
    """Bound sockets; waits for a broker that is just ending to give the port back."""
    end = time.monotonic() + BIND_PATIENCE_S
    while True:
        try:
            return bind_sockets(port, host)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                raise
            await asyncio.sleep(0.2)


def _unix_socket(path: Path, *, shared: bool) -> socket.socket:
    """A listening unix socket; its folder is private unless all users may connect."""
    path.parent.mkdir(mode=0o755 if shared else 0o700, parents=True, exist_ok=True)
    if not shared and path.parent.stat().st_uid != os.getuid():
        raise StoreError(f"{path.parent} belongs to somebody else: choose another --socket")
    return bind_unix_socket(str(path), mode=0o666 if shared else 0o600)
