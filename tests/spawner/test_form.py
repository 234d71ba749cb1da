# SPDX-License-Identifier: BSD-3-Clause
"""The spawn form: what is offered, in HTML that holds whatever names people invent."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from jupyter_gpubroker.spawner.asking import Offers
from jupyter_gpubroker.spawner.form import closed, render
from jupyter_gpubroker.spawner.wish import from_form, read
from jupyter_gpubroker.wire import ClassOut, KeptOut, ShapesOut
from tests.extension.standin import job

CLASSES = (
    ClassOut(name="batch", kinds=("batch",), time_default=3600, time_max=604800),
    ClassOut(name="interactive", kinds=("session",), time_default=7200, time_max=28800),
)


def shapes(**changes: Any) -> ShapesOut:
    """Two nodes of four GPUs of 16 GiB."""
    fields: dict[str, Any] = {
        "gpus_per_node": (1, 2, 3, 4),
        "nodes": 2,
        "flavors": ("sim",),
        "device_memory_mib": 16384,
        "queues": ("default",),
        "classes": CLASSES,
        "free_gpus": 3.5,
    }
    return ShapesOut(**(fields | changes))


class Form(HTMLParser):
    """The fields of a form, as a browser would send them."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.choices: dict[str, list[str]] = {}
        self.selected: dict[str, str] = {}
        self.boxes: list[str] = []
        self.tags: list[str] = []
        self.text = ""
        self._name = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.append(tag)
        if tag == "select":
            self._name = given["name"] or ""
            self.choices[self._name] = []
        elif tag == "option":
            value = given["value"] or ""
            self.choices[self._name].append(value)
            if "selected" in given:
                self.selected[self._name] = value
        elif tag == "input":
            self.boxes.append(given["name"] or "")

    def handle_data(self, data: str) -> None:
        self.text += data


def test_only_what_is_possible_is_offered() -> None:
    form = Form(render(Offers(shapes(), None), {}, attach=True))
    assert form.choices["gpus"] == ["none", "0.25", "0.5", "0.75", "1", "2", "3", "4"]
    assert form.choices["time"][-1] == "8h"
    assert "1d" not in form.choices["time"]
    assert form.selected == {"gpus": "none", "time": "2h"}
    assert "queue" not in form.choices
    assert form.boxes == []
    assert "4 GiB" in form.text
    assert "3.5" in form.text


def test_it_says_what_becomes_of_a_server_when_its_time_is_up() -> None:
    keeps = Form(render(Offers(shapes(), None), {}, attach=False))
    stops = Form(render(Offers(shapes(), None), {}, attach=False, stops=True))
    assert "your server is stopped" in stops.text
    assert "your server is stopped" not in keeps.text


def test_what_the_form_sends_can_be_read() -> None:
    form = Form(render(Offers(shapes(queues=("a", "b")), None), {}, attach=True))
    for gpus in form.choices["gpus"]:
        for time in form.choices["time"]:
            sent = {"gpus": [gpus], "time": [time], "queue": ["b"]}
            assert read(from_form(sent)).queue == "b"


def test_the_last_choice_is_made_again_where_it_is_still_possible() -> None:
    last = {"gpus": "0.5", "time": "4h", "queue": "b"}
    form = Form(render(Offers(shapes(queues=("a", "b")), None), last, attach=False))
    assert form.selected == last
    form = Form(render(Offers(shapes(gpus_per_node=(1,)), None), {"gpus": "4"}, attach=False))
    assert "gpus" not in form.selected


def test_a_place_without_gpus_offers_none() -> None:
    empty = shapes(gpus_per_node=(), free_gpus=0.0, device_memory_mib=0)
    form = Form(render(Offers(empty, None), {}, attach=True))
    assert form.choices == {"gpus": ["none"]}


def test_a_class_with_odd_times_has_them_in_the_list() -> None:
    odd = (ClassOut(name="s", kinds=("session",), time_default=100, time_max=5000),)
    form = Form(render(Offers(shapes(classes=odd), None), {}, attach=True))
    assert form.choices["time"] == ["100s", "15m", "30m", "1h", "5000s"]
    assert form.selected["time"] == "100s"


def test_what_is_parked_can_be_discarded() -> None:
    kept = KeptOut(kernel="k", rung="gpu_state", memory_mib=2048, node="node1")
    parked = job("s-1", "session", state="parked", kept=(kept,))
    form = Form(render(Offers(shapes(), parked), {}, attach=True))
    assert form.boxes == ["discard"]
    assert "2 GiB" in form.text
    running = job("s-1", "session", state="running")
    assert Form(render(Offers(shapes(), running), {}, attach=True)).boxes == []


def test_without_a_broker_there_is_no_gpu_and_the_reason() -> None:
    form = Form(closed("the GPU broker at http://x does not answer"))
    assert form.choices == {"gpus": ["none"]}
    assert "does not answer" in form.text


def test_names_stay_text() -> None:
    evil = '"><script>alert(1)</script>'
    html = render(Offers(shapes(queues=("a", evil)), None), {"queue": evil}, attach=True)
    form = Form(html + closed(evil))
    assert "script" not in form.tags
    assert form.selected["queue"] == evil


def test_it_needs_no_script() -> None:
    html = render(Offers(shapes(), None), {}, attach=True)
    assert not set(Form(html).tags) - {"div", "label", "select", "option", "input", "p"}


@pytest.mark.parametrize(
    ("free", "words"),
    [
        (0.0, "No GPU is free now."),
        (0.5, "0.5 GPU is free now."),
        (1.0, "1 GPU is free now."),
        (3.5, "3.5 GPUs are free now."),
    ],
)
def test_the_form_counts_in_words_that_agree(free: float, words: str) -> None:
    assert words in Form(render(Offers(shapes(free_gpus=free), None), {}, attach=True)).text
