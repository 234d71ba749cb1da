# SPDX-License-Identifier: BSD-3-Clause
"""``python -m jupyter_gpubroker.sim``: the fault simulation, seed by seed (``make sim``)."""

from __future__ import annotations

import argparse
import sys
import time

from . import alone
from .chaos import Result, run

STORY_LINES = 400
"""The end of the story of a seed that failed."""


def main(argv: list[str] | None = None) -> int:
    """Play the seeds; 1 if one of them failed, with its story."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--worlds", type=int, default=0, help="small ones that are left alone")
    asked = parser.parse_args(argv)
    began, turns, failed = time.monotonic(), 0, []
    for seed in range(asked.first, asked.first + asked.seeds):
        result = run(seed)
        turns += result.turns
        if result.error:
            failed.append(seed)
            _tell(result)
    took = time.monotonic() - began
    _say(f"{asked.seeds} seeds, {turns} turns in {took:.1f} s; failed: {failed or 'none'}")
    restless = list(alone.seeds(asked.first, asked.worlds))
    if asked.worlds:
        _say(f"{asked.worlds} worlds left alone; without rest: {restless or 'none'}")
    return 1 if failed or restless else 0


def _tell(result: Result) -> None:
    lines = result.digest[-STORY_LINES:]
    _say("\n".join(lines))
    _say(f"seed {result.seed} failed after {result.turns} turns:\n{result.error}")
    _say(f"again with: make sim SEEDS=1 FIRST_SEED={result.seed}\n")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
