# SPDX-License-Identifier: BSD-3-Clause
"""A real JupyterHub in processes of its own: Hub, proxy, managed broker, users' servers.

Everything is under one folder, listens on free ports of the loopback interface, and is
ended by pid: whatever names the folder in its arguments, environment or working folder.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from jupyter_gpubroker.client import BrokerError, Client
from jupyter_gpubroker.devices.processes import environ_of
from jupyter_gpubroker.wire import JobOut
from tests import needs
from tests.conftest import ROOT
from tests.until import until

PATIENCE_S = 180.0
CONFIG = """\
import os, sys
from jupyter_gpubroker.hub import configure

c = get_config()
c.JupyterHub.bind_url = "http://127.0.0.1:{port}/"
c.JupyterHub.hub_bind_url = "http://127.0.0.1:{hub_port}"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{proxy_port}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.JupyterHub.allow_named_servers = True
c.JupyterHub.tornado_settings = {{"slow_spawn_timeout": 3}}
c.JupyterHub.services = [{{"name": "test", "api_token": {token!r}}}]
c.JupyterHub.load_roles = [
    {{"name": "test", "services": ["test"], "scopes": ["admin:users", "admin:servers", "tokens"]}}
]
c.SimpleLocalProcessSpawner.home_dir_template = {homes!r} + "/{{username}}"
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root"] if os.geteuid() == 0 else []
c.Spawner.environment = {{"JUPYTER_CONFIG_DIR": {server_config!r}}}
c.Spawner.http_timeout = 180
c.Spawner.poll_interval = 1
{more}
configure(
    c,
    state_dir={state!r},
    spawner={spawner!r},
    devices={devices!r},
    policy_file={policy!r},
    run_as="self",
    url="http://127.0.0.1:{broker_port}",
    admins=["boss"],
    gpu_wait={gpu_wait!r},
    binding={binding!r},
)
"""


class RealHub:
    """Configured by ``hub.configure``; may be stopped or killed and started again."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        """``settings``: devices, policy (text), spawner, gpu_wait, binding, extension (whether
        servers load ours), more (lines of configuration)."""
        self.folder = folder.absolute()
        self.password = secrets.token_hex(8)
        self.token = secrets.token_hex(16)
        self.state = self.folder / "state"
        port, hub_port, proxy_port, broker_port = _free_ports(4)
        self.url = f"http://127.0.0.1:{port}"
        self.api_url = f"http://127.0.0.1:{hub_port}/hub/api"
        self.broker_url = f"http://127.0.0.1:{broker_port}/services/gpubroker"
        self.hub: subprocess.Popen[bytes] | None = None
        policy = settings.get("policy", "")
        if policy:
            (self.folder / "policy.yaml").write_text(policy)
        config = CONFIG.format(
            port=port,
            hub_port=hub_port,
            proxy_port=proxy_port,
            broker_port=broker_port,
            proxy=needs.proxy(),
            password=self.password,
            token=self.token,
            homes=str(self.folder / "homes"),
            server_config=str(self.folder / "server-config"),
            state=str(self.state),
            spawner=settings.get("spawner", "simple"),
            devices=settings.get("devices", "simulated:2x4"),
            policy=str(self.folder / "policy.yaml") if policy else None,
            gpu_wait=settings.get("gpu_wait", "attach"),
            binding=settings.get("binding", "kernel"),
            # Where servers have no extension, the tests speak for it, at their own pace.
            more="c.GPUBrokerMixin.hello_timeout = 600\n" + settings.get("more", ""),
        )
        (self.folder / "jupyterhub_config.py").write_text(config)
        self._configure_servers(bool(settings.get("extension", True)))

    def _configure_servers(self, extension: bool) -> None:
        """Load our extension in servers, or keep it out of them."""
        folder = self.folder / "server-config"
        folder.mkdir()
        loaded = {"ServerApp": {"jpserver_extensions": {"jupyter_gpubroker": extension}}}
        (folder / "jupyter_server_config.json").write_text(json.dumps(loaded))

    # --- processes ----------------------------------------------------------------------

    def start(self) -> Self:
        """Boot, and wait until Hub and broker answer."""
        self.boot()
        until(self.answers, timeout=PATIENCE_S, what=f"the Hub to answer\n{self.log()}")
        until(self.health, timeout=PATIENCE_S, what=f"the broker to answer\n{self.log()}")
        return self

    def boot(self) -> None:
        """Begin to boot."""
        assert self.hub is None
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        with open(self.folder / "hub.log", "ab") as log:
            self.hub = subprocess.Popen(
                [sys.executable, "-m", "jupyterhub", "-f", "jupyterhub_config.py"],
                cwd=self.folder,
                env=environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL the Hub alone: proxy, broker and servers see to themselves."""
        assert self.hub is not None
        self.hub.kill()
        self.hub.wait()
        self.hub = None

    def stop(self) -> None:
        """SIGTERM the Hub, and wait until it has tidied up."""
        assert self.hub is not None
        self.hub.send_signal(signal.SIGTERM)
        self.hub.wait(PATIENCE_S)
        self.hub = None

    def close(self) -> None:
        """End everything that was started under the folder."""
        if self.hub is not None:
            self.kill()
        while left := self.processes():
            for process in left:
                _end(process)
            psutil.wait_procs(left, timeout=10)

    def processes(self, *words: str) -> list[psutil.Process]:
        """Processes of this Hub whose command line has all these words."""
        this = psutil.Process()
        ours = {this.pid, *(parent.pid for parent in this.parents())}
        return [
            process
            for process in psutil.process_iter()
            if process.pid not in ours and _names(process, str(self.folder), words)
        ]

    def brokers(self) -> list[psutil.Process]:
        """The processes that serve as brokers."""
        return self.processes("jupyter_gpubroker.app", "serve")

    def log(self) -> str:
        """What Hub, proxy and broker have said."""
        path = self.folder / "hub.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # --- Hub ----------------------------------------------------------------------------

    def answers(self) -> bool:
        """Whether the Hub's API answers through the proxy as well as directly."""
        assert self.hub is not None
        assert self.hub.poll() is None, f"the Hub has ended\n{self.log()}"
        try:
            return httpx.get(f"{self.url}/hub/api/", timeout=5, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def api(self, method: str, path: str, **body: Any) -> httpx.Response:
        """The Hub's REST API with the rights of an admin."""
        headers = {"Authorization": f"token {self.token}"}
        return httpx.request(
            method,
            f"{self.api_url}{path}",
            json=body or None,
            headers=headers,
            timeout=PATIENCE_S,
            trust_env=False,
        )

    def user(self, *names: str) -> None:
        """Accounts of the Hub."""
        for name in names:
            assert self.api("POST", f"/users/{name}").status_code in (201, 409)

    def token_of(self, user: str, *scopes: str) -> str:
        """A token of a user with these scopes (default: all that the user has)."""
        wanted = {"scopes": list(scopes)} if scopes else {}
        answer = self.api("POST", f"/users/{user}/tokens", **wanted)
        assert answer.status_code == 201, answer.text
        return str(answer.json()["token"])

    def spawn(self, key: str, **options: Any) -> httpx.Response:
        """Ask for the server ``user/name`` with these ``user_options``."""
        self.user(key.partition("/")[0])
        return self.api("POST", _path(key), user_options=options)

    def cancel(self, key: str) -> httpx.Response:
        """Stop a server, or what is still starting."""
        return self.api("DELETE", _path(key))

    def server(self, key: str) -> dict[str, Any]:
        """The Hub's model of a server; empty if it does not run."""
        user, _, name = key.partition("/")
        servers = self.api("GET", f"/users/{user}").json()["servers"]
        return dict(servers.get(name, {}))

    def ready(self, key: str) -> int:
        """Wait until a server answers; its pid."""
        until(
            lambda: self.server(key).get("ready"), timeout=PATIENCE_S, what=f"{key}\n{self.log()}"
        )
        return int(self.server(key)["state"]["pid"])

    def environment(self, key: str) -> dict[str, str]:
        """What a running server was started with."""
        return dict(environ_of(int(self.server(key)["state"]["pid"])))

    # --- broker -------------------------------------------------------------------------

    def health(self) -> bool:
        """Whether the broker answers, degraded or not."""
        try:
            with self.broker() as broker:
                return bool(broker.health().status)
        except BrokerError:
            return False

    @contextmanager
    def broker(self, token: str = "") -> Iterator[Client]:
        """The broker's API, with the rights of the Hub or of a token."""
        own = (self.state / "hub-token").read_text().strip()
        with Client(self.broker_url, token or own) as client:
            yield client

    def session(self, key: str) -> JobOut | None:
        """The living session of a server."""
        user, _, server = key.partition("/")
        with self.broker() as broker:
            return broker.server_state(server, user=user).session

    def running(self, key: str) -> JobOut:
        """The session of a server once it has its GPUs."""

        def bound() -> JobOut | None:
            session = self.session(key)
            return session if session is not None and session.state == "running" else None

        session = until(bound, timeout=PATIENCE_S, what=f"the session of {key}\n{self.log()}")
        assert session is not None
        return session

    def sessions(self, user: str) -> list[JobOut]:
        """All sessions that a user ever had, newest first."""
        with self.broker() as broker:
            return [job for job in broker.jobs(everybody=True) if job.user == user]


def _path(key: str) -> str:
    user, _, server = key.partition("/")
    return f"/users/{user}/servers/{server}" if server else f"/users/{user}/server"


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for item in sockets:
        item.bind(("127.0.0.1", 0))
    ports = [item.getsockname()[1] for item in sockets]
    for item in sockets:
        item.close()
    return ports


def _names(process: psutil.Process, folder: str, words: tuple[str, ...]) -> bool:
    try:
        command = process.cmdline()
        if process.status() == psutil.STATUS_ZOMBIE or not set(words) <= set(command):
            return False
        return any(
            folder in text for text in (*command, process.cwd(), *process.environ().values())
        )
    except psutil.Error:
        return False


def _end(process: psutil.Process) -> None:
    with suppress(psutil.NoSuchProcess):
        process.kill()
