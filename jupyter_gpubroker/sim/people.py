# SPDX-License-Identifier: BSD-3-Clause
"""People and a Hub that do anything at any time, drawn from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random

from .. import policy as policies
from ..broker import inputs as i
from ..core import events as e
from ..core.model import Job, Kind, Request, Seconds, State
from ..store import LaunchRow
from .engine import Work
from .faults import Unanswered
from .servers import RETRY_S, Server
from .stage import Stage

USERS = ("ana", "bo", "cy")
LAUNCH = LaunchRow(("train",), {}, "/", "", torchrun=False)
POLICY = """\
default_queue: default
classes:
  interactive:
    kinds: [session]
    time: {{default: {time}, max: 1h}}
    idle: {{after: {idle}, busy: 2m}}
    shield: {shield}
    grace: {grace}
    stop: {stop}
    fence: {fence}
    start: {start}
    keep: {{for: 1m, times: 2}}
    parked: {parked}
    holder_grace: {holder}
    waiting: 4
    running: 3
  batch:
    kinds: [batch]
    time: {{default: 5m, max: 1h}}
    shield: {shield}
    grace: {grace}
    stop: {stop}
    fence: {fence}
    start: {start}
    waiting: 20
  urgent:
    kinds: [batch]
    priority: 1
    time: {{default: 1m, max: 1h}}
    shield: {shield}
    grace: {grace}
    stop: {stop}
    fence: {fence}
    start: {start}
    waiting: 5
queues:
  default: {{}}
  small: {{running_gpus: 3}}
  east: {{cohort: lab, quota: {{"*": {{nominal: {east}}}}}}}
  west: {{cohort: lab, quota: {{"*": {{nominal: {west}, lend: 1}}}}}}
cohorts:
  lab: {{}}
