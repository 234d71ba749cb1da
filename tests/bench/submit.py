# SPDX-License-Identifier: BSD-3-Clause
"""From the submission on an idle broker to the first instruction of the user's command."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_gpubroker.client import BrokerError, Client
from jupyter_gpubroker.wire import RequestIn, SubmitIn

from ..until import until
from .pair import Pair, in_turn

# The clock of the whole machine, written by the command itself.
STAMP = "import sys, time; now = time.monotonic(); open(sys.argv[1], 'w').write(f'{now!r}\\n')"


@contextmanager
def broker(folder: Path) -> Iterator[Client]:
    """A broker of this user's own, with simulated GPUs, that nobody else uses."""
    socket = folder / "socket"
    command = [sys.executable, "-m", "jupyter_gpubroker.app", "serve", "--solo"]
    options = ["--devices=simulated:1x2", f"--state-dir={folder}/state", f"--socket={socket}"]
    with (folder / "broker.log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *options, "--run-as=self", f"--jobs-dir={folder}/jobs"], stderr=log
        )
    try:
        with Client(f"unix:{socket}") as client:
            until(lambda: _answers(client), what=f"a broker; see {folder}/broker.log")
            yield client
    finally:
        process.terminate()
        process.wait(60)


def _answers(client: Client) -> bool:
    try:
        return not client.health().problems
    except BrokerError:
        return False


def stamped(path: Path) -> float:
    """When the command ran, as soon as it has said so."""
    return float(
        until(lambda: path.exists() and path.read_text().endswith("\n") and path.read_text())
    )


def measure() -> Pair:
    """Submitted to a broker, and started with a plain Popen."""
    with (
        tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as name,
        broker(Path(name)) as client,
    ):
        names = (Path(name) / f"stamp-{number}" for number in range(1000))

        def submitted() -> float:
            path = next(names)
            argv = (sys.executable, "-c", STAMP, str(path))
            begin = time.monotonic()
            job = client.submit(SubmitIn(argv=argv, request=RequestIn(gpus=1, time="10m")))
            end = stamped(path)
            until(lambda: client.show(job.id).state == "completed", what="the end of the job")
            return end - begin

        def plain() -> float:
            path = next(names)
            begin = time.monotonic()
            with subprocess.Popen([sys.executable, "-c", STAMP, str(path)]):
                return stamped(path) - begin

        return in_turn(submitted, plain)
