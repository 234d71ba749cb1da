# SPDX-License-Identifier: BSD-3-Clause
"""The spawner in a real Hub, in front of the real broker; servers are real processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from jupyter_gpubroker.wire import JobOut
from tests.until import until_async

from .brokers import Broker, Extension
from .mockhub import CannotStartGPU, Hub, NeverStartsGPU

pytestmark = [pytest.mark.hub, pytest.mark.asyncio, pytest.mark.timeout(300)]


async def test_in_attach_mode_a_server_starts_at_once_and_its_session_waits_for_it(
    hub: Hub, broker: Broker
) -> None:
    await broker.take_all()
    await hub.start()
    answer = await hub.spawn("ana/", gpus="0.5", time="1h")
    assert answer.status_code == 201, answer.text
    session = await broker.session("ana/")
    assert session is not None
    assert (session.state, session.request.gpu_milli, session.request.time_limit) == (
        "queued",
        500,
        3600,
    )
    told = hub.environment("ana/")
    assert told["GPUBROKER_URL"] == broker.url
    assert told["GPUBROKER_SESSION"] == "ana/"
    assert told["GPUBROKER_INCARNATION"] == str(session.incarnation)


async def test_a_start_without_a_gpu_asks_for_none_and_still_names_the_server(
    hub: Hub, broker: Broker
) -> None:
    await hub.start()
    assert (await hub.spawn("ana/")).status_code == 201
    assert await broker.history("ana") == []
    assert hub.environment("ana/")["GPUBROKER_SESSION"] == "ana/"


async def test_in_start_mode_the_start_waits_and_says_for_whom(hub: Hub, broker: Broker) -> None:
    rival = await broker.take_all()
    await hub.start(gpu_wait="start", slow=1)
    assert (await hub.spawn("ana/", gpus="1")).status_code == 202
    lines = []

    async def listen() -> None:
        async for line in hub.progress("ana/"):
            lines.append(line)

    listening = asyncio.create_task(listen())
    waiting = await until_async(
        lambda: next((line for line in lines if "Position 1" in line["message"]), None),
        what="the page to say the position",
    )
    assert "rival" in waiting["message"]
    assert hub.spawner("ana/").pid == 0, "nothing of the server runs yet"
    assert await hub.spawner("ana/").poll() is None, "it has not failed"
    # A Hub that is killed now must know the number of this start.
    session = await broker.session("ana/")
    assert session is not None
    assert hub.stored_state("ana/") == {"gpubroker": {"incarnation": session.incarnation}}

    await broker.client().release(rival.id)
    await asyncio.wait_for(listening, 120)
    assert lines[-1].get("ready"), lines
    assert any("yours until" in line["message"] for line in lines), lines
    session = await broker.session("ana/")
    assert session is not None
    assert session.lease is not None, "the lease was there before the server was"


async def test_a_cancelled_wait_leaves_nothing_behind(hub: Hub, broker: Broker) -> None:
    await broker.take_all()
    await hub.start(gpu_wait="start", slow=1)
    assert (await hub.spawn("ana/", gpus="1")).status_code == 202
    await until_async(lambda: broker.session("ana/"), what="a place in the queue")
    assert (await hub.cancel("ana/")).status_code in (202, 204)
    assert [job.state for job in await broker.ended("ana")] == ["cancelled"]
    await until_async(lambda: not hub.spawner("ana/").active, what="the Hub to be done")
    answer = await hub.spawn("ana/")
    assert answer.status_code in (201, 202), "the account can start a server again"
    await hub.ready("ana/")


async def test_a_wish_that_cannot_be_met_is_refused_with_the_field_and_the_remedy(
    hub: Hub, broker: Broker
) -> None:
    await hub.start()
    wishes: dict[str, dict[str, object]] = {
        "half": {"gpus": "half"},
        "must be a text": {"gpus": True},
        "nearest": {"gpus": 9},
        "more than 0": {"gpus": -1},
        "NaN": {"gpus": "NaN"},
        "366 days": {"gpus": 1, "time": "1000000000h"},
        "one of: default": {"gpus": 1, "queue": "nowhere"},
        "discard": {"gpus": 1, "discard": "yes"},
    }
    for word, options in wishes.items():
        answer = await hub.spawn("ana/", **options)
        assert (answer.status_code, word in answer.json()["message"]) == (400, True), answer.text
        refusal = hub.refusal("ana/")
        assert refusal.reason == "gpu-refused"
        assert refusal.message == answer.json()["message"]
    assert await broker.history("ana") == []
    assert hub.app.tornado_settings.get("failure_count", 0) == 0, "it is no failure of the Hub"


async def test_two_servers_of_one_user_have_two_sessions(hub: Hub, broker: Broker) -> None:
    await hub.start()
    for key in ("ana/one", "ana/two"):
        assert (await hub.spawn(key, gpus="0.5")).status_code == 201
    one, two = await broker.session("ana/one"), await broker.session("ana/two")
    assert one is not None
    assert two is not None
    assert one.id != two.id
    assert hub.environment("ana/two")["GPUBROKER_SESSION"] == "ana/two"

    await hub.cancel("ana/one")
    await until_async(lambda: _gone(broker, "ana/one"), what="the first session to end")
    kept = await broker.session("ana/two")
    assert kept is not None
    assert kept.id == two.id


async def _gone(broker: Broker, key: str) -> bool:
    return await broker.session(key) is None


async def test_stop_releases_the_gpu(hub: Hub, broker: Broker) -> None:
    await hub.start()
    await hub.spawn("ana/", gpus="1")
    held = await Extension(broker, "ana/", hub.spawner("ana/").incarnation).hold()
    assert held.state == "running"
    await hub.cancel("ana/")
    assert [job.outcome for job in await broker.ended("ana")] == ["released"]


async def test_a_killed_server_does_not_leak_its_lease(hub: Hub, broker: Broker) -> None:
    """``poll()`` of a dead process clears the state, and ``stop()`` is never called."""
    await hub.start()
    await hub.spawn("ana/", gpus="1")
    await Extension(broker, "ana/", hub.spawner("ana/").incarnation).hold()
    hub.kill("ana/")
    assert [job.state for job in await broker.ended("ana")] == ["completed"]


async def test_a_server_that_died_and_starts_again_in_time_keeps_its_lease(
    hub: Hub, broker: Broker
) -> None:
    await broker.change_policy("holder_grace: 1s", "holder_grace: 10m")
    await hub.start()
    await hub.spawn("ana/", gpus="1")
    before = await Extension(broker, "ana/", hub.spawner("ana/").incarnation).hold()
    hub.kill("ana/")
    await until_async(lambda: _in(broker, "ana/", "draining"), timeout=120, what="the notice")
    await until_async(lambda: not hub.spawner("ana/").active, what="the Hub to see it")
    assert (await hub.spawn("ana/", gpus="1")).status_code == 201
    after = await Extension(broker, "ana/", hub.spawner("ana/").incarnation).hold()
    assert (after.id, after.attempt, after.state) == (before.id, before.attempt, "running")
    assert after.incarnation > before.incarnation


async def _in(broker: Broker, key: str, state: str) -> bool:
    session = await broker.session(key)
    return session is not None and session.state == state


async def test_a_server_that_cannot_start_leaves_no_session(hub: Hub, broker: Broker) -> None:
    await hub.start(spawner_class=CannotStartGPU)
    assert (await hub.spawn("ana/", gpus="1")).status_code == 500
    assert [job.state for job in await broker.ended("ana")] == ["completed"]


async def test_a_server_that_does_not_come_up_has_a_limit_of_its_own(
    hub: Hub, broker: Broker
) -> None:
    await hub.start(spawner_class=NeverStartsGPU, server_start_timeout=0.5, gpu_wait="start")
    answer = await hub.spawn("ana/", gpus="1")
    assert answer.status_code == 500
    error = hub.spawner("ana/")._spawn_future.exception()
    assert "server_start_timeout" in error.jupyterhub_message
    assert len(await broker.ended("ana")) == 1


async def test_without_a_broker_a_gpu_is_refused_and_a_server_without_one_starts(
    hub: Hub, broker: Broker
) -> None:
    await hub.start()
    await broker.stop()
    answer = await hub.spawn("ana/", gpus="1")
    assert answer.status_code == 503
    assert "no GPU to start without one" in answer.json()["message"]
    assert "does not answer" in await hub.spawner("ana/").get_options_form()
    assert (await hub.spawn("ana/", gpus="none")).status_code == 201


async def test_a_stop_that_the_broker_misses_is_told_when_it_is_back(
    hub: Hub, broker: Broker
) -> None:
    await hub.start()
    await hub.spawn("ana/", gpus="1")
    await Extension(broker, "ana/", hub.spawner("ana/").incarnation).hold()
    await broker.stop()
    await hub.cancel("ana/")
    await until_async(lambda: "" not in hub.app.users["ana"].spawners, what="the server to stop")
    await broker.start()
    assert [job.state for job in await broker.ended("ana")] == ["completed"]


async def test_a_start_without_a_gpu_ends_the_session_of_the_server_before(
    hub: Hub, broker: Broker
) -> None:
    await broker.change_policy("holder_grace: 1s", "holder_grace: 10m")
    await hub.start()
    await hub.spawn("ana/", gpus="1")
    await Extension(broker, "ana/", hub.spawner("ana/").incarnation).hold()
    hub.kill("ana/")
    await until_async(lambda: _in(broker, "ana/", "draining"), timeout=120, what="the notice")
    await until_async(lambda: not hub.spawner("ana/").active, what="the Hub to see it")
    assert (await hub.spawn("ana/", gpus="none")).status_code == 201
    assert [job.state for job in await broker.ended("ana")] == ["completed"]


async def test_a_wait_outlives_a_restart_of_the_broker(hub: Hub, broker: Broker) -> None:
    rival = await broker.take_all()
    await hub.start(gpu_wait="start", slow=1)
    await hub.spawn("ana/", gpus="1")
    place = await until_async(lambda: broker.session("ana/"), what="a place in the queue")
    await broker.stop()
    await broker.start()
    await broker.client().release(rival.id)
    await hub.ready("ana/")
    granted = await broker.session("ana/")
    assert granted is not None
    assert granted.id == place.id


async def test_a_session_that_is_cancelled_ends_the_wait_with_a_word(
    hub: Hub, broker: Broker
) -> None:
    await broker.take_all()
    await hub.start(gpu_wait="start", slow=1)
    await hub.spawn("ana/", gpus="1")
    place = await until_async(lambda: broker.session("ana/"), what="a place in the queue")
    listening = asyncio.create_task(_lines(hub, "ana/"))
    await broker.client().cancel(place.id)
    lines = await asyncio.wait_for(listening, 120)
    assert lines[-1]["failed"]
    assert lines[-1]["message"].startswith("Spawn failed: No GPU: the session"), lines
    assert "cancelled" in hub.refusal("ana/").message


async def _lines(hub: Hub, key: str) -> list[dict[str, Any]]:
    return [line async for line in hub.progress(key)]


async def test_what_is_parked_is_discarded_once_and_not_at_the_next_start(
    hub: Hub, broker: Broker
) -> None:
    await broker.change_policy("holder_grace: 1s", "holder_grace: 10m")
    await hub.start()
    await hub.spawn("ana/", gpus="1")
    await Extension(broker, "ana/", hub.spawner("ana/").incarnation).hold()
    held = await broker.session("ana/")
    assert held is not None
    await broker.client().park(held.id)
    parked = await until_async(lambda: _parked(broker, "ana/"), timeout=120, what="it to be parked")
    hub.kill("ana/")
    await until_async(lambda: not hub.spawner("ana/").active, what="the Hub to see it")

    await hub.spawn("ana/", gpus="1", discard=True)
    ended = await broker.client().show(parked.id)
    assert ended.state in ("cancelled", "completed")
    fresh = await broker.session("ana/")
    assert fresh is not None
    assert fresh.id != parked.id
    assert hub.spawner("ana/").orm_spawner.user_options == {"gpus": "1"}


async def _parked(broker: Broker, key: str) -> JobOut | None:
    session = await broker.session(key)
    return session if session is not None and session.state == "parked" else None
