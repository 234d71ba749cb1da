# SPDX-License-Identifier: BSD-3-Clause
"""Experiments with published results, on the production code: ``jupyter gpubroker bench``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import b1, b2, b3, b6

Run = Callable[[Path, Callable[[str], str], Callable[[str], None]], dict[str, Any]]
"""Of a folder of data (none for ``DATALESS``), how a file is read (Refusal if it cannot be), and
how progress is told."""

BENCHMARKS: Mapping[str, tuple[str, Run]] = {
    "b1": ("fill 6,212 GPUs with pods that come one by one", b1.run),
    "b2": ("run two traces of gangs on 64 GPUs, durations unknown and roughly known", b2.run),
    "b3": ("notebooks and training on 1,200 GPUs for two days", b3.run),
    "b6": ("decide about 10,000 jobs that wait for 10,000 GPUs", b6.run),
}
"""Id -> (what it does, how to run it)."""
DATALESS = ("b6",)
"""These make up their own workload."""
