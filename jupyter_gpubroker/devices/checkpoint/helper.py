# SPDX-License-Identifier: BSD-3-Clause
"""The process that makes the driver's calls, because one may hang: ``python -m …helper``.

Its standard input is a socket to its parent, and nobody else is heard. One JSON line per verb,
one per answer; it ends when the parent does, after the call that it makes at the time."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import sys
from typing import Any

from ...core.model import Process
from .. import processes
from .driver import Driver, DriverError
from .state import Verb


def serve(peer: socket.socket) -> int:
    """Answer until the parent is gone; 1 if it is not the parent that asks."""
    pid, uid, _ = struct.unpack(
        "3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    )
    if pid != os.getppid() or uid != os.geteuid():
        return 1
    driver: Driver | None = None
    with peer.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            try:
                driver = driver or Driver()
                answer = _do(driver, json.loads(line))
            except DriverError as error:
                answer = {"error": str(error)}
            lines.write(json.dumps(answer) + "\n")
            lines.flush()
    return 0


def _do(driver: Driver, asked: Any) -> dict[str, Any]:
    """One verb for exactly that process: a later one of its pid is none of ours."""
    process, verb = Process(asked["pid"], asked["start"]), Verb(asked["verb"])
    gone = DriverError(f"process {process.pid} is gone")
    try:
        handle = os.pidfd_open(process.pid)
    except OSError as error:
        raise gone from error
    try:
        if not processes.alive(process):
            raise gone
        if verb is not Verb.STATE:
            driver.do(verb, process.pid, asked["timeout_ms"])
        state = driver.state(process.pid)
        if select.select([handle], [], [], 0)[0]:
            raise gone
        return {"state": int(state)}
    finally:
        os.close(handle)


if __name__ == "__main__":
    sys.exit(serve(socket.socket(fileno=0)))
