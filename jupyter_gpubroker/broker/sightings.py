# SPDX-License-Identifier: BSD-3-Clause
"""What engines saw -> events. Absence means something only if the look was late enough."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..core import events as e
from ..core.model import (
    LEASED,
    Holder,
    Job,
    Kept,
    Key,
    Mode,
    Node,
    Process,
    Quarantined,
    Rung,
    Seconds,
    State,
)
from ..engines import Phase, Poll, Report
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
    if found == known and down is None:
        return
    _tell_devices(batch, seen.engine, known, found)
    others = {name: node for name, node in world.nodes.items() if node.engine != seen.engine}
    world.nodes = others | found
    world.possible.clear()
    batch.changed = True
    keep = [left for item in world.quarantined if (left := _unproven(item, found)).shares]
    batch.release_quarantine(keep, "the node has a new boot")


def _unproven(item: Quarantined, found: Mapping[str, Node]) -> Quarantined:
    """What is left of it: the boot of one node proves nothing of the others."""
    left = tuple(
        share
        for share in item.shares
        if share.node not in found
        or found[share.node].boot == item.boots.get(share.node, found[share.node].boot)
    )
    return replace(item, shares=left)


def _tell_devices(
    batch: Batch, engine: str, known: Mapping[str, Node], found: Mapping[str, Node]
) -> None:
    """Journal what is usable no longer, or again."""
    before = {device.uuid: device.usable for node in known.values() for device in node.devices}
    for node in found.values():
        for device in node.devices:
            if device.usable != before.get(device.uuid, True):
                event = "device.usable" if device.usable else "device.unusable"
                facts = {"node": node.name, "device": device.uuid, "note": device.note}
                batch.journal(f"engine:{engine}", event, None, facts)


def engine_down(batch: Batch, down: i.EngineDown) -> None:
    """Nothing is inferred from silence; nothing new is placed there."""
    world = batch.world
    if world.engines_down.get(down.engine) != down.text:
        world.engines_down[down.engine] = down.text
        batch.changed = True


def poll_seen(batch: Batch, seen: i.PollSeen) -> list[i.Duty]:
    """One look at an engine; returns what to do about keys that are not leased now."""
    duties = []
    for report in seen.poll.reports.values():
        duties += _reported(batch, seen.engine, report)
    for job in list(batch.world.leased()):
        assert job.lease is not None
        if job.lease.engine == seen.engine and job.key not in seen.poll.reports:
            _absent(batch, job, seen.engine, seen.poll)
    for holder in seen.dead_holders:
        _dead_holder(batch, holder)
    return [*duties, *_images(batch, seen.engine, seen.poll)]


def reports_seen(batch: Batch, seen: i.ReportsSeen) -> list[i.Duty]:
    """What an engine told of its own accord."""
    duties = []
    for report in seen.reports:
        duties += _reported(batch, seen.engine, report)
    return duties


def _reported(batch: Batch, engine: str, report: Report) -> list[i.Duty]:
    job = batch.world.jobs.get(report.key.job)
    if job is None:
        return _stranger(batch, engine, report)
    if job.attempt != report.key.attempt or job.state not in LEASED:
        return _stale(batch, engine, report)
    if report.lost and report.phase is not Phase.EXITED:
        batch.apply(job.id, e.Lost(job.attempt, report.lost), f"engine:{engine}")
    elif report.mode is Mode.HOSTED:
        _hosted(batch, job, engine, report)
    else:
        _held(batch, job, engine, report)
    over = report.phase is Phase.EXITED and batch.world.jobs[job.id].state not in LEASED
    # It is performed after the commit: the end is recorded by then.
    return [i.Duty(i.Act.FORGET, engine, report.key, report.mode)] if over else []


def _stranger(batch: Batch, engine: str, report: Report) -> list[i.Duty]:
    since = batch.world.strangers.setdefault(report.key, batch.now)
    if report.phase is Phase.EXITED:
        batch.world.strangers.pop(report.key)
        return [i.Duty(i.Act.FORGET, engine, report.key, report.mode)]
    if batch.now - since < STRANGER_S:
        return []
    return [i.Duty(i.Act.KILL, engine, report.key, report.mode)]


def _stale(batch: Batch, engine: str, report: Report) -> list[i.Duty]:
    """Another attempt, or one that has ended: if it lives it must not."""
    if report.phase is Phase.EXITED:
        keep = [
            item
            for item in batch.world.quarantined
            if (item.job, item.attempt) != (report.key.job, report.key.attempt)
        ]
        batch.release_quarantine(keep, "its engine says that it has ended")
        return [i.Duty(i.Act.FORGET, engine, report.key, report.mode)]
    return [i.Duty(i.Act.KILL, engine, report.key, report.mode)]


def _hosted(batch: Batch, job: Job, engine: str, report: Report) -> None:
    attempt, actor = report.key.attempt, f"engine:{engine}"
    over, news = report.phase is Phase.EXITED, _has_news(job, report)
    if job.state is State.STARTING and (report.phase is Phase.RUNNING or (over and news)):
        job = batch.apply(job.id, e.Started(attempt), actor)
    if news and job.state is not State.STARTING:
        mark = e.Mark(complete=report.complete, step=report.checkpoint)
        job = batch.apply(job.id, mark, actor)
    if over:
        # A code that nobody knows is no success.
        code = 1 if report.code is None else report.code
        ended = e.Exited(attempt, code, report.failed_rank, report.all_zero, report.text)
        batch.apply(job.id, ended, actor)


def _has_news(job: Job, report: Report) -> bool:
    step, known = report.checkpoint, job.checkpoint
    saved = step is not None and (known is None or step > known)
    return saved or report.complete > job.complete


def _held(batch: Batch, job: Job, engine: str, report: Report) -> None:
    if batch.world.memory_mib.get(job.id) != report.memory_mib:
        batch.world.memory_mib[job.id] = report.memory_mib
        # It says what parking costs, of those who may be asked to.
        batch.changed |= job.id in batch.world.idle or job.state is State.DRAINING
    if report.phase is Phase.EXITED and job.state is State.STOPPING:
        kept = tuple(replace(item, attempt=job.attempt, server=job.server) for item in report.kept)
        batch.apply(job.id, e.Freed(job.attempt, kept), f"engine:{engine}")


def _absent(batch: Batch, job: Job, engine: str, poll: Poll) -> None:
    """Its engine knows nothing of a leased Job. A start may still be on its way."""
    world, actor = batch.world, f"engine:{engine}"
    acked = world.acked.get(job.key)
    due = acked is None and job.state is State.STARTING
    if due or (i.Act.START, job.key) in world.busy:
        return
    if poll.began <= max(acked or world.started, job.since) + poll.settle:
        return
    if job.state is not State.STOPPING:
        batch.apply(job.id, e.Lost(job.attempt, "its engine does not know it"), actor)
    elif job.started_attempt != job.attempt:
        batch.apply(job.id, e.Refused(job.attempt, "", "it was never started"), actor)


def _dead_holder(batch: Batch, holder: Holder) -> None:
    for job in [*batch.world.sessions.values()]:
        if job.holder == holder:
            holder_gone(batch, job, "broker")


def _images(batch: Batch, engine: str, poll: Poll) -> list[i.Duty]:
    """Parked images against what the Jobs believe to be kept, both ways."""
    parked: dict[Process, Kept] = {
        process: item for item in poll.parked for process in item.processes
    }
    wanted: dict[Process, None] = {}
    moving: dict[str, None] = {}
    """Servers whose images come or go at this moment."""
    for job in [*batch.world.sessions.values()]:
        settled = poll.began > job.since + poll.settle
        if job.state in (State.STARTING, State.STOPPING) or not settled:
            moving[job.server] = None
        for item in job.kept:
            wanted |= dict.fromkeys(item.processes)
        if job.state in (State.PARKED, State.QUEUED) and settled:
            _lost_images(batch, job, engine, parked)
    return [
        i.Duty(i.Act.DROP, engine, Key(item.server, item.attempt), kept=(item,))
        for item in poll.parked
        if item.server not in moving and not any(process in wanted for process in item.processes)
    ]


def _lost_images(batch: Batch, job: Job, engine: str, parked: Mapping[Process, Kept]) -> None:
    left = tuple(
        item
        for item in job.kept
        if item.rung is not Rung.GPU_STATE
        or _is_elsewhere(batch, item, engine)
        or all(process in parked for process in item.processes)
    )
    if len(left) != len(job.kept):
        batch.apply(job.id, e.KeptLost(left), "broker")


def _is_elsewhere(batch: Batch, item: Kept, engine: str) -> bool:
    """True if another engine has the node of this image: only that one can miss it."""
    node = batch.world.nodes.get(item.node)
    return node is not None and node.engine != engine


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
