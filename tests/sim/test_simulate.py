# SPDX-License-Identifier: BSD-3-Clause
"""Workloads from CSV on the production broker in virtual time, and what is reported of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpubroker import policy
from jupyter_gpubroker.app.commands.simulation import SimulateApp
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import Device, Node, Notice, Reason, Refusal, Request
from jupyter_gpubroker.sim.notebooks import Cell
from jupyter_gpubroker.sim.report import report, spread, words
from jupyter_gpubroker.sim.simulation import BEGINS, Played, Run, fragmentation, play
from jupyter_gpubroker.sim.workload import Files, Hold, Options, read

NODES = "node,gpus\nn1,4\nn2,4\n"
JOBS = "job_id,submit_s,nodes,gpus,runtime_s,time_limit_s\n"
SESSIONS = "session,open_s,close_s,gpus\n"
CELLS = "session,start_s,duration_s\n"


def run(
    jobs: str = "",
    sessions: str = "",
    cells: str = "",
    nodes: str = NODES,
    options: Options | None = None,
) -> Played:
    """Play rows; the headers are as above."""
    files = Files(
        nodes=("nodes.csv", nodes),
        jobs=("jobs.csv", JOBS + jobs) if jobs else None,
        sessions=("sessions.csv", SESSIONS + sessions) if sessions else None,
        cells=("cells.csv", CELLS + cells) if cells else None,
    )
    rules = policy.default()
    return play(read(files, rules), rules, options or Options())


def cells_of(played: Played) -> list[Cell]:
    return [cell for notebook in played.notebooks for cell in notebook.done]


# --- jobs ---------------------------------------------------------------------------------


def test_jobs_wait_for_each_other_and_their_times_are_exact() -> None:
    made = report(run("a,0,2,4,100,200\nb,10,1,4,50,60\nc,10,1,1,30,60\n"))
    assert made["waits"] == {
        "count": 3,
        "mean": 60.0,
        "p50": 90.0,
        "p90": 90.0,
        "p99": 90.0,
        "max": 90.0,
        "at_once": pytest.approx(1 / 3),
    }
    assert made["jct"]["max"] == 140.0
    assert made["makespan_s"] == 150.0
    hours = (8 * 100 + 4 * 50 + 30) / 3600
    for name in ("allocation", "utilisation"):
        assert made[name]["gpu_hours"] == pytest.approx(hours)
        assert made[name]["mean"] == pytest.approx(hours * 3600 / (8 * 150))
        assert made[name]["max"] == 1.0


def test_what_never_ends_meets_its_time_limit_and_what_can_never_run_is_refused() -> None:
    made = report(run("a,0,1,1,-1,300\nb,0,1,5,10,\nc,5,1,1,7200,\n"))
    jobs = made["jobs"]
    assert (jobs["failed"], jobs["refused"], jobs["completed"]) == (2, 1, 0)
    assert "no node has 5 GPUs" in jobs["refused_because"]
    assert made["end_s"] == pytest.approx(3605.0), "c has the default limit of its class, 1 h"
    assert "first refusal: gpus" in words(made)


def test_until_stops_in_the_middle() -> None:
    made = report(run("a,0,1,4,100,200\nb,0,2,4,100,200\n", options=Options(until=50.0)))
    assert made["end_s"] == 50.0
    assert (made["jobs"]["running"], made["jobs"]["waiting"]) == (1, 1)
    assert made["waits"]["count"] == 1


def test_over_time_adds_up_to_the_whole() -> None:
    made = report(run("a,0,1,4,100,200\nb,30,2,4,77,200\nc,31,1,1,500,600\n"))
    buckets = made["over_time"]
    assert len(buckets) == 100
    mean = sum(bucket["allocated"] for bucket in buckets) / len(buckets)
    assert mean == pytest.approx(made["allocation"]["mean"])
    assert max(bucket["waiting"] for bucket in buckets) > 0
    for bucket in buckets:
        assert bucket["allocated"] == pytest.approx(sum(bucket["allocated_by_class"].values()))


@given(st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**5)), min_size=1, max_size=6))
def test_no_part_of_the_time_shows_more_than_all_gpus(jobs: list[tuple[int, int]]) -> None:
    rows = "".join(f"j{n},{at},1,2,{runs},200000\n" for n, (at, runs) in enumerate(jobs))
    buckets = report(run(rows, nodes="node,gpus\nn,2\n"))["over_time"]
    assert max(bucket["allocated"] for bucket in buckets) <= 1.000001


def test_a_job_that_had_to_leave_goes_on_where_it_was_and_its_restart_costs_it_time() -> None:
    rules = policy.default()
    files = Files(nodes=("n", NODES), jobs=("j", JOBS + "a,0,2,4,100,600\n"))
    run = Run(read(files, rules), rules, Options(restart_s=30.0))

    def preempt() -> None:
        (job,) = run.stage.world.leased()
        told = Notice(Reason.PREEMPTED, run.stage.now + 60.0)
        run.stage.send(i.Ask("broker", job.id, e.Notify(told)))

    for time in (40, 55, 130):  # it works from 0, from 85, and from 160 on
        run.agenda.at(BEGINS + time, preempt)
    run.go()
    (record,) = run.played.records
    assert (record.placed, record.ended) == (0.0, 40 + 15 + (30 + 45) + (30 + 15))
    made = report(run.played)
    assert made["jobs"]["completed"] == 1
    assert made["preemptions"]["requeued"] == 3
    assert made["utilisation"]["gpu_hours"] * 3600 == pytest.approx(8 * 100)
    assert made["allocation"]["gpu_hours"] * 3600 == pytest.approx(8 * 175)


def test_each_class_queue_and_user_has_its_own_numbers() -> None:
    files = Files(
        nodes=("nodes.csv", NODES),
        jobs=(
            "jobs.csv",
            "job_id,user,submit_s,gpus,gpu_milli,runtime_s\nx,ana,0,4,,10\ny,bo,0,,500,20\n",
        ),
    )
    rules = policy.default()
    made = report(play(read(files, rules), rules, Options()))
    assert list(made["by"]["user"]) == ["ana", "bo"]
    assert made["by"]["user"]["bo"]["jct"]["mean"] == 20.0
    assert made["by"]["queue"]["default"]["waits"]["count"] == 2
    assert made["by"]["class"]["batch"]["waits"]["count"] == 2


def test_percentiles_are_those_of_the_nearest_rank() -> None:
    numbers = spread([float(n) for n in range(1, 101)])
    assert [numbers[name] for name in ("p50", "p90", "p99", "max")] == [50, 90, 99, 100]
    assert spread([None]) == {"count": 0}


def test_a_seed_draws_the_order_of_what_comes_at_one_second() -> None:
    rows = "".join(f"{name},0,2,4,{10 + n},100\n" for n, name in enumerate("abcdef"))

    def order(seed: int | None) -> list[str]:
        played = run(rows, options=Options(seed=seed))
        placed = sorted(played.records, key=lambda record: record.placed or 0.0)
        return [record.row.name for record in placed]

    assert order(None) == list("abcdef")
    assert order(1) == order(1) != order(None)


# --- sessions -----------------------------------------------------------------------------


def test_a_session_without_cells_is_in_use_as_long_as_it_is_open() -> None:
    made = report(run(sessions="s,0,3600,2\n"))
    assert made["utilisation"]["gpu_hours"] == pytest.approx(2.0)
    assert made["allocation"]["gpu_hours"] == pytest.approx(2.0)


def test_the_attach_cost_delays_a_cell_and_is_neither_wait_nor_use() -> None:
    played = run(sessions="s,0,1000,1\n", cells="s,0,100\n", options=Options(attach_s=10.0))
    (cell,) = cells_of(played)
    assert (cell.assigned, cell.began) == (cell.arrived, cell.arrived + 10)
    made = report(played)
    assert made["cells"]["waits"]["at_once"] == 1.0
    assert made["utilisation"]["gpu_hours"] * 3600 == pytest.approx(100.0)
    assert made["allocation"]["gpu_hours"] * 3600 >= 110.0


def test_a_cell_that_waits_shifts_all_that_follow_and_its_user_thinks_as_long_as_before() -> None:
    played = run(
        "j,0,2,4,300,600\n", sessions="s,10,1000,1\n", cells="s,20,50\ns,170,30\ns,180,5\n"
    )
    waited, later, last = cells_of(played)
    begins = 1_000_000.0
    assert (waited.arrived, waited.assigned) == (begins + 20, begins + 300)
    assert later.arrived == begins + 350 + 100, "100 s of thought, as in the trace"
    assert last.arrived == later.arrived + 30, "they overlap in the trace; here one follows"
    assert report(played)["cells"]["waits"]["max"] == 280.0


def test_an_idle_session_gives_way_to_a_job_and_its_next_cell_brings_it_back() -> None:
    played = run(
        "j,2000,2,4,500,1000\n",
        sessions="s,0,7000,4\n",
        cells="s,10,100\ns,4000,100\n",
        options=Options(attach_s=5.0),
    )
    made = report(played)
    assert made["preemptions"]["notices"] == 1
    assert made["preemptions"]["parked"] == 1
    _, second = cells_of(played)
    assert (second.assigned, second.began) == (second.arrived, second.arrived + 5)
    (record,) = played.records
    grace = played.policy.classes["interactive"].terms.grace
    assert record.placed == pytest.approx(2000 + grace, abs=2)


def test_a_cell_whose_time_limit_comes_goes_on_when_its_user_asks_again() -> None:
    played = run(sessions="s,0,20000,1\n", cells="s,0,9000\n")
    (cell,) = cells_of(played)
    assert cell.interruptions == 1
    assert report(played)["utilisation"]["gpu_hours"] * 3600 == pytest.approx(9000.0)


def test_per_cell_a_session_has_its_gpus_while_its_cells_run_and_a_little_longer() -> None:
    options = Options(attach_s=5.0, hold=Hold.CELL)
    played = run("j,150,2,4,300,400\n", "s,0,1000,4\n", "s,10,100\ns,500,50\n", options=options)
    first, second = cells_of(played)
    begins = 1_000_000.0
    assert (first.arrived, first.began) == (begins + 10, begins + 15)
    assert second.arrived == second.assigned == begins + 115 + 390
    assert second.began == second.arrived + 5
    assert played.records[0].placed == 150.0, "nobody had to be asked to leave"
    made = report(played)
    assert made["preemptions"]["notices"] == 0
    assert made["cells"]["waits"]["at_once"] == 1.0
    own = 4 * (5 + 100 + 5) + 4 * (5 + 50 + 5)
    assert made["allocation"]["gpu_hours"] * 3600 == pytest.approx(own + 8 * 300)
    assert made["utilisation"]["gpu_hours"] * 3600 == pytest.approx(4 * 150 + 8 * 300)


def test_per_cell_the_next_cell_may_run_on_another_node_and_waits_where_all_are_full() -> None:
    jobs, sessions = "a,50,1,4,1000,1500\nb,300,1,4,100,150\n", "s,0,2000,4\n"
    played = run(jobs, sessions, "s,10,20\ns,200,50\ns,310,30\n", options=Options(hold=Hold.CELL))
    placed = [
        entry.facts["devices"]
        for entry in played.stage.store.data.entries
        if entry.event == "job.placed" and entry.user == "s"
    ]
    first, second, third = ({each["node"] for each in devices} for devices in placed)
    assert (first, second, third) == ({"n1"}, {"n2"}, {"n2"})
    waits = [(cell.assigned or 0.0) - cell.arrived for cell in cells_of(played)]
    assert waits == [0.0, 0.0, 90.0]
    assert {record.placed for record in played.records} == {50.0, 300.0}


def test_per_cell_a_cell_within_the_linger_finds_the_gpus_bound() -> None:
    options = Options(attach_s=5.0, hold=Hold.CELL)
    played = run(sessions="s,0,500,1\n", cells="s,10,20\ns,34,20\n", options=options)
    first, second = cells_of(played)
    assert first.began == first.arrived + 5
    assert second.began == second.assigned == second.arrived
    assert report(played)["preemptions"]["parked"] == 1


def test_per_cell_every_cell_has_the_gpus_that_it_needs() -> None:
    files = Files(
        nodes=("n", NODES),
        sessions=("s", SESSIONS + "s,0,500,4\n"),
        cells=("c", "session,start_s,duration_s,gpus\ns,10,100,4\ns,112,50,2\ns,200,40,2\n"),
    )
    rules, options = policy.default(), Options(attach_s=5.0, hold=Hold.CELL)
    played = play(read(files, rules), rules, options)
    assert report(played)["cells"]["waits"]["at_once"] == 1.0
    assert all(cell.began == cell.arrived + 5 for cell in cells_of(played))
    # The second comes within the linger of the first, which then is cut short.
    leased = 4 * (5 + 100 + 2) + 2 * (5 + 50 + 5) + 2 * (5 + 40 + 5)
    assert report(played)["allocation"]["gpu_hours"] * 3600 == pytest.approx(leased)


def test_a_session_that_can_never_be_had_is_given_up_and_others_are_asked_for_again() -> None:
    made = report(run(sessions="s,0,20000,5\n", cells="s,10,100\n"))
    assert made["jobs"]["sessions_refused"] == 1
    assert made["cells"]["waits"] == {"count": 0}
    files = Files(
        nodes=("nodes.csv", "node,gpus\nn,1\n"),
        sessions=(
            "sessions.csv",
            "session,user,open_s,close_s,gpus\n"
            + "".join(f"s{n},ana,0,{100 * (n + 1)},1\n" for n in range(9)),
        ),
    )
    rules = policy.default()
    played = play(read(files, rules), rules, Options())
    assert len(cells_of(played)) == 9, "five may wait; the others ask again"


def test_free_gpus_that_nobody_could_use_are_fragmented() -> None:
    node = Node("n", "sim", "b1", tuple(Device(f"n/{k}", "gpu", 100, k) for k in range(4)))
    whole, half, quarter = Request(gpus=2), Request(gpu_milli=500), Request(memory_mib=25)

    def lost(used: dict[str, int], *shapes: Request) -> float | None:
        return fragmentation({"n": node}, used, dict.fromkeys(shapes, 1))

    assert lost({}, whole) == 0.0
    assert lost({"n/0": 1000, "n/1": 1000, "n/2": 500}, whole) == 1.0
    assert lost({"n/0": 600}, half) == pytest.approx(400 / 3400)
    assert lost({"n/0": 600}, half, quarter) == pytest.approx(200 / 3400)
    assert lost(dict.fromkeys((f"n/{k}" for k in range(4)), 1000), whole) is None


# --- what is wrong ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("nodes", "node,gpu\nn1,4\n", "nodes.csv line 1: gpu: unknown column (columns: node,gpus"),
        ("nodes", "node\nn1\n", "nodes.csv line 1: gpus: this column must be there"),
        ("nodes", "node,gpus\nn1,4\nn1,4\n", "nodes.csv line 3: node: n1 is there twice"),
        ("nodes", "node,gpus\nn1,four\n", "nodes.csv line 2: gpus: 'four' is not a whole number"),
        ("nodes", "node,gpus\nn1,0\n", "nodes.csv line 2: gpus: 0 is out of range: 1 …"),
        ("nodes", "node,gpus\nn1\n", "nodes.csv line 2: columns: 1 values for 2 columns"),
        ("nodes", "node,gpus\n", "nodes.csv: has no nodes (one line for each machine)"),
        ("nodes", 'node,gpus\n"n1,4\n', "nodes.csv line 2: is not CSV"),
        ("jobs", "job_id,submit_s,runtime_s\na,0,1\n", "jobs.csv line 2: gpus: must be at least 1"),
        (
            "jobs",
            "job_id,submit_s,cpu_milli,runtime_s\na,0,2000,1\n",
            "jobs.csv line 2: gpus: must be at least 1",
        ),
        (
            "jobs",
            "job_id,submit_s,gpus,runtime_s\na,,1,1\n",
            "jobs.csv line 2: submit_s: must be g",
        ),
        (
            "jobs",
            "job_id,submit_s,gpus,runtime_s\na,nan,1,1\n",
            "jobs.csv line 2: submit_s: nan is",
        ),
        ("jobs", "job_id,submit_s,gpus,runtime_s\na,0,1,-2\n", "jobs.csv line 2: runtime_s: -2 is"),
        (
            "jobs",
            "job_id,queue,submit_s,gpus,runtime_s\na,x,0,1,1\n",
            "jobs.csv line 2: queue: 'x' is not a queue of the policy (one of: default)",
        ),
        (
            "jobs",
            "job_id,class,submit_s,gpus,runtime_s\na,interactive,0,1,1\n",
            "jobs.csv line 2: class: 'interactive' is not a class for jobs (one of: batch)",
        ),
        (
            "sessions",
            "session,open_s,close_s,gpus\ns,5,5,1\n",
            "sessions.csv line 2: close_s: must",
        ),
        (
            "cells",
            "session,start_s,duration_s\nx,1,1\n",
            "cells.csv line 2: session: x is not a se",
        ),
        ("cells", "session,start_s,duration_s\ns,99,1\n", "cells.csv line 2: start_s: its session"),
        ("cells", "session,start_s,duration_s,gpus\ns,1,1,2\n", "cells.csv line 2: gpus: its sess"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_line_and_field(
    name: str, text: str, said: str
) -> None:
    good = {
        "nodes": NODES,
        "jobs": JOBS + "a,0,1,1,1,\n",
        "sessions": SESSIONS + "s,0,10,1\n",
        "cells": CELLS + "s,1,1\n",
    }
    files = {key: (f"{key}.csv", value) for key, value in (good | {name: text}).items()}
    with pytest.raises(Refusal) as caught:
        read(Files(**files), policy.default())
    assert str(caught.value).startswith(said), str(caught.value)


def test_there_must_be_something_to_play() -> None:
    with pytest.raises(Refusal, match="give --jobs"):
        read(Files(nodes=("nodes.csv", NODES)), policy.default())


# --- the command --------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "nodes.csv").write_text(NODES)
    rows = "".join(f"j{n},{n % 7 * 10},1,{1 + n % 4},{50 + n},600\n" for n in range(30))
    (tmp_path / "jobs.csv").write_text(JOBS + rows)
    (tmp_path / "sessions.csv").write_text(SESSIONS + "s,0,5000,1\nt,100,6000,2\n")
    (tmp_path / "cells.csv").write_text(CELLS + "s,10,100\nt,200,50\nt,3000,50\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


ALL = ("--nodes", "nodes.csv", "--jobs", "jobs.csv", "--sessions", "sessions.csv")
ALL = (*ALL, "--cells", "cells.csv", "--attach-cost-s", "5", "--seed", "3")


def command(*argv: str) -> int:
    app = SimulateApp()
    app.initialize(list(argv))
    with pytest.raises(SystemExit) as left:
        app.start()
    assert isinstance(left.value.code, int)
    return left.value.code


def test_the_command_reports_for_people_and_programs(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(*ALL) == 0
    assert "30 submitted, 30 completed" in capsys.readouterr().out
    assert command(*ALL, "--json", "--until", "100s", "--hold", "cell") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["end_s"] == 100.0


def test_what_was_played_is_drawn_as_svg_and_as_png(folder: Path) -> None:
    for name in ("use.svg", "use.png", "again.svg"):
        assert command(*ALL, "--plot", name) == 0
    drawn = (folder / "use.svg").read_text()
    assert ElementTree.fromstring(drawn).tag == "{http://www.w3.org/2000/svg}svg"
    for said in ("batch", "interactive", "in use", "Jobs and sessions waiting", "time in minutes"):
        assert f"<!-- {said} -->" in drawn, said
    assert (folder / "again.svg").read_text() == drawn
    assert (folder / "use.png").read_bytes().startswith(b"\x89PNG\r\n")


def test_nothing_that_was_played_is_drawn_too(folder: Path) -> None:
    (folder / "jobs.csv").write_text(JOBS + "j,0,1,8,5,600\n")
    assert command("--nodes", "nodes.csv", "--jobs", "jobs.csv", "--plot", "use.svg") == 0
    assert "<!-- GPUs allocated: 0 %, in use: 0 % -->" in (folder / "use.svg").read_text()


def test_a_picture_without_matplotlib_is_refused_before_anything_is_played(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "jupyter_gpubroker.sim.plot", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as where it is not installed
    assert command(*ALL, "--plot", "use.svg") == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "pip install matplotlib" in shown.err
    assert not (folder / "use.svg").exists()


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (("--nodes", "none.csv", "--jobs", "jobs.csv"), "file: none.csv cannot be read"),
        ((*ALL, "--plot", "use.pdf"), "plot: use.pdf is neither .svg nor .png"),
        ((*ALL, "--attach-cost-s", "-1"), "attach-cost-s: -1 is out of range"),
        ((*ALL, "--restart-cost-s", "x"), "restart-cost-s: 'x' is not a number"),
        ((*ALL, "--until", "soon"), "until: 'soon' is not a duration"),
        ((*ALL, "--policy", "nodes.csv"), "policy: must be a mapping"),
    ],
)
def test_wrong_use_is_2_and_does_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], argv: tuple[str, ...], said: str
) -> None:
    before = sorted(path.name for path in folder.iterdir())
    assert command(*argv) == 2
    shown = capsys.readouterr()
    assert (shown.out, said in shown.err) == ("", True), shown.err
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_same_files_and_seed_give_the_same_report_in_every_process(folder: Path) -> None:
    def once(salt: str) -> dict[str, Any]:
        env = {**os.environ, "PYTHONHASHSEED": salt}
        argv = [sys.executable, "-m", "jupyter_gpubroker.app", "simulate", *ALL, "--json"]
        done = subprocess.run(argv, cwd=folder, env=env, capture_output=True, check=True)
        made: dict[str, Any] = json.loads(done.stdout)
        return made

    assert once("1") == once("2")
