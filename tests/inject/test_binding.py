# SPDX-License-Identifier: BSD-3-Clause
"""When a running process can still be given its GPUs, and when it is too late."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from jupyter_gpubroker.inject import FOLDER

from ..extension.standin import UUID
from .notebook import Notebook


def touched_after(code: str, **env: str) -> str:
    """What ``touched()`` says in a process that ran ``code``."""
    program = f"import os, sys\n{code}\nfrom gpubroker.touched import touched\nprint(touched())"
    run = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": FOLDER, **env},
        check=True,
        capture_output=True,
        text=True,
    )
    return run.stdout.strip()


def test_a_process_that_looked_for_no_gpu_is_untouched(tmp_path: Path) -> None:
    assert touched_after("pass") == ""
    assert touched_after("pass", GPUBROKER_SIMULATED=str(tmp_path)) == ""
    assert touched_after("pass", GPUBROKER_SIMULATED="") == ""


def test_an_open_device_is_touched(tmp_path: Path) -> None:
    entry = tmp_path / "entry"
    code = f"held = open({str(entry)!r}, 'w')"
    assert touched_after(code, GPUBROKER_SIMULATED=str(tmp_path)) == f"it has {entry} open"
    assert touched_after(code + "; held.close()", GPUBROKER_SIMULATED=str(tmp_path)) == ""
    assert touched_after(code) == "", "a file is no device"
    assert touched_after(code, GPUBROKER_SIMULATED=str(tmp_path / "ent")) == ""


def test_a_driver_that_found_nothing_is_touched_too(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    library.write_bytes(b"\0" * 4096)
    code = f"import mmap; mapped = mmap.mmap(os.open({str(library)!r}, os.O_RDWR), 4096)"
    assert touched_after(code) == "it has loaded the CUDA driver"


def test_a_framework_that_says_so_is_touched() -> None:
    code = (
        "from types import SimpleNamespace as N\n"
        "sys.modules['torch'] = N(cuda=N(is_initialized=lambda: {}))"
    )
    assert touched_after(code.format(True)) == "torch.cuda is initialized"
    assert touched_after(code.format(False)) == ""


def test_the_servers_word_binds_an_untouched_kernel_and_unbinds_it(notebook: Notebook) -> None:
    seen = "__import__('os').environ.get('CUDA_VISIBLE_DEVICES')"
    lease = {"state": "leased", "session": "s-1", "env": {"CUDA_VISIBLE_DEVICES": UUID}}
    answer = {"status": "ok", "applied": True, "touched": False, "reason": "", "running": False}
    assert notebook.ask(lease) == answer
    assert notebook.value(seen) == repr(UUID)
    assert notebook.ask({"state": "none", "env": {"CUDA_VISIBLE_DEVICES": ""}}) == answer
    assert notebook.value(seen) == "''"


def test_a_touched_kernel_keeps_what_it_has(notebook: Notebook, short_tmp: Path) -> None:
    entry = short_tmp / "entry"
    notebook.run(
        f"import os; os.environ['GPUBROKER_SIMULATED'] = {str(short_tmp)!r}\n"
        f"held = open({str(entry)!r}, 'w')"
    )
    other = {"state": "leased", "session": "s-1", "env": {"CUDA_VISIBLE_DEVICES": UUID}}
    reply = notebook.ask(other)
    assert (reply["applied"], reply["touched"]) == (False, True)
    assert str(entry) in reply["reason"]
    assert notebook.value("os.environ['CUDA_VISIBLE_DEVICES']") == "''"
    same = {"state": "leased", "session": "s-1", "env": {"CUDA_VISIBLE_DEVICES": ""}}
    assert notebook.ask(same)["applied"] is True, "it is bound to exactly that already"


def test_a_word_that_is_none_is_refused_and_changes_nothing(notebook: Notebook) -> None:
    for wrong in ({}, {"state": "dancing"}, {"state": "leased", "env": ["x"]}):
        assert notebook.ask(wrong)["status"] == "error"
    assert notebook.run("print('runs')").stream == "runs\n"


def test_a_kernel_says_whether_a_cell_is_caught_by_the_parking(notebook: Notebook) -> None:
    parked = {"state": "parked", "session": "s-1"}
    cell = notebook.start("print('on', flush=True); __import__('threading').Event().wait(600)")
    notebook.wait_for(cell, "on")
    assert notebook.ask(parked)["running"] is True
    notebook.interrupt()
    notebook.end(cell)
    assert notebook.ask(parked)["running"] is False
    magic = notebook.start("%gpu_queue")
    notebook.end(magic)
    assert notebook.ask(parked)["running"] is False
