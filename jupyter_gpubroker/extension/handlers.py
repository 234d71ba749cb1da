# SPDX-License-Identifier: BSD-3-Clause
"""What a browser may ask of this server; the broker's token never leaves the server."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from pydantic import ValidationError
from tornado import web

from ..client import (
    BrokerError,
    Conflict,
    Forbidden,
    Limited,
    Refusal,
    Unavailable,
    Unknown,
)
from ..client.calls import Call
from ..wire import IDEMPOTENCY_KEY, ErrorOut, SessionIn, refusal_of
from ..wire import endpoints as e
from .link import PROBLEMS, Link
from .sidebar import Sidebar

ALLOWED: Sequence[e.Endpoint[Any]] = (
    e.ME,
    e.JOBS,
    e.SHOW,
    e.EXPLAIN,
    e.LOGS,
    e.QUEUE,
    e.NODES,
    e.SHAPES,
    e.SESSIONS,
    e.SUBMIT,
    e.CANCEL,
    e.EXTEND,
    e.OPEN,
    e.RELEASE,
    e.PARK,
    e.RESUME,
    e.KEEP,
    e.DISCARD,
    e.PROLONG,
)
"""What is relayed: a person's own verbs, not what servers and the Hub report."""

_STATUS: Sequence[tuple[type[Exception], int, str]] = (
    (Refusal, 400, "refused"),
    (Forbidden, 403, "forbidden"),
    (Unknown, 404, "not-found"),
    (Conflict, 409, "conflict"),
    (Limited, 429, "limit"),
    (Unavailable, 503, "unavailable"),
    # The browser is known to this server; it is this server that the broker does not know.
    (BrokerError, 503, "unavailable"),
)


class Base(APIHandler):
    """Common to both: authenticated, authorized, JSON."""

    auth_resource = "gpubroker"

    def initialize(self, link: Link, sidebar: Sidebar) -> None:
        """Given by the extension."""
        self.link = link
        self.sidebar = sidebar


class StateHandler(Base):
    """GET gpubroker/state."""

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """The whole state."""
        self.finish(await self.sidebar.state())


class RelayHandler(Base):
    """gpubroker/api/…: one call of the broker's API."""

    @web.authenticated
    @authorized
    async def get(self, path: str) -> None:
        """Relay a read."""
        await self._relay(path)

    @web.authenticated
    @authorized
    async def post(self, path: str) -> None:
        """Relay a verb."""
        await self._relay(path)
        self.sidebar.forget()

    async def _relay(self, path: str) -> None:
        try:
            call = self._call(path)
            client = self.link.client
            if client is None:
                raise Unavailable(self.link.problem or "The GPU broker is being looked for.")
            answer = await client.send(call)
        except PROBLEMS as error:
            self._fail(error)
            return
        self.finish(call.endpoint.adapter.dump_json(answer, by_alias=True))

    def _call(self, path: str) -> Call[Any]:
        for endpoint in ALLOWED:
            match = re.fullmatch(endpoint.pattern, f"{e.API}/{path}")
            if match and endpoint.method == self.request.method:
                return Call(
                    endpoint,
                    match.groupdict().get("job") or "",
                    body=self._body(endpoint),
                    query=self._query(endpoint),
                    headers=self._key(endpoint),
                )
        raise Unknown(f"{self.request.method} {path} is not relayed to the GPU broker")

    def _body(self, endpoint: e.Endpoint[Any]) -> Any:
        if endpoint.body is None:
            return None
        given = self.get_json_body() or {}
        if endpoint.body is SessionIn and isinstance(given, dict):
            # A browser asks for the server that it talks to, whatever it says.
            mine = self.link.identity
            given |= {"server": mine.server, "incarnation": mine.incarnation, "attach": True}
        try:
            return endpoint.body.model_validate(given)
        except ValidationError as error:
            raise refusal_of(error, endpoint.body) from None

    def _query(self, endpoint: e.Endpoint[Any]) -> dict[str, str]:
        names = endpoint.query.model_fields if endpoint.query else {}
        return {name: self.get_query_argument(name) for name in names if self._has(name)}

    def _has(self, name: str) -> bool:
        return name in self.request.query_arguments

    def _key(self, endpoint: e.Endpoint[Any]) -> dict[str, str]:
        key = self.request.headers.get(IDEMPOTENCY_KEY)
        return {IDEMPOTENCY_KEY: key} if key and endpoint is e.SUBMIT else {}

    def _fail(self, error: Exception) -> None:
        status, word = next((s, w) for kind, s, w in _STATUS if isinstance(error, kind))
        self.set_status(status)
        told = ErrorOut(error=word, message=str(error))
        if isinstance(error, Refusal):
            told = ErrorOut(
                error=word, message=error.message, field=error.field, remedy=error.remedy
            )
        self.finish(told.model_dump_json())
