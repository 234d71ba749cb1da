# SPDX-License-Identifier: BSD-3-Clause
"""The commands against a service: what is asked, what is printed, how they exit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from traitlets.utils.importstring import import_item

from jupyter_gpubroker.app.cli import COMMANDS
from jupyter_gpubroker.app.commands.command import Command
from jupyter_gpubroker.app.serve import ServeApp
from jupyter_gpubroker.core.model import Key, State
from jupyter_gpubroker.service import Degraded

from .line import Line

# --- submit -------------------------------------------------------------------------------


def test_a_script_is_submitted_with_its_options_and_arguments(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text("print(1)")
    python = tmp_path / "python"  # one that has torch, as far as it can be asked
    python.write_text("#!/bin/sh\n")
    python.chmod(0o755)
    monkeypatch.setenv("MY_TOKEN", "t")
    monkeypatch.setenv("OTHER_SECRET", "s")
    done = line(
        "submit", "--nodes", "2", "--gpus=3", "--time", "10m", "--name", "demo",
        "--class", "batch", "--max-restarts", "1", "--no-requeue", "--exit-zero", "done",
        "--env", "MY_TOKEN", "--env", "X=1", "--python", str(python),
        "train.py", "--nodes", "7", "--", "y",
    )  # fmt: skip
    assert done.code == 0, done.err
    (job,) = line.desk.world.jobs.values()
    assert done.out.startswith(f"{job.id} demo: starting, 2 × 3 GPUs")
    assert "OTHER_SECRET" in done.err
    assert "JUPYTERHUB_API_TOKEN" in done.err
    assert (job.request.nodes, job.request.gpus, job.request.time_limit) == (2, 3, 600.0)
    assert (job.terms.max_restarts, job.requeue, job.exit_zero_done) == (1, False, True)
    launch = line.desk.stage.store.launch(job.id)
    assert launch is not None
    assert launch.argv == ("train.py", "--nodes", "7", "--", "y")
    assert launch.files == {"train.py": b"print(1)"}
    assert launch.torchrun
    assert launch.python == str(python)
    assert launch.cwd == str(tmp_path)
    assert (launch.env["MY_TOKEN"], launch.env["X"]) == ("t", "1")
    assert not {"OTHER_SECRET", "GPUBROKER_URL", "JUPYTERHUB_API_TOKEN"} & set(launch.env)


def test_a_command_is_submitted_as_it_stands(line: Line) -> None:
    done = line("submit", "--json", "--gpus", "0.5", "--", "make", "-j4", "train")
    assert done.code == 0, done.err
    launch = line.desk.stage.store.launch(done.json["id"])
    assert launch is not None
    assert (launch.argv, launch.torchrun, launch.files) == (("make", "-j4", "train"), False, {})
    assert "JUPYTERHUB_API_TOKEN" in done.json["dropped"]
    assert done.json["request"]["gpu_milli"] == 500


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--gpus", "9"), "gpus"),
        (("--gpus", "0"), "gpus"),
        (("--gpus=-1",), "gpus"),
        (("--gpus", "NaN"), "gpus"),
        (("--gpus", "half"), "gpus"),
        (("--time", "1000000000h"), "time"),
        (("--flavor", "h9000"), "flavor"),
        (("--nodes", "0"), "nodes"),
        (("--memory", "20GB", "--gpus", "2"), "memory"),
        (("--memory", "20"), "write 20GiB"),
        (("--host-memory", "64"), "write 64GiB"),
        (("--class", "none"), "class"),
        (("--queue", "none"), "queue"),
        (("--env", "NOT_SET"), "NOT_SET"),
        (("--name", "n" * 81), "name"),
    ],
)
def test_what_cannot_be_is_refused_with_1(line: Line, options: tuple[str, ...], words: str) -> None:
    done = line("submit", *options, "true")
    assert (done.code, done.out) == (1, "")
    assert words in done.err
    assert len(done.err.splitlines()) == 1
    assert not line.desk.world.jobs


def test_a_script_that_is_not_there_is_refused(line: Line) -> None:
    done = line("submit", "train.py")
    assert done.code == 1
    assert "train.py cannot be read" in done.err


@pytest.mark.parametrize(
    "argv",
    [
        ("nope",),
        ("submit",),
        ("submit", "--"),
        ("submit", "--nodes", "two", "x"),
        ("submit", "--array", "0-9", "x"),
        ("cancel",),
        ("show",),
        ("extend", "b-1"),
        ("policy",),
        ("session", "nope"),
        ("logs", "--rank", "x", "b-1"),
        ("queue", "x"),
        ("jobs", "--state", "asleep"),
        ("jobs", "--stat", "running"),
        ("session", "request", "--gpu", "1"),
        ("--url", "http://127.0.0.1:9", "nodes"),
    ],
)
def test_wrong_use_is_2(line: Line, argv: tuple[str, ...]) -> None:
    done = line(*argv)
    assert (done.code, done.out) == (2, "")
    assert done.err
    assert ("options go after the command" in done.err) is argv[0].startswith("-")


# --- looking and changing -----------------------------------------------------------------


def test_jobs_are_listed_shown_explained_extended_and_cancelled(line: Line) -> None:
    assert "You have no jobs" in line("jobs").out
    job = line.do(lambda: line.desk.stage.submit("ana", name="mine", lasts=1e6))
    line.do(lambda: line.desk.stage.submit("bob"))
    line.do(lambda: line.desk.run(5))
    assert [row["id"] for row in line("jobs", "--json").json] == [job.id]
    assert "running" in line("jobs", "--state", "running").out
    assert line("jobs", "--kind", "session", "--json").json == []
    assert line("show", job.id).out.startswith(f"{job.id} mine: running, 1 GPU")
    assert line("show", "--json", job.id).json["state"] == "running"
    story = line("explain", job.id).out
    assert "submitted by ana: 1 GPU, " in story
    assert "got its place: 1 GPU on node1, until " in story
    assert not set("{}[]=") & set(story), "words, not Python"
    gang = line.do(lambda: line.desk.stage.submit("ana", gpus=4, nodes=2))
    line.do(lambda: line.desk.run(1))
    head = "its place in the line, by what counts most:\n  reserved a place is reserved for it"
    assert head in line("explain", gang.id).out
    factors = [each["name"] for each in line("explain", "--json", gang.id).json["factors"]]
    assert factors == ["reserved", "class", "age", "queue", "user"]
    assert line("cancel", gang.id).code == 0
    before = line.desk.stage.job(job.id).lease
    assert line("extend", job.id, "10m").code == 0
    after = line.desk.stage.job(job.id).lease
    assert before is not None
    assert after is not None
    assert after.expires == before.expires + 600
    assert "stopping" in line("cancel", job.id).out
    line.do(lambda: line.desk.run(60))
    assert line("show", "--json", job.id).json["state"] == "cancelled"


def test_others_work_is_not_there(line: Line) -> None:
    job = line.do(lambda: line.desk.stage.submit("bob", lasts=1e6))
    for argv in (("show",), ("explain",), ("cancel",), ("logs",), ("extend",)):
        done = line(*argv, job.id, *(("1m",) if argv == ("extend",) else ()))
        assert done.code == 1, argv
        assert "no job" in done.err
        assert "see `jupyter gpubroker jobs`" in done.err
    assert line("jobs", "--all").code == 1
    assert line.desk.stage.job(job.id).state is State.STARTING


def test_errors_are_json_where_json_was_asked_for(line: Line) -> None:
    done = line("show", "--json", "b-none")
    assert (done.code, done.out) == (1, "")
    assert json.loads(done.err)["error"] == "unknown"
    done = line("submit", "--json", "--gpus", "half", "true")
    assert json.loads(done.err)["field"] == "gpus"


def test_the_queue_says_why(line: Line) -> None:
    assert "Nothing waits" in line("queue").out
    line.do(lambda: line.desk.stage.submit("bob", nodes=2, gpus=4, lasts=1e6))
    job = line.do(lambda: line.desk.stage.submit("ana", name="mine"))
    out = line("queue").out
    assert job.id in out
    assert job.id in [row["id"] for row in line("queue", "--json").json]
    why = line("queue", "--json").json[-1]["why"]
    assert why["text"] in out


def test_nodes_show_every_device(line: Line) -> None:
    line.do(lambda: line.desk.stage.submit("bob", gpus=2, lasts=1e6))
    out = line("nodes").out
    assert len(out.splitlines()) == 1 + 8
    assert out.count("bob") == 2
    assert len(line("nodes", "--json").json) == 2


def test_nodes_tell_slices_and_what_lies_close_together(line: Line) -> None:
    assert "island" not in line("nodes").out  # a column that says nothing
    nodes = line.desk.world.nodes
    first, *others = nodes["node1"].devices
    odd = (replace(first, mig=True), *(replace(each, island=7) for each in others))
    line.do(lambda: nodes.update(node1=replace(nodes["node1"], devices=odd)))
    devices = line("nodes", "--json").json[0]["devices"]
    told = [(device["mig"], device["island"]) for device in devices]
    assert told == [(True, 0), *[(False, 7)] * 3]
    rows = line("nodes").out.splitlines()
    assert rows[0].split()[:4] == ["node", "gpu", "island", "flavor"]
    assert (rows[1].split()[2], rows[2].split()[2]) == ("0", "7")
    assert [row.endswith("MIG slice") for row in rows[1:3]] == [True, False]


def test_a_broker_that_does_not_answer_is_3(
    line: Line, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = line("queue", "--url", f"http://127.0.0.1:{free_port}")
    assert (done.code, done.out) == (3, "")
    assert "does not answer" in done.err
    line.desk.missing = Degraded("the store is not open")
    assert line("submit", "true").code == 3
    monkeypatch.setenv("GPUBROKER_URL", "ftp://x")
    done = line("queue")
    assert (done.code, done.err.split()[2]) == (1, "GPUBROKER_URL:")
    done = line("queue", "--url", "foo")
    assert (done.code, done.err.split()[2]) == (1, "--url:")


def test_without_a_token_it_says_how_to_get_one(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN")
    done = line("queue")
    assert done.code == 1
    assert "set JUPYTERHUB_API_TOKEN to a token of yours" in done.err


def test_the_address_may_stand_in_the_config_file(
    line: Line, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GPUBROKER_URL")
    config = tmp_path / "config"
    config.mkdir()
    text = f"c.Command.url = {line.thread.house.url!r}\n"
    (config / "jupyter_gpubroker_config.py").write_text(text)
    assert line("queue").code == 0
    other = tmp_path / "other.py"
    other.write_text("c.Command.url = 'ftp://x'\n")
    assert line("queue", "--config", str(other)).code == 1


def test_the_broker_reads_the_same_config_file_as_every_other_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_CONFIG_DIR", str(tmp_path))
    file = tmp_path / f"{Command().config_file_name}.py"
    file.write_text("c.ServeApp.devices = 'simulated:1x2'\n")
    broker = ServeApp()
    broker.initialize([])
    assert broker.devices == "simulated:1x2"


# --- sessions -----------------------------------------------------------------------------


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of ana's JupyterLab."""
    monkeypatch.setenv("GPUBROKER_SESSION", "ana/")
    monkeypatch.setenv("GPUBROKER_INCARNATION", "1")


