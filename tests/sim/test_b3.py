# SPDX-License-Identifier: BSD-3-Clause
"""B3 on a small, made up cluster: what it reads, what it counts, and what the reserve is for."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpubroker.core.model import Refusal
from jupyter_gpubroker.sim.benchmarks import b3

SESSIONS = "session,open_min,close_min,max_gpus\n"
CELLS = "session,start_min,duration_min,gpus\n"
GANGS = "job_id,gpus,submit_s,service_s\n"
HOURS = 12


def lines(seed: int, shuffled: bool = False) -> dict[str, str]:
    """Sixteen people who run cells of an hour's third now and then, and jobs of all sizes."""
    draw = random.Random(seed)
    people, cells = [], []
    for name in range(16):
        gpus, time = draw.choice((1, 4, 8)), 0.0
        people.append(f"{name},0,{60 * HOURS},{gpus}\n")
        while (time := time + draw.expovariate(1 / 60)) < 60 * HOURS - 30:
            cells.append(f"{name},{int(time)},{(lasts := draw.randint(2, 20))},{gpus}\n")
            time += lasts
    jobs = [
        f"{n},{draw.choice((1, 1, 4, 8, 8, 16, 64))},{n}.5,{60 * draw.randint(5, 600)}\n"
        for n in range(200)
    ]
    for some in (people, cells) if shuffled else ():
        random.Random(1).shuffle(some)
    return {
        "sessions_days07_09.csv": SESSIONS + "".join(people),
        "cells_days07_09.csv": CELLS + "".join(cells),
        "trace1.csv": GANGS + "".join(jobs),
    }


def setup(seed: int = 3, shuffled: bool = False) -> b3.Setup:
    files = lines(seed, shuffled)
    rows, until = b3.sessions([(name, files[name]) for name in files if name != "trace1.csv"])
    some = b3.gangs(files["trace1.csv"], "trace1.csv")
    return b3.Setup(rows, some, until, nodes=12, depth=20)


def at_once(played: b3.Played) -> float:
    return sum(wait == 0 for wait in played.waits) / len(played.waits)


def test_auto_gives_cells_their_gpus_at_once_and_batch_most_of_the_rest() -> None:
    auto = b3.play(setup(), 0, 0.0)
    off = b3.play(replace(setup(), reserve="off"), 0, 0.0)
    assert at_once(auto) > at_once(off) + 0.1
    assert auto.active > off.active
    assert 60 < auto.share < off.share < 100


def test_the_attach_cost_is_no_wait_and_the_order_of_the_lines_changes_nothing() -> None:
    short = replace(setup(), until=3 * 3600.0)
    fast, slow = (b3.play(short, 1, attach_s) for attach_s in b3.ATTACH)
    assert at_once(slow) == pytest.approx(at_once(fast), abs=0.1)
    assert slow.active == pytest.approx(fast.active, rel=0.1)
    assert setup(shuffled=True).gangs == setup().gangs
    known = {row.name: row for row in setup().sessions}
    assert {row.name: row for row in setup(shuffled=True).sessions} == known


def test_the_figure_is_of_the_worse_attach_cost_and_nothing_where_cells_wait() -> None:
    told: list[str] = []
    made = b3.measure(replace(setup(), until=2 * 3600.0), told.append, seeds=(0, 1))
    assert (made["id"], made["seeds"], len(told)) == ("b3", [0, 1], 2)
    shares = {key: each["share"] for key, each in made["attach_s"].items()}
    assert list(shares) == ["0", "10"]
    held = [
        each["at_once"] >= b3.AT_ONCE and each["p99_s"] <= b3.P99_S
        for each in made["attach_s"].values()
    ]
    assert made["value"] == (min(shares.values()) if all(held) else 0)
    one = made["attach_s"]["0"]
    again = [b3.play(replace(setup(), until=2 * 3600.0), seed, 0.0) for seed in (0, 1)]
    assert one["cells"] == sum(len(each.waits) for each in again)
    assert one["shares"] == [round(each.share, 2) for each in again]


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("cells_days07_09.csv", "0,", "x,", r"cells_days07_09.csv: session x is not in"),
        ("sessions_days07_09.csv", ",720,", ",-1,", r"sessions_days07_09.csv line 2: close_min"),
        ("trace1.csv", "0,", "0,0.5", r"trace1.csv line 2: gpus"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(name: str, old: str, new: str, message: str) -> None:
    files = lines(3)
    head, rest = files[name].split("\n", 1)
    files[name] = head + "\n" + rest.replace(old, new, 1)
    with pytest.raises(Refusal, match=message):
        b3.run(Path("x"), lambda path: files[Path(path).name], str)
