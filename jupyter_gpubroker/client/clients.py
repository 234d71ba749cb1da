# SPDX-License-Identifier: BSD-3-Clause
"""The blocking and the async client."""

from __future__ import annotations

import asyncio
import functools
import inspect
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx
from pydantic import ValidationError

from ..wire import EventOut
from ..wire import endpoints as e
from . import calls
from .address import Address
from .calls import Call
from .errors import BrokerError, Unavailable, raise_for, unreachable
from .following import SILENCE_MAX_S, Following

TIMEOUT_S = 30.0
"""For one answer."""
CONNECT_TIMEOUT_S = 10.0

P = ParamSpec("P")
T = TypeVar("T")


def _settings(address: Address) -> dict[str, Any]:
    """What both kinds of httpx client take. The environment's proxies are not for us."""
    headers = {"Accept": "application/json"}
    if address.token:
        headers["Authorization"] = f"token {address.token}"
    https = address.base.startswith("https:")
    return {
        "base_url": address.base,
        "headers": headers,
        "timeout": httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S),
        "trust_env": False,
        "verify": ssl.create_default_context() if https else False,
    }


_STREAM_TIMEOUT = httpx.Timeout(SILENCE_MAX_S, connect=CONNECT_TIMEOUT_S)


def _request(call: Call[Any]) -> dict[str, Any]:
    content = call.content
    kind = {} if content is None else {"Content-Type": "application/json"}
    return {
        "method": call.endpoint.method,
        "url": call.path,
        "params": call.params,
        "content": content,
        "headers": {**call.headers, **kind},
    }


def _answer(call: Call[T], response: httpx.Response, url: str) -> T:
    if not response.is_success:
        raise_for(response.status_code, response.content, url)
    try:
        return call.endpoint.adapter.validate_json(response.content)
    except ValidationError:
        raise Unavailable(f"{url} does not answer as this version expects") from None


