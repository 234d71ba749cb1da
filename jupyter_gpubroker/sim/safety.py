# SPDX-License-Identifier: BSD-3-Clause
"""What must be true after every commit, whatever goes wrong; and when everything rests.

The broker's books are compared with the machines as they really are.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..broker import Turn
from ..core.ledger import lease_of
from ..core.model import (
    GPU_MILLI,
    LEASED,
    TERMINAL,
    Job,
    JobId,
    Key,
    Kind,
    Lease,
    Placement,
    Share,
    Snapshot,
    State,
    nodes_of,
)
from ..core.parked import most_mib, on_node
from ..core.quota import decayed
from ..store import Usage, Writes
from .stage import Stage

Device = tuple[str, str]


class Unsafe(AssertionError):
    """A promise of the broker does not hold."""


class Safety:
    """Called after every commit; ``Unsafe`` names what is wrong."""

    def __init__(self) -> None:
        self._seq: int | None = None
        self._jobs: dict[JobId, Job] = {}
        self._usage: dict[tuple[str, str], Usage] = {}
        self._used: dict[JobId, float] = {}

    def __call__(self, stage: Stage, turn: Turn) -> None:
        """Check everything that this commit may have broken."""
        books = _books(stage)
        self._devices(stage, books)
        self._granted(stage, turn.writes, books)
        _parked(stage)
        self._accounted(stage)
        self._charged(stage, turn.writes)
        self._journal(turn.writes)
        for job in turn.writes.jobs:
            _gang(job)
            self._jobs[job.id] = job
        self._in_time(stage, turn)

    def _devices(self, stage: Stage, books: dict[Device, list[Share]]) -> None:
        """No device has more leased than it is, in milli and in memory."""
        memory = {
            (name, device.uuid): device.memory_mib
            for name, node in stage.engine.machines.items()
            for device in node.devices
        }
        for device, shares in books.items():
            milli = sum(share.milli for share in shares)
            mib = sum(share.memory_mib for share in shares)
            _demand(milli <= GPU_MILLI, f"{milli} milli of {device[1]} are granted")
            _demand(mib <= memory[device], f"{mib} MiB of {device[1]} are granted")

    def _granted(self, stage: Stage, writes: Writes, books: dict[Device, list[Share]]) -> None:
        """What is granted now is in nobody else's use: there was proof that it is free."""
        new = [job for job in writes.jobs if job.state is State.STARTING and self._is_new(job)]
        if not new:
            return
        used: dict[Device, int] = {}
        for run in stage.engine.alive():
            for share in stage.engine.occupied(run):
                device = (share.node, share.device)
                used[device] = used.get(device, 0) + share.milli
        for job in new:
            for share in lease_of(job).placement:
                device = (share.node, share.device)
                total = used.get(device, 0) + share.milli
                _demand(total <= GPU_MILLI, f"{share.device} was granted to {job.id} while in use")

    def _is_new(self, job: Job) -> bool:
        known = self._jobs.get(job.id)
        return known is None or known.attempt != job.attempt

    def _accounted(self, stage: Stage) -> None:
        """Whatever lives is the one present attempt of its Job, or known to be unproven."""
        world = stage.world
        unproven = {Key(item.job, item.attempt) for item in world.quarantined}
        present: dict[JobId, Key] = {}
        for run in stage.engine.alive():
            job = world.jobs.get(run.key.job)
            if job is not None and job.state in LEASED and job.key == run.key:
                _demand(job.id not in present, f"{job.id} lives twice")
                present[job.id] = run.key
            else:
                _demand(run.key in unproven, f"{run.key} lives and nobody accounts for it")

    def _charged(self, stage: Stage, writes: Writes) -> None:
        """What is charged for use is what was leased, to the second."""
        charged: dict[tuple[str, str], float] = {}
        for job in writes.jobs:
            before = self._jobs.get(job.id)
            if before is None or before.lease is None or _same_lease(before, job.lease):
                continue
            amount = before.lease.milli * max(0.0, stage.now - before.lease.since)
            key = (job.queue, job.user)
            charged[key] = charged.get(key, 0.0) + amount
            self._used[job.id] = self._used.get(job.id, 0.0) + amount / GPU_MILLI
            _demand(_near(job.gpu_seconds, self._used[job.id]), f"{job.id} is charged wrongly")
        for row in writes.usage:
            key = (row.queue, row.user)
            old = self._usage.get(key)
            expected = charged.pop(key, 0.0)
            if old is not None:
                half_life = stage.world.policy.half_life
                expected += decayed(old.milli_seconds, row.time - old.time, half_life)
            _demand(_near(row.milli_seconds, expected), f"the usage of {key} is wrong")
            self._usage[key] = row
        _demand(not any(charged.values()), f"leases of {list(charged)} ended and were not charged")

    def _journal(self, writes: Writes) -> None:
        """The journal goes on without holes."""
        for entry in writes.entries:
            follows = self._seq is None or entry.seq == self._seq + 1
            _demand(follows, f"entry {entry.seq} follows {self._seq}")
            self._seq = entry.seq

    def _in_time(self, stage: Stage, turn: Turn) -> None:
        """No deadline has passed unheard, and everybody who waits is told why."""
        waiting = [job for job in stage.world.alive.values() if job.state is State.QUEUED]
        for job in stage.world.alive.values():
            late = job.deadline is not None and job.deadline <= stage.now
            _demand(not late, f"the deadline of {job.id} ({job.state}) has passed")
        if turn.writes:
            why = stage.world.plan.why
            silent = [job.id for job in waiting if job.id not in why or not why[job.id].text]
            _demand(not silent, f"{silent} wait and are not told why")


