# SPDX-License-Identifier: BSD-3-Clause
"""GET gpubroker/state: all that the sidebar shows, in one answer."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from ..client import AsyncClient
from ..wire import JobOut, NodeOut, PrincipalOut, QueueRow, SessionState, ShapesOut
from .link import PROBLEMS, Link
from .reconcile import needs_restart

JOBS_MAX = 50
FRESH_S = 3.0
"""An answer is used again for so long, if no event says otherwise."""


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the broker said in one round of calls."""

    state: SessionState
    me: PrincipalOut
    jobs: list[JobOut]
    queue: list[QueueRow]
    nodes: list[NodeOut]
    shapes: ShapesOut


class Sidebar:
    """Builds the answer; several browsers share one round of calls."""

    def __init__(self, link: Link, server: Any) -> None:
        """``server`` is the ServerApp."""
        self._link = link
        self._server = server
        self._seen: _Seen | None = None
        self._until = 0.0
        self._lock = asyncio.Lock()

    def forget(self) -> None:
        """Something changed: the next answer is a new one."""
        self._until = 0.0

    async def state(self) -> dict[str, Any]:
        """Never an error: without a broker it says what is missing, and what was known."""
        async with self._lock:
            problem = self._link.problem or await self._look()
        seen = self._seen
        session = seen.state.session if seen else None
        return {
            "broker": {"ok": not problem, "problem": problem or None},
            "me": _dump(seen.me if seen else self._me()),
            "session": _dump(session) if session else None,
            "kernels": await self._kernels(),
            "jobs": [_dump(job) for job in seen.jobs] if seen else [],
            "queue": [_dump(row) for row in seen.queue] if seen else [],
            "nodes": [_dump(node) for node in seen.nodes] if seen else [],
            "shapes": _dump(seen.shapes) if seen else None,
            "notices": _notices([*([session] if session else []), *(seen.jobs if seen else [])]),
            "seq": seen.state.seq if seen else 0,
        }

    def _me(self) -> PrincipalOut:
        user = self._link.identity.key.partition("/")[0]
        return PrincipalOut(kind="user", user=user, admin=False, server=None)

    async def _look(self) -> str:
        """Ask the broker, unless that was just done; what is wrong, or nothing."""
        client, now = self._link.client, time.monotonic()
        if client is None:
            return "The GPU broker is being looked for."
        if now < self._until:
            return ""
        self._until = now + FRESH_S
        try:
            self._seen = await _round(client, self._link.identity.server)
        except PROBLEMS as error:
            self.forget()
            return str(error)
        return ""

    async def _kernels(self) -> list[dict[str, Any]]:
        paths = await self._paths()
        names = {kernel.id: kernel.name for kernel in self._link.kernels.report()}
        return [
            {
                "id": kernel.id,
                "name": names.get(kernel.id, ""),
                "path": paths.get(kernel.id, ""),
                "bound": bool(kernel.bound),
                "needs_restart": kernel.managed and needs_restart(kernel),
                "managed": kernel.managed,
            }
            for kernel in self._link.kernels.views()
        ]

    async def _paths(self) -> dict[str, str]:
        """Kernel -> the document that uses it."""
        sessions = await self._server.session_manager.list_sessions()
        return {session["kernel"]["id"]: session["path"] for session in sessions}


async def _round(client: AsyncClient, server: str) -> _Seen:
    state, me, jobs, queue, nodes, shapes = await asyncio.gather(
        client.server_state(server),
        client.me(),
        client.jobs(),
        client.queue(),
        client.nodes(),
        client.shapes(),
    )
    batch = [job for job in jobs if job.kind == "batch"][:JOBS_MAX]
    return _Seen(state, me, batch, queue, nodes, shapes)


def _notices(jobs: list[JobOut]) -> list[dict[str, Any]]:
    return [{**_dump(job.notice), "job": job.id} for job in jobs if job.notice is not None]


def _dump(answer: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = answer.model_dump(mode="json", by_alias=True)
    # What binds a process is for kernels, not for browsers.
    if dumped.get("lease"):
        dumped["lease"].pop("env", None)
    return dumped
