# SPDX-License-Identifier: BSD-3-Clause
"""Who asks: tokens against a Hub that answers, is slow or is down; peers by their uid."""

from __future__ import annotations

import asyncio
import grp
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from jupyter_gpubroker.service.auth import (
    FRESH_S,
    USE_ALL,
    Forbidden,
    PeerAuth,
    PrincipalKind,
    account,
    groups_of,
    principal_of,
)
from jupyter_gpubroker.wire.endpoints import ADMIN, USE
from tests import needs

from .conftest import House
from .hub import OWN

SUBMIT = {"argv": ["true"]}


async def get(house: House, token: str, path: str = "queue") -> httpx.Response:
    async with house.http(token) as http:
        return await http.get(f"api/v1/{path}")


async def submit(house: House, token: str) -> httpx.Response:
    async with house.http(token) as http:
        return await http.post("api/v1/jobs", json=SUBMIT)


# --- what a token's scopes say ------------------------------------------------------------


def test_only_the_scope_makes_an_admin() -> None:
    flagged = principal_of({"kind": "user", "name": "eve", "admin": True, "scopes": [USE]})
    assert (flagged.admin, flagged.kind, flagged.sees_all) == (False, PrincipalKind.USER, False)
    scoped = principal_of({"kind": "user", "name": "eve", "admin": False, "scopes": [USE, ADMIN]})
    assert (scoped.admin, scoped.actor) == (True, "admin:eve")


@pytest.mark.parametrize("scopes", [[], [ADMIN], ["access:services!service=other"]])
def test_a_token_without_our_scope_is_nobody(scopes: list[str]) -> None:
    with pytest.raises(Forbidden, match="lacks the scope"):
        principal_of({"kind": "user", "name": "ana", "scopes": scopes})


@pytest.mark.parametrize(
    ("scopes", "server"),
    [
        (["access:servers!server=ana/"], "ana/"),
        (["access:servers!server=ana/two"], "ana/two"),
        (["access:servers!server=bob/"], None),  # shared with ana: not hers
        (["access:servers!server=ana/", "access:servers!server=ana/two"], None),
        (["access:servers!user=ana"], None),
        (["access:servers!server=ana/", "access:servers!server=bob/"], "ana/"),
    ],
)
def test_the_server_is_the_one_that_the_scopes_name(scopes: list[str], server: str | None) -> None:
    found = principal_of({"kind": "user", "name": "ana", "scopes": [USE_ALL, *scopes]})
    assert found.server == server


def test_a_service_never_passes_for_the_user_of_its_name() -> None:
    with pytest.raises(Forbidden, match="no user"):
        principal_of({"kind": "service", "name": "ana", "scopes": [USE]})
    admin = principal_of({"kind": "service", "name": "ana", "scopes": [USE, ADMIN]})
    assert admin.user != "ana"
    assert admin.admin


def test_the_groups_are_those_of_the_hub() -> None:
    model = {"kind": "user", "name": "ana", "scopes": [USE]}
    assert principal_of({**model, "groups": ["vision", "phd"]}).groups == ("vision", "phd")
    assert principal_of(model).groups == ()


def test_the_groups_of_a_peer_are_those_of_its_account() -> None:
    assert grp.getgrgid(os.getgid()).gr_name in groups_of(os.getuid())
    assert groups_of(2**31) == ()


# --- asking the Hub -----------------------------------------------------------------------


@pytest.mark.asyncio
async def test_without_a_token_there_is_json_and_no_login_page(house: House) -> None:
    response = await get(house, "")
    assert response.status_code == 401
    assert response.headers["WWW-Authenticate"] == "token"
    assert response.headers["Content-Type"] == "application/json"
    assert response.json()["error"] == "unauthenticated"
    assert "token" in response.json()["message"]


@pytest.mark.asyncio
@pytest.mark.parametrize("header", ["", "token", "Basic YTpi", "token a b", "tokena"])
async def test_a_header_that_is_no_token_is_401(house: House, header: str) -> None:
    async with house.http() as http:
        response = await http.get("api/v1/queue", headers={"Authorization": header})
    assert response.status_code == 401
    assert house.hub.asked == []


