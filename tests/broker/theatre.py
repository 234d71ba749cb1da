# SPDX-License-Identifier: BSD-3-Clause
"""A stage of the simulator with the few words that tests of the broker need."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpubroker import policy
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core.model import LEASED, Job, Request, State
from jupyter_gpubroker.sim.agenda import Agenda
from jupyter_gpubroker.sim.engine import Engine, Work, cluster
from jupyter_gpubroker.sim.safety import Safety
from jupyter_gpubroker.sim.servers import Server
from jupyter_gpubroker.sim.stage import Stage
from jupyter_gpubroker.store import Entry, LaunchRow

LAUNCH = LaunchRow(("true",), {}, "/", "", torchrun=False)


class Theatre(Stage):
    """Machines of four GPUs, the default policy, and servers that report only when told to."""

    def __init__(self, count: int = 2, host_memory_mib: int = 0) -> None:
        machines = cluster(count, 4, host_memory_mib=host_memory_mib)
        engine = Engine(Agenda(1000.0), machines, usual=Work(30.0))
        self.servers: dict[str, Server] = {}
        super().__init__(engine, policy.default(), check=Safety())
        self.agenda.run(self.agenda.now)

    def submit(
        self, user: str, *, nodes: int = 1, gpus: int = 1, milli: int = 0, **more: object
    ) -> Job:
        """A batch job."""
        seconds = float(str(more.pop("lasts", 30.0)))
        request = Request(nodes=nodes, gpus=gpus, time_limit=600.0)
        job = self.ask(i.Submit(f"user:{user}", user, request, LAUNCH, **more))  # type: ignore[arg-type]
        assert job is not None
        self.engine.works[job.id] = Work(seconds)
        return job

    def session(self, user: str, *, gpus: int = 0, milli: int = 0, incarnation: int = 1) -> Job:
        """A session whose server is up."""
        request = Request(gpus=gpus, gpu_milli=milli)
        job = self.ask(i.OpenSession("hub", user, f"{user}/", request, incarnation))
        self.hello(user, incarnation)
        assert job is not None
        return self.job(job.id)

    def hello(self, user: str, incarnation: int = 1) -> None:
        """The server comes up, and its extension says so."""
        self._server(user).start(incarnation)
        self.agenda.run(self.agenda.now)

    def _server(self, user: str) -> Server:
        if user not in self.servers:
            self.servers[user] = Server(self, user)
            self.servers[user].silent = True
        return self.servers[user]

    def _publish(self, entries: Sequence[Entry]) -> None:
        super()._publish(entries)
        self._holders()

    def _holders(self) -> None:
        """The Hub starts a server as soon as what it waited for is there; of a server that a
        test plays itself, the extension."""
        for job in self.world.living():
            if job.state is not State.STARTING or not job.prepared:
                continue
            server = self._server(job.user)
            if server.holder is None and job.holder is None:
                server.start(job.incarnation)
            elif server.holder is None:
                server.holder = job.holder
                server.reconcile()

    def active(self, user: str, *, busy: bool = False, idle_for: float = 0.0) -> None:
        """The server reports one kernel."""
        kernel = i.Kernel("k", busy, idle_for)
        self.ask(i.ServerActivity(f"user:{user}", f"{user}/", 1, (kernel,), None, 0))

    def job(self, job_id: str) -> Job:
        """As it is now."""
        return self.world.jobs[job_id]

    def restart(self) -> None:
        """The broker is killed and another one takes over."""
        self.crash()
        self.agenda.run(self.agenda.now)

    def leased(self) -> list[str]:
        """Ids of Jobs that hold GPUs."""
        return [job.id for job in self.world.jobs.values() if job.state in LEASED]
