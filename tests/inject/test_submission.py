# SPDX-License-Identifier: BSD-3-Clause
"""What goes along with a submitted command, and what never does."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from jupyter_gpubroker.core.model import Request
from jupyter_gpubroker.inject.gpubroker import submission
from jupyter_gpubroker.inject.gpubroker.options import wants_torchrun
from jupyter_gpubroker.inject.gpubroker.submission import (
    check_programs,
    clean_environment,
    interpreter_of,
    prepare,
    script_at,
    settings_of,
)
from jupyter_gpubroker.service.launches import launch_of
from jupyter_gpubroker.wire import SubmitIn

INJECT = str(Path(submission.__file__).resolve().parent.parent)

DROPPED = [
    "JUPYTERHUB_API_TOKEN",
    "JUPYTERHUB_USER",
    "JPY_PARENT_PID",
    "GPUBROKER_URL",
    "GPUBROKER_SESSION",
    "CUDA_VISIBLE_DEVICES",
    "NVIDIA_VISIBLE_DEVICES",
    "MPLBACKEND",
    "GITHUB_TOKEN",
    "AWS_SECRET_ACCESS_ID",
    "api_key",
    "DB_PASSWORD",
]
KEPT = ["PATH", "HOME", "LANG", "CUDA_HOME", "OMP_NUM_THREADS", "VIRTUAL_ENV", "MPLCONFIGDIR"]


def test_what_belongs_to_the_server_or_looks_like_a_secret_stays_here() -> None:
    kept, dropped = clean_environment(dict.fromkeys(DROPPED + KEPT, "x"))
    assert sorted(kept) == sorted(KEPT)
    assert dropped == tuple(sorted(DROPPED))


def test_a_secret_goes_along_when_it_is_named() -> None:
    env = {"GITHUB_TOKEN": "t", "API_KEY": "k", "A": "a"}
    kept, dropped = clean_environment(env, ["GITHUB_TOKEN"])
    assert kept == {"GITHUB_TOKEN": "t", "A": "a"}
    assert dropped == ("API_KEY",)


@pytest.mark.parametrize("name", ["JUPYTERHUB_API_TOKEN", "CUDA_VISIBLE_DEVICES", "GPUBROKER_URL"])
def test_what_belongs_to_the_server_never_goes_along(name: str) -> None:
    assert clean_environment({name: "x"}, [name]) == ({}, (name,))
    for setting in (name, f"{name}=x"):
        with pytest.raises(ValueError, match="never"):
            settings_of([setting], {name: "x"})


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (INJECT, None),
        (f"{INJECT}{os.pathsep}/mine", "/mine"),
        (f"/mine{os.pathsep}{INJECT}/", "/mine"),
        ("/mine", "/mine"),
    ],
)
def test_our_own_folder_is_taken_off_pythonpath(path: str, expected: str | None) -> None:
    assert clean_environment({"PYTHONPATH": path})[0].get("PYTHONPATH") == expected


def test_settings_name_a_variable_or_give_a_value() -> None:
    env = {"A": "1", "TOKEN": "t"}
    assert settings_of(["A", "B=2", "TOKEN", "C="], env) == {
        "A": "1",
        "B": "2",
        "TOKEN": "t",
        "C": "",
    }
    with pytest.raises(ValueError, match="not set"):
        settings_of(["D"], env)
    with pytest.raises(ValueError, match="NAME=VALUE"):
        settings_of(["=x"], env)


@pytest.mark.parametrize(
    ("argv", "at"),
    [
        (["train.py", "x.py"], 0),
        (["python", "train.py"], 1),
        (["/opt/bin/python3.12", "-u", "-X", "dev", "-W", "error", "train", "a"], 6),
        (["python", "-m", "train"], None),
        (["python", "-mtrain"], None),
        (["python", "-c", "print()"], None),
        (["python", "-"], None),
        (["python"], None),
        (["make", "train.py"], None),
        ([], None),
    ],
)
def test_the_script_is_found(argv: list[str], at: int | None) -> None:
    assert script_at(argv) == at


def test_the_code_is_copied_as_it_is_now(tmp_path: Path) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    script = folder / "train.py"
    script.write_text("print('é')\r\n", "utf-8", newline="")
    done = prepare(
        ["src/train.py", "--lr", "1"],
        cwd=str(tmp_path),
        environ={"PATH": "/bin", "A_TOKEN": "t", "PYTHONPATH": "/mine"},
        settings=["X=1"],
    )
    script.write_text("changed")
    assert done.argv == ("train.py", "--lr", "1")
    assert done.files == {"train.py": "print('é')\r\n"}
    assert done.env == {
        "PATH": "/bin",
        "X": "1",
        "PYTHONPATH": f"{folder}{os.pathsep}/mine",
    }
    assert done.dropped == ("A_TOKEN",)
    assert done.cwd == str(tmp_path)


def test_the_interpreter_on_path_is_the_one_that_is_meant(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    name = Path(sys.executable).name
    path = str(Path(sys.executable).parent)
    done = prepare([name, "train.py"], cwd=str(tmp_path), environ={"PATH": path})
    assert done.argv == (f"{path}/{name}", "train.py")
    with pytest.raises(ValueError, match="no such interpreter"):
        prepare(["python0.1", "train.py"], cwd=str(tmp_path), environ={"PATH": path})


def test_a_cell_is_submitted_with_the_arguments_given(tmp_path: Path) -> None:
    done = prepare(["-v"], cwd=str(tmp_path), environ={}, cell="print(1)\n")
    assert done.argv == ("cell.py", "-v")
    assert done.files == {"cell.py": "print(1)\n"}
    assert done.env == {"PYTHONPATH": str(tmp_path)}


def test_other_commands_go_as_they_are(tmp_path: Path) -> None:
    done = prepare(["make", "train.py"], cwd=str(tmp_path), environ={"A": "b"})
    assert (done.argv, done.files, done.env) == (("make", "train.py"), {}, {"A": "b"})


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe")
    (tmp_path / "folder.py").mkdir()
    for name, words in (("none.py", "No such file"), ("binary.py", "UTF-8"), ("folder.py", "read")):
        with pytest.raises(ValueError, match=words):
            prepare([name], cwd=str(tmp_path), environ={})
    with pytest.raises(ValueError, match="nothing to run"):
        prepare([], cwd=str(tmp_path), environ={})


# --- what could only fail -------------------------------------------------------------


def program(folder: Path, name: str, code: int) -> str:
    """An interpreter that ends with that code, whatever it is to run."""
    path = folder / name
    path.write_text(f"#!/bin/sh\nexit {code}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("argv", [["nosuchcommand", "-x"], ["./train.sh"], ["/opt/nothing/here"]])
def test_a_command_that_is_not_there_is_refused_before_anybody_leaves_for_it(
    argv: list[str], tmp_path: Path
) -> None:
    sent = prepare(argv, cwd=str(tmp_path), environ=dict(os.environ))
    with pytest.raises(ValueError, match="there is no such program"):
        check_programs(sent, sys.executable, torchrun=False)
    program(tmp_path, "train.sh", 0)
    sent = prepare(["./train.sh"], cwd=str(tmp_path), environ=dict(os.environ))
    check_programs(sent, sys.executable, torchrun=False)


def test_an_interpreter_that_is_not_there_is_refused(tmp_path: Path) -> None:
    sent = prepare([], cwd=str(tmp_path), environ=dict(os.environ), cell="pass")
    check_programs(sent, sys.executable, torchrun=False)
    with pytest.raises(ValueError, match="/opt/nothing/python: there is no such program"):
        check_programs(sent, "/opt/nothing/python", torchrun=False)


def test_several_gpus_need_an_interpreter_that_has_torch(tmp_path: Path) -> None:
    sent = prepare([], cwd=str(tmp_path), environ=dict(os.environ), cell="pass")
    bare, full = program(tmp_path, "bare", submission._NO_TORCH), program(tmp_path, "full", 0)
    check_programs(sent, full, torchrun=True)
    check_programs(sent, bare, torchrun=False)
    with pytest.raises(ValueError, match=r"bare has no torch.*--no-torchrun"):
        check_programs(sent, bare, torchrun=True)


def test_other_programs_than_python_are_not_started_by_torchrun_and_need_no_torch(
    tmp_path: Path,
) -> None:
    sent = prepare(["sleep", "1"], cwd=str(tmp_path), environ=dict(os.environ))
    check_programs(sent, program(tmp_path, "bare", submission._NO_TORCH), torchrun=True)


def test_the_interpreter_that_the_command_names_is_the_one_that_needs_torch(
    tmp_path: Path,
) -> None:
    bare, full = program(tmp_path, "python3.98", submission._NO_TORCH), program(tmp_path, "full", 0)
    sent = prepare([bare, "-m", "train"], cwd=str(tmp_path), environ=dict(os.environ))
    with pytest.raises(ValueError, match=r"python3\.98 has no torch"):
        check_programs(sent, full, torchrun=True)


@pytest.mark.parametrize(
    "argv",
    [
        ["train.py", "-x"],
        ["python", "train.py"],
        ["/opt/env/bin/python3.12", "-m", "train"],
        ["-m", "train"],
        ["sleep", "1"],
        ["./train.sh"],
        ["pythonic", "x"],
        ["bpython", "x.py"],
    ],
)
def test_the_broker_starts_the_same_interpreter_and_by_torchrun_only_python(
    argv: list[str],
) -> None:
    body = SubmitIn(argv=tuple(argv), python="/opt/own/python")
    launch = launch_of(body, Request(gpus=2))
    interpreter = interpreter_of(argv, "/opt/own/python")
    assert launch.torchrun is (interpreter is not None)
    assert interpreter in (launch.python, None)


def test_where_torch_cannot_be_looked_for_the_job_shows_what_is_wrong(tmp_path: Path) -> None:
    sent = prepare([], cwd=str(tmp_path), environ=dict(os.environ), cell="pass")
    check_programs(sent, program(tmp_path, "broken", 1), torchrun=True)


@pytest.mark.parametrize(
    ("options", "wants"),
    [
        ({}, False),
        ({"gpus": "1"}, False),
        ({"gpus": "0.5"}, False),
        ({"gpus": "half"}, False),
        ({"gpus": "2"}, True),
        ({"nodes": 2}, True),
        ({"nodes": 2, "torchrun": False}, False),
        ({"torchrun": True}, True),
    ],
)
def test_torchrun_is_wanted_with_several_gpus_or_nodes_unless_it_is_said(
    options: dict[str, object], wants: bool
) -> None:
    assert wants_torchrun({"torchrun": None, "nodes": None, "gpus": None, **options}) is wants
