# SPDX-License-Identifier: BSD-3-Clause
"""What a test needs of the machine: found, or skipped with the line that enables it.

Where ``CI`` is set the machine is ours to complete, so a missing program is a failure.
Nothing else in tests/ may skip (tests/test_house.py).
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path
from typing import NoReturn

import pytest


def program(name: str, *, enable: str, folders: str = "") -> str:
    """The path of a program on PATH or in a folder that matches the glob ``folders``.

    ``enable`` is the command that installs it, shown with the skip."""
    found = shutil.which(name)
    for folder in sorted(Path("/").glob(folders.lstrip("/")), reverse=True) if folders else ():
        found = found or shutil.which(name, path=str(folder))
    return found or missing(name, enable)


def chromium() -> str:
    """A Chromium: the one in the variable CHROMIUM, else on PATH."""
    chosen = os.environ.get("CHROMIUM") or shutil.which("chromium-browser")
    return chosen or program("chromium", enable="sudo apt-get install chromium")


def proxy() -> str:
    """configurable-http-proxy, which ``make setup`` puts under .demo/."""
    return program("configurable-http-proxy", enable="make setup")


def postgres(name: str) -> str:
    """A program of the PostgreSQL server (``initdb``, ``pg_ctl``), which Debian keeps off PATH."""
    enable = "sudo apt-get install postgresql"
    return program(name, enable=enable, folders="/usr/lib/postgresql/*/bin")


def compiler() -> str:
    """A C compiler, for the stub libraries."""
    return program("gcc", enable="sudo apt-get install gcc libc6-dev")


def module(name: str, *, enable: str = "make setup") -> None:
    """A Python module of the test environment."""
    if importlib.util.find_spec(name) is None:
        missing(f"the Python module {name}", enable)


def root() -> None:
    """The rights to make accounts."""
    if os.geteuid() != 0:
        pytest.skip("needs root to make accounts; enable with: sudo make test")


def hardware(present: bool, what: str) -> None:
    """A piece of hardware; its absence is no failure, docs/limits.md names what it would show."""
    if not present:
        pytest.skip(f"needs {what}; see docs/limits.md")


def missing(what: str, enable: str) -> NoReturn:
    """Skip, or fail in CI, because ``what`` is not on this machine."""
    text = f"needs {what}; enable with: {enable}"
    if os.environ.get("CI", "").lower() in {"", "0", "false"}:
        pytest.skip(text)
    pytest.fail(text, pytrace=False)