@pytest.mark.usefixtures("terminal")
def test_a_session_is_asked_for_and_changed_in_a_terminal(line: Line) -> None:
    assert line("session").code == 1
    done = line("session", "request", "--gpus", "0.5", "--time", "2h")
    assert done.code == 0, done.err
    assert "0.5 GPU" in done.out
    line.do(lambda: line.desk.stage.hello("ana"))
    line.do(lambda: line.desk.run(5))
    shown = line("session", "--json").json
    assert (shown["state"], shown["server"], shown["incarnation"]) == ("running", "ana/", 1)
    assert line("session", "keep", "--json").json["keeps_left"] == 1
    assert line("session", "extend", "30m").code == 0
    assert "stopping" in line("session", "park").out
    line.do(lambda: line.desk.run(10))
    assert "parked" in line("sessions").out
    assert line("session", "resume").code == 0
    line.do(lambda: line.desk.run(5))
    assert line("session", "release").code == 0
    line.do(lambda: line.desk.run(5))
    assert "no sessions" in line("sessions").out


def test_elsewhere_the_only_session_is_meant(line: Line) -> None:
    done = line("session", "request", "--gpus", "1")
    assert done.code == 1
    assert "terminal of JupyterLab" in done.err
    done = line("session", "park")
    assert done.code == 1
    assert "no terminal of a Jupyter server (run it in a terminal of JupyterLab" in done.err
    session = line.do(lambda: line.desk.stage.session("ana", gpus=1))
    line.do(lambda: line.desk.run(5))
    assert line("session", "--json").json["id"] == session.id
    assert line("session", "park", "--id", session.id, "--url", line.thread.house.url).code == 0
    assert line("session", "resume", "--url", "foo").code == 1
    assert line("session", "park", "--id", "s-none").code == 1


