# SPDX-License-Identifier: BSD-3-Clause
"""A process that holds simulated GPU memory, told what to do line by line (see talk.py).

It answers ``["ok", value]`` or ``[name of the exception, text]``.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from jupyter_gpubroker.devices.simulated import (
    Holding,
    HoldLost,
    HoldRefused,
    SimulatedDevices,
    hold,
)
from jupyter_gpubroker.devices.simulated.world import World

holdings: list[Holding] = []
busy = False


def interrupted(signum: int, frame: object) -> None:
    """Interrupt only what was asked for, never the loop itself."""
    if busy:
        raise KeyboardInterrupt


def say(*words: Any) -> None:
    """Answer."""
    os.write(sys.stdout.fileno(), json.dumps(words).encode() + b"\n")


def fork() -> None:
    """Leave a child that says what its parent's holding is to it."""
    if os.fork() == 0:
        try:
            holdings[0].touch()
            say("ok", os.getpid())
        except HoldLost:
            say("lost", os.getpid())
        signal.pause()


def rawfork() -> int:
    """Leave a child that keeps every descriptor, as a C library's fork would."""
    child: int = ctypes.CDLL(None).fork()
    while child == 0:
        signal.pause()
    return child


def race(rounds: int, memory_mib: int) -> int:
    """Take and give back all of a device, again and again; the most ever seen in use."""
    devices = SimulatedDevices(Path(os.environ["GPUBROKER_SIMULATED"]))
    most = 0
    while rounds:
        try:
            with hold(memory_mib):
                most = max(most, sum(use.memory_mib for use in devices.usage()))
                rounds -= 1
        except HoldRefused:
            continue
    return most


def do(verb: str, *words: str) -> Any:
    """One command."""
    match verb:
        case "hold":
            holdings.append(hold(int(words[0]), device=words[1] if words[1:] else None))
            return holdings[-1].devices
        case "touch":
            holdings[int(words[0])].touch()
            return holdings[int(words[0])].devices
        case "release":
            return holdings[int(words[0])].release()
        case "parked":
            return holdings[int(words[0])].parked
        case "see":
            os.environ["CUDA_VISIBLE_DEVICES"] = words[0]
        case "become":
            os.setuid(int(words[0]))
        case "race":
            return race(int(words[0]), int(words[1]))
        case "rawfork":
            return rawfork()
        case "lockfork":
            with World(Path(os.environ["GPUBROKER_SIMULATED"])).locked():
                return rawfork()
    return None


signal.signal(signal.SIGINT, interrupted)
for line in sys.stdin:
    if line.strip() == "fork":
        fork()
        continue
    try:
        busy = True
        answer: Any = ("ok", do(*line.split()))
    except (Exception, KeyboardInterrupt) as error:
        answer = (type(error).__name__, str(error))
    finally:
        busy = False
    say(*answer)
