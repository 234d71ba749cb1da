# SPDX-License-Identifier: BSD-3-Clause
"""The reference of the Python client."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from jupyter_gpubroker.client import (
    Client,
    Conflict,
    Forbidden,
    Limited,
    Refusal,
    Unauthenticated,
    Unavailable,
    Unknown,
)

ERRORS = (Refusal, Conflict, Unauthenticated, Forbidden, Unknown, Limited, Unavailable)


def page() -> str:
    """Every method of the client, and what it raises."""
    lines = [
        "# Python",
        "",
        "Generated from `jupyter_gpubroker.client` by `make docs`; do not edit.",
        "",
        "```python",
        "from jupyter_gpubroker.client import Client",
        "",
        "with Client.from_environment() as broker:",
        "    for job in broker.jobs():",
        "        print(job.id, job.state)",
        "```",
        "",
        "`AsyncClient` has the same methods, to be awaited. Answers are models of",
        "`jupyter_gpubroker.wire`, with the fields of the [REST reference](rest.md).",
        "",
        "| method | |",
        "|---|---|",
        *_methods(),
        "",
        "## What is raised",
        "",
        "| error | |",
        "|---|---|",
        *(f"| `{error.__name__}` | {_first(error)} |" for error in ERRORS),
        "",
    ]
    return "\n".join(lines)


def _methods() -> Iterator[str]:
    for name in vars(Client):
        call = getattr(Client, name)
        if name.startswith("_") or name in ("send", "close") or not callable(call):
            continue
        names = [str(item).partition(":")[0] for item in _parameters(call)]
        yield f"| `{name}({', '.join(names)})` | {_first(call)} |"


def _parameters(call: object) -> Iterator[inspect.Parameter]:
    assert callable(call)
    for parameter in inspect.signature(call).parameters.values():
        if parameter.name not in ("self", "environ"):
            yield parameter


def _first(item: object) -> str:
    text = inspect.getdoc(item) or ""
    return " ".join(text.split("\n\n")[0].split()).replace("``", "`")
