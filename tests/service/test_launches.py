# SPDX-License-Identifier: BSD-3-Clause
"""What people type -> what an engine launches."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpubroker.core.model import Refusal
from jupyter_gpubroker.service.launches import launch_of
from jupyter_gpubroker.store import LaunchRow
from jupyter_gpubroker.wire import SubmitIn


def launch(*argv: str, **body: Any) -> LaunchRow:
    request = {name: body.pop(name) for name in ("nodes", "gpus") if name in body}
    given = SubmitIn.model_validate({"argv": argv, "request": request, **body})
    return launch_of(given, given.request.to_request())


PLAIN: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (("true",), ("true",)),
    (("train.py", "-x"), ("/py/bin/python", "train.py", "-x")),
    (("-m", "train"), ("/py/bin/python", "-m", "train")),
    (("python", "train.py"), ("python", "train.py")),
    (("/usr/bin/python3.12", "-u", "x"), ("/usr/bin/python3.12", "-u", "x")),
    (("pythonista", "x"), ("pythonista", "x")),
]


@pytest.mark.parametrize(("argv", "expected"), PLAIN)
def test_one_gpu_runs_the_plain_command(argv: tuple[str, ...], expected: tuple[str, ...]) -> None:
    row = launch(*argv, python="/py/bin/python")
    assert (row.argv, row.torchrun) == (expected, False)


TORCHRUN: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [
    (("train.py", "-x"), ("train.py", "-x"), "/py/bin/python"),
    (("-m", "train"), ("-m", "train"), "/py/bin/python"),
    (("python", "train.py"), ("train.py",), "python"),
    (("/opt/python3", "-m", "train"), ("-m", "train"), "/opt/python3"),
]


@pytest.mark.parametrize(("argv", "expected", "python"), TORCHRUN)
@pytest.mark.parametrize("shape", [{"nodes": 2}, {"gpus": 2}, {"torchrun": True}])
def test_several_gpus_are_started_by_torchrun(
    argv: tuple[str, ...], expected: tuple[str, ...], python: str, shape: dict[str, Any]
) -> None:
    row = launch(*argv, python="/py/bin/python", **shape)
    assert (row.argv, row.python, row.torchrun) == (expected, python, True)


def test_a_command_may_spread_over_one_node_by_itself() -> None:
    assert not launch("make", "train", gpus=4).torchrun
    assert launch("train.py", gpus=4, torchrun=False).argv == ("python3", "train.py")


@pytest.mark.parametrize(
    ("argv", "body", "field"),
    [
        (("make",), {"nodes": 2}, "argv"),
        (("make",), {"torchrun": True}, "argv"),
        (("python",), {"nodes": 2}, "argv"),
        (("",), {}, "argv"),
        (("train.py",), {"nodes": 2, "torchrun": False}, "torchrun"),
    ],
)
def test_what_torchrun_cannot_start_is_refused(
    argv: tuple[str, ...], body: dict[str, Any], field: str
) -> None:
    with pytest.raises(Refusal) as caught:
        launch(*argv, **body)
    assert caught.value.field == field
    assert caught.value.message


def test_submitted_code_is_kept_as_it_was() -> None:
    row = launch("train.py", files={"train.py": "print('é')\r\n"}, env={"A": "b"}, cwd="/home/ana")
    assert row.files == {"train.py": "print('é')\r\n".encode()}
    assert (dict(row.env), row.cwd) == ({"A": "b"}, "/home/ana")
