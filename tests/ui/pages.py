# SPDX-License-Identifier: BSD-3-Clause
"""What a person sees and presses, by the names that they would use for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import uuid4

from playwright.sync_api import Locator, Page, expect

SENT = re.compile(r"\[(\*|\d+)\]")
"""The prompt of a cell that the kernel has, or has had."""
UNTIL = re.compile(r"[Uu]ntil (\w+ \w+, )?\d\d:\d\d")
"""Until when, with the day where that is not today: an hour from now may be tomorrow."""
ALL_TEXTS = """() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const paint = colour => {
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const texts = [];
  const walker = document.createTreeWalker(
    document.querySelector('#jp-gpubroker'), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const words = walker.currentNode.textContent.trim();
    if (words && element.checkVisibility() && !element.closest('.gpub-hidden, option')) {
      const layers = [];
      for (let node = element; node; node = node.parentElement) {
        layers.unshift(getComputedStyle(node).backgroundColor);
      }
      const ground = ['white', ...layers].map(paint).at(-1);
      texts.push({words, ground, colour: paint(getComputedStyle(element).color)});
    }
  }
  return texts;
}"""
"""Every text that is seen, its colour, and the colour behind it, as the browser mixes them."""


class LabPage:
    """JupyterLab in a browser's tab."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.sidebar = Sidebar(page)

    def open(self, url: str, path: str = "", token: str = "") -> LabPage:
        """Go to a notebook, or to the launcher, in a workspace that nobody used before."""
        tree = f"/tree/{path}" if path else ""
        query = f"?token={token}" if token else ""
        self.page.goto(f"{url}/lab/workspaces/{uuid4().hex[:12]}{tree}{query}")
        self.ready()
        return self

    def ready(self) -> None:
        """Wait until JupyterLab shows something to work with."""
        dock = self.page.locator("#jp-main-dock-panel")
        shown = dock.locator(".jp-Launcher, .jp-Notebook .jp-Cell")
        expect(shown.first).to_be_visible()

    def theme(self, name: str) -> None:
        """Light or dark, by the menu."""
        self.page.locator(".lm-MenuBar-item", has_text="Settings").click()
        menu = self.page.locator(".lm-Menu")
        menu.get_by_text("Theme", exact=True).click()
        menu.get_by_text(f"JupyterLab {name.title()}", exact=True).click()
        light = "true" if name == "light" else "false"
        expect(self.page.locator("body")).to_have_attribute("data-jp-theme-light", light)
        # A curtain lies over the page until the theme's style has arrived.
        expect(self.page.locator("#jupyterlab-splash")).to_have_count(0)

    def cell(self, number: int) -> Locator:
        """A cell of the notebook, from 0."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(number)

    def run(self, number: int) -> Locator:
        """Run a cell with Shift+Enter; what stands below it."""
        cell = self.cell(number)
        cell.locator(".cm-content").click()
        self.page.keyboard.press("Shift+Enter")
        expect(cell.locator(".jp-InputPrompt")).to_have_text(SENT)
        return cell.locator(".jp-OutputArea")

    def has_kernel(self) -> None:
        """Wait until the notebook's kernel can be used."""
        expect(self.page.locator("#jp-bottom-panel")).to_contain_text("| Idle")

    @property
    def toast(self) -> Locator:
        """The messages that lie over the page."""
        return self.page.locator(".Toastify__toast")

    def accept(self, button: str) -> None:
        """Answer a question."""
        self.page.locator(".jp-Dialog").get_by_role("button", name=button, exact=True).click()


class Sidebar:
    """The GPU sidebar."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.all = page.locator("#jp-gpubroker")
        self.my_gpu = page.locator("#gpub-panel-mygpu")
        self.jobs = page.locator("#gpub-panel-jobs")
        self.queue = page.locator("#gpub-panel-queue")
        self.cluster = page.locator("#gpub-panel-cluster")
        self.problem = self.all.get_by_role("alert")
        self.title = self.my_gpu.locator(".gpub-title")

    def open(self) -> Sidebar:
        """Press its tab, unless it is open."""
        if not self.all.is_visible():
            self.page.locator('li[data-id="jp-gpubroker"]').click()
        expect(self.all).to_be_visible()
        return self

    def press(self, name: str) -> None:
        """A button, by what stands on it."""
        self.all.get_by_role("button", name=name, exact=True).click()

    def ask_for(self, gpus: str, time: str) -> None:
        """Fill in the form and send it."""
        self.my_gpu.get_by_label("Share").select_option(gpus)
        self.my_gpu.get_by_label("Time").select_option(label=time)
        self.press("Request")

    def is_title(self, words: str) -> None:
        """Wait until the session is in this state."""
        expect(self.title).to_have_text(words)

    def device(self, node: str, index: int) -> Locator:
        """A GPU of the map."""
        machine = self.cluster.get_by_role("group", name=f"GPUs of {node}")
        return machine.locator(".gpub-cell").nth(index)

    def job(self, name: str) -> Locator:
        """A line of my jobs."""
        return self.jobs.locator(".gpub-job", has=self.page.get_by_title(name, exact=True))

    def row(self, user: str) -> Locator:
        """Somebody's line in the queue."""
        who = self.page.locator(".gpub-who", has_text=user)
        return self.queue.locator(".gpub-row", has=who)

    def contrasts(self) -> dict[str, float]:
        """Each text that can be read, and how much it stands out (WCAG 2)."""
        texts = self.page.evaluate(ALL_TEXTS)
        return {text["words"]: contrast(text["colour"], text["ground"]) for text in texts}

    def colours(self) -> tuple[str, str]:
        """Of the text and of what is behind it."""
        return (
            str(self.title.evaluate("element => getComputedStyle(element).color")),
            str(self.all.evaluate("element => getComputedStyle(element).backgroundColor")),
        )


class SpawnForm:
    """The Hub's page with the form of our spawner."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.gpus = page.get_by_label("GPU", exact=True)
        self.time = page.get_by_label("For how long")

    def choices(self, field: Locator) -> list[str]:
        """What a field offers."""
        field.wait_for()  # evaluate_all does not wait for the page
        return field.locator("option").evaluate_all("all => all.map(option => option.value)")

    def start(self, gpus: str, time: str | None = None) -> None:
        """Choose, and press Start."""
        self.gpus.select_option(gpus)
        if time is not None:
            self.time.select_option(label=time)
        self.page.get_by_role("button", name="Start").click()


def log_in(page: Page, hub: str, user: str, password: str) -> None:
    """The Hub's login form; ends wherever the Hub leads."""
    page.goto(f"{hub}/hub/login?next=/hub/spawn")
    page.locator("#username_input").fill(user)
    page.locator("#password_input").fill(password)
    page.locator("#login_submit").click()


def contrast(one: Sequence[int], other: Sequence[int]) -> float:
    """Of two colours (red, green, blue)."""
    bright, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _luminance(colour: Sequence[int]) -> float:
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in colour)
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
