# SPDX-License-Identifier: BSD-3-Clause
"""Find the broker of this server, or start the user's own."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from jupyter_core.paths import jupyter_data_dir

from ..client import SHARED_SOCKET, Address, Refusal, Unavailable, solo_socket_path

START_S = 60.0
"""How long the user's own broker may take until it listens."""
_PAUSE_S = 0.1

log = logging.getLogger(__name__)


class Finder:
    """Looks in the order: told by the Hub or a setting, shared by the machine, one's own."""

    def __init__(self, url: str, environ: Mapping[str, str], *, may_start: bool = True) -> None:
        """``environ`` is that of this server before anything was changed in it."""
        self._url = url or environ.get("GPUBROKER_URL", "")
        self._environ = environ
        self._may_start = may_start
        self._started: subprocess.Popen[bytes] | None = None

    def expected(self) -> str:
        """Where the broker is or will be, without looking whether it answers; may be empty."""
        if self._url:
            return self._url
        if _listens(SHARED_SOCKET):
            return f"unix:{SHARED_SOCKET}"
        try:
            return f"unix:{solo_socket_path(self._environ)}"
        except Refusal:
            return ""

    async def find(self) -> Address:
        """The broker's address. Unavailable or Refusal: what is missing, for people."""
        if self._url:
            return Address.parse(self._url, self._environ.get("JUPYTERHUB_API_TOKEN", ""))
        if _listens(SHARED_SOCKET):
            return Address.parse(f"unix:{SHARED_SOCKET}")
        path = solo_socket_path(self._environ)
        if not _listens(path):
            await self._start(path)
        return Address.parse(f"unix:{path}")

    async def _start(self, path: Path) -> None:
        if not self._may_start:
            raise Unavailable(
                "There is no GPU broker: GPUBROKER_URL is not set and none of yours runs."
                " Start one with `jupyter gpubroker serve --solo`."
            )
        end = time.monotonic() + START_S
        log_file = Path(jupyter_data_dir()) / "gpubroker" / "broker.log"
        process = self._started = self._launch(log_file)
        while not _listens(path):
            # One that lost the race for the lock ends with 0: then another one will listen.
            if process.poll() or time.monotonic() > end:
                raise Unavailable(
                    f"Your own GPU broker did not start: {_last_line(log_file)} (see {log_file})"
                )
            await asyncio.sleep(_PAUSE_S)

    def _launch(self, log_file: Path) -> subprocess.Popen[bytes]:
        """The user's own broker, which outlives this server and serves the next one too."""
        if self._started is not None and self._started.poll() is None:
            return self._started
        log_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        ours = ("GPUBROKER_SESSION", "GPUBROKER_INCARNATION", "JPY_")
        env = {name: v for name, v in self._environ.items() if not name.startswith(ours)}
        log.info("starting your own GPU broker (log: %s)", log_file)
        with log_file.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "jupyter_gpubroker.app", "serve", "--solo"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=env,
                start_new_session=True,
            )


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _last_line(path: Path) -> str:
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")
