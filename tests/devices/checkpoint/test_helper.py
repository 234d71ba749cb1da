# SPDX-License-Identifier: BSD-3-Clause
"""The helper on the stub driver: every call fails or hangs in turn, and nobody stays locked."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from ..machine import Machine

GPU = "gpu 0 GPU-a NVIDIA_H200 144000 400"
NOT_READY = 600
HELPER = "jupyter_gpubroker.devices.checkpoint.helper"
WALKER = "checkpoint/walker.py"


def _two(machine: Machine) -> tuple[int, int]:
    machine.says(GPU)
    first, second = machine.child(), machine.child()
    machine.says(f"proc GPU-a {first} 100", f"proc GPU-a {second} 50")
    return first, second


def test_a_set_is_parked_and_comes_back(machine: Machine) -> None:
    pids = _two(machine)
    walker = machine.talk(WALKER)
    parked = walker.ask("CHECKPOINTED", *pids)
    assert (parked["arrived"], parked["states"]) == (True, ["CHECKPOINTED"] * 2)
    back = walker.ask("RUNNING", *pids)
    assert (back["arrived"], back["states"]) == (True, ["RUNNING"] * 2)


@pytest.mark.parametrize("call", ["Lock", "Checkpoint"])
@pytest.mark.parametrize(
    "how", [f"fail {{}} {{}} {NOT_READY}", "hang {} {} 1"], ids=lambda h: h[:4]
)
def test_what_fails_or_hangs_while_parking_leaves_both_running(
    machine: Machine, call: str, how: str
) -> None:
    first, second = _two(machine)
    machine.says(how.format(f"cuCheckpointProcess{call}", second))
    found = machine.talk(WALKER).ask("CHECKPOINTED", first, second)
    assert (found["arrived"], found["states"]) == (False, ["RUNNING"] * 2)
    assert str(second) in found["error"]


def test_a_restore_that_hangs_leaves_both_parked(machine: Machine) -> None:
    pids = _two(machine)
    walker = machine.talk(WALKER)
    walker.ask("CHECKPOINTED", *pids)
    machine.says(f"hang cuCheckpointProcessRestore {pids[1]} 1")
    found = walker.ask("RUNNING", *pids)
    assert (found["arrived"], found["states"]) == (False, ["CHECKPOINTED"] * 2)
    assert "does not answer" in found["error"]
    machine.says(f"hang cuCheckpointProcessRestore {pids[1]} 0")
    assert walker.ask("RUNNING", *pids)["arrived"]


def test_a_driver_that_says_nothing_is_asked_for_nothing(machine: Machine) -> None:
    pids = _two(machine)
    machine.says(f"hang cuCheckpointProcessGetState {pids[0]} 1")
    found = machine.talk(WALKER).ask("CHECKPOINTED", *pids)
    assert (found["steps"], found["states"]) == ([], ["UNKNOWN", "RUNNING"])


def test_a_later_process_of_the_pid_is_not_touched(machine: Machine) -> None:
    pid, _ = _two(machine)
    ours, theirs = socket.socketpair()
    environ = {"PATH": "", "PYTHONPATH": ":".join(sys.path), **machine.environ}
    command = [sys.executable, "-m", HELPER]
    with ours, subprocess.Popen(command, stdin=theirs, env=environ) as helper:
        theirs.close()
        ours.sendall(b'{"verb": "lock", "pid": %d, "start": 1, "timeout_ms": 9}\n' % pid)
        assert b"is gone" in ours.recv(1000)
        ours.shutdown(socket.SHUT_WR)
        assert helper.wait() == 0
    assert f"cuda {pid}" not in machine.world.read_text()


def test_nobody_but_the_parent_is_heard(machine: Machine) -> None:
    pid, _ = _two(machine)
    ours, theirs = socket.socketpair()
    asked = b'{"verb": "lock", "pid": %d, "start": 1, "timeout_ms": 9}\n' % pid
    between = (
        "import subprocess, sys; "
        f"sys.exit(subprocess.call([sys.executable, '-m', '{HELPER}'], stdin=0))"
    )
    environ = {"PATH": "", "PYTHONPATH": ":".join(sys.path), **machine.environ}
    with ours, theirs:
        ours.sendall(asked)
        command = [sys.executable, "-c", between]
        assert subprocess.run(command, stdin=theirs, env=environ, check=False).returncode == 1
