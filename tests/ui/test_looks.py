# SPDX-License-Identifier: BSD-3-Clause
"""Light and dark: everything that is written can be read."""

from __future__ import annotations

from collections.abc import Callable

from .lab import Lab
from .pages import LabPage

READABLE = 4.5
"""Contrast that WCAG 2 asks of small text (AA)."""
SUBMIT = """\
%%gpu_submit --gpus 1 --time 3h --name seen
print("hello", flush=True)
import threading
threading.Event().wait()"""


def test_every_text_of_the_sidebar_can_be_read_in_the_light_and_in_the_dark_theme(
    lab: Lab, lab_page: Callable[..., LabPage]
) -> None:
    # The session has to end before the second one, which waits, is to start.
    fill = "%gpu_submit --gpus 4 --time 3h --no-torchrun sleep 3600"
    lab.write("looks.ipynb", SUBMIT, f"{fill}\n{fill}")
    page = lab_page("looks.ipynb")
    page.has_kernel()
    page.run(0)
    page.run(1)
    sidebar = page.sidebar
    sidebar.ask_for("0.5", "1 h")
    sidebar.is_title("GPU attached")
    sidebar.job("seen").get_by_role("button", name="seen").click()
    sidebar.job("seen").locator(".gpub-log pre", has_text="hello").wait_for()
    sidebar.row("you").wait_for()
    seen = {}
    for theme in ("light", "dark"):
        page.theme(theme)
        seen[theme] = sidebar.colours()
        contrasts = sidebar.contrasts()
        assert {"GPU attached", "Running", "Release", "Cancel job", "hello"} <= set(contrasts)
        faint = {words: round(much, 2) for words, much in contrasts.items() if much < READABLE}
        assert not faint, f"hard to read in the {theme} theme"
    (light_text, light_ground), (dark_text, dark_ground) = seen["light"], seen["dark"]
    assert light_text != dark_text
    assert light_ground != dark_ground
