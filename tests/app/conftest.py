# SPDX-License-Identifier: BSD-3-Clause
"""A broker for each test that wants one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.service.thread import Thread

from .brokers import SoloBroker
from .line import Line


@pytest.fixture
def broker(short_tmp: Path) -> Iterator[SoloBroker]:
    """Not started yet; whatever it left running is ended afterwards."""
    made = SoloBroker(short_tmp)
    yield made
    made.close()
    for process in psutil.process_iter():
        try:
            if str(short_tmp) in " ".join(process.cmdline()) or _of_a_job(process, short_tmp):
                process.kill()
        except psutil.Error:
            continue


def _of_a_job(process: psutil.Process, folder: Path) -> bool:
    return process.environ().get("GPUBROKER_SPOOL", "").startswith(str(folder))


@pytest.fixture
def line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Line]:
    thread = Thread()
    token = thread.house.hub.user("ana", server="")
    for name, value in {
        "GPUBROKER_URL": thread.house.url,
        "JUPYTERHUB_API_TOKEN": token,
        "HOME": str(tmp_path),
        "JUPYTER_CONFIG_DIR": str(tmp_path / "config"),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    yield Line(thread, capsys)
    monkeypatch.undo()
    thread.close()