@pytest.mark.asyncio
@pytest.mark.parametrize("word", ["token", "Token", "bearer", "Bearer"])
async def test_both_words_for_a_token_are_known(house: House, word: str) -> None:
    token = house.hub.user("ana")
    async with house.http() as http:
        response = await http.get("api/v1/me", headers={"Authorization": f"{word} {token}"})
    assert response.json()["user"] == "ana"


@pytest.mark.asyncio
async def test_a_token_in_the_address_is_no_token(house: House) -> None:
    token = house.hub.user("ana")
    async with house.http() as http:
        response = await http.get("api/v1/me", params={"token": token})
    assert response.status_code == 401


@pytest.mark.asyncio
async def test_reading_asks_the_hub_once_a_minute(house: House) -> None:
    token = house.hub.user("ana")
    for now in (0, FRESH_S - 1):
        house.now = now
        assert (await get(house, token)).status_code == 200
    assert house.hub.asked == [token]
    house.now = FRESH_S + 1
    assert (await get(house, token)).status_code == 200
    assert len(house.hub.asked) == 2


@pytest.mark.asyncio
async def test_changes_ask_the_hub_every_time(house: House) -> None:
    token = house.hub.user("ana")
    assert (await get(house, token)).status_code == 200
    del house.hub.tokens[token]
    seq = house.desk.world.seq
    assert (await submit(house, token)).status_code == 401
    assert house.desk.world.seq == seq
    # What was learned holds for reading too.
    assert (await get(house, token)).status_code == 401


@pytest.mark.asyncio
async def test_a_hub_that_is_down_is_503_and_a_sentence(house: House) -> None:
    token = house.hub.user("ana")
    assert (await get(house, token)).status_code == 200
    await house.hub.down()
    assert (await get(house, token)).status_code == 200  # known a moment ago
    for response in (await submit(house, token), await get(house, "unknown")):
        assert response.status_code == 503
        assert response.json()["error"] == "hub-unreachable"
        assert "JupyterHub" in response.json()["message"]
    assert not house.desk.world.jobs
    async with house.http() as http:
        assert (await http.get("health")).status_code == 200
    # The Hub's own work goes on: its token needs nobody's word.
    assert (await get(house, OWN)).status_code == 200


@pytest.mark.asyncio
@pytest.mark.parametrize("status", [401, 404, 429, 500, 502, 503])
async def test_a_hub_that_is_ill_is_503(house: House, status: int) -> None:
    house.hub.status = status
    assert (await get(house, house.hub.user("ana"))).status_code == 503


@pytest.mark.asyncio
async def test_a_hub_that_does_not_answer_is_503(house: House) -> None:
    house.url = house.listen(house.hub_auth(timeout=0.2))
    house.hub.open.clear()
    assert (await get(house, house.hub.user("ana"))).status_code == 503


@pytest.mark.asyncio
async def test_a_slow_hub_holds_up_nobody_else(house: House) -> None:
    known = house.hub.user("ana")
    assert (await get(house, known)).status_code == 200
    house.hub.open.clear()
    waiting = asyncio.create_task(get(house, house.hub.user("bob")))
    assert (await get(house, known)).status_code == 200
    assert not waiting.done()
    house.hub.open.set()
    assert (await waiting).status_code == 200


@pytest.mark.asyncio
async def test_the_own_token_is_the_hub_and_is_asked_of_nobody(house: House) -> None:
    response = await get(house, OWN, "me")
    assert response.json() == {"kind": "hub", "user": "", "admin": False, "server": None}
    assert house.hub.asked == []


# --- peers --------------------------------------------------------------------------------


@pytest.mark.asyncio
async def test_a_peer_is_its_account(house: House, short_tmp: Path) -> None:
    client = house.client(url=house.listen_unix(short_tmp / "s", shared=False))
    me = await client.me()
    assert (me.kind, me.user, me.admin) == ("peer", account(os.geteuid()), True)


@pytest.mark.asyncio
async def test_peers_are_not_known_over_tcp(house: House) -> None:
    house.url = house.listen(PeerAuth(shared=True))
    assert (await get(house, "")).status_code == 401


