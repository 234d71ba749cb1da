# SPDX-License-Identifier: BSD-3-Clause
"""The command line ``jupyter gpubroker`` and the broker's process."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of ``jupyter-gpubroker``."""
    from .serve import ServeApp  # noqa: PLC0415 - other commands need none of the server

    if sys.argv[1:2] == ["serve"]:
        ServeApp.launch_instance(argv=sys.argv[2:])
