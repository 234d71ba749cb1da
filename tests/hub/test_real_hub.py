# SPDX-License-Identifier: BSD-3-Clause
"""One real Hub: two people, one GPU, and what each token may do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from jupyter_gpubroker.client import Client, Forbidden
from jupyter_gpubroker.devices.processes import boot_id, process_of
from jupyter_gpubroker.hub import check
from jupyter_gpubroker.wire import HolderIn, JobOut, RequestIn, SubmitIn
from jupyter_gpubroker.wire.endpoints import ADMIN, USE
from tests.conftest import ROOT
from tests.until import until

from .brokers import POLICY
from .realhub import PATIENCE_S, RealHub

pytestmark = [pytest.mark.hub, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHub]:
    """One GPU; servers without our extension, for the tests speak in its place."""
    policy = POLICY.replace("holder_grace: 1s", "holder_grace: 90s")
    made = RealHub(
        tmp_path_factory.mktemp("hub"), devices="simulated:1x1", policy=policy, extension=False
    )
    try:
        yield made.start()
    finally:
        made.close()


@pytest.fixture(autouse=True)
def no_servers(hub: RealHub) -> Iterator[None]:
    """Nobody's server runs when a test begins."""
    yield
    for user in hub.api("GET", "/users").json():
        for server in user["servers"]:
            hub.cancel(f"{user['name']}/{server}")
    until(lambda: not hub.processes("jupyterhub.singleuser"), timeout=PATIENCE_S)


def own_token(hub: RealHub, key: str) -> str:
    """The token that a running server was given."""
    return hub.environment(key)["JUPYTERHUB_API_TOKEN"]


def hold(hub: RealHub, key: str) -> JobOut:
    """What the extension does: hello, wait for the lease, say that kernels are bound."""
    environ = hub.environment(key)
    pid = int(hub.server(key)["state"]["pid"])
    process = process_of(pid)
    assert process is not None
    incarnation = int(environ["GPUBROKER_INCARNATION"])
    with Client(environ["GPUBROKER_URL"], environ["JUPYTERHUB_API_TOKEN"]) as broker:
        broker.hello(
            HolderIn(
                server=key.partition("/")[2],
                incarnation=incarnation,
                host=os.uname().nodename,
                boot=boot_id(),
                pid=process.pid,
                start=process.start,
            )
        )
        granted = until(lambda: _prepared(hub, key), timeout=PATIENCE_S, what=f"a lease for {key}")
        assert granted is not None
        return broker.started(granted.id, granted.attempt)


def _prepared(hub: RealHub, key: str) -> JobOut | None:
    session = hub.session(key)
    ready = session is not None and session.lease is not None and session.lease.prepared
    return session if ready else None


def test_two_people_compete_for_one_gpu_and_only_one_has_it(hub: RealHub) -> None:
    for user in ("ana", "bo"):
        hub.spawn(f"{user}/", gpus="1")
    for user in ("ana", "bo"):
        hub.ready(f"{user}/")
    first = hold(hub, "ana/")
    assert first.state == "running"
    waiting = hub.session("bo/")
    assert waiting is not None
    assert waiting.state == "queued"

    hub.cancel("ana/")
    second = hold(hub, "bo/")
    assert second.state == "running"
    assert second.lease is not None
    assert first.lease is not None
    assert second.lease.shares == first.lease.shares
    assert [job.outcome for job in hub.sessions("ana")] == ["released"]


def test_a_servers_own_token_is_known_as_that_server_and_nothing_else(hub: RealHub) -> None:
    hub.spawn("ana/lab", gpus="none")
    hub.ready("ana/lab")
    with hub.broker(own_token(hub, "ana/lab")) as broker:
        me = broker.me()
        assert (me.kind, me.user, me.admin, me.server) == ("user", "ana", False, "ana/lab")
        with pytest.raises(Forbidden):
            broker.apply_policy(POLICY)
        with pytest.raises(Forbidden):
            broker.server_state("other")


