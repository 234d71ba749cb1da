# SPDX-License-Identifier: BSD-3-Clause
"""What /proc says about processes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from jupyter_gpubroker.core.model import Process
from jupyter_gpubroker.devices import processes

from ..until import until


def test_a_process_lives_until_it_is_killed_reaped_or_not() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as child:
        process = processes.process_of(child.pid)
        assert process
        assert processes.alive(process)
        child.kill()
        until(lambda: not processes.alive(process), what="the end of a zombie")
        child.wait()
        assert processes.process_of(child.pid) is None


def test_a_later_process_of_the_same_pid_is_another() -> None:
    me = processes.this_process()
    assert processes.alive(me)
    assert not processes.alive(Process(me.pid, me.start + 1))


def test_a_command_with_brackets_and_blanks_confuses_nobody(tmp_path: Path) -> None:
    odd = tmp_path / "a) R 1 (b"
    odd.symlink_to("/bin/cat")
    with subprocess.Popen([odd], stdin=subprocess.PIPE) as child:
        expected = Process(child.pid, processes.this_process().start)
        process = processes.process_of(child.pid)
        assert process
        assert process.start >= expected.start


def test_the_launch_environment_names_the_owner() -> None:
    environ = {**os.environ, "GPUBROKER_SESSION": "nb1/été"}
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, env=environ) as child:
        seen = until(lambda: processes.environ_of(child.pid), what="its environment")
        assert processes.owner_of(seen) == "nb1/été"


def test_the_environment_of_nobody_is_empty() -> None:
    assert processes.environ_of(2**30) == {}


@pytest.mark.parametrize(
    ("environ", "owner"),
    [
        ({}, ""),
        ({"GPUBROKER_SESSION": "nb1/"}, "nb1/"),
        ({"GPUBROKER_JOB": "b-7"}, "b-7"),
        ({"GPUBROKER_JOB": "b-7", "GPUBROKER_SESSION": "nb1/"}, "b-7"),
    ],
)
def test_a_job_is_named_before_the_session_it_came_from(
    environ: dict[str, str], owner: str
) -> None:
    assert processes.owner_of(environ) == owner


def test_every_boot_has_an_id() -> None:
    assert len(processes.boot_id()) == 36
