# SPDX-License-Identifier: BSD-3-Clause
"""Hubs that are stopped, killed, or given a broker that cannot do its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.until import until

from .brokers import POLICY
from .realhub import PATIENCE_S, RealHub
from .test_real_hub import hold

pytestmark = [pytest.mark.hub, pytest.mark.timeout(900)]

MakeHub = Callable[..., RealHub]


@pytest.fixture
def make_hub(tmp_path: Path) -> Iterator[MakeHub]:
    """Hubs that are ended with the test, each in a folder of its own."""
    made: list[RealHub] = []

    def make(**settings: Any) -> RealHub:
        folder = tmp_path / f"hub{len(made)}"
        folder.mkdir()
        settings = {"devices": "simulated:1x1", "policy": POLICY, "extension": False} | settings
        made.append(RealHub(folder, **settings))
        return made[-1]

    yield make
    for hub in made:
        hub.close()


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_hub_that_ends_boots_again_with_one_broker_and_sessions_keep_their_gpus(
    make_hub: MakeHub, how: str
) -> None:
    hub = make_hub().start()
    hub.spawn("ana/", gpus="1")
    pid = hub.ready("ana/")
    before = hold(hub, "ana/")
    first = hub.brokers()
    assert len(first) == 1

    getattr(hub, how)()
    until(lambda: not hub.brokers(), timeout=PATIENCE_S, what="the broker to end with its Hub")
    hub.start()
    until(lambda: len(hub.brokers()) == 1, timeout=PATIENCE_S, what="one broker")
    assert hub.brokers() != first
    assert hub.ready("ana/") == pid, "the server has not even noticed"
    after = hub.session("ana/")
    assert after is not None
    assert (after.id, after.attempt, after.state) == (before.id, before.attempt, "running")
    hub.cancel("ana/")
    until(lambda: hub.session("ana/") is None, timeout=PATIENCE_S, what="the session to end")


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_hub_that_ends_while_a_spawn_waits_boots_again_and_grants_nothing_to_nobody(
    make_hub: MakeHub, how: str
) -> None:
    hub = make_hub(gpu_wait="start", policy=POLICY.replace("holder_grace: 1s", "holder_grace: 3m"))
    hub.start()
    hub.spawn("rival/", gpus="1")
    hub.ready("rival/")
    hold(hub, "rival/")
    assert hub.spawn("ana/", gpus="1").status_code == 202
    place = until(lambda: hub.session("ana/"), what="a place in the queue")

    getattr(hub, how)()
    until(lambda: not hub.brokers(), timeout=PATIENCE_S, what="the broker to end with its Hub")
    hub.start()
    until(lambda: len(hub.brokers()) == 1, timeout=PATIENCE_S, what="one broker")
    assert not hub.server("ana/"), "the Hub knows that nothing of it runs"
    until(lambda: _nobody_asks(hub, "ana/"), timeout=PATIENCE_S, what="the Hub to say so")
    hub.cancel("rival/")
    until(lambda: hub.session("rival/") is None, timeout=PATIENCE_S, what="the GPU to be free")
    assert _nobody_asks(hub, "ana/"), "a free GPU is not given to a server that is not there"

    assert hub.spawn("ana/", gpus="1").status_code in (201, 202)
    hub.ready("ana/")
    session = hub.session("ana/")
    assert session is not None
    assert session.lease is not None
    if how == "kill":
        assert session.id == place.id, "whoever asks again in time has the same place"


def _nobody_asks(hub: RealHub, key: str) -> bool:
    """The place is kept without a claim, or given up."""
    session = hub.session(key)
    why = None if session is None else session.why
    return session is None or (why is not None and "started again" in why.text)


def test_a_broker_with_a_bad_policy_comes_up_degraded_and_says_so(make_hub: MakeHub) -> None:
    hub = make_hub(policy="classes: {interactive: {kinds: [session], idle_for: 3}}\n").start()
    with hub.broker() as broker:
        health = broker.health()
    assert health.status == "degraded"
    assert any("policy" in problem and "line 1" in problem for problem in health.problems)
    assert hub.spawn("ana/", gpus="none").status_code in (201, 202)
    hub.ready("ana/")


def test_a_broker_without_its_database_comes_up_degraded_and_says_so(make_hub: MakeHub) -> None:
    hub = make_hub()
    hub.state.mkdir(mode=0o700)
    (hub.state / "broker.sqlite").write_text("this is no database")
    hub.start()
    with hub.broker() as broker:
        health = broker.health()
    assert health.status == "degraded"
    assert health.problems
    refused = hub.spawn("ana/", gpus="1")
    assert refused.status_code == 503, refused.text
    assert "without one" in refused.json()["message"]
    assert hub.spawn("ana/", gpus="none").status_code in (201, 202)
    hub.ready("ana/")


def test_a_killed_broker_is_started_again_by_the_hub_and_nothing_is_lost(
    make_hub: MakeHub,
) -> None:
    hub = make_hub().start()
    hub.spawn("ana/", gpus="1")
    hub.ready("ana/")
    before = hold(hub, "ana/")
    (first,) = hub.brokers()
    first.kill()
    until(
        lambda: [other for other in hub.brokers() if other.pid != first.pid],
        timeout=PATIENCE_S,
        what="the Hub to start another broker",
    )
    until(hub.health, timeout=PATIENCE_S, what="it to answer")
    assert len(hub.brokers()) == 1
    after = hub.session("ana/")
    assert after is not None
    assert (after.id, after.attempt, after.state) == (before.id, before.attempt, "running")
