# SPDX-License-Identifier: BSD-3-Clause
"""A real ``jupyter lab`` in a process of its own, as a person without a Hub starts it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import httpx
import psutil

from tests.until import until

QUIET = {
    "@jupyterlab/apputils-extension:notification": {
        "fetchNews": "false",
        "checkForUpdates": False,
    }
}

ENDED = ("completed", "failed", "cancelled")


@dataclass
class Person:
    """Somebody's home on this machine: settings, data, and their own broker's socket."""

    folder: Path
    """Short, since there is a unix socket below it."""
    devices: str = "2x4"
    """GPUBROKER_SIMULATE; empty = not set."""
    python: str = sys.executable
    labs: list[Lab] = field(default_factory=list)

    def __post_init__(self) -> None:
        for name in ("home", "config", "data", "runtime", "run"):
            (self.folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        be_quiet(self.folder / "config")

    @property
    def environment(self) -> dict[str, str]:
        """What their shell has set."""
        return {
            "PATH": os.pathsep.join([str(Path(self.python).parent), os.environ["PATH"]]),
            "HOME": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "JUPYTER_CONFIG_DIR": str(self.folder / "config"),
            "JUPYTER_DATA_DIR": str(self.folder / "data"),
            "JUPYTER_RUNTIME_DIR": str(self.folder / "runtime"),
            "IPYTHONDIR": str(self.folder / "ipython"),
            "XDG_RUNTIME_DIR": str(self.folder / "run"),
            "OMP_NUM_THREADS": "1",
            **({"GPUBROKER_SIMULATE": self.devices} if self.devices else {}),
        }

    @property
    def broker_url(self) -> str:
        """Where their own broker listens."""
        return f"unix:{self.folder / 'run/jupyter-gpubroker/socket'}"

    def lab(self, *options: str, through: Sequence[str] = ()) -> Lab:
        """Start ``jupyter lab``, or a command that starts it; returns when it answers."""
        lab = Lab(self, options, through)
        self.labs.append(lab)
        return lab.start()

    def start_broker(self) -> None:
        """``jupyter gpubroker serve --solo`` in another terminal."""
        command = [self.python, "-m", "jupyter_gpubroker.app", "serve", "--solo"]
        with (self.folder / "broker.log").open("ab") as log:
            subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def leave(self) -> None:
        """End everything that runs for this person, their broker too."""
        for lab in self.labs:
            lab.stop()
        end_everything_of(self.folder)


@dataclass
class Lab:
    """One Jupyter server with JupyterLab on a free port of the loopback interface."""

    person: Person
    options: Sequence[str] = ()
    through: Sequence[str] = ()
    url: str = ""
    token: str = ""
    process: subprocess.Popen[bytes] | None = None

    @property
    def notebooks(self) -> Path:
        """The folder that it shows."""
        return self.person.folder / "home"

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.person.folder / f"lab-{id(self):x}.log"

    def start(self) -> Self:
        """Start it and wait until it answers."""
        command = [*self.through, self.person.python, "-m", "jupyterlab", "--no-browser"]
        command += ["--ip=127.0.0.1", "--port=0", *self.options]
        if os.geteuid() == 0:
            command.append("--allow-root")
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                cwd=self.notebooks,
                env=self.person.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        until(self._answers, timeout=180, what=f"JupyterLab ({self.log})")
        return self

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()[-4000:]
        record = self.person.folder / f"runtime/jpserver-{self.process.pid}.json"
        with contextlib.suppress(OSError, ValueError):
            found = json.loads(record.read_text())
            self.url, self.token = found["url"].rstrip("/"), found["token"]
            with contextlib.suppress(httpx.HTTPError):
                return self.request("GET", "api/status").is_success
        return False

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """One call of the Jupyter Server API."""
        headers = {"Authorization": f"token {self.token}"}
        with httpx.Client(trust_env=False, timeout=60) as client:
            return client.request(method, f"{self.url}/{path}", json=body, headers=headers)

    def state(self) -> Any:
        """What our server extension tells the sidebar."""
        return self.request("GET", "gpubroker/state").raise_for_status().json()

    def write(self, name: str, *cells: str) -> None:
        """A notebook with these cells."""
        write_notebook(self.notebooks / name, *cells)

    def give_everything_back(self) -> None:
        """Kernels end, jobs are cancelled, the session is discarded."""
        for kernel in self.request("GET", "api/kernels").json():
            self.request("DELETE", f"api/kernels/{kernel['id']}")
        until(self._has_nothing, timeout=120, what="everything to be given back")

    def _has_nothing(self) -> bool:
        state = self.state()
        living = [job for job in state["jobs"] if job["state"] not in ENDED]
        for job in living:
            self.request("POST", f"gpubroker/api/jobs/{job['id']}/cancel", {})
        session = state["session"]
        if session is not None:
            verb = "release" if session["lease"] else "cancel"
            self.request("POST", f"gpubroker/api/sessions/{session['id']}/{verb}", {})
        return not living and session is None

    def stop(self) -> None:
        """As Ctrl-C twice; its kernels and terminals end with it."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(30)


def be_quiet(config: Path) -> None:
    """JupyterLab asks a newcomer about news, in a message that would lie over the sidebar."""
    folder = config / "labconfig"
    folder.mkdir(exist_ok=True)
    (folder / "default_setting_overrides.json").write_text(json.dumps(QUIET))


def write_notebook(path: Path, *cells: str) -> None:
    """A notebook file with these cells."""
    content = {
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell-{number}",
                "source": source,
                "metadata": {},
                "outputs": [],
                "execution_count": None,
            }
            for number, source in enumerate(cells)
        ],
        "metadata": {
            "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    path.write_text(json.dumps(content))


def end_everything_of(folder: Path) -> None:
    """End the processes whose environment or command line names a folder of ours."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        ours = list(_of(folder))
        for process in ours:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        psutil.wait_procs(ours, timeout=15)


def _of(folder: Path) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error):
            words = [*process.cmdline(), *process.environ().values()]
            if any(str(folder) in word for word in words):
                yield process
