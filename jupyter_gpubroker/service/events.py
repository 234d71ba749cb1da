# SPDX-License-Identifier: BSD-3-Clause
"""GET /events: the journal as server-sent events, resumable by seq."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import suppress

from pydantic import ValidationError
from tornado.iostream import StreamClosedError

from ..core.model import Refusal
from ..store import Entry
from ..wire import STREAM, EventOut, EventsQuery
from .auth import HubUnreachable, Unauthenticated
from .base import ApiHandler, Call
from .errors import Limited

BEHIND_MAX = 10_000
"""Whoever is further behind is told to load everything again."""
STREAMS_MAX = 64
"""Open streams of one user."""


async def events(call: Call) -> None:
    """Write events until the reader leaves, its token ends or the broker stops."""
    streams, name = call.service.streams, call.principal.actor
    if streams[name] >= STREAMS_MAX and not call.principal.sees_all:
        raise Limited(f"{streams[name]} event streams are open for you; close one")
    after = _after(call)
    streams[name] += 1
    try:
        await _Stream(call).run(after)
    finally:
        streams[name] -= 1


def _after(call: Call) -> int | None:
    """Where to begin: Last-Event-ID (a resuming reader) before the query."""
    text = call.handler.request.headers.get("Last-Event-ID", "")
    if not text:
        return call.asked(EventsQuery).after
    try:
        return EventsQuery.model_validate({"after": text}).after
    except ValidationError:
        raise Refusal("Last-Event-ID", f"{text[:64]!r} is not the id of an event") from None


class _Stream:
    """One reader."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._handler: ApiHandler = call.handler
        self._view = call.view

    async def run(self, after: int | None) -> None:
        self._handler.set_header("Content-Type", STREAM)
        self._handler.set_header("X-Accel-Buffering", "no")
        with suppress(StreamClosedError):
            position: int | None = await self._begin(after)
            while position is not None:
                position = await self._follow(position)

    async def _begin(self, after: int | None) -> int:
        seq = self._call.desk.world.seq
        await self._mark("hello", seq if after is None else min(after, seq))
        if after is None or seq - BEHIND_MAX <= after <= seq:
            return seq if after is None else after
        # Too far behind, or ahead: then it followed another database.
        await self._mark("gap", seq)
        return seq

    async def _follow(self, after: int) -> int | None:
        """Write entries; where to begin again after a gap, or None at the end."""
        batches = aiter(self._call.desk.entries(after))
        try:
            while (batch := await self._next(batches)) is not None:
                seq = self._call.desk.world.seq
                if batch and batch[0].seq != after + 1:  # what came between was forgotten
                    await self._mark("gap", seq)
                    return seq
                await self._write(batch)
                after = batch[-1].seq if batch else after
                seq = self._call.desk.world.seq
                if seq - after > BEHIND_MAX:
                    await self._mark("gap", seq)
                    return seq
            return None
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()

    async def _next(self, batches: AsyncIterator[Sequence[Entry]]) -> Sequence[Entry] | None:
        """The next batch; None if there will be none, or nobody reads."""
        coming = asyncio.ensure_future(anext(batches, None))
        left = asyncio.ensure_future(self._handler.left.wait())
        try:
            while True:
                done, _ = await asyncio.wait(
                    (coming, left),
                    timeout=self._call.service.heartbeat,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if left in done:
                    return None
                if coming in done:
                    return coming.result()
                await self._heartbeat()
        finally:
            for task in (coming, left):
                task.cancel()
            await asyncio.gather(coming, left, return_exceptions=True)

    async def _heartbeat(self) -> None:
        """Tell the reader that the stream lives, and look whether its token still does."""
        service, request = self._call.service, self._handler.request
        with suppress(HubUnreachable):
            if await service.auth.principal(request, fresh=False) != self._call.principal:
                raise Unauthenticated("the rights of this token have changed")
        self._handler.write(": ping\n\n")
        await self._handler.flush()

    async def _mark(self, event: str, seq: int) -> None:
        out = EventOut(seq=seq, time=self._call.service.clock(), event=event)
        self._send(event, out)
        await self._handler.flush()

    async def _write(self, batch: Sequence[Entry]) -> None:
        hint: EventOut | None = None
        for entry in batch:
            if not self._view.sees(entry):
                hint = self._view.event(entry)
                continue
            if hint is not None:
                self._send("entry", hint)
                hint = None
            self._send("entry", self._view.event(entry))
        if hint is not None:
            self._send("entry", hint)
        await self._handler.flush()

    def _send(self, event: str, out: EventOut) -> None:
        # ASCII, so that no reader sees a line end inside the data.
        data = json.dumps(out.model_dump(mode="json"), ensure_ascii=True)
        self._handler.write(f"id: {out.seq}\nevent: {event}\ndata: {data}\n\n")
