# SPDX-License-Identifier: BSD-3-Clause
"""Every principal on every endpoint, on work of its own and of others.

What is expected is written down here and not read from the code; a route that is
missing here fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from jupyter_gpubroker import policy
from jupyter_gpubroker.core.model import Job
from jupyter_gpubroker.service.base import Route
from jupyter_gpubroker.service.routes import ROUTES
from jupyter_gpubroker.wire import endpoints as e

from .conftest import House
from .hub import OWN

# What every principal may do on the targets below; the word says how it is refused.
PRINCIPALS = (
    "nobody",  # no token
    "stranger",  # a token that the Hub does not know
    "unscoped",  # ana's, without the scope to use the broker
    "hub",
    "ana",  # her default server's token
    "ana-two",  # her server two's
    "ana-bare",  # made by hand: names no server
    "bob",
    "eve",  # an admin's token that carries the admin scope
    "eve-server",  # an admin's server token: the model's admin flag is true, no scope
)
KNOWN = ("hub", "ana", "ana-two", "ana-bare", "bob", "eve", "eve-server")

Expected = dict[str, int]


def _expect(yes: tuple[str, ...], no: int = 403, **more: int) -> Expected:
    """200 for ``yes``, ``no`` for the other known ones."""
    strangers = {"nobody": 401, "stranger": 401, "unscoped": 403}
    known = {name: 200 if name in yes else no for name in KNOWN}
    return strangers | known | {name.replace("_", "-"): status for name, status in more.items()}


EVERYBODY = dict.fromkeys(PRINCIPALS, 200)
USERS = _expect(KNOWN)
OWN_JOB = _expect(("hub", "ana", "ana-two", "ana-bare", "eve"), no=404)
OWN_SESSION = _expect(("hub", "ana", "ana-bare", "eve"), no=404, ana_two=403)
HOLDER = _expect(("hub", "ana"), no=404, ana_two=403, ana_bare=403, eve=403)
OWN_SERVER = _expect(("hub", "ana", "bob", "eve-server"))
HUB = _expect(("hub",))
ADMIN = _expect(("eve",))


@dataclass(frozen=True)
class Sample:
    """How an endpoint is called, and what comes of it."""

    expected: Expected
    body: Mapping[str, Any] | None = None
    target: str = "batch"
    """Whose id stands in the path: ana's batch job or ana's session."""
    server: bool = False
    """The input names a server: the Hub has to name its user."""


SHELL = {"argv": ["true"]}
HOLDS = {"host": "h", "boot": "b", "pid": 5, "start": 7}
NEWEST = {"incarnation": 1}
SAMPLES: Mapping[e.Endpoint[Any], tuple[Sample, ...]] = {
    e.HEALTH: (Sample(EVERYBODY),),
    e.OPENAPI: (Sample(EVERYBODY),),
    e.ME: (Sample(USERS),),
    e.SUBMIT: (Sample(USERS | {"hub": 403}, SHELL),),
    e.SUBMIT_LIST: (Sample(USERS | {"hub": 403}, {"jobs": [SHELL]}),),
    e.JOBS: (Sample(USERS),),
    e.SHOW: (Sample(OWN_JOB), Sample(OWN_JOB, target="session")),
    e.EXPLAIN: (Sample(OWN_JOB), Sample(OWN_JOB, target="session")),
    e.CANCEL: (Sample(OWN_JOB, {}), Sample(OWN_SESSION, {}, "session")),
    e.EXTEND: (
        Sample(OWN_JOB, {"time": "1m"}),
        Sample(OWN_SESSION, {"time": "1m"}, "session"),
    ),
    e.LOGS: (Sample(OWN_JOB), Sample(OWN_JOB, target="session")),
    e.OPEN: (
        Sample(OWN_SERVER, {"request": {"gpus": 1}} | NEWEST, server=True),
        Sample(HUB, NEWEST | {"attach": False, "binding": "server"}, server=True),
    ),
    e.SESSIONS: (Sample(USERS),),
    e.RELEASE: (Sample(OWN_SESSION, {}, "session"),),
    e.PARK: (Sample(OWN_SESSION, {}, "session"),),
    e.RESUME: (Sample(OWN_SESSION, {}, "session"),),
    e.KEEP: (Sample(OWN_SESSION, {}, "session"),),
    e.DISCARD: (Sample(OWN_SESSION, {}, "session"),),
    e.PROLONG: (Sample(OWN_SESSION, {"time": "1m"}, "session"),),
    e.WAITS: (Sample(HUB, {}, "session"), Sample(HUB | {"hub": 404}, {})),
    e.STARTED: (Sample(HOLDER, {"attempt": 1}, "session"),),
    e.HELLO: (Sample(OWN_SERVER, HOLDS | NEWEST, server=True),),
    e.ACTIVITY: (Sample(OWN_SERVER, NEWEST, server=True),),
    e.STATE: (Sample(OWN_SERVER, server=True),),
    e.GONE: (Sample(HUB, {"how": "stopped", "user": "ana", "incarnation": 1}),),
    e.QUEUE: (Sample(USERS),),
    e.NODES: (Sample(USERS),),
    e.SHAPES: (Sample(USERS),),
    e.POLICY: (Sample(USERS),),
    e.APPLY: (Sample(ADMIN, {"document": policy.DEFAULT_DOCUMENT}),),
    e.CHECK: (Sample(USERS, {"document": policy.DEFAULT_DOCUMENT}),),
    e.EVENTS: (Sample(USERS),),
}


def tokens(house: House) -> dict[str, str]:
    """Principal -> its token."""
    hub = house.hub
    return {
        "nobody": "",
        "stranger": "who-is-this",
        "unscoped": hub.user("ana", "unscoped", server="", use=False),
        "hub": OWN,
        "ana": hub.user("ana", "ana", server=""),
        "ana-two": hub.user("ana", "ana-two", server="two"),
        "ana-bare": hub.user("ana", "ana-bare"),
        "bob": hub.user("bob", "bob", server=""),
        "eve": hub.user("eve", "eve", admin=True, flag=True),
        "eve-server": hub.user("eve", "eve-server", server="", flag=True),
    }


def targets(house: House) -> dict[str, Job]:
    """Ana's work, running."""
    stage = house.desk.stage
    batch = stage.submit("ana", lasts=10_000)
    session = stage.session("ana", gpus=1)
    stage.run(5)
    return {"batch": stage.job(batch.id), "session": stage.job(session.id)}


