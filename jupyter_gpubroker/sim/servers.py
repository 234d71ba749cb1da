# SPDX-License-Identifier: BSD-3-Clause
"""Jupyter servers with our extension, in virtual time: hello, binding, reports."""

from __future__ import annotations

from ..broker import inputs as i
from ..core import events as e
from ..core.model import (
    TERMINAL,
    Holder,
    Job,
    JobId,
    Reason,
    Seconds,
    StageName,
    State,
)
from .agenda import Action
from .faults import Unanswered
from .stage import HOST, Stage

REPORT_S = 30.0
"""A server reports at least so often, and on change."""
RETRY_S = 3.0
"""After a message that was not answered."""
KERNEL = "k"
"""The one kernel of a server."""


class Server:
    """One server by its key, through all its starts. It follows the event stream, reads the
    state and does what that asks for, as the extension does; a missed event costs nothing."""

    def __init__(self, stage: Stage, user: str, name: str = "", *, talks: bool = True) -> None:
        """One that does not ``talk`` reports nothing: what is not known counts as in use."""
        self.stage, self.user, self.key = stage, user, f"{user}/{name}"
        self.talks = talks
        self.incarnation = 0
        self.holder: Holder | None = None
        """Its process, while it lives."""
        self.busy = False
        """A cell runs."""
        self.silent = False
        """What it would report does not arrive."""
        self.bind_s: Seconds = 0.0
        """How long its kernels take to come up on their GPUs, or to leave them."""
        self._quiet_since = stage.agenda.now
        self._reported: Seconds = 0.0
        self._job: JobId = ""
        """Its last known session."""
        self._said = 0
        """The attempt that it said it has started."""
        stage.follow(user, self.reconcile)
        stage.booted.append(self._hello)

    # --- its life -------------------------------------------------------------------------

    def start(self, incarnation: int | None = None) -> None:
        """A new process; its extension says hello."""
        self.end()
        self.incarnation = self.incarnation + 1 if incarnation is None else incarnation
        self.stage.pids += 1
        self.holder = Holder(HOST, "b1", self.stage.pids, self.incarnation)
        self.stage.living[self.holder] = True
        self._quiet_since, self._said = self.stage.agenda.now, 0
        self._hello()

    def end(self, *, orphans: bool = False) -> None:
        """The process is gone, and its kernels unless they are orphans."""
        if self.holder is not None:
            self.stage.living.pop(self.holder, None)
            self.holder, self.busy = None, False
            self.stage.reporters.pop(self.key, None)
            if not orphans:
                self.stage.engine.unbind(self.key)

    def session(self) -> Job | None:
        """Its session as the broker has it; ``None`` also where there is no broker to ask."""
        if not self.stage.up:
            return None
        job = self.stage.world.jobs.get(self._job)
        if job is None or job.state in TERMINAL:
            job = self.stage.world.session_of(self.key)
        self._job = "" if job is None else job.id
        return job

    def run_cell(self) -> None:
        """A cell begins."""
        self.busy = True
        self.report()

    def end_cell(self) -> None:
        """It is over."""
        self.busy, self._quiet_since = False, self.stage.agenda.now
        self.report()

    def report(self) -> None:
        """Say what the kernel does."""
        if self.holder is None or self.silent or not self.talks:
            return
        self._reported = self.stage.agenda.now
        kernel = i.Kernel(KERNEL, self.busy, self._reported - self._quiet_since)
        actor = f"user:{self.user}"
        self.stage.send(i.ServerActivity(actor, self.key, self.incarnation, (kernel,), None, 0))

    # --- what the extension does ----------------------------------------------------------

    def reconcile(self) -> None:
        """Look at the session, and do what it asks for."""
        session = self.session()
        leased = session is not None and session.state in (State.RUNNING, State.DRAINING)
        if leased and self.holder is not None and self.talks:
            self.stage.reporters[self.key] = self._report_if_due
        else:
            self.stage.reporters.pop(self.key, None)
        if session is None or self.holder is None or session.holder != self.holder:
            return
        if session.state is State.RUNNING:
            self._said = 0
        if _wants_started(session) and self._said != session.attempt:
            self._said = session.attempt
            self._later(self._bind)
        elif _wants_restart(session) and not self.stage.engine.stubborn.get(self.key):
            self._later(self._let_go)

    def _later(self, do: Action) -> None:
        if self.bind_s:
            self.stage.agenda.after(self.bind_s, do)
        else:
            do()

    def _bind(self) -> None:
        """The kernel comes up on its GPUs; then it has started."""
        session, holder = self.session(), self.holder
        if session is None or holder is None or not _wants_started(session):
            self._said = 0
            return
        self.stage.engine.bind(session.key, KERNEL)
        started = e.Started(session.attempt, holder)
        self.stage.send(i.Ask(f"user:{self.user}", session.id, started), self._started)

    def _started(self, answer: i.Answer) -> None:
        if answer.error is not None:
            self._said = 0
            self.stage.agenda.after(RETRY_S, self.reconcile)

    def _let_go(self) -> None:
        session = self.session()
        if session is not None and _wants_restart(session):
            self.stage.engine.unbind(self.key)

    def _hello(self) -> None:
        holder = self.holder
        if holder is None:
            return
        hello = i.ServerHello(f"user:{self.user}", self.key, self.incarnation, holder)
        self.stage.send(hello, lambda answer: self._helloed(holder, answer))

    def _helloed(self, holder: Holder, answer: i.Answer) -> None:
        if self.holder is holder and isinstance(answer.error, Unanswered):
            self.stage.agenda.after(RETRY_S, self._hello)
        self.reconcile()

    def _report_if_due(self) -> None:
        """Reports that nobody would have read are left out: only those since the last turn
        that are too old by now are made up for."""
        if self.stage.agenda.now - self._reported >= REPORT_S:
            self.report()


def _wants_started(session: Job) -> bool:
    if session.state is State.STARTING:
        return session.prepared
    notice = session.notice
    return session.state is State.DRAINING and notice is not None and notice.reason is Reason.HOLDER


def _wants_restart(session: Job) -> bool:
    return session.state is State.STOPPING and session.stages[0].name is StageName.RESTART