# --- logs ---------------------------------------------------------------------------------


def test_logs_of_one_rank_are_printed_as_they_are_and_of_several_with_the_rank(
    line: Line,
) -> None:
    one = line.do(lambda: line.desk.stage.submit("ana", lasts=1e6))
    two = line.do(lambda: line.desk.stage.submit("ana", gpus=2, lasts=1e6))
    line.do(lambda: line.desk.run(5))
    line.desk.written |= {
        (Key(one.id, 1), 0): b"a\nb",
        (Key(two.id, 1), 0): b"zero\n\nrest",
        (Key(two.id, 1), 1): b"one\n",
    }
    assert line("logs", one.id).out == "a\nb"
    out = line("logs", two.id).out.splitlines()
    assert sorted(out) == ["[rank 0] ", "[rank 0] rest", "[rank 0] zero", "[rank 1] one"]
    assert line("logs", two.id, "--rank", "1").out == "one\n"
    parts = [json.loads(part) for part in line("logs", two.id, "--json").out.splitlines()]
    assert {"attempt": 1, "rank": 1, "text": "one\n"} in parts
    assert line("logs", one.id, "--attempt", "5").code == 1


def test_a_long_log_comes_whole(line: Line) -> None:
    job = line.do(lambda: line.desk.stage.submit("ana", lasts=1e6))
    line.do(lambda: line.desk.run(5))
    text = "".join(f"line {n} €\n" for n in range(50_000))
    line.desk.written[Key(job.id, 1), 0] = text.encode()
    assert line("logs", job.id).out == text