"""


def document(random: Random) -> str:
    """A policy whose times are short, so that all of them are met."""

    def seconds(least: int, most: int) -> str:
        return f"{random.randint(least, most)}s"

    return POLICY.format(
        time=seconds(60, 600),
        idle=seconds(10, 60),
        shield=seconds(0, 60),
        grace=seconds(3, 60),
        stop=seconds(3, 20),
        fence=seconds(8, 40),
        start=seconds(8, 60),
        parked=seconds(60, 900),
        holder=seconds(10, 60),
        east=random.randint(1, 4),
        west=random.randint(1, 2),
    )


class People:
    """Everybody outside: ``act`` lets somebody do something."""

    def __init__(self, stage: Stage, random: Random) -> None:
        self.stage, self.random = stage, random
        self.servers: dict[str, Server] = {}
        self.keys = 0
        self.starting: dict[str, int] = {}
        """Servers that wait for their GPUs before they start, and which start it is."""
        self._acts: Mapping[Callable[[], None], int] = {
            self._submit: 30,
            self._open: 14,
            self._cell: 12,
            self._verb: 24,
            self._end_server: 8,
            self._break_machine: 5,
            self._break_run: 5,
            self._checkpoint: 3,
            self._admin: 4,
        }

    def act(self) -> None:
        """Somebody does something."""
        (do,) = self.random.choices(list(self._acts), list(self._acts.values()))
        do()

    # --- jobs -----------------------------------------------------------------------------

    def _submit(self) -> None:
        self.keys += 1
        machine = next(iter(self.stage.engine.machines.values()))
        request = self._shape(len(machine.devices), len(self.stage.engine.machines))
        few = request.nodes * request.gpus <= 2 and not request.shared
        queues = ["", "default", "small", "east", "west"] if few else [""]
        self._try_submit(
            i.Submit(
                "user",
                self.random.choice(USERS),
                request,
                LAUNCH,
                name=f"job{self.keys}",
                queue=self.random.choice(queues),
                class_name=self.random.choice(["", "", "", "urgent"]),
                max_restarts=self.random.choice([None, 0, 1]),
                idempotency=f"key{self.keys}",
            )
        )

    def _try_submit(self, question: i.Submit) -> None:
        """Whoever hears nothing asks again with the same key."""

        def answered(answer: i.Answer) -> None:
            if isinstance(answer.error, Unanswered):
                self.stage.agenda.after(RETRY_S, lambda: self._try_submit(question))
            elif answer.job is not None:
                self.stage.engine.works[answer.job.id] = self._work()

        self.stage.send(question, answered)

    def _shape(self, gpus: int, nodes: int) -> Request:
        limit = self.random.choice([None, 30.0, 120.0])
        if self.random.random() < 0.25:
            milli = self.random.choice([250, 300, 500])
            return Request(gpu_milli=milli, time_limit=limit)
        if self.random.random() < 0.1:
            return Request(memory_mib=self.random.choice([200, 501]), time_limit=limit)
        wide = self.random.randint(1, nodes) if self.random.random() < 0.3 else 1
        return Request(nodes=wide, gpus=self.random.randint(1, gpus), time_limit=limit)

    def _work(self) -> Work:
        return Work(
            seconds=self.random.uniform(1, 150),
            code=self.random.choice([0, 0, 0, 0, 1, 75]),
            pending=self.random.choice([0.0, 0.0, 3.0, 90.0]),
            stubborn=self.random.random() < 0.2,
        )

    def _checkpoint(self) -> None:
        """A job saves itself and asks to be run again."""
        runs = [run for run in self.stage.engine.alive() if run.key.job.startswith("b-")]
        if runs:
            run = self.random.choice(runs)
            self.stage.engine.leave(run.key, 75, (run.step or 0) + self.random.randint(0, 1))

    # --- sessions -------------------------------------------------------------------------

    def _server(self) -> Server:
        user, name = self.random.choice(USERS), self.random.choice(["", "", "two"])
        key = f"{user}/{name}"
        if key not in self.servers:
            server = self.servers[key] = Server(self.stage, user, name)
            server.bind_s = self.random.choice([0.0, 0.5, 4.0])
            self.stage.follow(user, lambda: self._granted(server))
            self.stage.engine.stubborn[key] = self.random.random() < 0.2
        return self.servers[key]

    def _open(self) -> None:
        """From the sidebar of a server that is up, or a start of one that is not."""
        server, attach = self._server(), self.random.random() < 0.6
        shape = self.random.choice([Request(gpus=1), Request(gpu_milli=500), Request(gpus=2)])
        if server.holder is None:
            self.starting[server.key] = server.incarnation = server.incarnation + 1
            self.stage.send(self._wish(server, shape, attach=attach))
            if attach:
                self._spawn(server)
            else:
                self._wait(server, server.incarnation)
        else:
            self.stage.send(self._wish(server, shape, attach=True))

    def _wish(self, server: Server, shape: Request, *, attach: bool) -> i.OpenSession:
        return i.OpenSession("hub", server.user, server.key, shape, server.incarnation, attach)

    def _wait(self, server: Server, incarnation: int) -> None:
        """The Hub says that it still waits, until the GPUs are there or it gives up."""
        if self.starting.get(server.key) != incarnation:
            return
        session = server.session()
        if session is not None and session.incarnation == incarnation:
            self.stage.send(i.StillWaits("hub", session.id))
        if self.random.random() < 0.02:
            del self.starting[server.key]
            how = self.random.choice([i.HowGone.WITHDRAWN, i.HowGone.FAILED])
            self.tell_gone(server, incarnation, how)
        else:
            self.stage.agenda.after(15.0, lambda: self._wait(server, incarnation))

    def _granted(self, server: Server) -> None:
        """What the start waited for is there."""
        session = server.session()
        if session is None or self.starting.get(server.key) != session.incarnation:
            return
        if session.state is State.STARTING and session.prepared:
            self._spawn(server)

    def _spawn(self, server: Server) -> None:
        self.starting.pop(server.key, None)
        server.start(server.incarnation)

    def _cell(self) -> None:
        server = self._server()
        server.silent = self.random.random() < 0.1
        if server.busy:
            server.end_cell()
        elif server.holder is not None:
            server.run_cell()
            session = server.session()
            if session is not None and session.state is State.PARKED:
                resume = e.Resume(person=self.random.random() < 0.5)
                self.stage.send(i.Ask(f"user:{server.user}", session.id, resume))

    def _end_server(self) -> None:
        server = self._server()
        if server.holder is None:
            return
        how = self.random.choice([i.HowGone.STOPPED, i.HowGone.GONE, i.HowGone.GONE])
        server.end(orphans=self.random.random() < 0.3)
        self.tell_gone(server, server.incarnation, how)
        if how is i.HowGone.GONE and self.random.random() < 0.6:
            server.incarnation += 1
            later = self.random.uniform(0, 60)
            incarnation = server.incarnation
            self.stage.agenda.after(later, lambda: self._again(server, incarnation))

    def _again(self, server: Server, incarnation: int) -> None:
        """The Hub starts a server again that had died."""
        if server.holder is None and server.incarnation == incarnation:
            session = server.session()
            shape = Request(gpus=1) if session is None else session.request
            self.stage.send(self._wish(server, shape, attach=True))
            self._spawn(server)

    def tell_gone(self, server: Server, incarnation: int, how: i.HowGone) -> None:
        """The Hub says what became of a server, until it is heard."""

        def answered(answer: i.Answer) -> None:
            if isinstance(answer.error, Unanswered):
                again = self.stage.agenda.after
                again(RETRY_S, lambda: self.tell_gone(server, incarnation, how))

        self.stage.send(i.ServerGone("hub", server.key, incarnation, how), answered)

    # --- verbs ----------------------------------------------------------------------------

    def _verb(self) -> None:
        """Any verb on any Job, fitting or not."""
        jobs = self.stage.world.living()
        if not jobs:
            return
        job = self.random.choice(jobs)
        event = self.random.choice(self._verbs(job))
        self.stage.send(i.Ask(f"user:{job.user}", job.id, event))

    def _verbs(self, job: Job) -> list[e.Event]:
        common: list[e.Event] = [e.Cancel(), e.Extend(self.random.choice([10.0, 1000.0]))]
        if job.kind is Kind.BATCH:
            return [*common, e.Hold(), e.Unhold(), e.Unhold()]
        return [
            *common,
            e.Keep(),
            e.Park(),
            e.Park(),
            e.Resume(),
            e.Resume(person=False),
            e.Release(),
            e.Withdraw(),
        ]

    def _admin(self) -> None:
        do = self.random.choice([self._drain, self._apply, self._force])
        do()

    def _drain(self) -> None:
        node = self.random.choice(list(self.stage.engine.machines))
        note = "" if node in self.stage.world.drained else "maintenance"
        self.stage.send(i.DrainNode("admin:eve", node, note))

    def _apply(self) -> None:
        text = document(self.random)
        self.stage.send(i.ApplyPolicy("admin:eve", text, policies.parse(text)))

    def _force(self) -> None:
        jobs = self.stage.world.living()
        if jobs:
            self.stage.send(i.Ask("admin:eve", self.random.choice(jobs).id, e.Force()))

    # --- machines -------------------------------------------------------------------------

    def _break_machine(self) -> None:
        engine = self.stage.engine
        node = self.random.choice(list(engine.machines))
        if self.random.random() < 0.5:
            engine.die(node)
        else:
            engine.hide(node, "it cannot be reached")
        back: Seconds = self.random.choice([1.0, 20.0, 200.0])
        self.stage.agenda.after(back, lambda: engine.show(node))

    def _break_run(self) -> None:
        """An end is lost, or what was parked."""
        engine = self.stage.engine
        runs = [run for run in engine.alive() if run.key.job.startswith("b-")]
        parked = [use for use in engine.uses.values() if use.parked]
        if runs and self.random.random() < 0.6:
            engine.lose_end(self.random.choice(runs).key)
        elif parked:
            del engine.uses[self.random.choice(parked).process]

    # --- the end --------------------------------------------------------------------------

    def settle(self) -> None:
        """Nobody does anything new; the Hub stops half of the servers, and says what it knows."""
        self.starting.clear()
        engine = self.stage.engine
        engine.stubborn.clear()
        engine.works = {id_: replace(work, code=0) for id_, work in engine.works.items()}
        for node in list(self.stage.world.drained):
            self.stage.send(i.DrainNode("admin:eve", node, ""))
        for server in self.servers.values():
            if server.holder is not None and self.random.random() < 0.5:
                server.end()
            if server.holder is None:
                self.tell_gone(server, server.incarnation, i.HowGone.GONE)
