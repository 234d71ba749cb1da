# SPDX-License-Identifier: BSD-3-Clause
"""A real broker in a process of its own, to be killed and started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Self

from jupyter_gpubroker.client import BrokerError, Client
from jupyter_gpubroker.wire import HealthOut, JobOut, RequestIn, SubmitIn
from tests.conftest import ROOT
from tests.until import until

ENDED = ("completed", "failed", "cancelled")


class SoloBroker:
    """``serve --solo`` on simulated devices; everything it keeps is under ``folder``."""

    mode = "--solo"

    def __init__(self, folder: Path, devices: str = "simulated:2x4", *options: str) -> None:
        self.folder = folder
        self.devices = devices
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None
        self._clients: list[Client] = []

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return self.folder / "socket"

    @property
    def url(self) -> str:
        """As GPUBROKER_URL."""
        return f"unix:{self.socket}"

    @property
    def environment(self) -> dict[str, str]:
        """What it, and jobs submitted by tests, run with."""
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
        }

    def start(self) -> Self:
        """Start it; returns before it answers."""
        assert self.process is None
        command = [
            sys.executable,
            "-m",
            "jupyter_gpubroker.app",
            "serve",
            self.mode,
            f"--state-dir={self.folder / 'state'}",
            f"--socket={self.socket}",
            f"--devices={self.devices}",
            *self.options,
        ]
        with open(self.folder / "broker.log", "ab") as log:
            self.process = subprocess.Popen(
                command, env=self.environment, stdout=log, stderr=log, start_new_session=True
            )
        return self

    def kill(self) -> None:
        """SIGKILL: no chance to tidy up."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        if self.process is None:
            return 0
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        self.process = None
        return code

    def close(self) -> None:
        """End it, and every client that it was asked for."""
        self.stop()
        while self._clients:
            self._clients.pop().close()

    def log(self) -> str:
        """What it has said."""
        return (self.folder / "broker.log").read_text(errors="replace")

    def client(self) -> Client:
        """Once it answers; closed by ``close``."""
        client = Client(self.url)
        self._clients.append(client)
        until(lambda: _health(client), what=f"the broker to answer\n{self.log()}")
        return client

    def submit(self, client: Client, code: str, **request: object) -> JobOut:
        """A Python script as a batch job; one process per node unless it is a gang."""
        return client.submit(
            SubmitIn(
                argv=("job.py",),
                files={"job.py": code},
                cwd=str(self.folder),
                env=self.environment,
                python=sys.executable,
                torchrun=request.get("nodes", 1) != 1,
                request=RequestIn.model_validate(request),
            )
        )


def _health(client: Client) -> HealthOut | None:
    try:
        return client.health()
    except BrokerError:
        return None


def ended(client: Client, job: str, timeout: float = 150.0) -> JobOut:
    """The job once it has ended."""
    return until(
        lambda: ((found := client.show(job)) and found.state in ENDED and found) or None,
        timeout=timeout,
        what=f"{job} to end",
    )


def reached(client: Client, job: str, *states: str) -> JobOut:
    """The job once it is in one of these states."""
    return until(
        lambda: ((found := client.show(job)) and found.state in states and found) or None,
        what=f"{job} to be {' or '.join(states)}",
    )