def test_following_ends_with_the_job_and_tells_how(line: Line) -> None:
    job = line.do(lambda: line.desk.stage.submit("ana", lasts=1e6))
    line.do(lambda: line.desk.run(5))
    line.desk.written[Key(job.id, 1), 0] = b"printed\n"
    line.do(lambda: line.desk.stage.engine.leave(Key(job.id, 1), 0))
    line.do(lambda: line.desk.run(5))
    done = line("logs", "--follow", job.id)
    assert (done.code, done.out) == (0, "printed\n")
    assert "completed" in done.err
    failed = line.do(lambda: line.desk.stage.submit("ana", lasts=1e6))
    assert line("cancel", failed.id).code == 0
    line.do(lambda: line.desk.run(60))
    assert line("logs", "-f", failed.id).code == 1


# --- doctor ------------------------------------------------------------------------------


def test_the_doctor_names_what_is_missing_and_a_remedy(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = {item["name"]: item for item in line("doctor", "--json").json["findings"]}
    assert findings["python"]["ok"]
    assert findings["broker"]["ok"]
    assert findings["identity"]["text"] == "ana, server ana/"
    assert findings["GPUs"]["text"] == "2 nodes, 8 GPUs, 8 usable"
    assert findings["event stream"]["ok"]
    line.desk.world.problems["policy"] = "policy.yaml: bad"
    done = line("doctor")
    assert done.code == 1
    assert "FAIL  health: policy.yaml: bad\n      what to do about it: docs/" in done.out
    line.desk.world.problems["devices"] = "there is no NVIDIA driver here"
    assert "no NVIDIA driver here\n      install NVIDIA's driver" in line("doctor").out
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", "wrong")
    done = line("doctor")
    assert "FAIL  identity" in done.out
    assert "set JUPYTERHUB_API_TOKEN to a token of yours" in done.out
    monkeypatch.setenv("GPUBROKER_URL", "http://127.0.0.1:9")
    done = line("doctor")
    assert done.code == 3
    assert "FAIL  broker" in done.out


# --- all of them --------------------------------------------------------------------------


@pytest.mark.parametrize("word", [word for word in COMMANDS if word != "serve"])
def test_every_command_explains_itself_and_speaks_json(line: Line, word: str) -> None:
    done = line(word, "--help")
    assert done.code == 0
    assert "--json" in done.out
    assert word in line("--help").out


def test_a_command_is_known_by_one_name() -> None:
    for word, (where, _) in COMMANDS.items():
        command = import_item(where)
        if issubclass(command, Command):
            assert command.word == word
            assert command.__doc__


def test_bench_names_what_is_wrong_with_its_data(line: Line, tmp_path: Path) -> None:
    done = line("bench", "b1", "--data", str(tmp_path))
    assert done.code == 2
    assert f"{tmp_path}/nodes.csv cannot be read" in done.err
