# SPDX-License-Identifier: BSD-3-Clause
"""The attempt's folder belongs to the job's user, who may put anything there."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from jupyter_gpubroker.engines.folder import Folder, RankExit

ME = os.geteuid()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "attempt"
    (folder / "spool").mkdir(parents=True)
    (folder / "rank-0.log").write_text("hello\n")
    return folder


def test_a_log_is_read_in_pieces(path: Path) -> None:
    folder = Folder(str(path), ME)
    first = folder.read("rank-0.log", 0, 4)
    assert (first.data, first.next_offset, first.size) == (b"hell", 4, 6)
    rest = folder.read("rank-0.log", first.next_offset, 100)
    assert (rest.data, rest.next_offset, rest.size) == (b"o\n", 6, 6)
    end = folder.read("rank-0.log", 6, 100)
    assert (end.data, end.next_offset) == (b"", 6)


def test_a_link_is_no_log(path: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (path / "rank-1.log").symlink_to(secret)
    with pytest.raises(FileNotFoundError):
        Folder(str(path), ME).read("rank-1.log", 0, 100)
    assert Folder(str(path), ME).tail("rank-1.log") == ""


def test_a_linked_folder_is_not_entered(path: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(OSError, match="link"):
        Folder(str(link), ME).read("rank-0.log", 0, 100)
    (path / "spool").rmdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (path / "spool").symlink_to(elsewhere)
    with pytest.raises(OSError, match="spool"):
        Folder(str(path), ME).tell_stop("now", 1.0)
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize(
    "facts",
    [
        {"code": True, "time": 1},
        {"code": 10**30, "time": 1},
        {"code": -(2**63) - 1, "time": 1},
        {"code": 1.5, "time": 1},
        {"code": "1", "time": 1},
        {"code": 1, "time": False},
        {"code": 1, "time": 10**30},
        {"code": 1, "time": -1},
    ],
)
def test_an_exit_that_no_process_has_is_not_believed(path: Path, facts: dict[str, object]) -> None:
    """It would go into the store, which refuses it and all that goes with it."""
    (path / "spool" / "exit-0.json").write_text(json.dumps(facts))
    assert Folder(str(path), ME).said().exits == ()


def test_last_words_are_shown_without_control_characters(path: Path) -> None:
    (path / "rank-0.log").write_bytes(b"a\0b\x1b[31mred\x07\r\n\tend\xff\xe2\x80\xae\n")
    assert Folder(str(path), ME).tail("rank-0.log") == "ab[31mred\n\tend\ufffd"


@pytest.mark.parametrize("what", ["link", "loop", "file", "pipe"])
def test_a_folder_that_became_something_else_is_not_there(tmp_path: Path, what: str) -> None:
    path = tmp_path / "1"
    match what:
        case "link":
            path.symlink_to("/etc")
        case "loop":
            path.symlink_to(path)
        case "file":
            path.write_text("no folder")
        case _:
            os.mkfifo(path)
    folder = Folder(str(path), ME)
    with pytest.raises(FileNotFoundError):
        folder.read("rank-0.log", 0, 100)
    with pytest.raises(FileNotFoundError):
        folder.ranks()
    assert folder.tail("rank-0.log") == ""
    assert not folder.said().complete


def test_somebody_elses_files_are_not_read(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Folder(str(path), ME + 1).read("rank-0.log", 0, 100)


def test_a_pipe_does_not_hold_up_the_reader(path: Path) -> None:
    os.mkfifo(path / "rank-2.log")
    with pytest.raises(FileNotFoundError):
        Folder(str(path), ME).read("rank-2.log", 0, 100)


def test_ranks_are_those_with_a_log_in_order(path: Path) -> None:
    for name in ("rank-10.log", "rank-2.log", "rank-x.log", "node-0.log", "rank-3.log.old"):
        (path / name).touch()
    assert list(Folder(str(path), ME).ranks()) == [0, 2, 10]


def test_the_tail_is_the_last_twenty_lines(path: Path) -> None:
    (path / "rank-0.log").write_bytes(b"\n".join(b"line %d \xff" % i for i in range(5000)))
    lines = Folder(str(path), ME).tail("rank-0.log").splitlines()
    assert len(lines) == 20
    assert lines[-1].startswith("line 4999")


def test_marks_are_heard_whole_and_once(path: Path) -> None:
    folder, marks = Folder(str(path), ME), path / "spool" / "marks-0.jsonl"
    assert folder.said().checkpoint is None
    marks.write_text('{"checkpoint": 3}\n{"check')
    assert folder.said().checkpoint == 3
    with marks.open("a") as file:
        file.write('point": 8}\n')
    assert folder.said().checkpoint == 8
    (path / "spool" / "marks-1.jsonl").write_text('{"checkpoint": 5}\n{"complete": true}\n')
    assert folder.said().checkpoint == 8
    assert folder.said().complete


@pytest.mark.parametrize(
    "text",
    [
        "x" * 200_000 + "\n",
        "[" * 50_000 + "\n",
        '{"checkpoint": "7"}\n{"checkpoint": -1}\n{"checkpoint": true}\n{"complete": 1}\n',
        "7\nnull\n\xff\n",
    ],
)
def test_nonsense_in_the_spool_is_no_mark_and_hides_none(path: Path, text: str) -> None:
    marks, folder = path / "spool" / "marks-0.jsonl", Folder(str(path), ME)
    marks.write_text(text)
    said = folder.said()
    assert (said.checkpoint, said.complete) == (None, False)
    with marks.open("a") as file:
        file.write('{"checkpoint": 2}\n')
    assert folder.said().checkpoint == 2


def test_all_that_was_said_while_nobody_listened_is_heard_at_once(path: Path) -> None:
    steps = "".join(f'{{"checkpoint": {step}}}\n' for step in range(50_000))
    (path / "spool" / "marks-0.jsonl").write_text(steps + '{"complete": true}\n')
    said = Folder(str(path), ME).said()
    assert (said.checkpoint, said.complete) == (49_999, True)


def test_the_first_failure_is_the_earliest(path: Path) -> None:
    for rank, (code, time) in enumerate([(0, 1), (-15, 30), (13, 20)]):
        text = json.dumps({"code": code, "time": time})
        (path / "spool" / f"exit-{rank}.json").write_text(text)
    (path / "spool" / "exit-9.json").write_text('{"code": "1"}')
    assert Folder(str(path), ME).said().failure == RankExit(2, 13, 20)


def test_a_stop_is_told_and_told_again(path: Path) -> None:
    folder = Folder(str(path), ME)
    folder.tell_stop("first", 1.0)
    folder.tell_stop("second", 2.0)
    assert json.loads((path / "spool" / "stop").read_text()) == {"reason": "second", "time": 2.0}


def test_a_stop_does_not_write_through_a_link(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    for name in ("stop", ".stop.new"):
        (path / "spool" / name).symlink_to(target)
    Folder(str(path), ME).tell_stop("now", 1.0)
    assert target.read_text() == "untouched"
    assert json.loads((path / "spool" / "stop").read_text())["reason"] == "now"
