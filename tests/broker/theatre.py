# SPDX-License-Identifier: BSD-3-Clause
"""The production broker in virtual time, on a small engine that can misbehave.

No thread, no clock: ``run`` takes turns, commits to a MemoryStore, performs duties and
looks at the engine, in the order and with the faults that a seed says.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from jupyter_gpubroker import policy
from jupyter_gpubroker.broker import Broker
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.broker.world import World
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import (
    LEASED,
    TERMINAL,
    Device,
    Holder,
    Job,
    Kept,
    Key,
    Kind,
    Mode,
    Node,
    Process,
    Request,
    Rung,
    StageName,
    State,
)
from jupyter_gpubroker.engines import Phase, Poll, Report
from jupyter_gpubroker.store import LaunchRow, Writes
from jupyter_gpubroker.store.memory import MemoryStore

LADDERS = {"toy": (StageName.PARK, StageName.RESTART)}


def nodes(count: int = 2, gpus: int = 4) -> list[Node]:
    """``count`` nodes of ``gpus`` devices of 1000 MiB."""
    return [
        Node(
            name=f"node{n}",
            engine="toy",
            boot="b1",
            devices=tuple(Device(f"GPU-{n}-{g}", "sim", 1000, g) for g in range(gpus)),
        )
        for n in range(1, count + 1)
    ]


@dataclass
class Run:
    """One attempt as the toy engine has it."""

    mode: Mode
    placement: tuple[str, ...]
    ends: float
    server: str = ""
    code: int = 0
    state: str = "running"
    stop: str = ""
    parked: bool = False
    checkpoint: int | None = None


@dataclass
class Toy:
    """An engine in memory. A run ends by itself at ``ends``, or when it is stopped."""

    runs: dict[Key, Run] = field(default_factory=dict)
    durations: dict[str, float] = field(default_factory=dict)
    stubborn: set[str] = field(default_factory=set)
    """Jobs that ignore SIGTERM and cannot be parked."""
    ended: dict[str, int] = field(default_factory=dict)

    def start(self, key: Key, duty: i.Duty, now: float) -> None:
        """Once per key."""
        if key in self.runs:
            return
        uuids = tuple(share.device for share in duty.placement)
        last = now + self.durations.get(key.job, 30.0)
        self.runs[key] = Run(duty.mode, uuids, last, duty.server)

    def stop(self, key: Key, act: i.Act) -> None:
        """As an engine would; the server's extension restarts kernels on TERM."""
        run = self.runs.get(key)
        if run is None or run.state == "exited":
            return
        run.stop = str(act)
        if act is not i.Act.KILL and key.job in self.stubborn:
            return
        run.parked = act is i.Act.PARK
        run.state, run.code = "exited", 0 if run.mode is Mode.HELD else -15

    def tick(self, now: float) -> None:
        """Batch runs end in their time."""
        for key, run in self.runs.items():
            if run.mode is Mode.HOSTED and run.state == "running" and now >= run.ends:
                run.state, run.code = "exited", 0
                self.ended[key.job] = self.ended.get(key.job, 0) + 1

    def poll(self, began: float, world: World) -> Poll:
        """Everything it knows."""
        reports = {
            key: Report(
                key=key,
                phase=Phase(run.state),
                mode=run.mode,
                codes=(run.code,),
                code=run.code,
                checkpoint=run.checkpoint,
                kept=_kept(key, run) if run.parked else (),
            )
            for key, run in self.runs.items()
        }
        return Poll(began, reports, 2.0, self.parked(world))

    def parked(self, world: World) -> tuple[Kept, ...]:
        """Images that exist: those the newest parked attempt of a server left."""
        kept = (item for job in world.living() for item in job.kept)
        return tuple(item for item in kept if item.rung is Rung.GPU_STATE)


def _kept(key: Key, run: Run) -> tuple[Kept, ...]:
    return (
        Kept("k", key.attempt, Rung.GPU_STATE, server=run.server, node="node1", boot="b1",
             processes=(Process(1, key.attempt),)),
    )  # fmt: skip


@dataclass
class Faults:
    """Probabilities of what goes wrong; all 0 = nothing."""

    lost_call: float = 0.0
    twice: float = 0.0
    late_news: float = 0.0
    crash: float = 0.0
    failed_commit: float = 0.0


