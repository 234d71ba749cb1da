# SPDX-License-Identifier: BSD-3-Clause
"""A process that calls NVIDIA's libraries one by one, line by line (see talk.py).

``nvml NAME INDEX ARGUMENT...`` calls nvidia-ml-py's function of that name on a GPU, ``slice
NAME INDEX SLOT`` on a MIG slice, ``cuda NAME PID`` one of libcuda's checkpoint calls.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

import pynvml

cuda = ctypes.CDLL("libcuda.so.1")
pynvml.nvmlInit()


def plain(found: Any) -> Any:
    """What JSON can say of it."""
    if isinstance(found, list):
        return [plain(item) for item in found]
    if isinstance(found, pynvml._PrintableStructure):
        return {name: getattr(found, name) for name, _ in found._fields_}
    if isinstance(found, pynvml.nvmlFriendlyObject):
        return vars(found)
    return pynvml.nvmlDeviceGetUUID(found) if isinstance(found, ctypes._Pointer) else found


def nvml(name: str, index: str, *rest: str) -> Any:
    """On a GPU."""
    gpu = pynvml.nvmlDeviceGetHandleByIndex(int(index))
    return plain(getattr(pynvml, name)(gpu, *map(int, rest)))


def part(name: str, index: str, slot: str) -> Any:
    """On a MIG slice."""
    gpu = pynvml.nvmlDeviceGetHandleByIndex(int(index))
    handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, int(slot))
    return plain(getattr(pynvml, name)(handle))


def checkpoint(name: str, pid: str) -> Any:
    """[code, the number that was written]"""
    found = (ctypes.c_uint64 * 8)(*([5] if name == "Lock" else []))
    code = getattr(cuda, f"cuCheckpointProcess{name}")(int(pid), found)
    return [code, found[0] & 0xFFFFFFFF]


VERBS = {"nvml": nvml, "slice": part, "cuda": checkpoint}
for line in sys.stdin:
    word, *words = line.split()
    try:
        answer: Any = VERBS[word](*words)
    except pynvml.NVMLError as error:
        answer = {"NVMLError": error.value}
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
