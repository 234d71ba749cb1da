# SPDX-License-Identifier: BSD-3-Clause
"""Put the pieces into an IPython: magics everywhere; binding and cell gate in a kernel."""

from __future__ import annotations

from typing import Any

from . import completion
from .control import Binding, install
from .gate import Gate
from .magics import Magics


def load(shell: Any) -> None:
    """Load once; loading again (``%reload_ext``) changes nothing."""
    if getattr(shell, "_gpubroker", None) is not None:
        return
    binding = Binding()
    magics = Magics(shell, binding)
    shell.register_magics(magics)
    completion.install(shell)
    kernel = getattr(shell, "kernel", None)
    if kernel is not None and hasattr(kernel, "control_handlers"):
        install(kernel, binding)
        Gate(shell, binding).install()
    shell._gpubroker = magics
