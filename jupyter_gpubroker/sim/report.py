# SPDX-License-Identifier: BSD-3-Clause
"""What a workload that was played shows: waits, times, use, per class, queue and user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Any

from ..core.amounts import words_duration
from ..core.model import GPU_MILLI, LEASED, WAITING, Kind, Seconds, State
from .notebooks import Cell
from .simulation import Level, Played, Record

BUCKETS = 100
"""Parts that the time is cut into."""
HOUR = 3_600_000.0
"""Milli-seconds of GPU in one GPU-hour."""
NOTICED, REPRIEVED = "job.noticed", "job.reprieved"


@dataclass(frozen=True, slots=True)
class Item:
    """A job or a cell, as far as its numbers go."""

    class_name: str
    queue: str
    user: str
    wait: Seconds | None
    """Until it had GPUs; ``None`` if it never had."""
    jct: Seconds | None = None
    """From submit to its completion."""


def report(played: Played) -> dict[str, Any]:
    """Everything as JSON values; the same input gives the same."""
    jobs = [_job_item(played, record) for record in played.records if record.job]
    cells = list(_cell_items(played))
    capacity = sum(len(node.devices) for node in played.workload.nodes.values()) * GPU_MILLI
    return {
        "jobs": _counts(played),
        "waits": spread(item.wait for item in jobs),
        "jct": spread(item.jct for item in jobs),
        "cells": {
            "count": len(cells),
            "interruptions": sum(cell.interruptions for cell in _cells(played)),
            "waits": spread(item.wait for item in cells),
        },
        "makespan_s": _makespan(played),
        "allocation": _use(played.levels, capacity, lambda level: sum(level.leased.values())),
        "utilisation": _use(played.levels, capacity, lambda level: level.active),
        "fragmentation": {
            "mean": _mean(played.fragmentation),
            "samples": len(played.fragmentation),
        },
        "preemptions": _preemptions(played),
        "over_time": _over_time(played.levels, capacity),
        "by": {
            name: _by([*jobs, *cells], key)
            for name, key in (
                ("class", lambda item: item.class_name),
                ("queue", lambda item: item.queue),
                ("user", lambda item: item.user),
            )
        },
        "end_s": played.end,
        "turns": played.stage.turns,
        "entries": played.stage.world.seq,
    }


def spread(values: Iterable[Seconds | None]) -> dict[str, Any]:
    """Mean and percentiles (nearest rank) in seconds; ``at_once`` is the share that is 0."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return {"count": 0}
    return {
        "count": len(known),
        "mean": _mean(known),
        "p50": _percentile(known, 50),
        "p90": _percentile(known, 90),
        "p99": _percentile(known, 99),
        "max": known[-1],
        "at_once": sum(value == 0 for value in known) / len(known),
    }


def _percentile(known: Sequence[float], percent: int) -> float:
    return known[max(0, ceil(len(known) * percent / 100) - 1)]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


# --- jobs and cells -----------------------------------------------------------------------


def _job_item(played: Played, record: Record) -> Item:
    job, row = record.last, record.row
    assert job is not None, record
    done = job.state is State.COMPLETED and record.ended is not None
    return Item(
        class_name=job.class_name,
        queue=job.queue,
        user=job.user,
        wait=None if record.placed is None else record.placed - row.submit,
        jct=record.ended - row.submit if done and record.ended is not None else None,
    )


def _cells(played: Played) -> list[Cell]:
    return [cell for notebook in played.notebooks for cell in notebook.cells]


def _cell_items(played: Played) -> Iterable[Item]:
    classes = played.policy.classes.values()
    interactive = next(item.name for item in classes if Kind.SESSION in item.kinds)
    for notebook in played.notebooks:
        queue = notebook.row.queue or played.policy.default_queue
        for cell in notebook.cells:
            yield Item(interactive, queue, notebook.row.user, cell.wait)


def _counts(played: Played) -> dict[str, Any]:
    states = [record.last.state for record in played.records if record.last is not None]
    refused = [record for record in played.records if record.refused]
    return {
        "submitted": len(played.records),
        "refused": len(refused),
        "refused_because": refused[0].refused if refused else "",
        "completed": states.count(State.COMPLETED),
        "failed": states.count(State.FAILED),
        "cancelled": states.count(State.CANCELLED),
        "waiting": sum(state in WAITING for state in states),
        "running": sum(state in LEASED for state in states),
        "sessions": len(played.notebooks),
        "sessions_refused": sum(bool(notebook.refused) for notebook in played.notebooks),
    }