def test_another_user_reaches_nothing_and_nobody_without_a_token(hub: RealHub) -> None:
    hub.user("ana", "bo")
    with hub.broker(hub.token_of("ana", USE)) as ana:
        job = ana.submit(SubmitIn(argv=("/bin/true",), request=RequestIn(gpus=1)))
        with hub.broker(hub.token_of("bo", USE)) as bo:
            with pytest.raises(Exception, match="no job"):
                bo.cancel(job.id)
            assert job.id not in [other.id for other in bo.jobs()]
        ana.cancel(job.id)
    assert httpx.get(f"{hub.broker_url}/api/v1/me", trust_env=False).status_code == 401
    assert httpx.get(f"{hub.broker_url}/health", trust_env=False).status_code == 200


def test_a_token_without_our_scope_is_refused(hub: RealHub) -> None:
    hub.user("ana")
    with (
        hub.broker(hub.token_of("ana", "read:users!user=ana")) as broker,
        pytest.raises(Forbidden, match=USE),
    ):
        broker.me()


def test_only_a_token_with_the_admin_scope_is_an_admin(hub: RealHub) -> None:
    hub.user("boss")
    with hub.broker(hub.token_of("boss", USE, ADMIN)) as broker:
        assert broker.me().admin
    with hub.broker(hub.token_of("boss", USE)) as broker:
        assert not broker.me().admin
    hub.user("ana")
    refused = hub.api("POST", "/users/ana/tokens", scopes=[USE, ADMIN])
    assert refused.status_code == 400, "a user cannot give oneself the scope"


def test_a_killed_server_that_starts_again_keeps_its_gpu_and_stop_ends_it(hub: RealHub) -> None:
    hub.spawn("ana/", gpus="1")
    pid = hub.ready("ana/")
    before = hold(hub, "ana/")
    os.kill(pid, signal.SIGKILL)
    until(lambda: not hub.server("ana/"), timeout=PATIENCE_S, what="the Hub to see it")
    hub.spawn("ana/", gpus="1")
    hub.ready("ana/")
    after = hold(hub, "ana/")
    assert (after.id, after.attempt, after.state) == (before.id, before.attempt, "running")

    hub.cancel("ana/")
    until(lambda: hub.session("ana/") is None, timeout=PATIENCE_S, what="the session to end")
    assert hub.sessions("ana")[0].outcome == "released"


def test_what_a_removed_user_waits_for_is_cancelled_and_nobody_elses(hub: RealHub) -> None:
    hub.user("leaver", "stayer")
    jobs = []
    for user in ("leaver", "leaver", "stayer"):
        with hub.broker(hub.token_of(user, USE)) as broker:
            asked = SubmitIn(argv=("/bin/sleep", "600"), request=RequestIn(gpus=1))
            jobs.append(broker.submit(asked).id)
    holds, waits, other = jobs
    with hub.broker() as broker:
        until(lambda: broker.show(holds).state == "running", timeout=PATIENCE_S)
        assert hub.api("DELETE", "/users/leaver").status_code == 204
        until(lambda: broker.show(waits).state == "cancelled", timeout=PATIENCE_S)
        assert broker.show(waits).outcome == "its user was removed from JupyterHub"
        assert broker.show(holds).state == "running", "the policy lets it finish"
        assert broker.show(other).state == "queued"
        for job in (other, holds):
            broker.cancel(job)
        until(lambda: broker.show(holds).state == "cancelled", timeout=PATIENCE_S)


def test_the_doctors_check_finds_nothing_wrong_and_then_something(
    hub: RealHub, tmp_path: Path
) -> None:
    assert check(hub.state) == []
    (tmp_path / "hub.json").write_text((hub.state / "hub.json").read_text())
    (tmp_path / "hub-token").write_text("not the token\n")
    assert any("token" in sentence for sentence in check(tmp_path))
    assert "no Hub" in check(tmp_path / "nowhere")[0]


def test_the_doctor_asks_the_broker_of_the_hub_that_is_named(hub: RealHub, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "jupyter_gpubroker.app", "doctor", "--json", "--hub"]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}

    def findings(state: Path) -> tuple[int, dict[str, str]]:
        done = subprocess.run(
            [*command, str(state)], env=environ, capture_output=True, text=True, check=False
        )
        told = json.loads(done.stdout)["findings"]
        return done.returncode, {item["name"]: item["text"] for item in told}

    code, found = findings(hub.state)
    assert code == 0, found
    assert found["broker"] == f"answers at {hub.broker_url}"
    assert (found["identity"], found["Hub"]) == ("hub", "is as it was configured")
    code, found = findings(tmp_path)
    assert code == 3
    assert "no Hub was configured with" in found["broker"]
