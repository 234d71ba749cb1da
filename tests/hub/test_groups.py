# SPDX-License-Identifier: BSD-3-Clause
"""Groups of the Hub decide the queue of what their users ask for."""

from __future__ import annotations

import pytest

from jupyter_gpubroker.client import AsyncClient
from jupyter_gpubroker.service.auth import principal_of
from jupyter_gpubroker.wire.endpoints import USE

from .brokers import ADMIN_TOKEN, POLICY, Broker
from .mockhub import Hub

pytestmark = [pytest.mark.hub, pytest.mark.asyncio, pytest.mark.timeout(300)]

QUEUES = "groups: {vision: vision}\nqueues:\n  vision: {groups: [vision]}\n"


async def test_a_session_waits_in_the_queue_of_its_users_group(hub: Hub, broker: Broker) -> None:
    async with AsyncClient(broker.url, ADMIN_TOKEN) as admin:
        await admin.apply_policy(POLICY.replace("queues:\n", QUEUES))
    await hub.start()
    await hub.join("ana", "vision")
    for user in ("ana", "bo"):
        assert (await hub.spawn(f"{user}/", gpus="1")).status_code == 201
    sessions = [await broker.session(f"{user}/") for user in ("ana", "bo")]
    assert [session and session.queue for session in sessions] == ["vision", "default"]


async def test_the_hub_tells_the_groups_of_a_user_with_every_token(hub: Hub) -> None:
    await hub.start()
    await hub.join("ana", "vision")
    token = hub.app.users["ana"].new_api_token(scopes=["self"])
    model = await hub.model(token)
    assert principal_of({**model, "scopes": [USE]}).groups == ("vision",)
