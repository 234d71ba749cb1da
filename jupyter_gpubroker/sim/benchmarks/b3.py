# SPDX-License-Identifier: BSD-3-Clause
"""B3: notebooks and batch on one cluster, GPUs held per cell, with the interactive reserve.

Two days of 183 real notebook sessions (Adobe's trace, by NotebookOS: Carver et al., ASPLOS
'26) in a closed loop on 150 nodes of 8 GPUs, and behind them a queue that is kept 100 deep of
gangs drawn from the shapes and service times of a Philly trace. The figure is what batch got
of that which no cell was using; it counts only if cells had their GPUs at once.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import ceil
from multiprocessing import get_context
from pathlib import Path
from time import process_time
from typing import Any

from ... import policy as policies
from ...core.model import GPU_MILLI, Refusal, Request, Seconds, State
from .. import tables
from ..engine import cluster
from ..notebooks import Cell
from ..report import spread
from ..simulation import Record, Run
from ..workload import CellRow, Hold, JobRow, Options, SessionRow, Workload

GPUS = 8
"""Of each node."""
GANG = 32
"""No job has more GPUs."""
SEEDS = range(5)
ATTACH = (0.0, 10.0)
AT_ONCE, P99_S = 0.99, 60.0
"""Share of the cells, and seconds: else the figure is 0."""
BEAT = {"0": 90.6, "10": 91.0}
"""What a constant reserve of 8 whole nodes gave in a quick simulator, by the attach cost."""
MINUTE = 60.0
BATCH = "batch"
POLICY = """\
classes:
  interactive: {{kinds: [session], time: {{default: 90d, max: 90d}}, parked: 90d}}
  batch: {{kinds: [batch], time: {{default: 90d, max: 90d}}}}
queues: {{default: {{}}}}
reserve: {reserve}
"""
"""A limit would only interrupt cells, and jobs of the trace run for weeks."""

SESSIONS = {
    "session": tables.Column(tables.text, required=True),
    "open_min": tables.Column(tables.seconds, required=True),
    "close_min": tables.Column(tables.seconds, required=True),
    "max_gpus": tables.Column(tables.whole(1, GPUS), required=True),
}
CELLS = {
    "session": tables.Column(tables.text, required=True),
    "start_min": tables.Column(tables.seconds, required=True),
    "duration_min": tables.Column(tables.seconds, required=True),
    "gpus": tables.Column(tables.whole(1, GPUS), required=True),
}
GANGS = {
    "job_id": tables.Column(tables.text, required=True),
    "gpus": tables.Column(tables.whole(1, 100_000), required=True),
    "submit_s": tables.Column(tables.seconds),
    "service_s": tables.Column(tables.seconds, required=True),
}

Read = Callable[[str], str]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Gang:
    """What a batch job asks for, and how long it runs."""

    gpus: int
    seconds: Seconds

    @property
    def request(self) -> Request:
        """At most one node's GPUs on one node, more on whole nodes."""
        nodes = ceil(self.gpus / GPUS)
        return Request(nodes=nodes, gpus=min(self.gpus, GPUS), time_limit=self.seconds)


@dataclass(frozen=True, slots=True)
class Setup:
    """What is played, and on what."""

    sessions: tuple[SessionRow, ...]
    gangs: tuple[Gang, ...]
    until: Seconds
    nodes: int = 150
    depth: int = 100
    """Jobs that wait at any time."""
    reserve: str = "auto"


@dataclass(frozen=True, slots=True)
class Played:
    """What came of one run."""

    batch: float
    """GPU-hours that batch jobs had."""
    active: float
    """GPU-hours in which cells ran."""
    capacity: float
    waits: tuple[Seconds, ...]
    """Of the cells; of one that still waited at the end, so far."""
    gangs: tuple[Seconds, ...]
    """Waits of the largest jobs."""
    seconds: float
    """Of CPU time."""

    @property
    def share(self) -> float:
        """Per cent of what no cell used that batch had."""
        return 100 * self.batch / (self.capacity - self.active)


class Feeder:
    """Keeps the queue of batch jobs as deep as it has to be."""

    def __init__(self, run: Run, gangs: Sequence[Gang], seed: int, depth: int) -> None:
        self.run, self.gangs, self.depth, self.count = run, gangs, depth, 0
        self.draw = random.Random(seed)  # noqa: S311 - a workload, not a secret
        run.stage.follow(BATCH, self.feed)

    def feed(self) -> None:
        """Submit as many as have started since."""
        jobs = self.run.stage.world.alive.values()
        waiting = sum(job.user == BATCH and job.state is State.QUEUED for job in jobs)
        for _ in range(self.depth - waiting):
            self.count += 1
            gang = self.draw.choice(self.gangs)
            self.run.submit(
                JobRow(
                    name=f"job{self.count}",
                    user=BATCH,
                    queue="",
                    class_name="",
                    submit=self.run.time,
                    request=gang.request,
                    runtime=gang.seconds,
                )
            )


