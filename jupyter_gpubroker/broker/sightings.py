# SPDX-License-Identifier: BSD-3-Clause
"""What engines saw -> events. Absence means something only if the look was late enough."""

from __future__ import annotations

from dataclasses import replace

from ..core import events as e
from ..core.model import LEASED, Holder, Job, Kept, Key, Kind, Mode, Process, Rung, Seconds, State
from . import inputs as i
from .batch import Batch
from .questions import holder_gone

STRANGER_S = 600.0
"""A key of ours whose Job is unknown is shown so long before it is stopped."""


def nodes_seen(batch: Batch, seen: i.NodesSeen) -> None:
    """The inventory of one engine replaces what was known of it."""
    world = batch.world
    found = {node.name: node for node in seen.nodes}
    known = {name: node for name, node in world.nodes.items() if node.engine == seen.engine}
    down = world.engines_down.pop(seen.engine, None)
    world.problems.pop(f"engine {seen.engine}", None)
    if found == known and down is None:
        return
    others = {name: node for name, node in world.nodes.items() if node.engine != seen.engine}
    world.nodes = others | found
    batch.changed = True
    keep = [
        item
        for item in world.quarantined
        if all(name not in found or found[name].boot == boot for name, boot in item.boots.items())
    ]
    batch.release_quarantine(keep, "the node has a new boot")


def engine_down(batch: Batch, down: i.EngineDown) -> None:
    """Nothing is inferred from silence; nothing new is placed there."""
    world = batch.world
    if world.engines_down.get(down.engine) != down.text:
        world.engines_down[down.engine] = down.text
        world.problems[f"engine {down.engine}"] = down.text
        batch.changed = True


def poll_seen(batch: Batch, poll: i.PollSeen) -> list[i.Duty]:
    """One look at an engine; returns what to do about keys that are not leased now."""
    duties = []
    seen = {report.key for report in poll.reports}
    for report in poll.reports:
        job = batch.world.jobs.get(report.key.job)
        if job is None:
            duties += _stranger(batch, report)
        elif job.attempt != report.key.attempt or job.state not in LEASED:
            duties += _stale(batch, report)
        elif report.mode is Mode.HOSTED:
            _hosted(batch, job, report)
        else:
            _held(batch, job, report)
    for job in list(batch.world.leased()):
        assert job.lease is not None
        if job.lease.engine == poll.engine and job.key not in seen:
            _absent(batch, job, poll)
    for holder in poll.dead_holders:
        _dead_holder(batch, holder)
    return [*duties, *_images(batch, poll)]


def _stranger(batch: Batch, report: i.ReportSeen) -> list[i.Duty]:
    since = batch.world.strangers.setdefault(report.key, batch.now)
    if report.phase == "exited":
        return [i.Duty(i.Act.FORGET, report.engine, report.key, report.mode)]
    if batch.now - since < STRANGER_S:
        return []
    return [i.Duty(i.Act.KILL, report.engine, report.key, report.mode)]


def _stale(batch: Batch, report: i.ReportSeen) -> list[i.Duty]:
    """Another attempt, or one that has ended: if it lives it must not."""
    if report.phase == "exited":
        keep = [
            item
            for item in batch.world.quarantined
            if (item.job, item.attempt) != (report.key.job, report.key.attempt)
        ]
        batch.release_quarantine(keep, "its engine says that it has ended")
        return [i.Duty(i.Act.FORGET, report.engine, report.key, report.mode)]
    return [i.Duty(i.Act.KILL, report.engine, report.key, report.mode)]


