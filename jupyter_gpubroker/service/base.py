# SPDX-License-Identifier: BSD-3-Clause
"""What every endpoint shares: who may call it, reading the input, writing the answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from tornado.web import HTTPError, RequestHandler

from ..broker.inputs import Unknown
from ..core.model import Job, Kind, Refusal, Seconds
from ..wire import In, Nothing, refusal_of
from ..wire.endpoints import ADMIN, JOB, Endpoint
from . import Desk
from .auth import Auth, Forbidden, Principal, PrincipalKind
from .errors import translate
from .views import View

log = logging.getLogger(__name__)

HEARTBEAT_S = 15.0
M = TypeVar("M", bound=BaseModel)


class Who(StrEnum):
    """The rule of an endpoint."""

    ANY = "any"
    """Nobody is asked who they are."""
    USER = "user"
    """Whoever is known."""
    OWNER = "owner"
    """The Job's owner, an admin or the Hub; for others it does not exist."""
    SESSION = "session"
    """As OWNER; a token that names a server only for that server's session."""
    HOLDER = "holder"
    """The server that holds the session, or the Hub."""
    SERVER = "server"
    """The server named in the input, or the Hub."""
    HUB = "hub"
    ADMIN = "admin"


@dataclass(slots=True)
class Service:
    """What the endpoints are made of."""

    desk: Desk
    auth: Auth
    version: str
    document: Callable[[], Mapping[str, Any]]
    """Makes the OpenAPI document, at the first request for it."""
    clock: Callable[[], Seconds] = time.time
    heartbeat: Seconds = HEARTBEAT_S
    streams: Counter[str] = field(default_factory=Counter)
    """Open event streams by user."""


@dataclass(slots=True)
class Call:
    """One request, understood and allowed."""

    service: Service
    handler: ApiHandler
    route: Route
    sender: Principal | None = None
    body: In = field(default_factory=Nothing)
    query: In = field(default_factory=Nothing)
    subject: Job | None = None
    """The Job in the path."""
    server: str = ""
    """Session key of the server in the input."""
    status: int = 200

    @property
    def desk(self) -> Desk:
        """The broker."""
        return self.service.desk

    @property
    def principal(self) -> Principal:
        """Who asks."""
        assert self.sender is not None, f"{self.route.endpoint.path} asks nobody who they are"
        return self.sender

    @property
    def job(self) -> Job:
        """The Job in the path, which the principal may handle."""
        assert self.subject is not None, f"{self.route.endpoint.path} names no job"
        return self.subject

    @property
    def view(self) -> View:
        """The world as the principal may see it now."""
        return View(self.desk, self.principal, self.service.clock())

    def given(self, model: type[M]) -> M:
        """The body, as the model that the endpoint names."""
        assert isinstance(self.body, model)
        return self.body

    def asked(self, model: type[M]) -> M:
        """The query, as the model that the endpoint names."""
        assert isinstance(self.query, model)
        return self.query


@dataclass(frozen=True)
class Route:
    """An endpoint, its rule, and what answers it."""

    endpoint: Endpoint[Any]
    who: Who
    handle: Callable[[Call], Awaitable[object]]
    fresh: bool = False
    """Do not rely on what was true of a token a minute ago."""


