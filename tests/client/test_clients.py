# SPDX-License-Identifier: BSD-3-Clause
"""The two clients are one: the same calls, the same errors; and what is no broker is said."""

from __future__ import annotations

import inspect
import json
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from jupyter_gpubroker.client import (
    AsyncClient,
    Client,
    Conflict,
    Forbidden,
    Limited,
    Refusal,
    Unauthenticated,
    Unavailable,
    Unknown,
    calls,
)
from jupyter_gpubroker.client.following import LONGEST_PAUSE_S, Following
from jupyter_gpubroker.wire import RequestIn, SubmitIn
from jupyter_gpubroker.wire import endpoints as e
from jupyter_gpubroker.wire.endpoints import Endpoint


def public(of: type) -> dict[str, Callable[..., object]]:
    return {name: item for name, item in vars(of).items() if not name.startswith("_")}


def test_both_clients_have_the_same_methods_with_the_same_parameters() -> None:
    one, other = public(Client), public(AsyncClient)
    assert list(one) == list(other)
    for name in one.keys() - {"from_environment"}:
        mine, theirs = inspect.signature(one[name]), inspect.signature(other[name])
        assert mine.parameters.keys() == theirs.parameters.keys(), name
        assert inspect.getdoc(one[name])


def test_every_call_is_a_method_and_every_endpoint_a_call() -> None:
    built = {
        name: item
        for name, item in vars(calls).items()
        if inspect.isfunction(item)
        and item.__module__ == calls.__name__
        and not name.startswith("_")
    }
    assert set(built) <= set(public(Client))
    source = inspect.getsource(calls)
    endpoints = {name for name, item in vars(e).items() if isinstance(item, Endpoint)}
    # The document and the stream are not calls; CANCEL and EXTEND serve sessions too.
    without = {"OPENAPI", "EVENTS", "PROLONG"}
    assert {name for name in endpoints if f"e.{name}" not in source} == without


def test_only_what_was_set_is_sent() -> None:
    call = calls.submit(SubmitIn(argv=("x",), request=RequestIn(memory="20GiB")), key="k")
    assert json.loads(call.content or b"") == {"argv": ["x"], "request": {"memory": "20GiB"}}
    assert call.headers == {"Idempotency-Key": "k"}
    first, second = [calls.submit(SubmitIn(argv=("x",))).headers for _ in range(2)]
    assert first != second


@given(st.text())
def test_an_id_never_leaves_its_place_in_the_path(job: str) -> None:
    path = calls.show(job).path
    assert path.startswith("/api/v1/jobs/")
    assert not set(path.removeprefix("/api/v1/jobs/")) & set("/?#")


# --- answers ------------------------------------------------------------------------------


class Odd(RequestHandler):
    """Answers what it is told to."""

    status = 200
    body = b""

    def get(self) -> None:
        self.set_status(Odd.status)
        self.finish(Odd.body)

    post = get


@pytest_asyncio.fixture
async def url() -> AsyncIterator[str]:
    server = HTTPServer(Application([(".*", Odd)]))
    sockets = bind_sockets(0, "127.0.0.1")
    server.add_sockets(sockets)
    yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}/services/gpubroker"
    server.stop()
    await server.close_all_connections()


ERRORS: list[tuple[int, type[Exception]]] = [
    (400, Refusal),
    (401, Unauthenticated),
    (403, Forbidden),
    (404, Unknown),
    (409, Conflict),
    (429, Limited),
    (500, Unavailable),
    (503, Unavailable),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("status", "kind"), ERRORS)
async def test_an_error_comes_back_as_what_it_was(
    url: str, status: int, kind: type[Exception]
) -> None:
    Odd.status = status
    told = {"error": "e", "message": "because", "field": "gpus", "remedy": "fewer", "new": 1}
    Odd.body = json.dumps(told).encode()
    async with AsyncClient(url, "t") as client:
        with pytest.raises(kind, match="because") as caught:
            await client.queue()
    if kind is Refusal:
        assert isinstance(caught.value, Refusal)
        assert (caught.value.field, caught.value.remedy) == ("gpus", "fewer")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("status", "body"),
    [(200, b"<html>login</html>"), (302, b""), (404, b"<html>"), (503, b"starting"), (200, b"{}")],
)
async def test_what_is_no_broker_is_said(url: str, status: int, body: bytes) -> None:
    Odd.status, Odd.body = status, body
    async with AsyncClient(url) as client:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1"):
            await client.me()


@pytest.mark.asyncio
async def test_a_closed_port_is_unavailable(free_port: int) -> None:
    async with AsyncClient(f"http://127.0.0.1:{free_port}") as client:
        with pytest.raises(Unavailable, match="does not answer"):
            await client.me()
        with pytest.raises(Unavailable):
            await anext(client.events(patience=0))


def test_a_blocking_client_says_the_same(free_port: int) -> None:
    with Client(f"http://127.0.0.1:{free_port}") as client:
        with pytest.raises(Unavailable, match="does not answer"):
            client.me()
        with pytest.raises(Unavailable):
            next(client.events(patience=0))


def test_answers_may_grow_keys() -> None:
    health = e.HEALTH.adapter.validate_json(
        b'{"status": "ok", "problems": [], "version": "9", "seq": 1, "new": {}}'
    )
    assert health.version == "9"


# --- following ----------------------------------------------------------------------------

EVENT = ["id: 7", "event: entry", 'data: {"seq": 7, "time": 1, "event": "x"}']


def test_a_stream_is_read_line_by_line() -> None:
    following = Following(3)
    assert following.headers["Last-Event-ID"] == "3"
    assert [following.line(line) for line in [": ping", "", *EVENT]] == [None] * 5
    event = following.line("")
    assert event is not None
    assert (event.seq, event.event) == (7, "x")
    assert following.headers["Last-Event-ID"] == "7"


def test_half_an_event_of_a_broken_connection_is_forgotten() -> None:
    following = Following(None)
    for line in EVENT:
        following.line(line)
    following.begin()
    assert following.line("") is None
    assert following.after is None
    assert "Last-Event-ID" not in following.headers


def test_pauses_grow_to_a_limit_and_shrink_with_news() -> None:
    following = Following(None)
    pauses = [following.pause(Unavailable("away")) for _ in range(20)]
    assert pauses[0] <= 0.1
    assert LONGEST_PAUSE_S / 2 <= pauses[-1] <= LONGEST_PAUSE_S
    for line in [*EVENT, ""]:
        following.line(line)
    assert following.pause(None) <= 0.1


def test_patience_ends() -> None:
    following = Following(None, patience=1.0)
    waited = 0.0
    while waited < 1.0:
        waited += following.pause(None)
    with pytest.raises(Unavailable):
        following.pause(None)


@pytest.mark.parametrize("error", [Forbidden("no"), Unauthenticated("no"), Refusal("after", "x")])
def test_what_will_not_go_away_is_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        Following(None).pause(error)


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\r\n"))))
def test_any_lines_give_events_or_unavailable(lines: list[str]) -> None:
    following = Following(None)
    try:
        for line in lines:
            following.line(line)
    except Unavailable:
        assert any(line.startswith("data:") for line in lines)
