# SPDX-License-Identifier: BSD-3-Clause
"""Without a Hub: JupyterLab, its sidebar, and a broker that the server starts itself."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import expect

from jupyter_gpubroker.client import Client

from .lab import Lab, Person
from .pages import UNTIL, LabPage

OpenLab = Callable[..., LabPage]

HOLD = """\
from jupyter_gpubroker.devices.simulated import hold
held = hold(2048)
story = 41
print(len(held.devices), "GPU")"""
AGAIN = "held.touch()\nprint(story + 1)"
TRAIN = """\
%%gpu_submit --gpus 1 --time 10m --name digits
import threading
for epoch in range(3):
    print(f"epoch {epoch} of 3", flush=True)
threading.Event().wait()"""


def test_half_a_gpu_is_asked_for_used_parked_resumed_by_a_cell_and_released(
    lab: Lab, lab_page: OpenLab
) -> None:
    lab.write("work.ipynb", HOLD, AGAIN)
    page = lab_page("work.ipynb")
    page.has_kernel()
    sidebar = page.sidebar
    expect(sidebar.all.locator(".gpub-summary")).to_have_text("8 of 8 GPUs free")

    sidebar.ask_for("0.5", "1 h")
    sidebar.is_title("GPU attached")
    expect(sidebar.my_gpu).to_contain_text("0.5 GPU on node1, GPU 0")
    expect(sidebar.my_gpu).to_contain_text(re.compile(r"(59 min \d\d s|1 h) left"))
    expect(sidebar.my_gpu).to_contain_text("Simulated GPUs: hold() keeps to the memory of a share")
    expect(sidebar.my_gpu.locator(".gpub-kernel")).to_have_text("work.ipynbhas the GPU")
    mine = sidebar.device("node1", 0)
    expect(mine).to_have_class(re.compile("gpub-mod-mine"))
    expect(mine).to_have_attribute("title", re.compile("50 % in use by .*; yours"))
    expect(page.run(0)).to_contain_text("1 GPU")

    sidebar.press("Park")
    sidebar.is_title("Parked")
    expect(sidebar.my_gpu).to_contain_text("your kernels live on, 2 GiB of GPU memory is in host")
    expect(sidebar.all.locator(".gpub-summary")).to_have_text("8 of 8 GPUs free")

    expect(page.run(1)).to_contain_text("42")
    sidebar.is_title("GPU attached")

    page.page.reload()
    page.ready()
    expect(sidebar.all).to_be_visible()
    sidebar.is_title("GPU attached")
    sidebar.press("Release")
    page.accept("Release")
    expect(sidebar.my_gpu).to_contain_text("You have no GPU.")
    expect(mine).not_to_have_class(re.compile("gpub-mod-mine"))


def test_a_job_from_a_cell_is_followed_and_cancelled_in_the_sidebar(
    lab: Lab, lab_page: OpenLab
) -> None:
    lab.write("train.ipynb", TRAIN, "%gpu_jobs")
    page = lab_page("train.ipynb")
    page.has_kernel()
    output = page.run(0)
    expect(output).to_contain_text("epoch 2 of 3")

    job = page.sidebar.job("digits")
    expect(job).to_contain_text("Running")
    job.get_by_role("button", name="digits").click()
    expect(job.locator(".gpub-log pre")).to_contain_text("epoch 2 of 3")
    expect(page.sidebar.jobs.locator("xpath=..")).to_contain_text("My jobs (1)")

    page.sidebar.press("Cancel job")
    expect(page.page.locator(".jp-Dialog")).to_contain_text("digits")
    page.accept("Cancel job")
    expect(job).to_contain_text("Cancelled")
    expect(output).to_contain_text("cancelled")
    expect(page.run(1)).to_contain_text("digits")


def test_a_request_that_does_not_fit_waits_with_its_reason_and_can_be_withdrawn(
    lab: Lab, lab_page: OpenLab
) -> None:
    fill = "%gpu_submit --gpus 4 --time 1h --no-torchrun sleep 3600"
    lab.write("fill.ipynb", f"{fill}\n{fill}")
    page = lab_page("fill.ipynb")
    page.has_kernel()
    page.run(0)
    sidebar = page.sidebar
    expect(sidebar.all.locator(".gpub-summary")).to_have_text("0 of 8 GPUs free")
    expect(sidebar.my_gpu).to_contain_text("All taken: you get a place in the queue")

    sidebar.ask_for("1", "2 h")
    sidebar.is_title("Waiting for a GPU")
    expect(sidebar.my_gpu).to_contain_text("Position 1")
    (row,) = [sidebar.row("you")]
    expect(row).to_have_class(re.compile("gpub-mod-mine"))
    expect(row.locator(".gpub-why")).not_to_be_empty()
    expect(row).to_contain_text(UNTIL)

    sidebar.press("Stop waiting")
    expect(sidebar.my_gpu).to_contain_text("You have no GPU.")
    expect(sidebar.queue).to_contain_text("Nobody waits.")


def test_a_second_jupyterlab_of_the_same_person_joins_the_same_broker(
    person: Person, lab: Lab, lab_page: OpenLab
) -> None:
    second = person.lab()
    try:
        one, two = lab_page(), lab_page(on=second)
        one.sidebar.ask_for("1", "1 h")
        one.sidebar.is_title("GPU attached")
        expect(two.sidebar.all.locator(".gpub-summary")).to_have_text("7 of 8 GPUs free")
        expect(two.sidebar.my_gpu).to_contain_text("You have no GPU.")
        two.sidebar.ask_for("2", "1 h")
        two.sidebar.is_title("GPU attached")
        expect(one.sidebar.all.locator(".gpub-summary")).to_have_text("5 of 8 GPUs free")
        with Client(person.broker_url) as broker:
            assert sorted(session.request.gpus for session in broker.sessions()) == [1, 2]
    finally:
        second.stop()
    expect(one.sidebar.all.locator(".gpub-summary")).to_have_text("7 of 8 GPUs free")
