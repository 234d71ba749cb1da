# SPDX-License-Identifier: BSD-3-Clause
"""The stubs of NVIDIA's libraries are what NVIDIA's own Python and headers expect of them."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from typing import Any

import pytest

from .. import needs
from .machine import Machine
from .talk import HERE, Talk

H200 = "gpu 0 GPU-a NVIDIA_H200 144000 400"
LOST, NOT_FOUND, NOT_SUPPORTED = 15, 6, 3
RUNNING, LOCKED, CHECKPOINTED = range(3)
NOT_READY, ILLEGAL_STATE, INVALID, NOT_INITIALIZED = 600, 401, 1, 3


def test_the_sizes_are_those_of_the_headers_of_nvidia() -> None:
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    folders = {
        file.parent
        for name in ("cuda.h", "nvml.h")
        for place in places
        for file in place.glob(f"*/include/{name}")
    }
    if not folders:
        needs.missing("the headers of nvidia-nvml-dev and nvidia-cuda-runtime", "make setup")
    include = [f"-I{folder}" for folder in sorted(folders)]
    command = [needs.compiler(), "-fsyntax-only", "-Wall", *include, HERE / "stub" / "abi.c"]
    found = subprocess.run(command, check=False, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr


def _used(caller: Talk) -> Any:
    return [
        (item["pid"], item["usedGpuMemory"] >> 20)
        for item in caller.ask("nvml nvmlDeviceGetComputeRunningProcesses 0")
    ]


def test_memory_goes_with_its_process(machine: Machine) -> None:
    machine.says(H200)
    caller, lives, dies = machine.talk("caller.py"), machine.child(), machine.child()
    machine.says(f"proc GPU-a {lives} 100", f"proc GPU-a {dies} 50")
    assert _used(caller) == [(lives, 100), (dies, 50)]
    machine.ends(dies)
    assert _used(caller) == [(lives, 100)]


def test_use_is_told_by_process_and_only_where_there_is_some(machine: Machine) -> None:
    machine.says(H200, "rates 0 70 20", "sample 0 7 1000 40", "sample 0 8 3000 5")
    caller = machine.talk("caller.py")
    samples = caller.ask("nvml nvmlDeviceGetProcessUtilization 0 0")
    assert [(item["pid"], item["smUtil"]) for item in samples] == [(7, 40), (8, 5)]
    (late,) = caller.ask("nvml nvmlDeviceGetProcessUtilization 0 1000")
    assert late["timeStamp"] == 3000
    nothing = caller.ask("nvml nvmlDeviceGetProcessUtilization 0 3000")
    assert nothing == {"NVMLError": NOT_FOUND}
    assert caller.ask("nvml nvmlDeviceGetUtilizationRates 0") == {"gpu": 70, "memory": 20}


def test_a_slice_knows_its_gpu_which_tells_no_use(machine: Machine) -> None:
    machine.says(H200, "mig 0 1", "slice 0 2 MIG-x NVIDIA_H200_MIG_1g.18gb 16384")
    caller = machine.talk("caller.py")
    assert caller.ask("slice nvmlDeviceGetDeviceHandleFromMigDeviceHandle 0 2") == "GPU-a"
    assert caller.ask("slice nvmlDeviceGetUUID 0 1") == {"NVMLError": NOT_FOUND}
    assert caller.ask("nvml nvmlDeviceGetUtilizationRates 0") == {"NVMLError": NOT_SUPPORTED}
    machine.says("slice 0 2 MIG-x NVIDIA_H200_MIG_1g.18gb 0")
    assert caller.ask("slice nvmlDeviceGetUUID 0 2") == {"NVMLError": NOT_FOUND}


def test_a_lost_gpu_answers_nothing(machine: Machine) -> None:
    machine.says(H200)
    caller = machine.talk("caller.py")
    machine.says("lost 0 1")
    assert caller.ask("nvml nvmlDeviceGetUUID 0") == {"NVMLError": LOST}
    machine.says("lost 0 0")
    assert caller.ask("nvml nvmlDeviceGetUUID 0") == "GPU-a"


def test_checkpoint_and_restore_take_memory_away_and_bring_it_back(machine: Machine) -> None:
    machine.says(H200)
    caller, pid = machine.talk("caller.py"), machine.child()
    assert caller.ask("cuda GetState", pid)[0] == NOT_INITIALIZED, "it never used CUDA"
    machine.says(f"proc GPU-a {pid} 100")
    assert caller.ask("cuda GetRestoreThreadId", pid) == [0, pid]
    assert caller.ask("cuda Checkpoint", pid)[0] == ILLEGAL_STATE
    for call, state, mib in (("Lock", LOCKED, 100), ("Checkpoint", CHECKPOINTED, 0)):
        assert caller.ask("cuda", call, pid)[0] == 0
        assert caller.ask("cuda GetState", pid) == [0, state]
        assert sum(used for _, used in _used(caller)) == mib
    assert caller.ask("cuda Restore", pid)[0] == NOT_INITIALIZED, "wants cuInit"
    machine.ends(pid)
    assert caller.ask("cuda GetState", pid)[0] == INVALID


@pytest.mark.parametrize("call", ["GetState", "Lock", "Checkpoint", "Unlock"])
def test_any_checkpoint_call_fails_or_hangs_as_it_is_told(machine: Machine, call: str) -> None:
    machine.says(H200)
    caller, pid, other = machine.talk("caller.py"), machine.child(), machine.child()
    state = {"Checkpoint": LOCKED, "Unlock": LOCKED}.get(call, RUNNING)
    for child in (pid, other):
        machine.says(f"proc GPU-a {child} 100", f"cuda {child} {state}")
    machine.says(f"fail cuCheckpointProcess{call} {pid} {NOT_READY}")
    assert caller.ask("cuda", call, pid)[0] == NOT_READY
    assert caller.ask("cuda", call, other)[0] == 0
    machine.says(f"fail cuCheckpointProcess{call} {pid} 0", f"hang cuCheckpointProcess{call} * 1")
    caller.tell("cuda", call, pid)
    assert caller.waits()
    machine.says(f"hang cuCheckpointProcess{call} * 0")
    assert caller.answer()[0] == 0
