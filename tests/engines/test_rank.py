# SPDX-License-Identifier: BSD-3-Clause
"""The wrapper of one torchrun rank."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpubroker.engines import rank

from ..until import until
from .contract import alive, child

SCRIPT = "import sys; print(__name__, sys.argv, flush=True)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "spool").mkdir()
    return tmp_path


def running(folder: Path, *argv: str) -> AbstractContextManager[subprocess.Popen[str]]:
    """Rank 3, as torchrun starts it."""
    env = {"RANK": "3", "PYTHONPATH": str(folder)}
    return child(
        [sys.executable, "-u", rank.__file__, str(folder), *argv], env=env, start_new_session=True
    )


def log(folder: Path) -> str:
    path = folder / "rank-3.log"
    return path.read_text() if path.exists() else ""


def said(folder: Path) -> Any:
    return json.loads((folder / "spool" / "exit-3.json").read_text())


def script(folder: Path, text: str) -> str:
    path = folder / "train.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("", 0),
        ("sys.exit(13)", 13),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.kill(os.getpid(), 11)", -11),
        ("raise ValueError('bad')", 1),
    ],
)
def test_it_ends_as_the_script_and_says_so(folder: Path, ending: str, code: int) -> None:
    with running(folder, script(folder, SCRIPT + ending)) as process:
        assert process.wait(60) == code
    assert said(folder)["code"] == code
    assert said(folder)["time"] > 10**18
    assert ("ValueError: bad" in log(folder)) == (code == 1)


def test_the_script_is_main_with_its_own_arguments(folder: Path) -> None:
    path = script(folder, SCRIPT)
    with running(folder, path, "--lr", "a b") as process:
        assert process.wait(60) == 0
    assert log(folder) == f"__main__ {[path, '--lr', 'a b']}\n"


def test_a_module_is_run_as_one(folder: Path) -> None:
    path = script(folder, SCRIPT)
    with running(folder, "-m", "train", "x") as process:
        assert process.wait(60) == 0
    assert log(folder) == f"__main__ {[path, 'x']}\n"


@pytest.mark.parametrize("how", [os.kill, os.killpg])
def test_each_signal_arrives_once(folder: Path, how: Any) -> None:
    text = (
        "import signal, sys, time\n"
        "seen = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('term', flush=True))\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(6))\n"
        "print('up', flush=True)\n"
        "while True: signal.pause()"
    )
    with running(folder, script(folder, text)) as process:
        until(lambda: "up" in log(folder))
        how(process.pid, signal.SIGTERM)
        until(lambda: "term" in log(folder))
        how(process.pid, signal.SIGUSR1)
        assert process.wait(60) == 6
    assert log(folder).split() == ["up", "term"]


def test_the_script_does_not_outlive_a_killed_wrapper(folder: Path) -> None:
    text = "import os, signal; print(os.getpid(), flush=True); signal.pause()"
    with running(folder, script(folder, text)) as process:
        pid = int(until(lambda: log(folder)))
        assert alive(pid)
        process.kill()
        until(lambda: not alive(pid))
