# SPDX-License-Identifier: BSD-3-Clause
"""One Chromium for the folder, a new profile for every person, and what they work with."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests import needs

from .lab import Lab, Person
from .pages import LabPage

PATIENCE_MS = 90_000
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
SIZE = {"width": 1280, "height": 900}

FAILED = pytest.StashKey[bool]()

NewPage = Callable[[], Page]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of this folder is marked ``ui``."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.ui)


# Not for the whole run: while playwright's loop is there no other test can have one.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A Chromium with an empty profile."""
    path = needs.chromium()
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Remember whether the test itself failed, for ``new_page``."""
    report = yield
    if report.when == "call":
        item.stash[FAILED] = report.failed
    return report


@pytest.fixture
def new_page(browser: Browser, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[NewPage]:
    """Each call is somebody who was never here before. A failed test leaves a picture."""
    contexts: list[BrowserContext] = []

    def new() -> Page:
        context = browser.new_context(viewport=SIZE, locale="en-GB")
        context.set_default_timeout(PATIENCE_MS)
        contexts.append(context)
        return context.new_page()

    yield new
    for number, context in enumerate(contexts):
        if request.node.stash.get(FAILED, True):
            picture = tmp_path / f"page-{number}.png"
            context.pages[0].screenshot(path=picture)
            print(f"the page: {picture}")  # noqa: T201 - shown with the failure
        context.close()


@pytest.fixture(scope="package")
def new_person() -> Iterator[Callable[[], Person]]:
    """Somebody with a home of their own on this machine."""
    people: list[Person] = []

    def new() -> Person:
        people.append(Person(Path(tempfile.mkdtemp(prefix="gb-", dir="/tmp"))))
        return people[-1]

    yield new
    for person in people:
        person.leave()
        shutil.rmtree(person.folder, ignore_errors=True)


@pytest.fixture(scope="module")
def person(new_person: Callable[[], Person]) -> Person:
    """The person of a module."""
    return new_person()


@pytest.fixture(scope="module")
def one_lab(person: Person) -> Lab:
    """Their JupyterLab; it has found, or started, a broker."""
    return person.lab()


@pytest.fixture
def lab(one_lab: Lab) -> Iterator[Lab]:
    """The same, with neither GPU nor job before and after."""
    yield one_lab
    one_lab.give_everything_back()


@pytest.fixture
def lab_page(lab: Lab, new_page: NewPage) -> Callable[..., LabPage]:
    """Open JupyterLab in a new browser, with the sidebar."""

    def open_lab(path: str = "", on: Lab = lab) -> LabPage:
        page = LabPage(new_page()).open(on.url, path, on.token)
        page.sidebar.open()
        return page

    return open_lab
