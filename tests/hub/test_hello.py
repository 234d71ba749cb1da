# SPDX-License-Identifier: BSD-3-Clause
"""A server whose environment lacks our package, in a real Hub: people learn what is missing."""

from __future__ import annotations

import logging

import pytest

from jupyter_gpubroker.wire import JobOut
from tests.until import until_async

from .brokers import Broker, Extension
from .mockhub import Hub

pytestmark = [pytest.mark.hub, pytest.mark.asyncio, pytest.mark.timeout(300)]


async def waits_for_the_package(broker: Broker, key: str) -> JobOut | None:
    """The session, once it says what is missing."""
    session = await broker.session(key)
    told = session is not None and session.why is not None and "install it" in session.why.text
    return session if told else None


class HubLog(logging.Handler):
    """What a Hub logs, whatever other Hubs of this process have made of its loggers."""

    def __init__(self, hub: Hub) -> None:
        super().__init__()
        self.lines: list[str] = []
        hub.app.log.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        self.lines.append(record.getMessage())


async def test_a_server_that_never_says_hello_is_told_of_in_the_queue_and_in_the_log(
    hub: Hub, broker: Broker
) -> None:
    await hub.start(hello_timeout=0.1)
    log = HubLog(hub)
    await hub.spawn("ana/", gpus="1")
    session = await until_async(lambda: waits_for_the_package(broker, "ana/"), what="the reason")
    assert session.state == "queued", "its GPU is not lost on a server that cannot use it"
    told = await until_async(
        lambda: [line for line in log.lines if "has not said hello" in line], what="the log"
    )
    assert len(told) == 1
    assert "ana" in told[0]
    assert hub.spawner("ana/").ready, "the server itself goes on"

    held = await Extension(broker, "ana/", hub.spawner("ana/").incarnation).hold()
    assert (held.id, held.state) == (session.id, "running")


async def test_in_start_mode_its_grant_goes_to_the_next(hub: Hub, broker: Broker) -> None:
    await hub.start(gpu_wait="start", hello_timeout=0.1)
    await hub.spawn("ana/", gpus="1")
    assert [job.state for job in await broker.ended("ana")] == ["cancelled"]
    await hub.spawn("bo/", gpus="1")
    session = await broker.session("bo/")
    assert session is not None


async def test_a_server_without_a_session_is_no_news(hub: Hub, broker: Broker) -> None:
    await hub.start(hello_timeout=0.1)
    log = HubLog(hub)
    await hub.spawn("ana/", gpus="none")
    spawner = hub.spawner("ana/")
    await until_async(lambda: spawner._hello_due < 0, what="the Hub to have asked")
    assert not any("hello" in line for line in log.lines)


async def test_a_server_that_has_said_hello_misses_nothing(hub: Hub, broker: Broker) -> None:
    await hub.start()
    await hub.spawn("ana/", gpus="1")
    spawner = hub.spawner("ana/")
    held = await Extension(broker, "ana/", spawner.incarnation).hold()
    assert not await spawner._asking().misses(spawner.incarnation)
    session = await broker.session("ana/")
    assert session is not None
    assert (session.id, session.state) == (held.id, "running")
