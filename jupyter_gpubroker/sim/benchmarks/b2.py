# SPDX-License-Identifier: BSD-3-Clause
"""B2: how long jobs take from submit to end on 8 nodes of 8 GPUs, the broker in virtual time.

Two traces of Microsoft's Philly cluster as Muri has them (Zhao et al., SIGCOMM '22). Jobs
are rigid gangs; who is preempted goes on where it was, and pays for each restart. League a:
nothing is known of durations (``attained``). League b: limits are known, the duration times
U(1, 5), drawn by seed (``shortest``). The default policy is reported only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

from ... import policy as policies
from ...core.model import (
    Equals,
    Levels,
    Node,
    Order,
    Policy,
    Queue,
    Refusal,
    Request,
    Seconds,
)
from .. import tables
from ..engine import cluster
from ..report import report
from ..simulation import play
from ..workload import JobRow, Options, Workload

NODES, GPUS = 8, 8
RESTART_S = 30.0
TRACES = ("trace3", "trace1")
SEEDS = range(10)
"""Of the limits of league b; on the second trace, which takes longer, the first one alone."""
WORKERS = 2
UNKNOWN_S = 1000 * 86400.0
"""The limit of a job whose duration nobody knows: longer than all that is played."""
RESTARTS = 100
"""Restarts that a limit has room for besides."""
DEFAULT = Levels()
PUBLISHED = {
    "trace3": {
        "tiresias-l": 347_213, "themis": 397_059, "srsf": 185_022, "srtf": 193_082,
        "lower bound": 134_707,
    },
    "trace1": {
        "tiresias-l": 3_330_371, "themis": 1_823_179, "srsf": 980_141, "srtf": 1_370_603,
        "lower bound": 810_339,
    },
}  # fmt: skip
"""Mean seconds; SRSF and SRTF know durations."""
JOBS = {
    "job_id": tables.Column(tables.text, required=True),
    "gpus": tables.Column(tables.whole(1, 100_000), required=True),
    "submit_s": tables.Column(tables.seconds, required=True),
    "service_s": tables.Column(tables.seconds, required=True),
}
Read = Callable[[str], str]
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs and the machines that they came to."""

    jobs: tuple[JobRow, ...]
    nodes: Mapping[str, Node]


@dataclass(frozen=True, slots=True)
class Case:
    """One run: a league on a trace, with these constants and this seed of limits."""

    trace: str
    order: Order
    levels: Levels = DEFAULT
    seed: int | None = None

    def words(self) -> str:
        """What is not as usual, for people and as a key."""
        changed = [
            f"{name} {getattr(self.levels, name):g}"
            for name in ("first", "factor", "aging")
            if getattr(self.levels, name) != getattr(DEFAULT, name)
        ]
        limits = [] if self.seed is None else [f"limits {self.seed}"]
        return " ".join([self.trace, self.order.value, *changed, *limits])


@dataclass(frozen=True, slots=True)
class Times:
    """What came of one run."""

    mean: Seconds
    p99: Seconds
    unfinished: int
    preemptions: int
    turns: int


def trace(content: str, file: str, nodes: int = NODES, gpus: int = GPUS) -> Trace:
    """The jobs of a trace; Refusal naming file, line and field."""
    jobs = [_job(row, gpus) for row in tables.rows(content, file, JOBS)]
    if not jobs:
        raise Refusal(file, "has no jobs")
    in_order = tuple(sorted(jobs, key=lambda job: (job.submit, job.name)))
    return Trace(in_order, cluster(nodes, gpus))