class Theatre:
    """A stage for one broker."""

    def __init__(self, seed: int = 0, faults: Faults | None = None, count: int = 2) -> None:
        self.random = random.Random(seed)
        self.faults = faults or Faults()
        self.store = MemoryStore()
        self.toy = Toy()
        self.now = 1000.0
        self.inbox: list[tuple[float, i.Input]] = []
        self.count = count
        self.ids = 0
        self.policy = policy.default()
        self.broker = self._boot()

    # --- what tests do ------------------------------------------------------------------

    def ask(self, question: i.Question) -> Job | None:
        """Ask and get the answer, or the error raised."""
        answers = self._turn([question])
        if answers[0].error is not None:
            raise answers[0].error
        return answers[0].job

    def submit(
        self, user: str, *, nodes: int = 1, gpus: int = 1, milli: int = 0, **more: object
    ) -> Job:
        """A batch job."""
        seconds = float(str(more.pop("lasts", 30.0)))
        request = Request(nodes=nodes, gpus=gpus, time_limit=600.0)
        launch = LaunchRow(("true",), {}, "/", "", torchrun=False)
        job = self.ask(i.Submit(f"user:{user}", user, request, launch, **more))  # type: ignore[arg-type]
        assert job is not None
        self.toy.durations[job.id] = seconds
        return job

    def session(self, user: str, *, gpus: int = 0, milli: int = 0, incarnation: int = 1) -> Job:
        """A session whose server is up."""
        request = Request(gpus=gpus, gpu_milli=milli)
        server = f"{user}/"
        job = self.ask(i.OpenSession("hub", user, server, request, incarnation))
        self.hello(user, incarnation)
        assert job is not None
        return self.job(job.id)

    def hello(self, user: str, incarnation: int = 1) -> None:
        """The server's extension comes up."""
        holder = Holder("host", "b1", 100 + incarnation, 1)
        self.ask(i.ServerHello(f"user:{user}", f"{user}/", incarnation, holder))

    def active(self, user: str, *, busy: bool = False, idle_for: float = 0.0) -> None:
        """The server reports one kernel."""
        kernel = i.Kernel("k", busy, idle_for)
        self.ask(i.ServerActivity(f"user:{user}", f"{user}/", 1, (kernel,), None, 0))

    def job(self, job_id: str) -> Job:
        """As it is now."""
        return self.broker.world.jobs[job_id]

    def tell(self, fact: i.Fact) -> None:
        """News from outside."""
        self._turn([fact])

    def restart(self) -> None:
        """The broker is killed and another one takes over."""
        self.broker = self._boot()

    def run(self, seconds: float) -> None:
        """Let virtual time pass."""
        end = self.now + seconds
        while self.now < end:
            self.now += 1.0
            self.toy.tick(self.now)
            due = [item for at, item in self.inbox if at <= self.now]
            self.inbox = [(at, item) for at, item in self.inbox if at > self.now]
            self._holders()
            self._turn([*due, self._poll()])

    # --- how it works -------------------------------------------------------------------

    def _boot(self) -> Broker:
        loaded = self.store.open()
        world = World.of(loaded, self.policy, self.now)
        broker = Broker(world, LADDERS, self._new_id)
        turn = broker.turn([i.NodesSeen("toy", nodes(self.count))], self.now)
        self.store.commit(turn.writes)
        for duty in turn.duties:
            self._perform(duty)
        return broker

    def _new_id(self, kind: Kind) -> str:
        self.ids += 1
        return f"{'b' if kind is Kind.BATCH else 's'}-{self.ids}"

    def _poll(self) -> i.PollSeen:
        return i.PollSeen("toy", self.toy.poll(self.now, self.broker.world))

    def _holders(self) -> None:
        """Every server binds its kernels as soon as it may."""
        for job in self.broker.world.living():
            if job.state is State.STARTING and job.prepared and job.lease is not None:
                self.ask(i.Ask(f"user:{job.user}", job.id, e.Started(job.attempt)))

    def _turn(self, news: list[i.Input]) -> Sequence[i.Answer]:
        if self._happens(self.faults.crash):
            self.broker = self._boot()
        turn = self.broker.turn(news, self.now)
        if turn.writes and self._happens(self.faults.failed_commit):
            self.broker = self._boot()
            return [i.Answer(error=RuntimeError("commit failed")) for _ in turn.answers]
        if turn.writes:
            self.store.commit(turn.writes)
        self._check(turn.writes)
        if self._happens(self.faults.crash):
            self.broker = self._boot()
            return turn.answers
        for duty in turn.duties:
            self._perform(duty)
        return turn.answers

    def _perform(self, duty: i.Duty) -> None:
        if self._happens(self.faults.lost_call):
            self.inbox.append((self.now + 3, i.DutyDone(duty, i.Did.FAILED, "lost")))
            return
        for _ in range(2 if self._happens(self.faults.twice) else 1):
            if duty.act is i.Act.START:
                self.toy.start(duty.key, duty, self.now)
            elif duty.act is i.Act.FORGET:
                self.toy.runs.pop(duty.key, None)
            elif duty.act is not i.Act.DROP:
                self.toy.stop(duty.key, duty.act)
        late = 5.0 if self._happens(self.faults.late_news) else 0.0
        self.inbox.append((self.now + late, i.DutyDone(duty, i.Did.DONE)))

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self.random.random() < probability

    def _check(self, writes: Writes) -> None:
        """Safety, after every commit: no device is granted twice, none is used twice."""
        granted: dict[str, int] = {}
        for job in self.broker.world.leased():
            assert job.lease is not None
            for share in job.lease.placement:
                granted[share.device] = granted.get(share.device, 0) + share.milli
        for item in self.broker.world.quarantined:
            for share in item.shares:
                granted[share.device] = granted.get(share.device, 0) + share.milli
        assert all(milli <= 1000 for milli in granted.values()), granted
        living = [key.job for key, run in self.toy.runs.items() if run.state == "running"]
        assert len(living) == len(dict.fromkeys(living)), "one job runs twice at once"
        seqs = [entry.seq for entry in writes.entries]
        assert seqs == sorted(seqs)

    def unfinished(self) -> list[Job]:
        """Batch jobs that have not ended."""
        return [
            job
            for job in self.broker.world.jobs.values()
            if job.kind is Kind.BATCH and job.state not in TERMINAL
        ]

    def leased(self) -> list[str]:
        """Ids of Jobs that hold GPUs."""
        return [job.id for job in self.broker.world.jobs.values() if job.state in LEASED]
