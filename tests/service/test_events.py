# SPDX-License-Identifier: BSD-3-Clause
"""The event stream: resume, gaps, several readers, and what each may read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.client import AsyncClient, Unauthenticated
from jupyter_gpubroker.core.events import Cancel
from jupyter_gpubroker.service.events import BEHIND_MAX, STREAMS_MAX
from jupyter_gpubroker.store import Writes
from jupyter_gpubroker.wire import EventOut
from tests.until import until_async

from .conftest import House
from .hub import OWN

Message = dict[str, Any]


async def messages(response: httpx.Response) -> AsyncIterator[Message]:
    """What a stream says: {"id", "event", "data"}, or {"": comment}."""
    message: Message = {}
    async for line in response.aiter_lines():
        if line:
            name, _, value = line.partition(": ")
            message[name] = json.loads(value) if name == "data" else value
        elif message:
            yield message
            message = {}


class Reader:
    """One open stream."""

    def __init__(self, http: httpx.AsyncClient, response: httpx.Response) -> None:
        self.http, self.response = http, response
        self._messages = messages(response)

    async def next(self) -> Message:
        """The next message."""
        return await asyncio.wait_for(anext(self._messages), 60)

    async def rest(self) -> list[Message]:
        """Everything up to the end of the stream."""
        async with asyncio.timeout(60):
            return [message async for message in self._messages]

    async def close(self) -> None:
        await self.response.aclose()
        await self.http.aclose()


async def open_stream(house: House, token: str, after: int | None = None, last: str = "") -> Reader:
    http = house.http(token)
    request = http.build_request(
        "GET",
        "api/v1/events",
        params={} if after is None else {"after": after},
        headers={"Last-Event-ID": last} if last else {},
    )
    response = await http.send(request, stream=True)
    assert response.status_code == 200, await response.aread()
    assert response.headers["Content-Type"] == "text/event-stream"
    return Reader(http, response)


async def seen(events: AsyncIterator[EventOut], count: int) -> list[EventOut]:
    """The next events of a client."""
    return [await asyncio.wait_for(anext(events), 60) for _ in range(count)]


@pytest.mark.asyncio
async def test_a_stream_says_where_it_begins_and_then_what_happens(house: House) -> None:
    ana = house.hub.user("ana")
    house.desk.stage.submit("ana")
    seq = house.desk.world.seq
    stream = await open_stream(house, ana)
    hello = await stream.next()
    assert (hello["event"], hello["id"], hello["data"]["seq"]) == ("hello", str(seq), seq)
    job = house.desk.stage.submit("ana", name="mine")
    house.desk.tell()
    entry = await stream.next()
    assert (entry["event"], entry["id"]) == ("entry", str(seq + 1))
    assert entry["data"]["event"] == "job.submitted"
    assert (entry["data"]["job"], entry["data"]["actor"]) == (job.id, "user:ana")
    await stream.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("header", [False, True])
async def test_a_reader_resumes_after_any_event_and_misses_none(house: House, header: bool) -> None:
    ana = house.hub.user("ana")
    house.desk.stage.submit("ana")
    house.desk.run(60)
    last = house.desk.world.seq
    assert last > 3
    for after in range(last + 1):
        place = {"last": str(after)} if header else {"after": after}
        stream = await open_stream(house, ana, **place)
        assert (await stream.next())["data"]["seq"] == after
        told = [(await stream.next())["data"]["seq"] for _ in range(last - after)]
        assert told == list(range(after + 1, last + 1))
        await stream.close()


@pytest.mark.asyncio
async def test_others_work_is_one_hint_without_a_word_about_it(house: House) -> None:
    ana, bob = house.hub.user("ana"), house.hub.user("bob")
    theirs = house.desk.stage.submit("bob", name="secret")
    middle = house.desk.stage.submit("ana")
    house.desk.run(60)
    readers = [await open_stream(house, token, 0) for token in (ana, bob)]
    told: list[list[Message]] = []
    for reader in readers:
        await reader.next()
        told.append([])
        while not told[-1] or told[-1][-1]["data"]["seq"] < house.desk.world.seq:
            told[-1].append(await reader.next())
        await reader.close()
    text = json.dumps(told[0])
    assert theirs.id not in text
    assert "bob" not in text
    assert "secret" not in text
    hints = [m["data"] for m in told[0] if m["data"]["event"] == "changed"]
    assert hints
    assert all({k for k, v in hint.items() if v} <= {"seq", "time", "event"} for hint in hints)
    # Neighbouring hints are one.
    events = [m["data"]["event"] for m in told[0]]
    assert "changed changed" not in " ".join(events)
    assert middle.id not in json.dumps(told[1])


@pytest.mark.asyncio
@pytest.mark.parametrize("who", ["eve", "hub"])
async def test_admins_and_the_hub_read_everything(house: House, who: str) -> None:
    token = house.hub.user("eve", admin=True) if who == "eve" else OWN
    job = house.desk.stage.submit("bob")
    stream = await open_stream(house, token, 0)
    await stream.next()
    assert (await stream.next())["data"]["job"] == job.id
    await stream.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("after", [0, BEHIND_MAX * 10])
async def test_who_is_too_far_away_is_told_to_load_again(house: House, after: int) -> None:
    ana = house.hub.user("ana")
    house.desk.add_entries(BEHIND_MAX + 1, "ana")
    stream = await open_stream(house, ana, after)
    assert (await stream.next())["event"] == "hello"
    gap = await stream.next()
    assert (gap["event"], gap["data"]["seq"]) == ("gap", house.desk.world.seq)
    house.desk.stage.submit("ana")
    house.desk.tell()
    assert (await stream.next())["data"]["event"] == "job.submitted"
    await stream.close()


@pytest.mark.asyncio
async def test_who_asks_for_what_was_forgotten_is_told_to_load_again(house: House) -> None:
    ana, desk = house.hub.user("ana"), house.desk
    for _ in range(2):
        desk.stage.submit("ana")
    assert desk.world.seq > 2
    desk.stage.store.commit(Writes(forget_before=desk.stage.now + 1))
    stream = await open_stream(house, ana, desk.world.seq - 2)
    assert (await stream.next())["event"] == "hello"
    gap = await stream.next()
    assert (gap["event"], gap["data"]["seq"]) == ("gap", desk.world.seq)
    desk.stage.submit("ana")
    desk.tell()
    assert (await stream.next())["data"]["event"] == "job.submitted"
    await stream.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("value", ["x", "-1", "1.5", "", "9" * 30])
async def test_a_place_that_is_none_is_refused(house: House, value: str) -> None:
    async with house.http(house.hub.user("ana")) as http:
        response = await http.get("api/v1/events", params={"after": value})
        assert response.status_code == 400
        assert response.json()["field"] == "after"
        if value:
            response = await http.get("api/v1/events", headers={"Last-Event-ID": value})
            assert (response.status_code, response.json()["field"]) == (400, "Last-Event-ID")


@pytest.mark.asyncio
async def test_a_quiet_stream_shows_that_it_lives(house: House) -> None:
    house.url = house.listen(house.hub_auth(), heartbeat=0.01)
    stream = await open_stream(house, house.hub.user("ana"))
    await stream.next()
    assert (await stream.next()) == {"": "ping"}
    await stream.close()


@pytest.mark.asyncio
async def test_a_stream_ends_with_its_token(house: House) -> None:
    house.url = house.listen(house.hub_auth(), heartbeat=0.01)
    token = house.hub.user("ana")
    stream = await open_stream(house, token)
    await stream.next()
    del house.hub.tokens[token]
    house.now = 1000.0
    assert all(message == {"": "ping"} for message in await stream.rest())
    await stream.close()


@pytest.mark.asyncio
async def test_a_stream_outlives_a_hub_that_is_down(house: House) -> None:
    house.url = house.listen(house.hub_auth(), heartbeat=0.01)
    stream = await open_stream(house, house.hub.user("ana"))
    await stream.next()
    await house.hub.down()
    house.now = 1000.0
    for _ in range(5):
        assert (await stream.next()) == {"": "ping"}
    await stream.close()


@pytest.mark.asyncio
async def test_one_user_cannot_hold_streams_without_end(house: House) -> None:
    ana, bob = house.hub.user("ana"), house.hub.user("bob")
    streams = [await open_stream(house, ana) for _ in range(STREAMS_MAX)]
    async with house.http(ana) as http:
        response = await http.get("api/v1/events")
    assert (response.status_code, response.json()["error"]) == (429, "limit")
    await (await open_stream(house, bob)).close()
    await streams.pop().close()

    async def admitted() -> bool:
        async with house.http(ana) as http, http.stream("GET", "api/v1/events") as response:
            return response.status_code == 200

    await until_async(admitted, what="the place of a closed stream is free again")
    for stream in streams:
        await stream.close()


# --- the client's side --------------------------------------------------------------------


@pytest.mark.asyncio
async def test_two_clients_follow_and_both_see_all(house: House) -> None:
    tokens = (house.hub.user("ana"), house.hub.user("bob"))
    streams = [house.client(token).events() for token in tokens]
    for stream in streams:
        assert [event.event for event in await seen(stream, 1)] == ["hello"]
    job = house.desk.stage.submit("ana")
    house.desk.tell()
    mine, theirs = [(await seen(stream, 1))[0] for stream in streams]
    assert (mine.event, mine.job) == ("job.submitted", job.id)
    assert (theirs.event, theirs.job, theirs.seq) == ("changed", "", house.desk.world.seq)


@pytest.mark.asyncio
async def test_a_client_goes_on_over_a_broker_that_restarts(house: House) -> None:
    client = house.client(house.hub.user("ana"))
    events = client.events()
    await seen(events, 1)
    first = house.desk.stage.submit("ana")
    house.desk.tell()
    told = await seen(events, 1)
    assert told[0].job == first.id
    # The broker goes away; things happen; another one listens at the same address.
    (server,) = house.servers
    port = int(client.address.base.rpartition(":")[2].partition("/")[0])
    server.stop()
    await server.close_all_connections()
    missed = house.desk.stage.submit("ana")
    house.serve(house.hub_auth(), "/services/gpubroker/").listen(port, "127.0.0.1")
    seqs = [told[-1].seq]
    while seqs[-1] < house.desk.world.seq:
        (event,) = await seen(events, 1)
        if event.event != "hello":
            seqs.append(event.seq)
            told.append(event)
    assert seqs == list(range(seqs[0], house.desk.world.seq + 1))
    assert missed.id in [event.job for event in told]


@pytest.mark.asyncio
async def test_a_client_does_not_try_again_what_cannot_succeed(house: House) -> None:
    events = house.client("unknown").events()
    with pytest.raises(Unauthenticated):
        await anext(events)


@pytest.mark.asyncio
async def test_leaving_a_stream_leaves_nothing_behind_in_the_service(house: House) -> None:
    ana = house.hub.user("ana")
    async with AsyncClient(house.url, ana) as client:
        events = client.events()
        await anext(events)
        assert house.desk.readers() == 1
        await events.aclose()  # type: ignore[attr-defined]
    readers = house.desk.readers
    await until_async(lambda: not readers(), what="the stream is closed")


@pytest.mark.asyncio
async def test_events_of_what_one_asked_come_before_nothing_else(house: House) -> None:
    """The answer to a question is given after its entry can be read."""
    ana = house.client(house.hub.user("ana"))
    job = house.desk.stage.submit("ana")
    after = house.desk.world.seq
    await ana.cancel(job.id)
    events = ana.events(after)
    hello, entry = await seen(events, 2)
    assert hello.event == "hello"
    assert (entry.event, entry.actor) == ("job.cancel-asked", "user:ana")
    with pytest.raises(i.Unknown):
        await house.desk.ask(i.Ask("user:ana", "b-nothing", Cancel()))
