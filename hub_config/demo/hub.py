# SPDX-License-Identifier: BSD-3-Clause
"""Start the demo's JupyterHub on free loopback ports, and end everything it started."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
from notebooks import until

HERE = Path(__file__).resolve().parent


class Hub:
    """One JupyterHub with the broker as its managed service."""

    def __init__(self, devices: str) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="gpubroker-demo-"))
        self.password = secrets.token_urlsafe(9)
        ports = _free_ports(4)
        self.url = f"http://127.0.0.1:{ports[0]}"
        self.broker_url = f"{self.url}/services/gpubroker"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not _stray(name)},
            "PATH": _path(),
            "DEMO_ROOT": str(self.root),
            "DEMO_PASSWORD": self.password,
            "DEMO_PORT": str(ports[0]),
            "DEMO_HUB_PORT": str(ports[1]),
            "DEMO_PROXY_PORT": str(ports[2]),
            "DEMO_BROKER_PORT": str(ports[3]),
            "DEMO_DEVICES": devices,
        }
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What the Hub and everything under it print."""
        return self.root / "hub.log"

    async def start(self) -> None:
        """Returns when Hub and broker answer; RuntimeError with the log if they do not."""
        self._launch()
        try:
            await until(self._healthy, "the Hub and its broker", 180.0)
        except TimeoutError as error:
            raise RuntimeError(f"{error}\n{self.tail()}") from error

    def _launch(self) -> None:
        command = [sys.executable, "-m", "jupyterhub", "-f", str(HERE / "jupyterhub_config.py")]
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=self.root,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _healthy(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise RuntimeError(f"the Hub ended:\n{self.tail()}")
        with contextlib.suppress(httpx.HTTPError):
            async with httpx.AsyncClient(trust_env=False) as client:
                hub = await client.get(f"{self.url}/hub/health")
                broker = await client.get(f"{self.broker_url}/health")
                return hub.is_success and broker.is_success and broker.json()["status"] == "ok"
        return False

    def tail(self, lines: int = 40) -> str:
        """The last lines of the log."""
        with contextlib.suppress(OSError):
            text = self.log.read_text(errors="replace")
            return "\n".join(text.splitlines()[-lines:])
        return ""

    def stop(self) -> None:
        """End the Hub and everything that runs for it, and remove its folder."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(60)
        for number in (signal.SIGTERM, signal.SIGKILL):
            ours = list(self._left())
            for process in ours:
                with contextlib.suppress(psutil.Error):
                    process.send_signal(number)
            psutil.wait_procs(ours, timeout=10)
        shutil.rmtree(self.root, ignore_errors=True)

    def _left(self) -> Iterator[psutil.Process]:
        """Processes whose environment or command line names the demo's folder."""
        for process in psutil.process_iter():
            if process.pid == os.getpid():
                continue
            with contextlib.suppress(psutil.Error):
                words = [*process.cmdline(), *process.environ().values()]
                if any(str(self.root) in word for word in words):
                    yield process


def _path() -> str:
    """Our interpreter's programs and the proxy that ``make setup`` installed come first."""
    checkout = HERE.parents[1]
    ours = (Path(sys.prefix) / "bin", checkout / ".demo/npm/node_modules/.bin")
    return os.pathsep.join([*map(str, ours), os.environ.get("PATH", os.defpath)])


def _stray(name: str) -> bool:
    return name.startswith(("GPUBROKER_", "JUPYTERHUB_", "JPY_", "CUDA_"))


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = []
        for _ in range(count):
            listener = stack.enter_context(socket.socket())
            listener.bind(("127.0.0.1", 0))
            found.append(int(listener.getsockname()[1]))
        return found
