# SPDX-License-Identifier: BSD-3-Clause
"""A report of ``simulate`` as a picture: who had the GPUs, who waited, and for how long.

It takes matplotlib, the extra ``plot``: import this module only where a picture is wanted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, PercentFormatter

INK, FAINT = "#333333", "#8a8a8a"
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00")
"""Of the classes: told apart by colour-blind eyes too (Okabe and Ito, 2008)."""
UNITS = ((2 * 86400.0, 86400.0, "days"), (2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"))
"""(From this length on, seconds of one, its name) on the time axis."""
TICKS = {
    0.0: "0",
    1.0: "1 s",
    10.0: "10 s",
    60.0: "1 min",
    600.0: "10 min",
    3600.0: "1 h",
    21600.0: "6 h",
    86400.0: "1 d",
    604800.0: "7 d",
    2592000.0: "30 d",
}
"""Waits that are named on their axis."""
STYLE: dict[Any, Any] = {
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "font.size": 9,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.8,
    "svg.hashsalt": "gpubroker",  # the same report gives the same file
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def draw(made: Mapping[str, Any], path: Path) -> None:
    """Write the picture of a report, as SVG or PNG by the name; OSError if it cannot."""
    waits = [(name, found["waits"]) for name, found in made["by"]["class"].items()]
    waits = [(name, numbers) for name, numbers in waits if numbers["count"]]
    rows = max(1, len(waits))
    layout = ConstrainedLayoutEngine(h_pad=0.12, w_pad=0.12)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(10, 5.6 + 0.4 * rows), layout=layout)
        use, queue, spread = figure.subplots(3, height_ratios=(3.2, 1.1, 0.4 + 0.4 * rows))
        queue.sharex(use)
        colours = _colours(made)
        _use(use, made, colours)
        _queue(queue, made)
        _waits(spread, waits, colours)
        kind = path.suffix[1:]
        about = {"Date": None} if kind == "svg" else None
        figure.savefig(path, format=kind, dpi=150, metadata=about)


def _colours(made: Mapping[str, Any]) -> Mapping[str, str]:
    """Each class has one colour in the whole picture."""
    names = sorted({*made["by"]["class"], *_classes(made["over_time"])})
    return dict(zip(names, cycle(COLOURS), strict=False))


def _classes(points: Sequence[Mapping[str, Any]]) -> Sequence[str]:
    return list(points[0]["allocated_by_class"]) if points else []


def _steps(points: Sequence[Mapping[str, Any]], end: float) -> list[float]:
    """The edges of the parts of the time."""
    return [*(point["from_s"] for point in points), end]


def _use(axes: Axes, made: Mapping[str, Any], colours: Mapping[str, str]) -> None:
    """What each class had, one on the other, and how much of all that was really in use."""
    points, end = made["over_time"], made["end_s"] or 1.0
    times = _steps(points, end)
    heights = [list(accumulate(point["allocated_by_class"].values())) for point in points]
    floor = [0.0] * len(times)
    for index, name in enumerate(_classes(points)):
        top = [height[index] for height in heights]
        top.append(top[-1])
        axes.fill_between(
            times, floor, top, step="post", color=colours[name], alpha=0.75, lw=0, label=name
        )
        floor = top
    if points:
        active = [point["active"] for point in points]
        axes.step(times, [*active, active[-1]], where="post", color=INK, lw=1.2, label="in use")
    axes.set(xlim=(0, end), ylim=(0, 1.02), title=_title(made))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    axes.tick_params(labelbottom=False)
    axes.grid(axis="y")
    axes.set_axisbelow(True)
    if points:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=8, frameon=False, borderpad=0)


def _title(made: Mapping[str, Any]) -> str:
    allocated, used = (100 * (made[key]["mean"] or 0.0) for key in ("allocation", "utilisation"))
    return f"GPUs allocated: {allocated:.0f} %, in use: {used:.0f} %"


def _queue(axes: Axes, made: Mapping[str, Any]) -> None:
    """How many waited."""
    points, end = made["over_time"], made["end_s"] or 1.0
    if points:
        counts = [point["waiting"] for point in points]
        axes.fill_between(
            _steps(points, end), [*counts, counts[-1]], step="post", color=FAINT, alpha=0.6, lw=0
        )
    size, unit = next(((s, name) for least, s, name in UNITS if end >= least), (1.0, "seconds"))
    axes.set(title="Jobs and sessions waiting", xlabel=f"time in {unit}")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))
    ticks = MaxNLocator(10, steps=[1, 2, 5, 10]).tick_values(0, end / size)
    axes.xaxis.set_major_locator(FixedLocator([tick * size for tick in ticks]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda time, _: f"{time / size:g}"))
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _waits(
    axes: Axes, waits: Sequence[tuple[str, Mapping[str, Any]]], colours: Mapping[str, str]
) -> None:
    """For each class, the waits that half, 9 of 10, and 99 of 100 did not exceed."""
    axes.set_title("Waits: half, 90 % and 99 % waited no longer (large to small dots)")
    axes.set_xscale("symlog", linthresh=1.0, linscale=0.4)
    longest = max((numbers["p99"] for _, numbers in waits), default=0.0)
    last = next((tick for tick in TICKS if tick and tick >= longest), longest)
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in TICKS if tick <= last]))
    axes.xaxis.set_minor_locator(FixedLocator([]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda wait, _: TICKS[wait]))
    for row, (name, numbers) in enumerate(waits):
        found = [numbers[key] for key in ("p50", "p90", "p99")]
        axes.plot(found, [row] * 3, color=colours[name], lw=2, alpha=0.5)
        for wait, size in zip(found, (9, 7, 5), strict=True):
            axes.plot(wait, row, "o", color=colours[name], ms=size, mec="white", clip_on=False)
    labels = [
        f"{name}\n{numbers['count']:,}, {100 * numbers['at_once']:.0f} % at once"
        for name, numbers in waits
    ]
    axes.set_yticks(range(len(waits)), labels)
    axes.set(xlim=(0, last), ylim=(max(0.6, len(waits) - 0.4), -0.6))
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