def play(setup: Setup, seed: int, attach_s: Seconds) -> Played:
    """One run."""
    began = process_time()
    workload = Workload(cluster(setup.nodes, GPUS, 81920), (), setup.sessions)
    policy = policies.parse(POLICY.format(reserve=setup.reserve))
    run = Run(workload, policy, Options(until=setup.until, attach_s=attach_s, hold=Hold.CELL))
    feeder = Feeder(run, setup.gangs, seed, setup.depth)
    run.agenda.at(run.agenda.now, feeder.feed)
    run.go()
    played, now = run.played, run.agenda.now
    cells = [cell for notebook in played.notebooks for cell in notebook.cells]
    largest = max(gang.request.nodes for gang in setup.gangs)
    return Played(
        batch=sum(_had(record, setup.until) for record in played.records),
        active=sum(_ran(cell, now) for cell in cells),
        capacity=setup.nodes * GPUS * setup.until / 3600,
        waits=tuple(now - cell.arrived if cell.wait is None else cell.wait for cell in cells),
        gangs=tuple(
            record.placed - record.row.submit
            for record in played.records
            if record.row.request.nodes == largest and record.placed is not None
        ),
        seconds=process_time() - began,
    )


def _had(record: Record, until: Seconds) -> float:
    if record.placed is None:
        return 0.0
    request = record.row.request
    end = until if record.ended is None else record.ended
    return request.nodes * request.gpus * (end - record.placed) / 3600


def _ran(cell: Cell, now: Seconds) -> float:
    """GPU-hours that the cell ran until now."""
    left = cell.left if cell.began is None else max(0.0, cell.left - (now - cell.began))
    return (cell.row.duration - left) * cell.row.milli / GPU_MILLI / 3600


def sessions(files: Sequence[tuple[str, str]]) -> tuple[tuple[SessionRow, ...], Seconds]:
    """Sessions and their cells of (name, content) of the two files, and when all are over;
    Refusal naming file, line and field."""
    (file, content), (cell_file, cell_content) = files
    cells: dict[str, list[CellRow]] = {}
    for row in tables.rows(cell_content, cell_file, CELLS):
        start, lasts = MINUTE * row.seconds("start_min"), MINUTE * row.seconds("duration_min")
        cell = CellRow(start, lasts, row.whole("gpus") * GPU_MILLI)
        cells.setdefault(row.text("session"), []).append(cell)
    found = []
    for row in tables.rows(content, file, SESSIONS):
        name = row.text("session")
        found.append(
            SessionRow(
                name=name,
                user=f"user{name}",
                queue="",
                open=MINUTE * row.seconds("open_min"),
                close=MINUTE * row.seconds("close_min"),
                request=Request(gpus=row.whole("max_gpus")),
                cells=tuple(sorted(cells.pop(name, []), key=lambda cell: cell.start)),
            )
        )
    if cells:
        raise Refusal(cell_file, f"session {next(iter(cells))} is not in {file}")
    return tuple(found), max(row.close for row in found)


def gangs(content: str, file: str) -> tuple[Gang, ...]:
    """Jobs by their shape and service time, in whole minutes as the cells; Refusal naming file,
    line and field."""
    return tuple(
        Gang(min(GANG, row.whole("gpus")), MINUTE * ceil(row.seconds("service_s") / MINUTE))
        for row in tables.rows(content, file, GANGS)
    )


def run(folder: Path, read: Read, say: Say) -> dict[str, Any]:
    """All seeds with both attach costs, as many at a time as there are cores; the figures. The
    data lie in ``notebooks`` and ``philly`` below the folder."""

    def content(name: str) -> tuple[str, str]:
        path = str(folder / name)
        return path, read(path)

    days = "days07_09.csv"
    rows, until = sessions([content(f"notebooks/{kind}_{days}") for kind in ("sessions", "cells")])
    path, text = content("philly/trace1.csv")
    return measure(Setup(rows, gangs(text, path), until), say)


def measure(setup: Setup, say: Say, seeds: Sequence[int] = SEEDS) -> dict[str, Any]:
    """The figures of a setup."""
    figures: dict[str, dict[str, Any]] = {}
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for attach_s in ATTACH:
            found = list(pool.map(partial(play, setup, attach_s=attach_s), seeds))
            figures[f"{attach_s:g}"] = made = _pooled(found)
            say(
                f"attach {attach_s:g} s: batch had {made['share']:.2f} % of the rest, "
                f"{100 * made['at_once']:.2f} % of the cells had GPUs at once"
            )
    return {
        "id": "b3",
        "value": min(each["value"] for each in figures.values()),
        "unit": "% of the GPU-hours without cells that batch had",
        "beat": BEAT,
        "seeds": list(seeds),
        "reserve": setup.reserve,
        "attach_s": figures,
    }


def _pooled(found: Sequence[Played]) -> dict[str, Any]:
    batch, active = sum(each.batch for each in found), sum(each.active for each in found)
    share = 100 * batch / (sum(each.capacity for each in found) - active)
    cells = spread(wait for each in found for wait in each.waits)
    holds = cells["at_once"] >= AT_ONCE and cells["p99"] <= P99_S
    return {
        "value": round(share, 2) if holds else 0,
        "share": round(share, 2),
        "shares": [round(each.share, 2) for each in found],
        "at_once": round(cells["at_once"], 5),
        "p99_s": cells["p99"],
        "cells": cells["count"],
        "active_gpu_hours": round(active),
        "largest_gangs": spread(wait for each in found for wait in each.gangs),
        "slowest_s": round(max(each.seconds for each in found), 1),
    }
