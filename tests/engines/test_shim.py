# SPDX-License-Identifier: BSD-3-Clause
"""The shim by itself, spoken to over its pipes as the engine does."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpubroker.engines import shim

from ..until import until
from .contract import IGNORES_TERM, alive, child, line


@pytest.fixture
def where(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "part"
    folder.mkdir()
    yield folder
    run = facts(folder, "run")
    if run and not facts(folder, "exit"):
        os.kill(run["shim"][0], shim.KILL_TREE)


@contextmanager
def talking(where: Path, *argv: str, **more: Any) -> Iterator[subprocess.Popen[str]]:
    """A shim that has been told what to run."""
    spec = {
        "argv": argv,
        "env": {"PATH": os.environ["PATH"], "SECRET": "s3cret"},
        "cwd": "",
        "folder": str(where.parent / "job"),
        "log": "rank-0.log",
        "files": {},
        "account": None,
        **more,
    }
    with child([sys.executable, "-ISE", shim.__file__, str(where)], env={}) as process:
        assert process.stdin
        process.stdin.write(json.dumps(spec) + "\n")
        process.stdin.flush()
        yield process


def go(process: subprocess.Popen[str]) -> str:
    """Let a ready part run; its next answer."""
    assert line(process) == "ready"
    assert process.stdin
    process.stdin.write("go\n")
    process.stdin.flush()
    return line(process)


def facts(where: Path, name: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((where / f"{name}.json").read_text())
    except FileNotFoundError:
        return {}
    return found


def code(where: Path) -> Any:
    """Exit code of the part, when its tree is gone."""
    return until(lambda: facts(where, "exit"), what="exit.json")["code"]


def log(where: Path) -> str:
    return (where.parent / "job" / "rank-0.log").read_text()


@pytest.mark.parametrize(
    ("script", "expected"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -15 $$", -15)]
)
def test_the_exit_is_recorded(where: Path, script: str, expected: int) -> None:
    with talking(where, "sh", "-c", script) as process:
        assert go(process) == "running"
    assert code(where) == expected
    run = facts(where, "run")
    assert run["shim"][0] != run["main"][0]
    assert run["boot"]


def test_without_go_nothing_runs(where: Path) -> None:
    with talking(where, "sh", "-c", "echo ran") as process:
        assert line(process) == "ready"
        assert process.stdin
        process.stdin.close()
        assert line(process) == ""
    assert log(where) == ""
    assert sorted(path.name for path in where.iterdir()) == ["lock"]
    # Nothing ran, so another shim may have it.
    with talking(where, "sh", "-c", "echo ran") as process:
        assert go(process) == "running"
    assert code(where) == 0
    assert log(where) == "ran\n"


def test_a_part_is_never_started_twice(where: Path) -> None:
    with talking(where, "sh", "-c", "echo ran; exec sleep 600") as process:
        assert go(process) == "running"
        with talking(where, "sh", "-c", "echo ran") as second:
            assert line(second) == "already"
        os.kill(facts(where, "run")["shim"][0], shim.KILL_TREE)
        assert code(where) == -9
        with talking(where, "sh", "-c", "echo ran") as third:
            assert line(third) == "already"
    assert log(where).count("ran") == 1


def test_a_part_that_must_not_start_does_not(where: Path) -> None:
    shim.put(str(where / "exit.json"), {"code": None, "time": 1})
    with talking(where, "sh", "-c", "echo ran") as process:
        assert line(process) == "already"


def test_a_shim_killed_before_it_ran_anything_leaves_the_part_free(where: Path) -> None:
    with talking(where, "sh", "-c", "echo ran $0", "first") as process:
        assert line(process) == "ready"
        # The program itself is prepared as a fork of the shim: the older of the two.
        watcher, _ = sorted(pids_with(str(where)))
        os.kill(watcher, signal.SIGKILL)
        assert line(process) == ""
    with talking(where, "sh", "-c", "echo ran $0", "second") as process:
        assert go(process) == "running"
    assert code(where) == 0
    assert log(where) == "ran second\n"


def test_what_cannot_be_prepared_is_refused_with_the_reason(where: Path) -> None:
    with talking(where, "true", cwd="/no/such/folder") as process:
        answer = line(process)
    assert answer.startswith("refused ")
    assert "/no/such/folder" in answer
    assert not (where / "run.json").exists()


def test_a_log_that_is_a_link_is_refused(where: Path, tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "rank-0.log").symlink_to(tmp_path / "elsewhere")
    with talking(where, "true") as process:
        assert line(process).startswith("refused ")
    assert not (tmp_path / "elsewhere").exists()


def test_a_missing_program_is_127_and_a_line_in_the_log(where: Path) -> None:
    with talking(where, "/no/such/program") as process:
        assert go(process) == "running"
    assert code(where) == 127
    assert "cannot run /no/such/program" in log(where)


def test_a_program_is_found_on_the_path_of_the_job(where: Path, tmp_path: Path) -> None:
    for name, mode in (("one", 0o644), ("two", 0o755)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "hello").write_text(f"#!/bin/sh\necho {name}\n")
        (tmp_path / name / "hello").chmod(mode)
    path = f"/nowhere:{tmp_path}/one:{tmp_path}/two"
    with talking(where, "hello", env={"PATH": path}) as process:
        assert go(process) == "running"
    assert code(where) == 0
    assert log(where) == "two\n"


def test_a_program_that_may_not_be_run_is_127_with_that_reason(where: Path, tmp_path: Path) -> None:
    (tmp_path / "hello").write_text("#!/bin/sh\necho hello\n")
    with talking(where, "hello", env={"PATH": f"/nowhere:{tmp_path}"}) as process:
        assert go(process) == "running"
    assert code(where) == 127
    assert "Permission denied" in log(where)


def test_signals_reach_the_group_of_the_program(where: Path) -> None:
    traps = "trap 'echo usr1' USR1; trap 'echo term; exit 5' TERM"
    script = f"{traps}; echo up; while :; do sleep 0.02; done"
    with talking(where, "sh", "-c", script) as process:
        assert go(process) == "running"
    until(lambda: "up" in log(where))
    watcher = facts(where, "run")["shim"][0]
    os.kill(watcher, signal.SIGUSR1)
    until(lambda: "usr1" in log(where))
    os.kill(watcher, signal.SIGTERM)
    assert code(where) == 5
    assert "term" in log(where)


def test_kill_tree_reaches_what_left_the_session(where: Path) -> None:
    with talking(where, sys.executable, "-c", IGNORES_TERM) as process:
        assert go(process) == "running"
    until(lambda: "up" in log(where) and "grandchild" in log(where))
    grandchild = int(log(where).split("grandchild ")[1].split()[0])
    os.kill(facts(where, "run")["shim"][0], shim.KILL_TREE)
    assert code(where) == -9
    assert not alive(grandchild)


def test_the_exit_is_recorded_only_when_the_last_child_is_gone(where: Path) -> None:
    script = "setsid sh -c 'echo $$; while :; do sleep 600; done' & sleep 0.2; exit 4"
    with talking(where, "sh", "-c", script) as process:
        assert go(process) == "running"
    assert code(where) == 4
    assert not alive(int(log(where)))


def test_nothing_of_the_job_is_seen_in_the_shims_arguments_or_environment(where: Path) -> None:
    with talking(where, "sh", "-c", "echo $SECRET; exec sleep 600") as process:
        assert go(process) == "running"
        until(lambda: log(where) == "s3cret\n")
        entry = Path("/proc", str(facts(where, "run")["shim"][0]))
        assert b"s3cret" not in (entry / "environ").read_bytes()
        assert b"sleep" not in (entry / "cmdline").read_bytes()


def test_the_folder_is_private_and_has_a_spool(where: Path) -> None:
    with talking(where, "sh", "-c", "umask; echo x > out; stat -c %a . spool out") as process:
        assert go(process) == "running"
    assert code(where) == 0
    assert log(where).split() == ["0077", "700", "700", "600"]


def test_the_program_starts_with_no_signal_blocked_or_ignored(where: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
    try:
        with talking(where, "cat", "/proc/self/status") as process:
            assert go(process) == "running"
        assert code(where) == 0
    finally:
        signal.signal(signal.SIGHUP, before)
    status = dict(text.split(":", 1) for text in log(where).splitlines())
    assert int(status["SigBlk"], 16) == 0
    # 32 and 33 belong to glibc: nobody can set them, and make hands them on as ignored.
    ours = ~((1 << 31) | (1 << 32))
    assert int(status["SigIgn"], 16) & ours == 0


def test_the_program_inherits_no_descriptor_but_its_log(where: Path) -> None:
    script = (
        "import os\n"
        "for fd in range(256):\n"
        "    if os.path.exists(f'/proc/self/fd/{fd}'): print(os.readlink(f'/proc/self/fd/{fd}'))"
    )
    with talking(where, sys.executable, "-c", script) as process:
        assert go(process) == "running"
    assert code(where) == 0
    assert set(log(where).split()) == {"/dev/null", str(where.parent / "job" / "rank-0.log")}


def pids_with(argument: str) -> list[int]:
    """Processes that have this argument."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and argument.encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found
