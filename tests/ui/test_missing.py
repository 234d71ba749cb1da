# SPDX-License-Identifier: BSD-3-Clause
"""What the sidebar says where a part is missing."""

from __future__ import annotations

import json
from collections.abc import Callable

from playwright.sync_api import expect

from .conftest import NewPage
from .lab import Person
from .pages import LabPage


def test_without_a_broker_it_says_how_to_start_one_and_goes_on_when_one_is_there(
    new_person: Callable[[], Person], new_page: NewPage
) -> None:
    person = new_person()
    lab = person.lab("--GPUBrokerExtension.start_broker=False")
    page = LabPage(new_page()).open(lab.url, token=lab.token)
    sidebar = page.sidebar.open()
    expect(sidebar.problem).to_contain_text("There is no GPU broker")
    expect(sidebar.problem).to_contain_text("jupyter gpubroker serve --solo")
    person.start_broker()
    sidebar.press("Load again")
    expect(sidebar.problem).to_have_count(0)
    expect(sidebar.all.locator(".gpub-summary")).to_have_text("8 of 8 GPUs free")


def test_without_the_server_extension_it_says_how_to_enable_it(
    new_person: Callable[[], Person], new_page: NewPage
) -> None:
    person = new_person()
    disabled = {"ServerApp": {"jpserver_extensions": {"jupyter_gpubroker": False}}}
    (person.folder / "config/jupyter_server_config.json").write_text(json.dumps(disabled))
    lab = person.lab()
    page = LabPage(new_page()).open(lab.url, token=lab.token)
    sidebar = page.sidebar.open()
    expect(sidebar.problem).to_contain_text("The server extension jupyter_gpubroker is not enabled")
    expect(sidebar.problem).to_contain_text("jupyter server extension enable jupyter_gpubroker")
    expect(sidebar.my_gpu).to_be_hidden()
