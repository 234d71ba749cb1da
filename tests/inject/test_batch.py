# SPDX-License-Identifier: BSD-3-Clause
"""What a training script says to the queue, and hears from it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpubroker.inject import FOLDER

from ..until import until


def script(code: str, **env: str) -> dict[str, Any]:
    """Arguments that run ``code`` as a job's program would be run."""
    clean = {"PATH": os.environ["PATH"], "PYTHONPATH": FOLDER}
    return {
        "args": [sys.executable, "-S", "-c", code],
        "env": {**clean, **env},
        "text": True,
        "stdout": subprocess.PIPE,
    }


def marks(spool: Path, rank: int) -> list[dict[str, Any]]:
    """What that rank said."""
    path = spool / f"marks-{rank}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_nothing_but_the_standard_library_is_imported() -> None:
    code = "import gpubroker, sys; print([m for m in sys.modules if 'IPython' in m or 'zmq' in m])"
    assert subprocess.run(**script(code), check=True).stdout == "[]\n"


def test_outside_a_job_nothing_happens(tmp_path: Path) -> None:
    code = (
        "import gpubroker as g, signal; print(g.should_stop()); g.checkpointed(1); g.complete();"
        "print(signal.getsignal(signal.SIGTERM) is signal.SIG_DFL)"
    )
    assert subprocess.run(**script(code), cwd=tmp_path, check=True).stdout == "False\nTrue\n"
    assert list(tmp_path.iterdir()) == []


def test_marks_are_appended_by_rank(tmp_path: Path) -> None:
    code = "import gpubroker as g; g.checkpointed(10); g.checkpointed(20); g.complete()"
    env = {"GPUBROKER_SPOOL": str(tmp_path)}
    subprocess.run(**script(code, **env, RANK="3"), check=True)
    subprocess.run(**script(code, **env), check=True)
    said = [{"checkpoint": 10}, {"checkpoint": 20}, {"complete": True}]
    assert marks(tmp_path, 3) == said
    assert marks(tmp_path, 0) == said


@pytest.mark.parametrize("step", ["'10'", "1.5", "True", "-1", "None"])
def test_a_step_that_is_no_step_is_refused(tmp_path: Path, step: str) -> None:
    code = (
        f"import gpubroker\ntry: gpubroker.checkpointed({step})\n"
        "except (TypeError, ValueError) as e: print(e)"
    )
    run = subprocess.run(**script(code, GPUBROKER_SPOOL=str(tmp_path)), check=True)
    assert run.stdout.startswith("step must")
    assert list(tmp_path.iterdir()) == []


def test_a_stop_file_is_heard(tmp_path: Path) -> None:
    code = "import gpubroker; print(gpubroker.should_stop())"
    env = {"GPUBROKER_SPOOL": str(tmp_path)}
    assert subprocess.run(**script(code, **env), check=True).stdout == "False\n"
    (tmp_path / "stop").write_text('{"reason": "preempted"}')
    assert subprocess.run(**script(code, **env), check=True).stdout == "True\n"


LOOP = """
import gpubroker, threading
gpubroker.should_stop()
print("ready", flush=True)
while not gpubroker.should_stop():
    threading.Event().wait(0.02)
gpubroker.checkpointed(7)
raise SystemExit(75)
"""


def test_a_program_that_asks_is_not_ended_by_the_signal(tmp_path: Path) -> None:
    with subprocess.Popen(**script(LOOP, GPUBROKER_SPOOL=str(tmp_path))) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGTERM)
        assert until(program.poll, what="the end") == 75
    assert marks(tmp_path, 0) == [{"checkpoint": 7}]


def test_a_program_that_never_asks_ends_as_always(tmp_path: Path) -> None:
    code = "import gpubroker, signal\nprint('ready', flush=True)\nsignal.pause()"
    with subprocess.Popen(**script(code, GPUBROKER_SPOOL=str(tmp_path))) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGTERM)
        assert until(program.poll, what="the end") == -signal.SIGTERM


def test_a_handler_of_the_program_stays(tmp_path: Path) -> None:
    code = (
        "import gpubroker, signal; h = lambda *_: None; signal.signal(signal.SIGTERM, h);"
        "gpubroker.should_stop(); print(signal.getsignal(signal.SIGTERM) is h)"
    )
    run = subprocess.run(**script(code, GPUBROKER_SPOOL=str(tmp_path)), check=True)
    assert run.stdout == "True\n"
