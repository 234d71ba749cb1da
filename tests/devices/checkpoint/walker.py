# SPDX-License-Identifier: BSD-3-Clause
"""A process that follows courses on the stub driver (see talk.py): ``GOAL PID PID ...``."""

from __future__ import annotations

import json
import sys
from contextlib import closing
from typing import Any

from jupyter_gpubroker.core.model import Process
from jupyter_gpubroker.devices import processes
from jupyter_gpubroker.devices.checkpoint.asking import PATIENCE, Helper
from jupyter_gpubroker.devices.checkpoint.course import Course
from jupyter_gpubroker.devices.checkpoint.state import State

SHORT = dict.fromkeys(PATIENCE, 3.0)


def walk(helper: Helper, goal: str, *pids: str) -> dict[str, Any]:
    """Take these processes there."""
    set_ = [processes.process_of(int(pid)) or Process(int(pid), 1) for pid in pids]
    states = tuple((process, helper.state(process)) for process in set_)
    steps: list[str] = []
    course = helper.follow(
        Course(State[goal], states).begin(), lambda course, step: steps.append(step.verb)
    )
    return {
        "arrived": course.arrived,
        "error": course.error,
        "states": [state.name for _, state in course.states],
        "steps": steps,
    }


with closing(Helper(SHORT)) as helper:
    for line in sys.stdin:
        sys.stdout.write(json.dumps(walk(helper, *line.split())) + "\n")
        sys.stdout.flush()
