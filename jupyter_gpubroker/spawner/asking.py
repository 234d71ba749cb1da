# SPDX-License-Identifier: BSD-3-Clause
"""What the Hub asks the broker, and tells it, about one server."""

from __future__ import annotations

import asyncio
import html
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, repeat
from pathlib import Path
from time import localtime, strftime
from typing import Literal

from jupyterhub.spawner import SpawnException

from ..client import AsyncClient, BrokerError, Conflict, Refusal, Unavailable
from ..wire import TERMINAL, GoneIn, JobOut, SessionIn, ShapesOut, State
from . import REFUSED
from .wish import Wish

How = Literal["stopped", "gone", "withdrawn", "failed", "mute"]
Say = Callable[[int, str], None]
"""(progress of 100, sentence)"""

LOOK_EVERY_S = 15.0
"""A wait looks so often even if no event comes."""
BURST_S = 0.5
"""Events within this are one look."""
LEAVE_PATIENCE_S = 5.0
TELL_AGAIN_S = (0.2, 1.0, 2.0, 5.0)
TELL_LATER_S = 10.0
TELL_TRIES = 90


class SessionEnded(Exception):
    """The session that a start waited for is over; the message says why."""


ERRORS = (BrokerError, Conflict, Refusal, SessionEnded)
"""Whatever keeps a start from its GPU."""


@dataclass(frozen=True, slots=True)
class Offers:
    """What the form can offer."""

    shapes: ShapesOut
    session: JobOut | None
    """The living session of this server."""

    @property
    def parked(self) -> JobOut | None:
        """The session, if something of it is kept."""
        return self.session if self.session is not None and self.session.kept else None


@dataclass(frozen=True, slots=True)
class Asking:
    """The Hub's side of one server's session."""

    url: str
    token_file: str
    user: str
    server: str
    """Server name; empty = the default server."""
    log: logging.Logger | logging.LoggerAdapter[logging.Logger]
    groups: tuple[str, ...] = ()
    """Of the user."""

    def client(self) -> AsyncClient:
        """A client with the rights of the Hub; Unavailable if its token cannot be read."""
        try:
            token = Path(self.token_file).read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Unavailable(
                f"the Hub cannot read its token for the GPU broker ({error})"
            ) from None
        return AsyncClient(self.url, token)

    async def offers(self) -> Offers:
        """What can be asked for, and what is there already."""
        async with self.client() as client:
            shapes = await client.shapes()
            state = await client.server_state(self.server, user=self.user)
        return Offers(shapes, state.session)

    async def open(
        self, wish: Wish, incarnation: int, *, attach: bool, whole: bool = False
    ) -> JobOut:
        """A place in the queue, or the session that this server has already; ``whole``: the
        server is launched with its GPUs."""
        async with self.client() as client:
            if wish.discard:
                await self._discard(client)
            return await client.open_session(
                SessionIn(
                    request=wish.request,
                    user=self.user,
                    server=self.server,
                    incarnation=incarnation,
                    attach=attach,
                    binding="server" if whole else "kernel",
                    queue=wish.queue,
                    groups=self.groups,
                )
            )

    async def _discard(self, client: AsyncClient) -> None:
        session = (await client.server_state(self.server, user=self.user)).session
        if session is not None and session.kept:
            await client.discard(session.id)

    async def leave(self, incarnation: int) -> Mapping[str, str]:
        """A start without a GPU: a session that is left over ends. Never fails; gives the
        environment that shows a process no GPU, if the broker says it."""
        body = self._gone("stopped", incarnation)
        try:
            async with asyncio.timeout(LEAVE_PATIENCE_S), self.client() as client:
                return (await client.gone(body)).empty_env
        except (BrokerError, Conflict, Refusal, TimeoutError) as error:
            # Not tried again later: by then the new server may have asked for a GPU.
            self.log.warning("GPU broker not told of a start without a GPU: %s", error)
            return {}

    def _gone(self, how: How, incarnation: int) -> GoneIn:
        return GoneIn(user=self.user, server=self.server, incarnation=incarnation, how=how)

    async def tell(self, how: How, incarnation: int) -> bool:
        """A start or a server is over. Tried again for a quarter of an hour: late news of
        an old start never touches a newer one. Whether the broker knows it now."""
        body = self._gone(how, incarnation)
        error: Exception = Unavailable("not asked")
        for pause in _pauses():
            try:
                async with self.client() as client:
                    await client.gone(body)
                    return True
            except Unavailable as found:
                error = found
            except (BrokerError, Conflict, Refusal) as found:
                error = found
                break
            await asyncio.sleep(pause)
        self.log.error("GPU broker not told that %s/%s is %s: %s", *self._names(), how, error)
        return False

    def _names(self) -> tuple[str, str]:
        return self.user, self.server

    async def misses(self, incarnation: int) -> bool:
        """The server is up, and its session may still wait for a hello of our extension in it:
        whether it does; then the broker knows that there is none. Never fails."""
        body = self._gone("mute", incarnation)
        try:
            async with asyncio.timeout(LEAVE_PATIENCE_S), self.client() as client:
                session = (await client.gone(body)).session
        except Conflict:
            return False  # it has said hello
        except (BrokerError, Refusal, TimeoutError) as error:
            self.log.warning("GPU broker not told that %s/%s is mute: %s", *self._names(), error)
            return False
        return session is not None and session.incarnation == incarnation

    # --- waiting ------------------------------------------------------------------------

    async def until_granted(self, session: JobOut, say: Say) -> JobOut:
        """The session once its GPUs are ready; SessionEnded if it ends before."""
        looks = self._looks(session.id)
        try:
            async for job in looks:
                if isinstance(job, Unavailable):
                    say(10, f"Your place in the queue is kept, but {job}.")
                elif job.lease is not None and job.lease.prepared and job.stage == "":
                    return job
                elif job.state in TERMINAL or job.state is State.PARKED:
                    raise SessionEnded(f"the session {job.id} is over: {job.outcome or job.state}")
                else:
                    say(*words(job))
        finally:
            await looks.aclose()
        raise AssertionError("looks never end")

    async def _looks(self, session: str) -> AsyncGenerator[JobOut | Unavailable, None]:
        """The session whenever something has changed, for ever. Each look asks for its place."""
        news = asyncio.Event()
        async with self.client() as client:
            follower = asyncio.create_task(self._follow(client, news))
            try:
                while True:
                    news.clear()
                    try:
                        yield await client.waits(session)
                    except Unavailable as error:
                        yield error
                    await asyncio.sleep(BURST_S)
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_EVERY_S):
                            await news.wait()
            finally:
                follower.cancel()
                await asyncio.gather(follower, return_exceptions=True)

    async def _follow(self, client: AsyncClient, news: asyncio.Event) -> None:
        async for _ in client.events():
            news.set()


