# SPDX-License-Identifier: BSD-3-Clause
"""Simulated GPUs: a file-backed world outside every process.

In a kernel or a job::

    from jupyter_gpubroker.devices.simulated import hold

    memory = hold(1024)  # MiB on each GPU of CUDA_VISIBLE_DEVICES

Imports nothing but the standard library, so that a kernel stays as light as before.
"""

from .devices import SimulatedDevices
from .holding import Holding, HoldLost, HoldRefused, hold
from .spec import Spec

__all__ = ["HoldLost", "HoldRefused", "Holding", "SimulatedDevices", "Spec", "hold"]
