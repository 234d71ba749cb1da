# SPDX-License-Identifier: BSD-3-Clause
"""A process that looks through the real pynvml and answers line by line (see talk.py).

It stands alone because the library is found by LD_LIBRARY_PATH, read at process start.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from typing import Any

from jupyter_gpubroker.devices import DeviceError
from jupyter_gpubroker.devices.nvml import NvmlDevices

devices = NvmlDevices()


def do(verb: str) -> Any:
    """One command."""
    match verb:
        case "nodes":
            return [dataclasses.asdict(node) for node in devices.inventory()]
        case "usage":
            return [dataclasses.asdict(use) for use in devices.usage()]
        case "events":
            return [dataclasses.asdict(event) for event in devices.events(0.2)]
        case "reason":
            return devices.reason
    raise ValueError(verb)


for line in sys.stdin:
    try:
        answer: Any = do(line.strip())
    except DeviceError as error:
        answer = {"DeviceError": str(error)}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
