# SPDX-License-Identifier: BSD-3-Clause
"""The command line ``jupyter gpubroker`` and the broker's process."""

from __future__ import annotations


def main() -> None:
    """Entry point of ``jupyter-gpubroker``."""
    from .cli import GPUBrokerApp  # noqa: PLC0415 - whoever imports app needs no command line

    GPUBrokerApp.launch_instance()
