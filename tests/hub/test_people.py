# SPDX-License-Identifier: BSD-3-Clause
"""Whom a Hub says that it knows, and what nobody may conclude from its silence."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from jupyter_gpubroker import policy
from jupyter_gpubroker.app.people import People
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.broker.world import World
from jupyter_gpubroker.core.model import Job, Kind, Request, State
from jupyter_gpubroker.store.memory import MemoryStore

from .mockhub import TOKEN, Hub

pytestmark = [pytest.mark.hub, pytest.mark.asyncio, pytest.mark.timeout(300)]


class Asking:
    """A broker's world, and what it is told of its users."""

    def __init__(self, url: str, token: str, *users: str) -> None:
        self.world = World.of(MemoryStore().open(), policy.default(), 0.0)
        for number, user in enumerate(users):
            self.add(f"b-{number}", user)
        self.told: list[i.Fact] = []
        headers = {"Authorization": f"token {token}"}
        self.http = httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=60)
        self.people = People(lambda: self.world, self.told.append, self.http)

    def add(self, job: str, user: str, state: State = State.QUEUED) -> None:
        """A job of that user."""
        made = Job(job, Kind.BATCH, user, "default", "batch", Request(gpus=1), state=state)
        self.world.put(made)


@pytest_asyncio.fixture
async def known(hub: Hub) -> AsyncIterator[Hub]:
    """A Hub that knows ana and bo."""
    await hub.start()
    for user in ("ana", "bo@lab"):
        await hub.add(user)
    yield hub


async def test_users_that_are_not_there_are_told_and_no_others(known: Hub) -> None:
    asking = Asking(f"{known.app.hub.url}api", TOKEN, "ana", "bo@lab", "service:cron")
    await asking.people.look()
    assert asking.told == []
    asking.add("b-gone", "gone%2Fcy")
    asking.add("b-other", "gone%2Fcy")
    asking.add("b-ended", "dee", State.COMPLETED)
    await asking.people.look()
    assert asking.told == [i.UsersGone(("gone%2Fcy",))]


async def test_a_token_that_may_not_see_users_proves_nothing(known: Hub) -> None:
    token = known.app.users["ana"].new_api_token(scopes=["self"])
    asking = Asking(f"{known.app.hub.url}api", token, "bo@lab")
    with pytest.raises(httpx.HTTPError, match="lacks read:users:name"):
        await asking.people.look()
    assert asking.told == []


@pytest.mark.parametrize("path", ["api", "nowhere"])
async def test_a_hub_that_does_not_answer_proves_nothing(known: Hub, path: str) -> None:
    asking = Asking(f"{known.app.hub.url}{path}", "no-token-of-this-hub", "gone")
    with pytest.raises(httpx.HTTPError):
        await asking.people.look()
    assert asking.told == []


async def test_nobody_is_asked_where_nobody_has_a_job() -> None:
    asking = Asking("http://127.0.0.1:1", TOKEN)
    await asking.people.look()
