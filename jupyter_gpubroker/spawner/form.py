# SPDX-License-Identifier: BSD-3-Clause
"""The GPU part of the spawn form: plain HTML that needs no script. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from ..wire import ClassOut, JobOut, ShapesOut, parse_duration, words_duration
from .asking import Offers
from .wish import NONE

SHARES = ("0.25", "0.5", "0.75")
TIMES = ("15m", "30m", "1h", "2h", "4h", "8h", "12h", "1d", "2d", "7d")

Option = tuple[str, str]
"""(value, label)"""


def render(offers: Offers, last: Mapping[str, Any], *, attach: bool, stops: bool = False) -> str:
    """The form; ``last`` = the options of the last start, chosen again where possible;
    ``stops``: a server is stopped when its GPUs are taken."""
    shapes = offers.shapes
    parts = [
        _select("gpus", "GPU", _gpus(shapes), _chosen(last, "gpus", NONE), _free(shapes, attach)),
        *_time(shapes, last, stops),
    ]
    if len(shapes.queues) > 1:
        queues = [(name, name) for name in shapes.queues]
        parts.append(_select("queue", "Queue", queues, _chosen(last, "queue", queues[0][0])))
    if offers.parked is not None:
        parts.append(_discard(offers.parked))
    return "\n".join(parts)


def closed(why: str) -> str:
    """The form without a broker: a start without a GPU, and the reason."""
    text = escape(f"No GPU can be asked for now: {why}.")
    note = f'<div class="alert alert-warning" role="alert">{text}</div>'
    return f"{note}\n{_select('gpus', 'GPU', [(NONE, 'No GPU')], NONE)}"


def _chosen(last: Mapping[str, Any], name: str, otherwise: str) -> str:
    value = last.get(name)
    return str(value) if isinstance(value, str | int | float) and value != "" else otherwise


def _gpus(shapes: ShapesOut) -> list[Option]:
    options = [(NONE, "No GPU")]
    if shapes.gpus_per_node:
        options += [(share, _share(share, shapes.device_memory_mib)) for share in SHARES]
    options += [(str(n), f"{n} GPU{'s' if n > 1 else ''}") for n in shapes.gpus_per_node]
    return options


def _share(share: str, memory_mib: int) -> str:
    memory = float(share) * memory_mib / 1024
    return f"{share} GPU" + (f" (about {memory:.3g} GiB)" if memory else "")


def _free(shapes: ShapesOut, attach: bool) -> str:
    if not shapes.gpus_per_node:
        return "There is no GPU here at present."
    then = (
        "JupyterLab opens at once, and the GPU attaches to it when it is your turn"
        if attach
        else "your server starts when it is your turn"
    )
    number = shapes.free_gpus
    noun = "GPU is" if 0 < number <= 1 else "GPUs are"
    free = f"{number:g} {noun} free now" if number else "No GPU is free now"
    return f"{free}. If yours is not, you get a place in the queue: {then}."


def _time(shapes: ShapesOut, last: Mapping[str, Any], stops: bool) -> list[str]:
    limits = next((item for item in shapes.classes if "session" in item.kinds), None)
    if limits is None or not shapes.gpus_per_node:
        return []
    options, usual = _times(limits)
    note = "After that the GPU goes back; what can be kept is kept, and you may ask again."
    if stops:
        note = "After that your server is stopped: save your work before. You may start it again."
    return [_select("time", "For how long", options, _chosen(last, "time", usual), note)]


def _times(limits: ClassOut) -> tuple[list[Option], str]:
    """The choices, and the one that the class has as its default."""
    seconds = {parse_duration(time): time for time in TIMES}
    for value in (limits.time_default, limits.time_max):
        seconds.setdefault(value, f"{value:g}s")
    allowed = sorted(value for value in seconds if value <= limits.time_max)
    options = [(seconds[value], words_duration(value)) for value in allowed]
    return options, seconds[limits.time_default]


def _discard(session: JobOut) -> str:
    memory = sum(kept.memory_mib for kept in session.kept) / 1024
    rungs = ", ".join(dict.fromkeys(str(kept.rung).replace("_", " ") for kept in session.kept))
    size = f", {memory:.3g} GiB" if memory else ""
    text = escape(f"{session.request.words} of this server is parked ({rungs}{size}).")
    return f"""<div class="mb-3">
  <p class="mb-1">{text} Ask for the same again to get it back.</p>
  <div class="form-check">
    <input class="form-check-input" type="checkbox" name="discard" id="gpubroker-discard">
    <label class="form-check-label" for="gpubroker-discard">Discard it instead</label>
  </div>
</div>"""


def _select(name: str, label: str, options: Iterable[Option], chosen: str, note: str = "") -> str:
    lines = [
        f'    <option value="{escape(value)}"{" selected" if value == chosen else ""}>'
        f"{escape(text)}</option>"
        for value, text in options
    ]
    hint = f'\n  <div class="form-text">{escape(note)}</div>' if note else ""
    choices = "\n".join(lines)
    return f"""<div class="mb-3">
  <label class="form-label" for="gpubroker-{name}">{escape(label)}</label>
  <select class="form-select" name="{name}" id="gpubroker-{name}">
{choices}
  </select>{hint}
</div>"""