def _sync(build: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.send(build(*args, **kwargs))

    _describe(method, build)
    return method


def _async(
    build: Callable[P, Call[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.send(build(*args, **kwargs))

    _describe(method, build)
    return method


def _describe(method: Any, build: Callable[..., object]) -> None:
    """The name, help and parameters of a call, for people at a prompt."""
    functools.update_wrapper(method, build)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    signature = inspect.signature(build)
    method.__signature__ = signature.replace(parameters=[own, *signature.parameters.values()])


class Client:
    """A broker, spoken to with calls that block. Use it as a context manager, or close it."""

    def __init__(self, url: str | Address, token: str = "") -> None:
        """``url`` is http(s)://… or unix:/path; Refusal if it is neither."""
        self.address = url if isinstance(url, Address) else Address.parse(url, token)
        uds = self.address.socket
        settings = _settings(self.address)
        transport = httpx.HTTPTransport(uds=uds) if uds else None
        self._http = httpx.Client(transport=transport, **settings)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """The broker of this process (see ``Address.find``)."""
        return cls(Address.find(environ))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send one call; Refusal, Conflict or a BrokerError if it does not succeed."""
        try:
            response = self._http.request(**_request(call))
        except httpx.HTTPError as error:
            raise unreachable(error, self.address.url) from None
        return _answer(call, response, self.address.url)

    def events(
        self, after: int | None = None, *, patience: float | None = None
    ) -> Iterator[EventOut]:
        """Events with seq > ``after`` (default: from now on), for ever and over broken
        connections. ``hello`` comes first and after each break, ``gap`` = load all again.

        Unavailable after about ``patience`` seconds without a broker (default: never)."""
        following = Following(after, patience)
        while True:
            error: BrokerError | None = None
            try:
                yield from self._connected(following)
            except BrokerError as found:
                error = found
            time.sleep(following.pause(error))

    def _connected(self, following: Following) -> Iterator[EventOut]:
        """The events of one connection."""
        following.begin()
        path, url = e.EVENTS.path, self.address.url
        try:
            with self._http.stream(
                "GET", path, headers=following.headers, timeout=_STREAM_TIMEOUT
            ) as response:
                if not response.is_success:
                    raise_for(response.status_code, response.read(), url)
                for line in response.iter_lines():
                    if (event := following.line(line)) is not None:
                        yield event
        except httpx.HTTPError as error:
            raise unreachable(error, url) from None

    health = _sync(calls.health)
    me = _sync(calls.me)
    queue = _sync(calls.queue)
    nodes = _sync(calls.nodes)
    shapes = _sync(calls.shapes)
    policy = _sync(calls.policy)
    apply_policy = _sync(calls.apply_policy)
    check_policy = _sync(calls.check_policy)
    submit = _sync(calls.submit)
    submit_list = _sync(calls.submit_list)
    jobs = _sync(calls.jobs)
    show = _sync(calls.show)
    explain = _sync(calls.explain)
    cancel = _sync(calls.cancel)
    extend = _sync(calls.extend)
    logs = _sync(calls.logs)
    open_session = _sync(calls.open_session)
    sessions = _sync(calls.sessions)
    release = _sync(calls.release)
    park = _sync(calls.park)
    resume = _sync(calls.resume)
    keep = _sync(calls.keep)
    discard = _sync(calls.discard)
    waits = _sync(calls.waits)
    started = _sync(calls.started)
    hello = _sync(calls.hello)
    activity = _sync(calls.activity)
    server_state = _sync(calls.server_state)
    gone = _sync(calls.gone)


class AsyncClient:
    """A broker, spoken to with coroutines: the same calls as ``Client``."""

    def __init__(self, url: str | Address, token: str = "") -> None:
        """``url`` is http(s)://… or unix:/path; Refusal if it is neither."""
        self.address = url if isinstance(url, Address) else Address.parse(url, token)
        uds = self.address.socket
        settings = _settings(self.address)
        transport = httpx.AsyncHTTPTransport(uds=uds) if uds else None
        self._http = httpx.AsyncClient(transport=transport, **settings)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """The broker of this process (see ``Address.find``)."""
        return cls(Address.find(environ))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Give the connections back."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send one call; Refusal, Conflict or a BrokerError if it does not succeed."""
        try:
            response = await self._http.request(**_request(call))
        except httpx.HTTPError as error:
            raise unreachable(error, self.address.url) from None
        return _answer(call, response, self.address.url)

    async def events(
        self, after: int | None = None, *, patience: float | None = None
    ) -> AsyncIterator[EventOut]:
        """See ``Client.events``."""
        following = Following(after, patience)
        while True:
            error: BrokerError | None = None
            try:
                async for event in self._connected(following):
                    yield event
            except BrokerError as found:
                error = found
            await asyncio.sleep(following.pause(error))

    async def _connected(self, following: Following) -> AsyncIterator[EventOut]:
        """The events of one connection."""
        following.begin()
        path, url = e.EVENTS.path, self.address.url
        try:
            async with self._http.stream(
                "GET", path, headers=following.headers, timeout=_STREAM_TIMEOUT
            ) as response:
                if not response.is_success:
                    raise_for(response.status_code, await response.aread(), url)
                async for line in response.aiter_lines():
                    if (event := following.line(line)) is not None:
                        yield event
        except httpx.HTTPError as error:
            raise unreachable(error, url) from None

    health = _async(calls.health)
    me = _async(calls.me)
    queue = _async(calls.queue)
    nodes = _async(calls.nodes)
    shapes = _async(calls.shapes)
    policy = _async(calls.policy)
    apply_policy = _async(calls.apply_policy)
    check_policy = _async(calls.check_policy)
    submit = _async(calls.submit)
    submit_list = _async(calls.submit_list)
    jobs = _async(calls.jobs)
    show = _async(calls.show)
    explain = _async(calls.explain)
    cancel = _async(calls.cancel)
    extend = _async(calls.extend)
    logs = _async(calls.logs)
    open_session = _async(calls.open_session)
    sessions = _async(calls.sessions)
    release = _async(calls.release)
    park = _async(calls.park)
    resume = _async(calls.resume)
    keep = _async(calls.keep)
    discard = _async(calls.discard)
    waits = _async(calls.waits)
    started = _async(calls.started)
    hello = _async(calls.hello)
    activity = _async(calls.activity)
    server_state = _async(calls.server_state)
    gone = _async(calls.gone)
