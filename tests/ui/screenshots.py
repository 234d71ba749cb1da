# SPDX-License-Identifier: BSD-3-Clause
"""The pictures of docs/images: the story of the demo, looked at in browsers.

``python -m tests.ui.screenshots [FOLDER]`` plays it on a real Hub and takes them anew.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests import conftest, needs
from tests.hub.realhub import RealHub
from tests.until import until_async

from .conftest import FLAGS, PATIENCE_MS
from .lab import be_quiet, write_notebook
from .pages import LabPage, SpawnForm, log_in

DEMO = conftest.ROOT / "hub_config/demo"
IMAGES = conftest.ROOT / "docs/images"
BYTES_MAX = 250_000

sys.path.insert(0, str(DEMO))
from notebooks import Person  # noqa: E402 - the demo's folder is no package
from story import HOLD, NOTEBOOKS, SCRIPT, VICTIMS, WAIT  # noqa: E402

SUBMIT = "%gpu_submit --nodes 2 --gpus 3 --time 10m --name train train.py"
# Time enough to take the pictures before the notebooks have left.
GRACE = ("grace: 10s", "grace: 45s")
MORE = """\
c.Spawner.default_url = "/lab"
c.JupyterHub.load_groups = {"patient": {"users": ["lena"]}}
c.Spawner.group_overrides = {
    "wait": {"groups": ["patient"], "spawner_override": {"gpu_wait": "start"}}
}
"""


def main(folder: Path = IMAGES) -> None:
    """Take all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    conftest.pytest_configure()
    expect.set_options(timeout=PATIENCE_MS)
    policy = (DEMO / "policy.yaml").read_text().replace(*GRACE)
    with tempfile.TemporaryDirectory(prefix="gpubroker-") as home:
        hub = RealHub(Path(home), policy=policy, more=MORE)
        be_quiet(Path(home) / "server-config")
        try:
            asyncio.run(play(hub.start(), folder))
        finally:
            hub.close()
    for picture in sorted(folder.glob("*.png")):
        size = picture.stat().st_size
        print(f"{picture}: {size / 1000:.0f} kB")  # noqa: T201 - a program
        assert size <= BYTES_MAX, f"{picture.name} is too large for the repository"


async def play(hub: RealHub, folder: Path) -> None:
    """The story up to where trainer waits, then the browsers' part."""
    people = []
    for name, (gpus, mib) in NOTEBOOKS.items():
        person = Person(name, hub.url, hub.password)
        people.append(person)
        await person.log_in()
        await person.spawn(gpus=gpus, time="2h")
        await until_async(lambda n=name: _runs(hub, n), timeout=180, what=f"the GPUs of {name}")
        page = await person.notebook()
        cell = await page.start((WAIT if name == "nb5" else HOLD).format(name=name, mib=mib))
        await until_async(lambda c=cell: "GPU-" in c.text, timeout=180, what=f"{name}'s cell")
    await asyncio.to_thread(Photographer(hub, folder).work)
    for person in people:
        await person.web.aclose()


def _runs(hub: RealHub, name: str) -> bool:
    session = hub.session(f"{name}/")
    return session is not None and session.state == "running"


@dataclass
class Photographer:
    """Takes pictures of a Hub whose GPUs are all but taken."""

    hub: RealHub
    folder: Path

    def work(self) -> None:
        """All of them, in the order of the story."""
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=needs.chromium(), args=list(FLAGS))
            trainer = LabPage(_page(browser, 1280, 700))
            self.spawn_form(trainer.page)
            self.open(trainer)
            lena = _page(browser, 860, 320)
            log_in(lena, self.hub.url, "lena", self.hub.password)
            self.waiting_for_the_gang(trainer)
            self.pending(lena)
            self.training(trainer)
            browser.close()

    def spawn_form(self, page: Page) -> None:
        """What one may ask for."""
        page.set_viewport_size({"width": 860, "height": 540})
        log_in(page, self.hub.url, "trainer", self.hub.password)
        form = SpawnForm(page)
        form.gpus.select_option("0.5")
        expect(page.get_by_role("button", name="Start")).to_be_visible()
        self.take(page, "spawn")
        page.set_viewport_size({"width": 1280, "height": 700})
        home = self.hub.folder / "homes/trainer"
        home.mkdir(parents=True, exist_ok=True)
        (home / "train.py").write_text(SCRIPT)
        write_notebook(home / "train.ipynb", SUBMIT, "%gpu_queue")
        form.start("none")

    def open(self, trainer: LabPage) -> None:
        """Trainer's notebook and the sidebar."""
        trainer.page.wait_for_url("**/user/trainer/lab*")
        trainer.ready()
        trainer.open(f"{self.hub.url}/user/trainer", "train.ipynb")
        trainer.sidebar.open()
        trainer.has_kernel()

    def waiting_for_the_gang(self, trainer: LabPage) -> None:
        """Why the job waits, for whom and until when; in the light and in the dark."""
        output = trainer.run(0)
        row = trainer.sidebar.row("you")
        for name in VICTIMS:
            expect(row).to_contain_text(name)
            expect(output).to_contain_text(name)
        expect(trainer.sidebar.cluster.locator(".gpub-colour-leaving").first).to_be_visible()
        queue = trainer.run(1)
        for name in VICTIMS:
            expect(queue).to_contain_text(name)
        self.take(trainer.page, "lab")
        trainer.theme("dark")
        self.take(trainer.page, "lab-dark")

    def pending(self, page: Page) -> None:
        """A start that waits in the queue."""
        SpawnForm(page).start("1")
        expect(page.locator("#progress-message")).to_contain_text("osition")
        self.take(page, "pending")

    def training(self, trainer: LabPage) -> None:
        """The live view of a job."""
        trainer.theme("light")
        expect(trainer.cell(0).locator(".jp-OutputArea")).to_contain_text("completed")
        expect(trainer.sidebar.job("train")).to_contain_text("Completed")
        self.take(trainer.page, "job")

    def take(self, page: Page, name: str) -> None:
        """One picture."""
        page.mouse.move(0, 0)
        page.screenshot(path=self.folder / f"{name}.png", animations="disabled", caret="hide")


def _page(browser: Browser, width: int, height: int) -> Page:
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-GB")
    context.set_default_timeout(PATIENCE_MS)
    return context.new_page()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
