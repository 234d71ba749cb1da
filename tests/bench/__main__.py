# SPDX-License-Identifier: BSD-3-Clause
"""Print the figures as a table for docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

from . import spawn, submit
from .pair import RUNS, spread


def _machine() -> str:
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout.strip()
    python = platform.python_version()
    system = f"{platform.system()} {platform.release()}"
    return f"{os.cpu_count()} cores, {system}, Python {python}; commit {commit or 'unknown'}"


def main() -> None:
    """Measure everything."""
    first, server = submit.measure(), spawn.measure()
    lines = [
        f"{RUNS} runs each, in turn; {_machine()}",
        "",
        "| figure | ours | against | |",
        "|---|---|---|---|",
        f"| submit → first instruction | {spread(first.ours)} | plain `Popen`:"
        f" {spread(first.other)} | {1000 * first.more:+.0f} ms |",
        f"| spawn of a server | {spread(server.ours)} | `SimpleLocalProcessSpawner`:"
        f" {spread(server.other)} | × {server.times:.2f} |",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
