# SPDX-License-Identifier: BSD-3-Clause
"""What a submitted batch Job runs: from what people type to what an engine launches."""

from __future__ import annotations

import re

from ..core.model import Refusal, Request
from ..store import LaunchRow
from ..wire import SubmitIn

_PYTHON = re.compile(r"(?:.*/)?python[0-9.]*", re.DOTALL)
_DEFAULT_PYTHON = "python3"


def launch_of(body: SubmitIn, request: Request) -> LaunchRow:
    """The launch; Refusal where torchrun is needed and the command is not Python's.

    ``argv`` begins with a program, or with what follows ``python``: a .py file or an option.
    A torchrun launch holds what follows ``python`` only; torchrun starts Python itself."""
    python, script = _split(body)
    torchrun = _torchrun(body, request, is_python=script is not None)
    if torchrun and script == ():
        raise Refusal("argv", "torchrun needs a script", "for example: python train.py")
    argv = body.argv if script is None else (python, *script)
    if torchrun and script is not None:
        argv = script
    return LaunchRow(
        argv=argv,
        env=dict(body.env),
        cwd=body.cwd,
        python=python,
        torchrun=torchrun,
        files={name: text.encode() for name, text in body.files.items()},
    )


def _split(body: SubmitIn) -> tuple[str, tuple[str, ...] | None]:
    """The interpreter, and what follows it; ``None`` if another program is run."""
    first = body.argv[0]
    if not first:
        raise Refusal("argv", "the program has no name", "for example: python train.py")
    if _PYTHON.fullmatch(first):
        return first, body.argv[1:]
    if first.endswith(".py") or first.startswith("-"):
        return body.python or _DEFAULT_PYTHON, body.argv
    return body.python or _DEFAULT_PYTHON, None


def _torchrun(body: SubmitIn, request: Request, *, is_python: bool) -> bool:
    asked = body.torchrun
    wanted = (request.nodes > 1 or request.gpus > 1) if asked is None else asked
    if not wanted and request.nodes > 1:
        raise Refusal("torchrun", "several nodes are started by torchrun", "ask for one node")
    if not wanted or is_python:
        return wanted
    if asked is None and request.nodes == 1:
        return False  # a command that spreads over the GPUs of one node by itself
    raise Refusal(
        "argv",
        f"{body.argv[0]!r} is not Python, and torchrun starts Python only",
        "submit a .py file or `python …`" + (", or ask for one node" if asked is None else ""),
    )