class ApiHandler(RequestHandler):
    """Serves all methods of one path."""

    def initialize(self, service: Service, routes: Mapping[str, Route]) -> None:
        """``routes``: method -> Route."""
        self.service = service
        self.routes = routes
        self.left = asyncio.Event()
        """Set when the reader has gone away."""

    def on_connection_close(self) -> None:
        """The reader has gone away."""
        self.left.set()

    def set_default_headers(self) -> None:
        """JSON, never stored, never guessed."""
        self.clear_header("Server")
        self.set_header("Content-Type", "application/json")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")

    def compute_etag(self) -> None:
        """Answers are never stored, so nobody compares them."""

    async def get(self, job: str = "") -> None:
        """Read."""
        await self._serve("GET", job)

    async def head(self, job: str = "") -> None:
        """Read without a body; a stream is not opened."""
        await self._serve("GET", job)

    async def post(self, job: str = "") -> None:
        """Ask for something."""
        await self._serve("POST", job)

    async def put(self, job: str = "") -> None:
        """Replace."""
        await self._serve("PUT", job)

    def options(self, job: str = "") -> None:
        """Which methods there are."""
        self._allow()
        self.set_status(204)
        self.clear_header("Content-Type")

    def _allow(self) -> None:
        reading = ["HEAD"] if "GET" in self.routes else []
        self.set_header("Allow", ", ".join([*self.routes, *reading, "OPTIONS"]))

    async def _serve(self, method: str, job: str) -> None:
        route = self.routes.get(method)
        if route is None:
            self._allow()
            self.send_error(405)
            return
        call = Call(self.service, self, route)
        try:
            await _admit(call, job)
            if route.endpoint.stream and self.request.method == "HEAD":
                return
            answer = await route.handle(call)
        except Exception as error:  # translated, never passed on
            self._fail(error)
            return
        if not route.endpoint.stream:
            self.set_status(call.status)
            self.finish(route.endpoint.adapter.dump_json(answer, by_alias=True))

    def _fail(self, error: BaseException) -> None:
        if self._headers_written:
            log.info("a stream ended: %s", error)
            return
        status, answer = translate(error)
        self.set_default_headers()
        self.set_status(status)
        if status == 401:
            self.set_header("WWW-Authenticate", "token")
        self.finish(answer.model_dump_json())

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Errors that tornado itself finds, in the same form."""
        error = kwargs["exc_info"][1] if "exc_info" in kwargs else HTTPError(status_code)
        self._fail(error)


# --- admission --------------------------------------------------------------------------


async def _admit(call: Call, job: str) -> None:
    """Who asks, what is asked, and may they? Nothing was changed if this raises."""
    who, request = call.route.who, call.handler.request
    if who is Who.ANY:
        return
    call.sender = await call.service.auth.principal(request, fresh=call.route.fresh)
    # A broker that has not loaded yet knows nothing: "no such job" would be a lie.
    await call.desk.opened()
    if who is Who.HUB and call.sender.kind is not PrincipalKind.HUB:
        raise Forbidden("only the Hub may do this")
    if who is Who.ADMIN and not call.sender.admin:
        raise Forbidden(f"only an admin may do this: a token with scope {ADMIN}")
    about_a_job = JOB in call.route.endpoint.path
    if about_a_job:
        call.subject = await _subject(call, job)
    _read(call)
    if who in (Who.SERVER, Who.HUB) and not about_a_job:
        call.server = _server(call)


async def _subject(call: Call, job_id: str) -> Job:
    """The Job in the path, if the principal may handle it."""
    who, principal = call.route.who, call.principal
    job = await call.desk.find(job_id)
    if job is None or not (job.user == principal.user or principal.sees_all):
        raise Unknown(f"there is no job {job_id[:64]!r} of yours")
    session = job.kind is Kind.SESSION
    if who is not Who.OWNER and not session:
        raise Unknown(f"{job.id} is not a session")
    if session and (who is not Who.OWNER or call.route.endpoint.method != "GET"):
        _check_server(principal, job.server, strict=who is Who.HOLDER)
    return job


def _check_server(principal: Principal, key: str, *, strict: bool) -> None:
    """May the principal act for this server? ``strict``: only with proof that it is it."""
    match principal.kind:
        case PrincipalKind.HUB:
            return
        case PrincipalKind.PEER if key.startswith(f"{principal.user}/"):
            return
    if principal.server == key and principal.server is not None:
        return
    if not strict and (principal.server is None or principal.admin):
        return
    belongs = "no server" if principal.server is None else f"the server {principal.server!r}"
    raise Forbidden(f"this is about the server {key!r}; your token belongs to {belongs}")


def _server(call: Call) -> str:
    """The key of the server named in the input, if the principal may act for it."""
    named = call.query if isinstance(call.body, Nothing) else call.body
    user, server = str(getattr(named, "user", "")), str(getattr(named, "server", ""))
    principal = call.principal
    if principal.kind is PrincipalKind.HUB:
        if not user:
            raise Refusal("user", "is missing", "the Hub names the user it acts for")
        return f"{user}/{server}"
    if user and user != principal.user:
        raise Forbidden("user: only the Hub may act for another user")
    key = f"{principal.user}/{server}"
    _check_server(principal, key, strict=True)
    return key


# --- input ------------------------------------------------------------------------------


def _read(call: Call) -> None:
    endpoint, request = call.route.endpoint, call.handler.request
    if endpoint.body is not None:
        call.body = _parse(endpoint.body, request.body or b"{}")
    given = {name: values[-1].decode(errors="replace") for name, values in _query(call).items()}
    model = endpoint.query or Nothing
    try:
        call.query = model.model_validate(given)
    except ValidationError as error:
        raise refusal_of(error, model) from None


def _query(call: Call) -> Mapping[str, list[bytes]]:
    return call.handler.request.query_arguments


def _parse(model: type[In], data: bytes) -> In:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise refusal_of(error, model) from None