def at_rest(stage: Stage) -> None:
    """Nothing lives, nothing is kept that nobody needs: the end of everything."""
    world, engine = stage.world, stage.engine
    _demand(not world.alive, f"{list(world.alive)} have not ended")
    _demand(not engine.alive(), f"{[str(run.key) for run in engine.alive()]} still live")
    _demand(not engine.uses, f"{list(engine.uses)} are still parked")
    _demand(not stage.store.data.launches, "launches are kept of jobs that have ended")
    stored = {job.id: job for job in stage.store.data.jobs.values()}
    _demand(
        all(stored[job.id] == job for job in world.jobs.values()),
        "the store does not hold what the broker knows",
    )
    for job in stored.values():
        again = engine.ends.get(job.id, 0) > 1 and job.kind is Kind.BATCH
        # A plain command that gives 0 after its signal is run again.
        _demand(not again or job.restarts + job.preemptions > 0, f"{job.id} was done twice")


def _books(stage: Stage) -> dict[Device, list[Share]]:
    """Device -> all Shares of it that are leased or quarantined."""
    books: dict[Device, list[Share]] = {}
    for share in _held(stage):
        books.setdefault((share.node, share.device), []).append(share)
    return books


def _parked(stage: Stage) -> None:
    """What is parked of a machine's host memory, or being parked, is within its cap."""
    world = stage.world
    jobs = world.sessions
    seen = Snapshot(stage.now, world.nodes, jobs, memory_mib=world.memory_mib)
    for name, node in world.nodes.items():
        most = most_mib(node, world.policy.parked_percent)
        if most is not None:
            there = on_node(jobs.values(), seen, name)
            _demand(there <= most, f"{there} MiB are parked on {name}, at most {most} may be")


def _held(stage: Stage) -> Iterable[Share]:
    for job in stage.world.leased():
        yield from lease_of(job).placement
    for item in stage.world.quarantined:
        yield from item.shares


def _gang(job: Job) -> None:
    """A lease is the whole Request: every node of it, each with the same shape."""
    if job.state in TERMINAL or job.lease is None:
        return
    request, placement = job.request, job.lease.placement
    names = nodes_of(placement)
    _demand(len(names) == request.nodes, f"{job.id} has {len(names)} nodes of {request.nodes}")
    for name in names:
        _demand(_has(placement, name, job), f"{job.id} has not all that it needs on {name}")


def _has(placement: Placement, name: str, job: Job) -> bool:
    here = [share for share in placement if share.node == name]
    whole = sum(share.milli == GPU_MILLI for share in here)
    parts = [share for share in here if share.milli < GPU_MILLI]
    devices = dict.fromkeys(share.device for share in here)
    shares = len(parts) if job.request.gpu_milli else whole + len(parts) - job.request.gpus
    return (
        len(devices) == len(here)
        and whole + len(parts) == job.request.gpus + job.request.shared
        and shares == int(job.request.shared)
    )


def _same_lease(before: Job, lease: Lease | None) -> bool:
    return lease is not None and before.lease is not None and lease.attempt == before.lease.attempt


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= 1e-6 * max(1.0, abs(one), abs(other))


def _demand(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Unsafe(otherwise)
