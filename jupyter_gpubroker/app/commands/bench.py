# SPDX-License-Identifier: BSD-3-Clause
"""``bench``."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ...core.model import Refusal
from ...sim import benchmarks
from .. import b4
from .cluster import read
from .command import Answer, Offline

BENCHMARKS: Mapping[str, tuple[str, benchmarks.Run]] = {
    **benchmarks.BENCHMARKS,
    "b4": ("submit 15,000 jobs to a real broker and wait for their ends", b4.run),
}
"""Id -> (what it does, how to run it)."""
DATALESS = ("b4", *benchmarks.DATALESS)
"""These make up their own workload."""


class BenchApp(Offline):
    """Run an experiment with published results on the production code, without a broker."""

    word = "bench"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        what = "; ".join(f"{id_}: {does}" for id_, (does, _) in BENCHMARKS.items())
        parser.add_argument("id", choices=sorted(BENCHMARKS), help=what)
        parser.add_argument(
            "--data",
            type=Path,
            metavar="DIR",
            help=f"folder of the workloads (all but {', '.join(DATALESS)} need it)",
        )

    def compute(self) -> tuple[dict[str, Any], str]:
        """See ``Offline.compute``."""
        _, measure = BENCHMARKS[self.args.id]
        if self.args.data is None and self.args.id not in DATALESS:
            raise Refusal("--data", "is missing", "the folder of the workloads")
        result = measure(self.args.data, read, self._say)
        people = f"{self.args.id}: {result['value']} {result['unit']}"
        return {**result, **_circumstances()}, people

    def show(self, answer: Answer, people: object) -> None:
        """The result is one line: the last one of ``--json``."""
        print(json.dumps(answer) if self.args.json else people)

    def _say(self, line: str) -> None:
        print(line, file=sys.stderr if self.args.json else sys.stdout, flush=True)


def _circumstances() -> dict[str, Any]:
    """Of what, when and on what it was measured."""
    try:
        here = Path(__file__).resolve().parent
        asked = ["git", "-C", str(here), "describe", "--always", "--dirty"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        answer = ""
    machine = {
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "python": platform.python_version(),
    }
    date = datetime.now(UTC).strftime("%Y-%m-%d")
    return {"commit": answer or "unknown", "date": date, "machine": machine}
