# SPDX-License-Identifier: BSD-3-Clause
"""Time-limited GPUs for notebooks and gang-scheduled training jobs, from one queue."""

from __future__ import annotations

__version__ = "0.1.0"


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "jupyter-gpubroker"}]


def _jupyter_server_extension_points() -> list[dict[str, object]]:
    from .extension import GPUBrokerExtension

    return [{"module": "jupyter_gpubroker.extension", "app": GPUBrokerExtension}]