def _makespan(played: Played) -> float | None:
    """From the first submit to the last end of a job."""
    ends = [record.ended for record in played.records if record.ended is not None]
    starts = [record.row.submit for record in played.records]
    return max(ends) - min(starts) if ends else None


def _preemptions(played: Played) -> dict[str, int]:
    """Who was asked to leave for others, and what came of it."""
    told = played.stage.store.data.entries
    requeued = sum(record.last.preemptions for record in played.records if record.last is not None)
    return {
        "notices": sum(entry.event == NOTICED for entry in told),
        "reprieves": sum(entry.event == REPRIEVED for entry in told),
        "parked": sum(entry.state == State.PARKED and entry.event == "job.freed" for entry in told),
        "requeued": requeued,
    }


def _by(items: Sequence[Item], key: Callable[[Item], str]) -> Mapping[str, Any]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return {
        name: {
            "waits": spread(item.wait for item in group),
            "jct": spread(item.jct for item in group),
        }
        for name, group in sorted(groups.items())
    }


# --- over time ----------------------------------------------------------------------------


def _use(levels: Sequence[Level], capacity: int, of: Callable[[Level], int]) -> dict[str, Any]:
    """GPU-hours, and their share of all that there were from the first to the last event."""
    used = sum(of(level) * (after.time - level.time) for level, after in pairwise(levels))
    span = levels[-1].time - levels[0].time if levels else 0.0
    return {
        "gpu_hours": used / HOUR,
        "mean": used / (span * capacity) if span else None,
        "max": max((of(level) for level in levels), default=0) / capacity,
    }


def _over_time(levels: Sequence[Level], capacity: int) -> list[dict[str, Any]]:
    """Means over equal parts of the time; what is in use as shares of all GPUs."""
    if len(levels) < 2 or levels[-1].time <= levels[0].time:
        return []
    first, width = levels[0].time, (levels[-1].time - levels[0].time) / BUCKETS
    edges = [*(first + index * width for index in range(BUCKETS)), levels[-1].time]
    classes = sorted(levels[-1].leased)
    sums = [[0.0] * (2 + len(classes)) for _ in range(BUCKETS)]
    index = 0
    for level, after in pairwise(levels):
        time = level.time
        values = (level.active, level.waiting, *(level.leased.get(name, 0) for name in classes))
        while time < after.time:
            until = min(after.time, edges[index + 1])
            for position, value in enumerate(values):
                sums[index][position] += value * (until - time)
            time = until
            index += until == edges[index + 1]
    all_of_it = width * capacity
    return [
        {
            "from_s": first + index * width,
            "allocated": sum(leased) / all_of_it,
            "allocated_by_class": {
                name: value / all_of_it for name, value in zip(classes, leased, strict=True)
            },
            "active": active / all_of_it,
            "waiting": waiting / width,
        }
        for index, (active, waiting, *leased) in enumerate(sums)
    ]


# --- for people ---------------------------------------------------------------------------


def words(made: Mapping[str, Any]) -> str:
    """The report as people read it."""
    jobs = made["jobs"]
    lines = [
        f"jobs      {jobs['submitted']} submitted, {jobs['completed']} completed, "
        f"{jobs['failed']} failed, {jobs['refused']} refused, {jobs['waiting']} still waiting",
    ]
    if jobs["refused"]:
        lines.append(f"          first refusal: {jobs['refused_because']}")
    lines += [
        f"waits     {_spread_words(made['waits'])}",
        f"jct       {_spread_words(made['jct'])}",
        f"cells     {_spread_words(made['cells']['waits'])}; "
        f"{made['cells']['interruptions']} interruptions",
        f"makespan  {_time(made['makespan_s'])}",
    ]
    for name in ("allocation", "utilisation"):
        use = made[name]
        lines.append(f"{name.ljust(13)} {_percent(use['mean'])}, {use['gpu_hours']:.1f} GPU-hours")
    lines.append(f"fragmentation {_percent(made['fragmentation']['mean'])} of what was free")
    told = made["preemptions"]
    lines.append("preemptions   " + ", ".join(f"{count} {name}" for name, count in told.items()))
    for group, found in made["by"].items():
        for name, numbers in found.items():
            lines.append(f"{group} {name}: {_spread_words(numbers['waits'])}")
    return "\n".join(lines)


def _spread_words(numbers: Mapping[str, Any]) -> str:
    if not numbers["count"]:
        return "none"
    parts = (f"{name} {_time(numbers[name])}" for name in ("mean", "p50", "p90", "p99"))
    return f"{numbers['count']}: {', '.join(parts)}, {_percent(numbers['at_once'])} at once"


def _time(seconds: float | None) -> str:
    return "-" if seconds is None else words_duration(seconds)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
