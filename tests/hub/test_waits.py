# SPDX-License-Identifier: BSD-3-Clause
"""A start that waits at a Hub which is killed: its place, and who has it after that."""

from __future__ import annotations

import asyncio
import logging

import pytest

from jupyter_gpubroker.broker.waits import KEPT_S, QUIET_S
from jupyter_gpubroker.spawner.asking import Asking
from jupyter_gpubroker.spawner.wish import Wish
from jupyter_gpubroker.wire import JobOut
from tests.until import until_async

from .brokers import Broker
from .mockhub import Hub

pytestmark = [pytest.mark.hub, pytest.mark.asyncio, pytest.mark.timeout(300)]


async def wait_and_vanish(broker: Broker, key: str) -> JobOut:
    """What is left of a Hub that was killed while the start ``user/name`` waited."""
    user, _, server = key.partition("/")
    asking = Asking(broker.url, str(broker.token_file), user, server, logging.getLogger(__name__))
    place = await asking.open(Wish("1"), 1, attach=False)
    waiting = asyncio.create_task(asking.until_granted(place, lambda *_: None))
    for _ in range(2):
        broker.ahead += QUIET_S - 1
        await asked_after(broker, place, broker.now)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return place


async def asked_after(broker: Broker, place: JobOut, when: float) -> None:
    """Wait until the Hub has said that it still waits."""
    assert broker.shell is not None
    asked = broker.shell.world.asked
    await until_async(lambda: asked[place.id] > when, what="the spawner to say that it waits")


async def test_a_start_whose_hub_was_killed_is_granted_nothing_and_is_there_when_it_is_back(
    hub: Hub, broker: Broker
) -> None:
    rival = await broker.take_all()
    place = await wait_and_vanish(broker, "ana/")
    waits = await broker.session("ana/")
    assert waits is not None
    assert waits.why is not None
    assert "rival" in waits.why.text, "it was asked for until now"

    broker.ahead += QUIET_S
    await until_async(lambda: nobody_asks(broker, "ana/"), what="the broker to notice")
    await broker.client().release(rival.id)
    await until_async(lambda: free(broker), what="the GPU to be free")
    assert await nobody_asks(broker, "ana/"), (
        "a free GPU is not given to a server that is not there"
    )

    await hub.start(gpu_wait="start")
    assert (await hub.spawn("ana/", gpus="1")).status_code == 201
    session = await broker.session("ana/")
    assert session is not None
    assert session.id == place.id
    assert session.lease is not None


async def test_a_start_whose_hub_stays_away_is_given_up_and_says_so(broker: Broker) -> None:
    await broker.take_all()
    place = await wait_and_vanish(broker, "ana/")
    broker.ahead += KEPT_S
    (ended,) = await broker.ended("ana")
    assert (ended.id, ended.state) == (place.id, "cancelled")
    assert "its Hub has not asked" in ended.outcome


async def nobody_asks(broker: Broker, key: str) -> bool:
    session = await broker.session(key)
    why = None if session is None else session.why
    return why is not None and "no longer asks" in why.text and why.until is not None


async def free(broker: Broker) -> bool:
    (node,) = await broker.client().nodes()
    return [device.free_milli for device in node.devices] == [1000]