def _pauses() -> Iterator[float]:
    return chain(TELL_AGAIN_S, repeat(TELL_LATER_S, TELL_TRIES))


# --- words ------------------------------------------------------------------------------


def words(job: JobOut) -> tuple[int, str]:
    """How far a session is on its way to its GPUs, in one sentence."""
    wants = job.request.words
    if job.state is State.STARTING:
        return 40, f"{wants}: being made ready for you."
    if job.state is State.STOPPING:
        return 10, f"{wants}: your earlier session gives its GPUs back first."
    why = job.why
    if why is None:
        return 10, f"In the queue for {wants}."
    place = f"Position {why.position} in the queue" if why.position > 0 else "In the queue"
    until = f"; not later than {clock(why.until)}" if why.until else ""
    return 10, f"{place} for {wants}: {why.text}{until}."


def granted(job: JobOut, *, stops: bool = False) -> str:
    """What was granted, and until when; ``stops``: its server is stopped then."""
    assert job.lease is not None
    then = " Your server is stopped then." if stops else ""
    return f"{job.request.words}: yours until {clock(job.lease.expires)}.{then}"


def clock(seconds: float) -> str:
    """The Hub's time of day, with the day where that is not today."""
    then = localtime(seconds)
    day = "" if then[:3] == localtime()[:3] else strftime("%d %b, ", then).lstrip("0")
    return f"{day}{strftime('%H:%M', then)} (the Hub's time)"


def refused(error: Exception) -> SpawnException:
    """Why there is no start, for the Hub: no failure of the Hub, and in plain words."""
    reason, status, more = "gpu-broker-unreachable", 503, " Choose no GPU to start without one."
    match error:
        case Refusal():
            reason, status, more = REFUSED, 400, ""
        case Conflict():
            reason, status, more = "gpu-conflict", 409, ""
        case SessionEnded():
            reason, status, more = "gpu-session-ended", 409, ""
    text = str(error)
    text = f"{text[:1].upper()}{text[1:]}.{more}" if more else f"No GPU: {text}"
    told = SpawnException(text, reason=reason, message_html=html.escape(text), status_code=status)
    # The progress stream shows these two instead of the exception's repr.
    told.jupyterhub_message = text
    told.jupyterhub_html_message = html.escape(text)
    return told
