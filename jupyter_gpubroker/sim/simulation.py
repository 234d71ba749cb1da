# SPDX-License-Identifier: BSD-3-Clause
"""``simulate``: the production broker and a policy in virtual time, on a workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from ..broker import Turn
from ..broker import inputs as i
from ..core.model import (
    GPU_MILLI,
    Job,
    JobId,
    Key,
    Node,
    Policy,
    Request,
    Seconds,
    State,
    serves,
)
from ..store import LaunchRow
from .agenda import Action, Agenda
from .engine import Engine, Work
from .notebooks import Notebook
from .stage import Stage
from .workload import Hold, JobRow, Options, SessionRow, Workload

BEGINS = 1_000_000.0
"""The broker's clock when the workload's is 0."""
SAMPLES = 500
"""Looks at the fragmentation of what is free."""
SAMPLE_S = 600.0
"""The shortest time between two."""
SHAPES = 32
"""Shapes that fragmentation is judged by: the most frequent ones of the workload."""


@dataclass(slots=True)
class Record:
    """What became of one batch job."""

    row: JobRow
    job: JobId = ""
    refused: str = ""
    left: Seconds = 0.0
    """How long its program still has to run, as of its last start."""
    goes_on: Seconds = 0.0
    """When its program began, or went on after a restart."""
    placed: Seconds | None = None
    """When it was first given GPUs."""
    ended: Seconds | None = None
    last: Job | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """What was in use from one time to the next, in milli-GPU."""

    time: Seconds
    leased: Mapping[str, int]
    """Class -> what its jobs and sessions held."""
    active: int
    waiting: int
    """Jobs and sessions that waited."""


@dataclass
class Played:
    """A workload that was played, for the report."""

    workload: Workload
    policy: Policy
    stage: Stage
    records: list[Record] = field(default_factory=list)
    notebooks: list[Notebook] = field(default_factory=list)
    levels: list[Level] = field(default_factory=list)
    fragmentation: list[float] = field(default_factory=list)
    """Shares of what was free that the workload's mix could not have used."""
    end: Seconds = 0.0
    leased: dict[str, int] = field(default_factory=dict)
    """Class -> milli that its jobs and sessions hold at present."""
    running: int = 0
    cells: int = 0
    """Milli that cells use at present."""


def play(workload: Workload, policy: Policy, options: Options) -> Played:
    """Play it to its end, or as long as the options say."""
    run = Run(workload, policy, options)
    run.go()
    return run.played


