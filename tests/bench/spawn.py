# SPDX-License-Identifier: BSD-3-Clause
"""From the request on the Hub to a Jupyter server that answers, with our spawner and without."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx

from .. import needs
from ..until import until
from .pair import Pair, in_turn

CONFIG = """
import os, sys
hub, proxy, api, broker = ("http://127.0.0.1:" + port for port in os.environ["BENCH_PORTS"].split())
c.JupyterHub.bind_url, c.JupyterHub.hub_bind_url = proxy, hub
c.ConfigurableHTTPProxy.api_url = api
c.JupyterHub.authenticator_class = "dummy"
c.Authenticator.allow_all = True
c.JupyterHub.services = [{"name": "bench", "api_token": os.environ["BENCH_TOKEN"]}]
scopes = ["admin:users", "admin:servers"]
c.JupyterHub.load_roles = [{"name": "bench", "services": ["bench"], "scopes": scopes}]
c.SimpleLocalProcessSpawner.home_dir_template = os.path.join(os.getcwd(), "homes", "{username}")
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.args = ["--allow-root"]
"""
OURS = """
from jupyter_gpubroker.hub import configure
configure(
    c, state_dir="gpubroker", spawner="simple", devices="simulated:1x2", run_as="self", url=broker
)
"""
PLAIN = """
c.JupyterHub.spawner_class = "simple"
c.Spawner.args += ["--ServerApp.jpserver_extensions=jupyter_gpubroker=False"]
"""


@contextmanager
def hub(folder: Path, config: str, user_options: dict[str, str]) -> Iterator[Callable[[], float]]:
    """A Hub; what it yields starts a server, stops it, and returns the seconds of the start."""
    needs.proxy()
    folder.mkdir()
    (folder / "config.py").write_text(CONFIG + config)
    ports, token = _free_ports(4), secrets.token_hex(16)
    env = {**os.environ, "BENCH_PORTS": " ".join(map(str, ports)), "BENCH_TOKEN": token}
    command = [sys.executable, "-m", "jupyterhub", "-f", "config.py"]
    with (folder / "hub.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log)
    headers = {"Authorization": f"token {token}"}
    base = f"http://127.0.0.1:{ports[0]}/hub/api"
    try:
        with httpx.Client(base_url=base, headers=headers, timeout=120, trust_env=False) as client:
            until(lambda: _answers(client), timeout=120, what=f"a Hub; see {folder}/hub.log")
            client.post("/users/ana").raise_for_status()
            yield lambda: _spawn(client, user_options)
    finally:
        process.terminate()
        process.wait(120)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/user").is_success
    except httpx.HTTPError:
        return False


def _spawn(client: httpx.Client, user_options: dict[str, str]) -> float:
    begin = time.monotonic()
    client.post("/users/ana/server", json=user_options).raise_for_status()
    with client.stream("GET", "/users/ana/server/progress") as lines:
        assert any('"ready": true' in line for line in lines.iter_lines())
    end = time.monotonic()
    client.delete("/users/ana/server").raise_for_status()
    until(lambda: not client.get("/users/ana").json()["servers"], what="the server to stop")
    return end - begin


def measure() -> Pair:
    """With a GPU by our spawner, and by ``SimpleLocalProcessSpawner`` without our extension."""
    with tempfile.TemporaryDirectory(prefix="gb-") as name, ExitStack() as stack:
        asked = {"gpus": "0.5", "time": "1h"}
        ours = stack.enter_context(hub(Path(name) / "ours", OURS, asked))
        plain = stack.enter_context(hub(Path(name) / "plain", PLAIN, {}))
        return in_turn(ours, plain)