async def call(http: httpx.AsyncClient, route: Route, sample: Sample, job: Job, user: str) -> int:
    """Call an endpoint; the status, of a stream without reading it to its end."""
    endpoint = route.endpoint
    path = endpoint.path.replace(e.JOB, job.id).lstrip("/")
    named = {"user": user} if sample.server and user else {}
    body = None if sample.body is None else {**sample.body, **named}
    params = named if body is None else {}
    request = http.build_request(endpoint.method, path, json=body, params=params)
    response = await http.send(request, stream=True)
    try:
        if response.status_code >= 400 or not endpoint.stream:
            text = await response.aread()
            assert "login" not in text.decode()
        return response.status_code
    finally:
        await response.aclose()


CASES = [
    pytest.param(route, sample, who, id=f"{who} {route.endpoint.method} {route.endpoint.path} {n}")
    for route in ROUTES
    for n, sample in enumerate(SAMPLES[route.endpoint])
    for who in PRINCIPALS
]


def test_every_route_is_in_the_matrix() -> None:
    assert {id(route.endpoint) for route in ROUTES} == {id(endpoint) for endpoint in SAMPLES}
    for samples in SAMPLES.values():
        assert all(set(sample.expected) == set(PRINCIPALS) for sample in samples)


@pytest.mark.asyncio
@pytest.mark.parametrize(("route", "sample", "who"), CASES)
async def test_only_the_right_ones_get_through(
    house: House, route: Route, sample: Sample, who: str
) -> None:
    token = tokens(house)[who]
    job = targets(house)[sample.target]
    seq, before = house.desk.world.seq, dict(house.desk.world.jobs)
    async with house.http(token) as http:
        status = await call(http, route, sample, job, "ana" if who == "hub" else "")
    expected = sample.expected[who]
    assert (status if status >= 400 else 200) == expected
    if expected >= 400:
        assert (house.desk.world.seq, house.desk.world.jobs) == (seq, before)


@pytest.mark.asyncio
@pytest.mark.parametrize("who", ["ana", "eve", "bob"])
@pytest.mark.parametrize("path", ["servers/hello", "servers/activity", "sessions"])
async def test_only_the_hub_names_another_user(house: House, who: str, path: str) -> None:
    token = tokens(house)[who]
    body: dict[str, Any] = {"user": "carl"} | (HOLDS if path == "servers/hello" else {})
    async with house.http(token) as http:
        response = await http.post(f"api/v1/{path}", json=body)
    assert response.status_code == 403
    assert "user" in response.json()["message"]
    assert not house.desk.world.jobs


@pytest.mark.asyncio
async def test_everybodys_work_is_listed_for_admins_only(house: House) -> None:
    known = tokens(house)
    targets(house)
    for path in ("jobs", "sessions"):
        for who, status, count in (("bob", 403, 0), ("eve", 200, 1), ("hub", 200, 1)):
            async with house.http(known[who]) as http:
                response = await http.get(f"api/v1/{path}", params={"all": "1"})
            assert response.status_code == status
            assert status == 403 or len(response.json()) >= count
        async with house.http(known["bob"]) as http:
            assert (await http.get(f"api/v1/{path}")).json() == []