class Run:
    """A workload that is being played: ``agenda`` is its time, ``stage`` has the broker."""

    def __init__(self, workload: Workload, policy: Policy, options: Options) -> None:
        self.options = options
        per_cell = options.hold is Hold.CELL
        engine = Engine(Agenda(BEGINS), dict(workload.nodes), any_node=per_cell)
        stage = Stage(engine, policy, check=self._committed)
        stage.call_s, stage.attach_s = 0.0, options.attach_s
        stage.moving_s, stage.calm_s, stage.watches = None, None, True
        self.played = Played(workload, policy, stage)
        self.agenda, self.stage = engine.agenda, stage
        self._by_job: dict[JobId, Record] = {}
        self._leases: dict[JobId, tuple[int, int]] = {}
        self._mix = _mix(workload)
        self._arrivals()

    def go(self) -> None:
        """Everything that is due."""
        until = self.options.until
        if until is None:
            while self.agenda.next is not None and not self._is_over():
                self.agenda.step()
        else:
            self.agenda.run(BEGINS + until)
        self.played.end = self.agenda.now - BEGINS
        self._note()

    def _is_over(self) -> bool:
        """All jobs were submitted, all users have left, and nothing lives."""
        return not (self._left or self.stage.world.alive)

    def _arrivals(self) -> None:
        rows: list[JobRow | SessionRow] = [*self.played.workload.jobs]
        rows += self.played.workload.sessions
        if self.options.seed is not None:
            Random(self.options.seed).shuffle(rows)  # noqa: S311 - no secret
        self._left = len(rows)
        times = []
        for row in rows:
            time = row.submit if isinstance(row, JobRow) else row.open
            times.append(time)
            self.agenda.at(BEGINS + time, self._arrival(row))
        last = self.options.until or max(times, default=0.0)
        self._every = max(SAMPLE_S, last / SAMPLES)
        self.agenda.at(BEGINS, self._sample)

    def _arrival(self, row: JobRow | SessionRow) -> Action:
        if isinstance(row, JobRow):
            return lambda: self.submit(row)
        notebook = Notebook(self.stage, row, self.options, self._cells_changed, self._gone)
        self.played.notebooks.append(notebook)
        return notebook.open

    def _gone(self) -> None:
        self._left -= 1

    @property
    def time(self) -> Seconds:
        """Of the workload."""
        return self.agenda.now - BEGINS

    def submit(self, row: JobRow) -> None:
        """A job that comes now."""
        record = Record(row, left=row.runtime)
        self.played.records.append(record)
        launch = LaunchRow((row.name,), {}, "/", "", torchrun=False)
        question = i.Submit(
            f"user:{row.user}", row.user, row.request, launch,
            name=row.name, queue=row.queue, class_name=row.class_name,
        )  # fmt: skip

        def answered(answer: i.Answer) -> None:
            self._left -= 1
            if answer.job is None:
                record.refused = str(answer.error)
                return
            record.job = answer.job.id
            self._by_job[record.job] = record
            self.stage.engine.works[record.job] = Work(row.runtime)
            self._follow(answer.job)

        self.stage.send(question, answered)

    # --- what is noted --------------------------------------------------------------------

    def _committed(self, _stage: Stage, turn: Turn) -> None:
        for job in turn.writes.jobs:
            self._follow(job)
        if turn.writes:
            self._note()

    def _follow(self, job: Job) -> None:
        """What became of the Job in this turn."""
        now, played = self.agenda.now - BEGINS, self.played
        record = self._by_job.get(job.id)
        if record is not None:
            self._record(record, job, now)
        before = self._leases.pop(job.id, (0, 0))
        leased = job.lease.milli if job.lease is not None else 0
        runs = record is not None and now >= record.goes_on and job.state in (
            State.RUNNING, State.DRAINING,
        )  # fmt: skip
        after = (leased, leased if runs else 0)
        if leased:
            self._leases[job.id] = after
        held = played.leased.get(job.class_name, 0)
        played.leased[job.class_name] = held + after[0] - before[0]
        played.running += after[1] - before[1]

    def _record(self, record: Record, job: Job, now: Seconds) -> None:
        before = record.last
        record.last = job
        if job.id not in self.stage.world.alive:
            record.ended = now
            return
        had = 0 if before is None or before.lease is None else before.attempt
        if had and (job.lease is None or job.attempt != had):
            self._interrupted(record, job, now)
        if job.lease is not None and job.attempt != had:
            self._started(record, job, now)

    def _started(self, record: Record, job: Job, now: Seconds) -> None:
        """It has GPUs; a restart costs it time before its program goes on."""
        again = record.placed is not None
        record.placed = now if record.placed is None else record.placed
        record.goes_on = now + (self.options.restart_s if again else 0.0)
        if record.goes_on > now:
            self.agenda.at(BEGINS + record.goes_on, lambda: self._goes_on(job.key))

    def _goes_on(self, key: Key) -> None:
        job = self.stage.world.jobs.get(key.job)
        if job is not None and job.key == key:
            self._follow(job)
            self._note()

    def _interrupted(self, record: Record, job: Job, now: Seconds) -> None:
        """It has to leave its GPUs; what it did is kept, as by a checkpoint."""
        record.left -= max(0.0, now - record.goes_on)
        self.stage.engine.works[job.id] = Work(record.left + self.options.restart_s)

    def _cells_changed(self, milli: int) -> None:
        self.played.cells += milli
        self._note()

    def _note(self) -> None:
        played, now = self.played, self.agenda.now - BEGINS
        alive = self.stage.world.alive.values()
        waiting = sum(job.state is State.QUEUED for job in alive)
        level = Level(now, dict(played.leased), played.running + played.cells, waiting)
        if played.levels and played.levels[-1].time == now:
            played.levels[-1] = level
        else:
            played.levels.append(level)

    def _sample(self) -> None:
        """What is free, and how much of it the mix of the workload could not use."""
        if self._is_over():
            return
        lost = fragmentation(self.stage.engine.machines, self._used(), self._mix)
        if lost is not None:
            self.played.fragmentation.append(lost)
        if self.options.until is None or self.agenda.now < BEGINS + self.options.until:
            self.agenda.after(self._every, self._sample)

    def _used(self) -> Mapping[str, int]:
        used: dict[str, int] = {}
        for job in self.stage.world.leased():
            for share in job.lease.placement if job.lease is not None else ():
                used[share.device] = used.get(share.device, 0) + share.milli
        return used


def _mix(workload: Workload) -> Mapping[Request, int]:
    """The most frequent shapes, and how many of each."""
    counts: dict[Request, int] = {}
    asked_for = [row.request for row in workload.jobs]
    asked_for += [row.request for row in workload.sessions]
    for asked in asked_for:
        shape = Request(
            gpus=asked.gpus,
            gpu_milli=asked.gpu_milli,
            memory_mib=asked.memory_mib,
            flavors=asked.flavors,
        )
        counts[shape] = counts.get(shape, 0) + 1
    popular = sorted(counts.items(), key=lambda item: (-item[1], item[0].words()))
    return dict(popular[:SHAPES])


def fragmentation(
    nodes: Mapping[str, Node], used: Mapping[str, int], mix: Mapping[Request, int]
) -> float | None:
    """The share of the free milli that a Request drawn from the mix could not use where it is
    (after Weng et al., ATC '23); ``None`` while nothing is free."""
    free = lost = 0
    for node in nodes.values():
        left = {device.uuid: GPU_MILLI - used.get(device.uuid, 0) for device in node.devices}
        here = sum(left.values())
        free += here
        if here:
            lost += sum(count * _useless(node, left, shape) for shape, count in mix.items())
    total = sum(mix.values())
    return lost / total / free if free and total else None


def _useless(node: Node, left: Mapping[str, int], shape: Request) -> int:
    """Free milli of the node that this shape could not use."""
    fitting = [device for device in node.devices if serves(shape, device)]
    here = sum(left.values())
    whole = sum(GPU_MILLI for device in fitting if left[device.uuid] == GPU_MILLI)
    if shape.gpus:
        return here - whole if whole >= shape.gpus * GPU_MILLI else here
    return here - sum(
        left[device.uuid]
        for device in fitting
        if left[device.uuid] >= shape.share_milli(device.memory_mib)
    )
