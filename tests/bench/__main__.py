# SPDX-License-Identifier: BSD-3-Clause
"""Print the figures as a table for docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

from . import submit
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
    found = submit.measure()
    lines = [
        f"{RUNS} runs each, in turn; {_machine()}",
        "",
        "| figure | ours | against | |",
        "|---|---|---|---|",
        f"| submit → first instruction | {spread(found.ours)} | plain `Popen`:"
        f" {spread(found.other)} | {1000 * found.more:+.0f} ms |",
    ]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
