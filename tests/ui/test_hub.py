# SPDX-License-Identifier: BSD-3-Clause
"""Under a real Hub: the spawn form, the sidebar of two people, a notice, a start that waits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from jupyter_gpubroker.client import Client
from jupyter_gpubroker.wire import JobOut, RequestIn, SubmitIn
from tests.hub.realhub import PATIENCE_S, RealHub
from tests.until import until

from .conftest import NewPage
from .lab import ENDED, be_quiet
from .pages import UNTIL, LabPage, SpawnForm, log_in

pytestmark = [pytest.mark.hub, pytest.mark.timeout(600)]

# A session without a running cell is idle at once, and then there is time to answer.
POLICY = """\
default_queue: default
classes:
  interactive:
    kinds: [session]
    time: {default: 2h, max: 8h}
    idle: {after: 1s, busy: 30m}
    shield: 0s
    grace: 5m
    keep: {for: 15m, times: 2}
    holder_grace: 1s
  batch:
    kinds: [batch]
    time: {default: 1h, max: 7d}
    stop: 5s
queues:
  default: {}
"""
MORE = """\
c.Spawner.default_url = "/lab"
c.JupyterHub.load_groups = {"patient": {"users": ["wanda"]}}
c.Spawner.group_overrides = {
    "wait": {"groups": ["patient"], "spawner_override": {"gpu_wait": "start"}}
}
"""


@pytest.fixture(scope="module")
def one_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealHub]:
    """One node with two GPUs."""
    folder = tmp_path_factory.mktemp("hub")
    hub = RealHub(folder, devices="simulated:1x2", policy=POLICY, more=MORE)
    be_quiet(folder / "server-config")
    try:
        yield hub.start()
    finally:
        hub.close()


@pytest.fixture
def hub(one_hub: RealHub) -> Iterator[RealHub]:
    """The same, without servers and jobs before and after."""
    yield one_hub
    for user in one_hub.api("GET", "/users").json():
        for server in user["servers"]:
            one_hub.cancel(f"{user['name']}/{server}")
    with one_hub.broker() as broker:
        for job in broker.jobs(everybody=True):
            if job.state not in ENDED and job.kind == "batch":
                broker.cancel(job.id)
        until(
            lambda: all(job.state in ENDED for job in broker.jobs(everybody=True)),
            timeout=PATIENCE_S,
            what="all jobs and sessions to end",
        )


@pytest.fixture
def ben(hub: RealHub, tmp_path: Path) -> Iterator[Person]:
    """Somebody who trains."""
    hub.user("ben")
    with Client(hub.broker_url, hub.token_of("ben")) as client:
        yield Person(client, tmp_path)


class Person:
    """Submits jobs that run until they are cancelled."""

    def __init__(self, client: Client, folder: Path) -> None:
        self.client = client
        self.folder = folder

    def train(self) -> JobOut:
        """One GPU, for as long as it may."""
        wish = SubmitIn(
            argv=("sleep", "36000"),
            name="training",
            cwd=str(self.folder),
            env={"PATH": "/usr/bin:/bin"},
            request=RequestIn(gpus=1),
        )
        return self.client.submit(wish)


def start_server(page: LabPage, hub: RealHub, user: str, gpus: str) -> LabPage:
    """Log in, fill in the form, and wait for JupyterLab."""
    log_in(page.page, hub.url, user, hub.password)
    SpawnForm(page.page).start(gpus)
    page.page.wait_for_url(re.compile(f"/user/{user}/lab"))
    page.ready()
    page.sidebar.open()
    return page


def test_the_form_offers_what_is_possible_and_the_lab_shows_what_was_chosen(
    hub: RealHub, new_page: NewPage
) -> None:
    page = LabPage(new_page())
    log_in(page.page, hub.url, "ana", hub.password)
    form = SpawnForm(page.page)
    assert form.choices(form.gpus) == ["none", "0.25", "0.5", "0.75", "1", "2"]
    assert form.choices(form.time)[-1] == "8h", "no longer than the class allows"
    expect(page.page.locator("form")).to_contain_text("2 GPUs are free now.")
    form.start("0.5", "1 h")
    page.page.wait_for_url(re.compile("/user/ana/lab"))
    page.ready()
    sidebar = page.sidebar.open()
    sidebar.is_title("GPU attached")
    expect(sidebar.my_gpu).to_contain_text("0.5 GPU on node1")
    expect(sidebar.my_gpu).to_contain_text("nothing is computed. No isolation between users.")
    expect(sidebar.all.locator(".gpub-summary")).to_have_text("1.5 of 2 GPUs free")


def test_who_must_give_way_is_told_and_keeps_the_gpu_and_everybody_sees_the_reason(
    hub: RealHub, new_page: NewPage, ben: Person
) -> None:
    page = start_server(LabPage(new_page()), hub, "ana", "0.5")
    sidebar = page.sidebar
    sidebar.is_title("GPU attached")
    ben.train()
    waiting = ben.train()

    expect(page.toast).to_contain_text("Your GPU goes at")
    sidebar.is_title("GPU leaves soon")
    expect(sidebar.row("ben")).not_to_contain_text("training")  # what others do is theirs
    expect(sidebar.row("ben")).to_contain_text("ana")
    expect(sidebar.row("ben")).to_contain_text(UNTIL)
    expect(sidebar.device("node1", 0)).to_have_class(re.compile("gpub-colour-leaving"))

    page.toast.get_by_role("button", name="Keep", exact=True).click()
    sidebar.is_title("GPU attached")
    expect(page.toast).to_have_count(0)
    why = ben.client.show(waiting.id).why
    assert why is not None
    expect(sidebar.row("ben").locator(".gpub-why")).to_have_text(why.text)
    session = hub.session("ana/")
    assert session is not None
    assert (session.state, session.keeps_left) == ("running", 1)


def test_a_start_that_waits_says_where_and_why_and_a_cancelled_one_leaves_nothing(
    hub: RealHub, new_page: NewPage, ben: Person
) -> None:
    ben.train()
    ben.train()
    page = new_page()
    log_in(page, hub.url, "wanda", hub.password)
    SpawnForm(page).start("1")
    page.wait_for_url(re.compile("/hub/spawn-pending/wanda"))
    message = page.locator("#progress-message")
    expect(message).to_contain_text(re.compile("position 1", re.IGNORECASE))
    expect(message).to_contain_text("ben")
    session = hub.session("wanda/")
    assert session is not None
    assert session.state == "queued"

    page.locator("#stop-server-btn").click()
    expect(page.get_by_role("heading", name="Server not running")).to_be_visible()
    until(lambda: hub.session("wanda/") is None, timeout=PATIENCE_S, what="no session")
    assert not hub.server("wanda/")
    assert [old.state for old in hub.sessions("wanda")] == ["cancelled"]