AS_ANOTHER = """
import email.parser, encodings.idna, http.client, json, os, socket, sys
# Only now: the other account may not be allowed to read this Python.
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
class Unix(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[2])
for line in sys.stdin:
    method, path, body = json.loads(line)
    connection = Unix("localhost")
    connection.request(method, path, body and json.dumps(body))
    answer = connection.getresponse()
    print(json.dumps([answer.status, json.loads(answer.read())]), flush=True)
"""


@pytest.fixture
def open_tmp(short_tmp: Path) -> Path:
    """A folder that every account may enter."""
    short_tmp.chmod(0o755)
    return short_tmp


def overflow_uid() -> int:
    """What the uid of a user of another namespace looks like here."""
    return int(Path("/proc/sys/kernel/overflowuid").read_text("ascii"))


async def ask_as(
    uid: int, url: str, *requests: tuple[str, str, object]
) -> list[tuple[int, object]]:
    """Ask as another account, in a process of its own."""
    text = "\n".join(map(json.dumps, requests))
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", AS_ANOTHER, str(uid), url.removeprefix("unix:")],
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


@pytest.mark.asyncio
@pytest.mark.root
async def test_two_accounts_cannot_touch_each_others_work(house: House, open_tmp: Path) -> None:
    needs.root()
    url = house.listen_unix(open_tmp / "s", shared=True)
    ((_, me), (status, job)) = await ask_as(
        54321, url, ("GET", "/api/v1/me", None), ("POST", "/api/v1/jobs", SUBMIT)
    )
    assert me == {"kind": "peer", "user": "uid-54321", "admin": False, "server": None}
    assert status == 201
    assert isinstance(job, dict)
    path = f"/api/v1/jobs/{job['id']}"
    others = await ask_as(
        54322,
        url,
        ("GET", path, None),
        ("GET", f"{path}/logs", None),
        ("POST", f"{path}/cancel", {}),
        ("POST", f"{path}/extend", {"time": "1m"}),
        ("POST", "/api/v1/servers/hello", {"user": "uid-54321", "host": "h", "boot": "b",
                                           "pid": 1, "start": 1}),
        ("PUT", "/api/v1/policy", {"document": ""}),
        ("GET", "/api/v1/jobs?all=1", None),
        ("GET", "/api/v1/jobs", None),
    )  # fmt: skip
    assert [status for status, _ in others] == [404, 404, 404, 404, 403, 403, 403, 200]
    assert others[-1][1] == []
    ((status, _),) = await ask_as(54321, url, ("POST", f"{path}/cancel", {}))
    assert status == 200
    entry = house.desk.stage.store.data.entries[-1]
    assert (entry.actor, entry.job) == ("peer:uid-54321", job["id"])


@pytest.mark.asyncio
@pytest.mark.root
async def test_a_private_broker_serves_only_its_user(house: House, open_tmp: Path) -> None:
    needs.root()
    url = house.listen_unix(open_tmp / "s", shared=False)
    ((status, answer),) = await ask_as(54321, url, ("GET", "/api/v1/me", None))
    assert status == 403
    assert "another user" in str(answer)


@pytest.mark.asyncio
@pytest.mark.root
async def test_a_user_unknown_to_this_machine_shares_no_identity(
    house: House, open_tmp: Path
) -> None:
    needs.root()
    url = house.listen_unix(open_tmp / "s", shared=True)
    ((status, answer),) = await ask_as(overflow_uid(), url, ("GET", "/api/v1/me", None))
    assert status == 403
    assert "container" in str(answer)


@pytest.mark.asyncio
async def test_a_token_in_a_query_reaches_no_log(
    house: House, caplog: pytest.LogCaptureFixture
) -> None:
    async with house.http("") as http:
        response = await http.get("api/v1/me", params={"token": "hunter2"})
    assert response.status_code == 401
    # A JupyterHub in this process, of another test, has renamed tornado's loggers.
    lines = [record.getMessage() for record in caplog.records if "httpx" not in record.name]
    assert any("401 GET" in line and "/api/v1/me" in line for line in lines)
    assert not any("hunter2" in line for line in lines)
