# SPDX-License-Identifier: BSD-3-Clause
"""Workloads for ``simulate``: machines, jobs, sessions and their cells, from CSV files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from ..core.model import GPU_MILLI, Device, Kind, Node, Policy, Refusal, Request, Seconds
from .tables import Column, Row, rows, runtime, seconds, text, whole

NODES = {
    "node": Column(text, required=True),
    "gpus": Column(whole(1, 1024), required=True),
    "flavor": Column(text, "gpu"),
    "gpu_memory_mib": Column(whole(1), 81920),
    "cpu_milli": Column(whole(), 0),
    "memory_mib": Column(whole(), 0),
}
JOBS = {
    "job_id": Column(text, required=True),
    "user": Column(text, "user"),
    "queue": Column(text, ""),
    "class": Column(text, ""),
    "submit_s": Column(seconds, required=True),
    "nodes": Column(whole(1), 1),
    "gpus": Column(whole(), 0),
    "gpu_milli": Column(whole(0, 999), 0),
    "memory_mib": Column(whole(), 0),
    "flavors": Column(text, ""),
    "cpu_milli": Column(whole(), 0),
    "host_memory_mib": Column(whole(), 0),
    "runtime_s": Column(runtime, required=True),
    "time_limit_s": Column(seconds),
}
SESSIONS = {
    "session": Column(text, required=True),
    "user": Column(text, ""),
    "queue": Column(text, ""),
    "open_s": Column(seconds, required=True),
    "close_s": Column(seconds, required=True),
    "gpus": Column(whole(), 0),
    "gpu_milli": Column(whole(0, 999), 0),
}
CELLS = {
    "session": Column(text, required=True),
    "start_s": Column(seconds, required=True),
    "duration_s": Column(seconds, required=True),
    "gpus": Column(whole()),
}


@dataclass(frozen=True, slots=True)
class JobRow:
    """One batch job: what is asked for, when, and how long its program runs."""

    name: str
    user: str
    queue: str
    class_name: str
    submit: Seconds
    request: Request
    runtime: Seconds


@dataclass(frozen=True, slots=True)
class CellRow:
    """One cell that needs the GPUs of its session."""

    start: Seconds
    duration: Seconds
    milli: int
    """How much of them it really uses."""


@dataclass(frozen=True, slots=True)
class SessionRow:
    """One notebook server, from its start to its stop."""

    name: str
    user: str
    queue: str
    open: Seconds
    close: Seconds
    request: Request
    cells: tuple[CellRow, ...]


@dataclass(frozen=True, slots=True)
class Workload:
    """Everything that is played."""

    nodes: Mapping[str, Node]
    jobs: tuple[JobRow, ...] = ()
    sessions: tuple[SessionRow, ...] = ()


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a workload: (name, content); ``None`` where there is none."""

    nodes: tuple[str, str]
    jobs: tuple[str, str] | None = None
    sessions: tuple[str, str] | None = None
    cells: tuple[str, str] | None = None


def read(files: Files, policy: Policy) -> Workload:
    """The whole workload; Refusal naming file, line, field and remedy."""
    if files.jobs is None and files.sessions is None:
        raise Refusal("jobs", "there is nothing to play", "give --jobs, --sessions or both")
    if files.cells is not None and files.sessions is None:
        raise Refusal("cells", "are those of sessions", "give --sessions too")
    return Workload(
        nodes=_nodes(*files.nodes),
        jobs=_jobs(*files.jobs, policy) if files.jobs else (),
        sessions=_sessions(files, policy) if files.sessions else (),
    )


def _nodes(file: str, content: str) -> Mapping[str, Node]:
    nodes: dict[str, Node] = {}
    for row in rows(content, file, NODES):
        name = row.text("node")
        if name in nodes:
            raise row.wrong("node", f"{name} is there twice")
        memory, flavor = row.whole("gpu_memory_mib"), row.text("flavor")
        nodes[name] = Node(
            name=name,
            engine="sim",
            boot="b1",
            devices=tuple(
                Device(f"{name}/{index}", flavor, memory, index)
                for index in range(row.whole("gpus"))
            ),
            cpu_milli=row.whole("cpu_milli"),
            host_memory_mib=row.whole("memory_mib"),
        )
    if not nodes:
        raise Refusal(file, "has no nodes", "one line for each machine")
    return nodes


def _jobs(file: str, content: str, policy: Policy) -> tuple[JobRow, ...]:
    jobs: dict[str, JobRow] = {}
    for row in rows(content, file, JOBS):
        name = row.text("job_id")
        if name in jobs:
            raise row.wrong("job_id", f"{name} is there twice")
        _check_queue(row, policy)
        _check_class(row, policy)
        runs = row.seconds("runtime_s")
        jobs[name] = JobRow(
            name=name,
            user=row.text("user"),
            queue=row.text("queue"),
            class_name=row.text("class"),
            submit=row.seconds("submit_s"),
            request=_request(row, nodes="nodes"),
            runtime=inf if runs < 0 else runs,
        )
    return tuple(sorted(jobs.values(), key=lambda job: job.submit))


