# SPDX-License-Identifier: BSD-3-Clause
"""A server that was launched with its GPUs: what an extension would do, seen from the Hub."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path

from ..client import AsyncClient, BrokerError, Conflict, Refusal
from ..wire import HolderIn, JobOut, Reason, State
from .asking import Asking

PATIENCE_S = 5.0
"""The Hub looks again soon: a broker that is slow holds up nothing."""
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
"""What a server without a lease is launched with, where the broker has not said more."""
USABLE = (State.STARTING, State.RUNNING, State.DRAINING)


def lease_of(session: JobOut) -> str:
    """Names the grant: another one has other GPUs."""
    return f"{session.id}.{session.attempt}"


@dataclass(frozen=True, slots=True)
class Bound:
    """One server and the lease that it was launched with."""

    asking: Asking
    incarnation: int
    lease: str
    pid: int = 0
    """Of the server, on this machine; 0 = not known."""

    async def goes_on(self, *, new: bool = False) -> bool:
        """Whether the server may go on; acknowledges its lease where that was not done.

        Silence takes nothing away: without an answer it goes on."""
        try:
            async with asyncio.timeout(PATIENCE_S), self.asking.client() as client:
                session = await self._session(client)
                if session is None:
                    return False
                if new or _is_unacknowledged(session):
                    await self._acknowledge(client, session)
                    return await self._session(client) is not None
                return True
        except (BrokerError, Conflict, Refusal, TimeoutError) as error:
            self.asking.log.warning("GPU broker not asked about %s: %s", self.lease, error)
            return True

    async def _session(self, client: AsyncClient) -> JobOut | None:
        """The session, if its GPUs are still those of this server."""
        asking = self.asking
        session = (await client.server_state(asking.server, user=asking.user)).session
        if session is None or lease_of(session) != self.lease or session.state not in USABLE:
            return None
        return session if session.incarnation == self.incarnation else None

    async def _acknowledge(self, client: AsyncClient, session: JobOut) -> None:
        if start := _start_time(self.pid):
            await client.hello(self._holder(start))
        await client.started(session.id, session.attempt)

    def _holder(self, start: int) -> HolderIn:
        return HolderIn(
            user=self.asking.user,
            server=self.asking.server,
            incarnation=self.incarnation,
            host=os.uname().nodename,
            boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            pid=self.pid,
            start=start,
        )


def _is_unacknowledged(session: JobOut) -> bool:
    waits_for_a_server = session.notice is not None and session.notice.reason is Reason.HOLDER
    return session.state is State.STARTING or waits_for_a_server


def _start_time(pid: int) -> int:
    """In clock ticks since boot; 0 where there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    # Field 22; the name in brackets before it may hold blanks.
    return int(text.rpartition(")")[2].split()[19])
