# SPDX-License-Identifier: BSD-3-Clause
"""This server's link to the broker: hello, one event stream, activity, and the lease."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from ..client import AsyncClient, BrokerError, Conflict, Refusal
from ..wire import ActivityIn, EventOut, HolderIn, JobOut, SessionState
from .finding import Finder
from .kernels import Kernels
from .processes import boot_id, start_time, this_host
from .reconcile import Plan, reconcile

REPORT_S = 30.0
"""Activity is reported on change, and so often at least."""
SETTLE_S = 0.1
"""Changes so close together make one report."""
RETRY_S, RETRY_MAX_S = 1.0, 15.0
"""Before the broker is looked for again: the first time, and after many."""
PATIENCE_S = 20.0
"""The stream is tried again for so long before the broker is looked for anew."""
PROBLEMS = (BrokerError, Conflict, Refusal)
"""What a call to the broker raises."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Identity:
    """Which server this is."""

    key: str
    """``user/server name``, as in GPUBROKER_SESSION."""
    incarnation: int
    drawn: bool = False
    """There is no Hub: this server named itself, and its session ends with it."""

    @property
    def server(self) -> str:
        """The server's name; empty = the default server."""
        return self.key.partition("/")[2]


class Around(Protocol):
    """What the link asks of the server around it."""

    def terminals_idle_for(self) -> float | None:
        """Seconds since a terminal showed something; ``None`` = no terminal is open."""
        ...

    async def children(self) -> int:
        """Living processes that kernels or terminals started."""
        ...

    def keep_alive(self) -> None:
        """Something is parked: this server counts as in use."""
        ...


class Link:
    """Keeps kernels and broker in agreement, over broken connections, until cancelled."""

    def __init__(
        self,
        finder: Finder,
        identity: Identity,
        kernels: Kernels,
        around: Around,
        changed: Callable[[str, int], None],
    ) -> None:
        """``changed(part, seq)`` is called whenever a part of the state may have changed."""
        self.identity = identity
        self.kernels = kernels
        self.client: AsyncClient | None = None
        self.state: SessionState | None = None
        self.plan: Plan | None = None
        self.problem = "The GPU broker is being looked for."
        """What is missing, for people; empty while there is a broker."""
        self._finder = finder
        self._around = around
        self._changed = changed
        self._acknowledged = ""
        self._resumed = ("", 0)
        self._pause = RETRY_S
        self._stale = asyncio.Event()
        self._news = asyncio.Event()

    def kernels_changed(self) -> None:
        """A kernel came, went, began or ended a cell, or took the server's word."""
        self._stale.set()
        self._news.set()
        self._changed("kernels", 0)

    async def run(self) -> None:
        """Find the broker, follow it, and find it again when it is gone."""
        while True:
            self._pause = min(2 * self._pause, RETRY_MAX_S)
            try:
                await self._follow_one()
            except PROBLEMS as error:
                self._is(str(error))
            except Exception as error:
                log.exception("the link to the GPU broker failed")
                self._is(f"The link to the GPU broker failed: {error!r}")
            await asyncio.sleep(self._pause)

    async def release(self) -> None:
        """Give the session back: without a Hub nobody else would know that this server ended."""
        session = self.state.session if self.state else None
        if session is not None and self.client is not None:
            with suppress(*PROBLEMS):
                await self.client.release(session.id)

    async def close(self) -> None:
        """Give the connections back."""
        client, self.client = self.client, None
        if client is not None:
            await client.close()

    async def _follow_one(self) -> None:
        await self.close()
        client = self.client = AsyncClient(await self._finder.find())
        await self._hello(client)
        await _all_of(self._listen(client), self._report(client), self._reconcile(client))

    async def _hello(self, client: AsyncClient) -> None:
        pid = os.getpid()
        holder = HolderIn(
            server=self.identity.server,
            incarnation=self.identity.incarnation,
            host=this_host(),
            boot=boot_id(),
            pid=pid,
            start=start_time(pid) or 0,
        )
        self._take(await client.hello(holder))
        self._is("")
        self._pause = RETRY_S
        self._stale.set()
        self._news.set()

    async def _listen(self, client: AsyncClient) -> None:
        """Anything may have happened behind a break of the stream or a gap in it."""
        first = True
        async for event in client.events(patience=PATIENCE_S):
            if event.event == "hello" and not first:
                await self._hello(client)
            first = False
            if event.event in ("hello", "gap"):
                self._changed("everything", event.seq)
                self._stale.set()
            else:
                self._tell_of(event)

    def _tell_of(self, event: EventOut) -> None:
        session = self.state.session if self.state else None
        mine = event.job and (session is None or event.job == session.id)
        if mine or event.job.startswith("s-"):
            self._stale.set()
            self._changed("session", event.seq)
        elif event.job:
            self._changed("jobs", event.seq)
        self._changed("queue", event.seq)
        self._changed("nodes", event.seq)

    async def _report(self, client: AsyncClient) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._news.wait()
            await asyncio.sleep(SETTLE_S)
            self._news.clear()
            report = ActivityIn(
                server=self.identity.server,
                incarnation=self.identity.incarnation,
                kernels=self.kernels.report(),
                terminals_idle_for=self._around.terminals_idle_for(),
                children=await self._around.children(),
            )
            if self._take(await client.activity(report)):
                self._stale.set()
            if self.plan is not None and self.plan.kept:
                self._around.keep_alive()

    async def _reconcile(self, client: AsyncClient) -> None:
        while True:
            await self._stale.wait()
            self._stale.clear()
            self._take(await client.server_state(self.identity.server))
            await self._follow(client)

    async def _follow(self, client: AsyncClient) -> None:
        assert self.state is not None
        session = self.state.session
        plan = self.plan = reconcile(self.state, self.kernels.views(), self._acknowledged)
        self.kernels.follow(plan, session)
        if session is None:
            return
        try:
            if plan.started is not None:
                await client.started(session.id, plan.started)
                self._acknowledged = plan.lease
                self._stale.set()
            elif plan.resume and self._resumed != (session.id, session.attempt):
                await client.resume(session.id, person=False)
                self._resumed = (session.id, session.attempt)
        except Conflict as error:
            log.info("%s: %s", session.id, error)  # it moved on; an event will tell where to

    def _take(self, state: SessionState) -> bool:
        """Remember it; True if the session is another than before."""
        before, self.state = self.state, state
        news = before is None or _essence(before.session) != _essence(state.session)
        if news:
            self._changed("session", state.seq)
        return news

    def _is(self, problem: str) -> None:
        if problem != self.problem:
            self.problem = problem
            log.warning("%s", problem) if problem else log.info("the GPU broker answers")
            self._changed("broker", 0)


def _essence(session: JobOut | None) -> object:
    """The session without what only grows with time."""
    return session and session.model_dump(exclude={"gpu_seconds", "idle"})


async def _all_of(*work: Coroutine[Any, Any, None]) -> None:
    """Run them together; the first failure ends all and is raised."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