def _job(row: tables.Row, per_node: int) -> JobRow:
    """More GPUs than a node has are whole nodes."""
    wanted = row.whole("gpus")
    count = -(-wanted // per_node)
    if wanted % count:
        raise row.wrong("gpus", f"{wanted} are not the same on each of {count} nodes")
    request = Request(nodes=count, gpus=wanted // count)
    seconds = row.seconds("service_s")
    return JobRow(row.text("job_id"), "user", "", "", row.seconds("submit_s"), request, seconds)


def policy(case: Case) -> Policy:
    """The shipped policy with the order of that league."""
    base = policies.default()
    batch = base.classes["batch"]
    free = replace(batch, time_default=UNKNOWN_S, time_max=UNKNOWN_S, waiting=None)
    if case.order is Order.FAIR:
        return replace(base, classes={**base.classes, "batch": free})
    return replace(
        base,
        classes={**base.classes, "batch": free},
        queues={"default": Queue("default", order=case.order, preempt_equals=Equals.LEVELS)},
        levels=case.levels,
        max_age=UNKNOWN_S,
    )


def limited(jobs: Iterable[JobRow], seed: int | None) -> tuple[JobRow, ...]:
    """The jobs with their limits; without a seed nobody knows anything."""
    draw = Random(seed)  # noqa: S311 - a workload, not a secret
    found = []
    for job in jobs:
        known = job.runtime * draw.uniform(1, 5) + RESTARTS * RESTART_S
        limit = UNKNOWN_S if seed is None else known
        found.append(replace(job, request=replace(job.request, time_limit=limit)))
    return tuple(found)


def one(some: Trace, case: Case) -> Times:
    """Play one case."""
    workload = Workload(some.nodes, limited(some.jobs, case.seed))
    made = report(play(workload, policy(case), Options(restart_s=RESTART_S)))
    jobs, jct = made["jobs"], made["jct"]
    unfinished = jobs["submitted"] - jobs["completed"]
    taken = made["preemptions"]["requeued"]
    return Times(jct["mean"], jct["p99"], unfinished, taken, made["turns"])


def cases() -> list[Case]:
    """All runs: the leagues, half and twice each constant, and the default policy."""
    first, second = TRACES
    found = [Case(first, Order.ATTAINED)]
    found += [Case(first, Order.SHORTEST, seed=seed) for seed in SEEDS]
    for name, order, seed in (
        ("first", Order.ATTAINED, None),
        ("factor", Order.ATTAINED, None),
        ("aging", Order.SHORTEST, SEEDS[0]),
    ):
        for by in (0.5, 2.0):
            levels = replace(DEFAULT, **{name: getattr(DEFAULT, name) * by})
            found.append(Case(first, order, levels, seed))
    found.append(Case(first, Order.FAIR, seed=SEEDS[0]))
    return [*found, Case(second, Order.ATTAINED), Case(second, Order.SHORTEST, seed=SEEDS[0])]


def run(folder: Path, read: Read, say: Say) -> dict[str, Any]:
    """All cases, two at a time; the figures. The data lie in the folder or in ``philly``
    below it."""
    folder = folder / "philly" if (folder / "philly").is_dir() else folder
    traces = {}
    for name in TRACES:
        path = str(folder / f"{name}.csv")
        traces[name] = trace(read(path), path)
    times: dict[Case, Times] = {}
    with ProcessPoolExecutor(WORKERS) as pool:
        some = cases()
        played = pool.map(one, [traces[case.trace] for case in some], some)
        for case, found in zip(some, played, strict=True):
            times[case] = found
            say(f"{case.words():36} mean {found.mean:12,.0f} s  p99 {found.p99:12,.0f} s")
    return _result(times)


def _result(times: Mapping[Case, Times]) -> dict[str, Any]:
    leagues = {
        name: {
            trace_: _summary([times[case] for case in _of(times, trace_, order)])
            for trace_ in TRACES
        }
        for name, order in (("a", Order.ATTAINED), ("b", Order.SHORTEST))
    }
    return {
        "id": "b2",
        "value": leagues["a"][TRACES[0]]["mean"],
        "unit": "s, mean job completion time of league a on trace3",
        "leagues": leagues,
        "published": PUBLISHED,
        "constants": {
            "first": DEFAULT.first,
            "factor": DEFAULT.factor,
            "aging": DEFAULT.aging,
        },
        "runs": {
            case.words(): {
                "mean": round(found.mean),
                "p99": round(found.p99),
                "unfinished": found.unfinished,
                "preemptions": found.preemptions,
                "turns": found.turns,
            }
            for case, found in times.items()
        },
    }


def _of(times: Iterable[Case], trace_: str, order: Order) -> Iterator[Case]:
    """The runs of a league with the usual constants."""
    for case in times:
        if (case.trace, case.order, case.levels) == (trace_, order, DEFAULT):
            yield case


def _summary(some: Sequence[Times]) -> dict[str, Any]:
    """Means over the seeds."""
    return {
        "mean": round(sum(each.mean for each in some) / len(some)),
        "p99": round(sum(each.p99 for each in some) / len(some)),
        "worst_p99": round(max(each.p99 for each in some)),
        "seeds": len(some),
    }
