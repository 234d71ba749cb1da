# SPDX-License-Identifier: BSD-3-Clause
"""The broker's memory: what is committed, and what it has seen since it started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from ..core.model import (
    Class,
    Holder,
    Idle,
    Job,
    JobId,
    Key,
    Node,
    Plan,
    Policy,
    Quarantined,
    Request,
    Seconds,
    Snapshot,
    State,
)
from ..core.parked import lacks
from ..core.quota import day_of
from ..core.reserve import Demand
from ..store import Loaded, PolicyRow, Spent, Usage
from .index import Index
from .inputs import Act, Activity

ENDED_KEPT = 10_000
"""Ended Jobs in memory, the newest ones; the store has all."""


@dataclass(slots=True)
class World:
    """Read by the service, changed only by ``Broker.turn``."""

    broker_id: str
    started: Seconds
    """When this broker came up: what an engine did before is unknown until its first poll."""
    policy: Policy
    policy_row: PolicyRow | None
    seq: int
    jobs: dict[JobId, Job]
    """Living ones, and ended ones for a while; changed by ``put`` only."""
    usage: dict[tuple[str, str], Usage]
    spent: dict[tuple[str, str, int], Spent]
    quarantined: list[Quarantined]
    submits: dict[tuple[str, str], JobId]
    servers: dict[str, int]
    drained: dict[str, str]
    index: Index = field(default_factory=Index)
    """Those of ``jobs`` that are not terminal: what a turn looks at."""
    nodes: dict[str, Node] = field(default_factory=dict)
    possible: dict[tuple[Request, Class, str, int], Request] = field(default_factory=dict)
    """What these nodes can run, free or not."""
    engines_down: dict[str, str] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """What is missing, by topic: the sentences of a degraded broker."""
    activity: dict[str, Activity] = field(default_factory=dict)
    """Session key -> last report."""
    holders: dict[str, Holder] = field(default_factory=dict)
    """Session key -> the server process that said hello last."""
    gone: dict[str, Seconds] = field(default_factory=dict)
    """Session key -> since when its server is known to be gone."""
    mute: dict[str, int] = field(default_factory=dict)
    """Session key -> which start of its server has no extension of ours that says hello."""
    asked: dict[JobId, Seconds] = field(default_factory=dict)
    """When the Hub said last that a start of its waits for this session."""
    unasked: Mapping[JobId, Seconds] = field(default_factory=dict)
    """Starts that the Hub asks for no longer -> when their places are given up."""
    wanted: dict[JobId, str] = field(default_factory=dict)
    """Sessions to resume as soon as they are parked, and who asked for that. In memory only:
    after a crash they stay parked until somebody resumes them."""
    memory_mib: dict[JobId, int] = field(default_factory=dict)
    """GPU memory in use by a session, as its engine saw it."""
    demand: Demand = field(default_factory=Demand)
    """Of sessions, since this broker came up."""
    plan: Plan = field(default_factory=Plan)
    """The last Plan: why everybody waits."""
    idle: Mapping[JobId, Idle] = field(default_factory=dict)
    """Sessions judged idle in the last cycle."""
    acked: dict[Key, Seconds] = field(default_factory=dict)
    """When ``start`` of a key had returned."""
    strangers: dict[Key, Seconds] = field(default_factory=dict)
    """Keys that an engine runs for us and no Job knows, since when."""
    duties: dict[tuple[Act, Key], Seconds] = field(default_factory=dict)
    """Duties asked for, and when to ask again if they are still needed."""
    busy: dict[tuple[Act, Key], None] = field(default_factory=dict)
    """Duties being performed at this moment."""

    @classmethod
    def of(cls, loaded: Loaded, policy: Policy, now: Seconds) -> World:
        """The world as it was committed."""
        world = cls(
            broker_id=loaded.broker_id,
            started=now,
            policy=policy,
            policy_row=loaded.policy,
            seq=loaded.seq,
            jobs={},
            usage={(use.queue, use.user): use for use in loaded.usage},
            spent={(item.queue, item.user, item.day): item for item in loaded.spent},
            quarantined=list(loaded.quarantined),
            submits=dict(loaded.submits),
            servers=dict(loaded.servers),
            drained=dict(loaded.drained),
        )
        for job in loaded.jobs:
            world.put(job)
        return world

    def put(self, job: Job) -> None:
        """A new or changed Job."""
        self.jobs[job.id] = job
        self.index.put(job)

    @property
    def alive(self) -> Mapping[JobId, Job]:
        """Every Job that is not terminal."""
        return self.index.alive

    @property
    def sessions(self) -> Mapping[JobId, Job]:
        """The living Sessions."""
        return self.index.sessions

    @property
    def leases(self) -> Mapping[JobId, Job]:
        """Jobs that hold GPUs."""
        return self.index.leases

    def forget(self) -> None:
        """Ended Jobs that are too many leave the memory, a tenth of them at a time."""
        over = len(self.jobs) - len(self.alive) - ENDED_KEPT
        if over * 10 <= ENDED_KEPT:
            return
        ended = (job_id for job_id in self.jobs if job_id not in self.alive)
        self._drop(list(islice(ended, over)))

    def forget_ended(self, before: Seconds) -> None:
        """Jobs that ended before that time, and what was spent then, leave the memory."""
        day = day_of(before)
        self.spent = {key: item for key, item in self.spent.items() if item.day >= day}
        ended = (job for job_id, job in self.jobs.items() if job_id not in self.alive)
        self._drop([job.id for job in ended if job.since < before])

    def _drop(self, ended: Sequence[JobId]) -> None:
        for job_id in ended:
            del self.jobs[job_id]
        self.submits = {key: job for key, job in self.submits.items() if job in self.jobs}

    def usable_nodes(self) -> Mapping[str, Node]:
        """The machines; one that is drained, or whose engine is down, is not usable."""
        nodes = {}
        for name, node in self.nodes.items():
            note = self.drained.get(name) or self.engines_down.get(node.engine, "")
            nodes[name] = replace(node, usable=False, note=note) if note else node
        return nodes

    def class_of(self, job: Job) -> Class:
        """The Job's class; any, where a broken policy has been replaced by the default one."""
        classes = self.policy.classes
        return classes.get(job.class_name) or next(iter(classes.values()))

    def lacks_room(self, job: Job) -> str:
        """Why a session that leaves now cannot keep its GPU memory; empty if it can."""
        jobs = {**self.sessions, **self.leases}
        seen = Snapshot(0.0, self.nodes, jobs, memory_mib=self.memory_mib)
        return lacks(job, seen, self.policy.parked_percent)

    def living(self) -> list[Job]:
        """Every Job that is not terminal."""
        return list(self.alive.values())

    def of_user(self, user: str) -> list[Job]:
        """All Jobs of one user, newest first."""
        mine = [job for job in self.jobs.values() if job.user == user]
        return sorted(mine, key=lambda job: (job.submitted, job.id), reverse=True)

    def session_of(self, server: str) -> Job | None:
        """The newest living Session of a server, the one not on its way out first."""
        living = [job for job in self.sessions.values() if job.server == server]
        return max(
            living,
            key=lambda job: (job.state is not State.STOPPING, job.submitted, job.id),
            default=None,
        )

    def leased(self) -> Sequence[Job]:
        """Jobs that hold GPUs."""
        return list(self.leases.values())