def _hosted(batch: Batch, job: Job, report: i.ReportSeen) -> None:
    attempt, actor = report.key.attempt, f"engine:{report.engine}"
    news = report.complete > job.complete or (report.checkpoint or -1) > (job.checkpoint or -1)
    if news and job.state is not State.STARTING:
        mark = e.Mark(complete=report.complete, step=report.checkpoint)
        job = batch.apply(job.id, mark, actor)
    if report.phase == "running" and job.state is State.STARTING:
        batch.apply(job.id, e.Started(attempt), actor)
    elif report.phase == "exited":
        if news and job.state is State.STARTING:
            job = batch.apply(job.id, e.Started(attempt), actor)
            batch.apply(job.id, e.Mark(complete=report.complete, step=report.checkpoint), actor)
        ended = e.Exited(
            attempt, report.code or 0, report.failed_rank, report.all_zero, report.text
        )
        batch.apply(job.id, ended, actor)


def _held(batch: Batch, job: Job, report: i.ReportSeen) -> None:
    if batch.world.memory_mib.get(job.id) != report.memory_mib:
        batch.world.memory_mib[job.id] = report.memory_mib
        batch.changed = True
    if report.phase == "exited" and job.state is State.STOPPING:
        kept = tuple(replace(item, attempt=job.attempt, server=job.server) for item in report.kept)
        batch.apply(job.id, e.Freed(job.attempt, kept), f"engine:{report.engine}")


def _absent(batch: Batch, job: Job, poll: i.PollSeen) -> None:
    """Its engine knows nothing of a leased Job. A start may still be on its way."""
    key, world = job.key, batch.world
    if (i.Act.START, key) in world.busy:
        return
    actor = f"engine:{poll.engine}"
    if job.state is State.STOPPING:
        if poll.began > job.since + poll.settle and job.started_attempt != job.attempt:
            batch.apply(job.id, e.Refused(job.attempt, "", "it was never started"), actor)
            return
    elif key not in world.acked and job.state is State.STARTING:
        return
    acked = world.acked.get(key, world.started)
    if poll.began <= max(acked, job.since) + poll.settle:
        return
    if job.state is not State.STOPPING:
        batch.apply(job.id, e.Lost(job.attempt, "its engine does not know it"), actor)


def _dead_holder(batch: Batch, holder: Holder) -> None:
    for job in batch.world.living():
        if job.holder == holder and job.kind is Kind.SESSION:
            holder_gone(batch, job, "broker")


def _images(batch: Batch, poll: i.PollSeen) -> list[i.Duty]:
    """Parked images against what the Jobs believe to be kept, both ways."""
    parked: dict[Process, Kept] = {
        process: item for item in poll.parked for process in item.processes
    }
    wanted: dict[Process, None] = {}
    moving: dict[str, None] = {}
    """Servers whose images come or go at this moment."""
    for job in list(batch.world.living()):
        if job.state in (State.STARTING, State.STOPPING) or poll.began <= job.since + poll.settle:
            moving[job.server] = None
        for item in job.kept:
            wanted |= dict.fromkeys(item.processes)
        if job.state in (State.PARKED, State.QUEUED) and poll.began > job.since + poll.settle:
            _lost_images(batch, job, parked)
    return [
        i.Duty(i.Act.DROP, poll.engine, Key(item.server, item.attempt), kept=(item,))
        for item in poll.parked
        if item.server not in moving and not any(process in wanted for process in item.processes)
    ]


def _lost_images(batch: Batch, job: Job, parked: dict[Process, Kept]) -> None:
    left = tuple(
        item
        for item in job.kept
        if item.rung is not Rung.GPU_STATE or all(process in parked for process in item.processes)
    )
    if len(left) != len(job.kept):
        batch.apply(job.id, e.KeptLost(left), "broker")


def holders_overdue(batch: Batch) -> Seconds | None:
    """Servers known to be gone for longer than their sessions may wait; next such time."""
    due: Seconds | None = None
    for server, since in list(batch.world.gone.items()):
        session = batch.world.session_of(server)
        if session is None:
            batch.world.gone.pop(server)
            continue
        ready = since + session.terms.holder_grace
        if batch.now < ready:
            due = ready if due is None else min(due, ready)
            continue
        batch.world.gone.pop(server)
        batch.apply(session.id, e.HolderGone(session.incarnation), "broker")
    return due