def _check_queue(row: Row, policy: Policy) -> None:
    name = row.text("queue")
    if name and name not in policy.queues:
        names = ", ".join(policy.queues)
        raise row.wrong("queue", f"{name!r} is not a queue of the policy", f"one of: {names}")


def _check_class(row: Row, policy: Policy) -> None:
    name = row.text("class")
    fitting = [item.name for item in policy.classes.values() if Kind.BATCH in item.kinds]
    if name and name not in fitting:
        names = ", ".join(fitting)
        raise row.wrong("class", f"{name!r} is not a class for jobs", f"one of: {names}")


def _request(row: Row, nodes: str = "") -> Request:
    limit = row.values.get("time_limit_s")
    flavors = str(row.values.get("flavors") or "")

    def count(name: str) -> int:
        return row.whole(name) if name in row.values else 0

    try:
        return Request(
            nodes=row.whole(nodes) if nodes else 1,
            gpus=count("gpus"),
            gpu_milli=count("gpu_milli"),
            memory_mib=count("memory_mib"),
            cpu_milli=count("cpu_milli"),
            host_memory_mib=count("host_memory_mib"),
            flavors=tuple(part for part in flavors.split("|") if part),
            time_limit=None if limit is None else row.seconds("time_limit_s"),
        ).for_people()
    except Refusal as refusal:
        raise row.wrong(refusal.field, refusal.message, refusal.remedy) from None


def _sessions(files: Files, policy: Policy) -> tuple[SessionRow, ...]:
    assert files.sessions is not None
    known: dict[str, Row] = {}
    for row in rows(files.sessions[1], files.sessions[0], SESSIONS):
        name = row.text("session")
        if name in known:
            raise row.wrong("session", f"{name} is there twice")
        if row.seconds("close_s") <= row.seconds("open_s"):
            raise row.wrong("close_s", "must be after open_s")
        _check_queue(row, policy)
        known[name] = row
    cells = None if files.cells is None else _cells(files.cells, known)
    made = [_session(row, cells) for row in known.values()]
    return tuple(sorted(made, key=lambda session: session.open))


def _session(row: Row, cells: Mapping[str, list[CellRow]] | None) -> SessionRow:
    """Without a file of cells, it is in use as long as it is open."""
    name, request = row.text("session"), _request(row)
    opens, closes = row.seconds("open_s"), row.seconds("close_s")
    milli = request.gpus * GPU_MILLI + request.gpu_milli
    whole_time = [CellRow(opens, closes - opens, milli)]
    own = whole_time if cells is None else cells.get(name, [])
    return SessionRow(
        name=name,
        user=row.text("user") or name,
        queue=row.text("queue"),
        open=opens,
        close=closes,
        request=request,
        cells=tuple(sorted(own, key=lambda cell: cell.start)),
    )


def _cells(file: tuple[str, str], sessions: Mapping[str, Row]) -> Mapping[str, list[CellRow]]:
    cells: dict[str, list[CellRow]] = {}
    for row in rows(file[1], file[0], CELLS):
        name = row.text("session")
        if name not in sessions:
            raise row.wrong("session", f"{name} is not a session of the sessions' file")
        session = sessions[name]
        most = session.whole("gpus") * GPU_MILLI + session.whole("gpu_milli")
        milli = most if row.values["gpus"] is None else row.whole("gpus") * GPU_MILLI
        if milli > most >= GPU_MILLI:
            raise row.wrong("gpus", f"its session has {most / GPU_MILLI:g}")
        start = row.seconds("start_s")
        if not session.seconds("open_s") <= start <= session.seconds("close_s"):
            raise row.wrong("start_s", "its session is not open then")
        cell = CellRow(start, row.seconds("duration_s"), min(milli, most))
        cells.setdefault(name, []).append(cell)
    return cells


class Hold(StrEnum):
    """How long a session has its GPUs."""

    SESSION = "session"
    """From when it is opened, until it is closed, is idle and others need them, or its time is
    over."""
    CELL = "cell"
    """While its cells run, as many as each needs, and a little longer (the attach cost); then it
    parks of itself, and the next cell brings it back on any node."""


@dataclass(frozen=True, slots=True)
class Options:
    """How it is played."""

    until: Seconds | None = None
    """Stop then; ``None`` = when everything has ended."""
    attach_s: Seconds = 0.0
    """How long a session takes to get its GPUs bound."""
    hold: Hold = Hold.SESSION
    restart_s: Seconds = 0.0
    """What it costs a job to go on where it was after it had to leave its GPUs."""
    seed: int | None = None
    """Draws the order of what comes at one second; ``None`` = as in the files."""
