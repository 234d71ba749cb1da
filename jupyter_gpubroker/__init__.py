# SPDX-License-Identifier: BSD-3-Clause
"""Time-limited GPUs for notebooks and gang-scheduled training jobs, from one queue."""

from __future__ import annotations

__version__ = "0.1.0"


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "jupyter-gpubroker"}]


def _jupyter_server_extension_points() -> list[dict[str, object]]:
    # Imported here so that `import jupyter_gpubroker` stays light (Hub, kernels, spawner).
    from .extension import GPUBrokerExtension  # noqa: PLC0415

    return [{"module": "jupyter_gpubroker.extension", "app": GPUBrokerExtension}]
