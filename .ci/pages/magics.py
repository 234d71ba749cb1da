# SPDX-License-Identifier: BSD-3-Clause
"""The reference of the magics."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import jupyter_gpubroker.inject.gpubroker as helpers
from jupyter_gpubroker.inject.gpubroker.jobs import Batch, Job
from jupyter_gpubroker.inject.gpubroker.magics import Magics

from .arguments import own, row


def page() -> str:
    """Every magic with its arguments, and what a training script can say."""
    names = sorted(Magics.magics["line"])
    lines = [
        "# Magics",
        "",
        "Generated from `jupyter_gpubroker.inject` by `make docs`; do not edit.",
        "",
        "`%gpu_submit?` in a notebook tells the same. The magics are there without `%load_ext` in",
        "every Python kernel, of any environment, that a Jupyter server with jupyter-gpubroker",
        "starts. Tab completes ids of jobs. Cells of nothing but these magics run at once, also",
        "while the session is parked.",
    ]
    for name in names:
        lines += ["", *_magic(name, getattr(Magics, name))]
    lines += ["", "## What they return", "", *_returned()]
    lines += ["", "## In a training script", "", "`import gpubroker` works in every job.", ""]
    lines += ["| call | |", "|---|---|", *_helpers(), ""]
    return "\n".join(lines)


def _magic(name: str, magic: Any) -> Iterator[str]:
    cell = f", %%{name}" if name in Magics.magics["cell"] else ""
    yield from (f"## %{name}{cell}", "", " ".join(magic.parser.description.split()))
    arguments = own(magic.parser)
    if arguments:
        yield from ("", "| argument | |", "|---|---|", *map(row, arguments))


def _returned() -> Iterator[str]:
    yield "`%gpu_submit` and `%gpu_session` return a job that can be asked:"
    yield from ("", "| attribute | |", "|---|---|")
    for name, item in {**vars(Job), **vars(Batch)}.items():
        if not name.startswith("_") and name not in ("lines", "html") and item.__doc__:
            words = name if isinstance(item, property) else f"{name}{_parameters(item)}"
            yield f"| `{words}` | {_first(item)} |"


def _helpers() -> Iterator[str]:
    for name in ("should_stop", "checkpointed", "complete"):
        call = getattr(helpers, name)
        words = " ".join((call.__doc__ or "").split()).replace("``", "`")
        yield f"| `gpubroker.{name}{_parameters(call)}` | {words} |"


def _parameters(call: Any) -> str:
    names = [name for name in inspect.signature(call).parameters if name != "self"]
    return f"({', '.join(names)})"


def _first(item: Any) -> str:
    return " ".join((item.__doc__ or "").split("\n\n")[0].split())
