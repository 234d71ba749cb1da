# SPDX-License-Identifier: BSD-3-Clause
"""The broker's end of the helper: ask with a deadline, kill what hangs, follow a course."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

from ...core.model import Process, Seconds
from .course import Course, Step
from .state import State, Verb

LOCK_S: Seconds = 10.0
"""How long a process may go on computing before it is left alone."""
PATIENCE: Mapping[Verb, Seconds] = {
    Verb.STATE: 10.0,
    Verb.LOCK: LOCK_S + 10,
    Verb.CHECKPOINT: 120.0,
    Verb.RESTORE: 120.0,
    Verb.UNLOCK: 10.0,
}
"""Verb -> seconds after which it hangs: a whole GPU of 140 GB at 2 GB/s, and the start of the
helper."""
_REAP_S = 1.0
_ANSWER_MAX = 65536


class HelperError(Exception):
    """The driver could not do it, or did not answer in time; the text is for people."""


class Helper:
    """Asks the helper process, which is started when it is needed and again after a hang.

    For one thread at a time."""

    def __init__(self, patience: Mapping[Verb, Seconds] = PATIENCE) -> None:
        """``patience`` as ``PATIENCE``."""
        self._patience = patience
        self._child: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def state(self, process: Process) -> State:
        """What the driver says of a process; UNKNOWN where it does not say."""
        try:
            return self.ask(Verb.STATE, process)
        except HelperError:
            return State.UNKNOWN

    def ask(self, verb: Verb, process: Process) -> State:
        """Do it; the state of the process after it. HelperError if it failed or hung; what
        hung was killed, and the state of the process is to be asked anew."""
        asked = {
            "verb": verb.value,
            "pid": process.pid,
            "start": process.start,
            "timeout_ms": int(LOCK_S * 1000),
        }
        try:
            answer = json.loads(self._exchange(json.dumps(asked).encode(), self._patience[verb]))
        except TimeoutError as error:
            self.close()
            raise HelperError("the driver does not answer") from error
        except (OSError, ValueError) as error:
            self.close()
            raise HelperError(f"the checkpoint helper ended: {error}") from error
        if "error" in answer:
            raise HelperError(answer["error"])
        return State(answer["state"])

    def follow(self, course: Course, note: Callable[[Course, Step], None]) -> Course:
        """Take every step of a course to its end; ``note`` is called before each."""
        while (step := course.next) is not None:
            note(course, step)
            try:
                self.ask(step.verb, step.process)
                course = course.done(step)
            except HelperError as error:
                course = course.failed(step, self.state(step.process), str(error))
        return course

    def close(self) -> None:
        """End the helper process, whatever it does."""
        if self._socket is not None:
            self._socket.close()
        if self._child is not None:
            self._child.kill()
            with suppress(subprocess.TimeoutExpired):  # one that hangs in the kernel stays
                self._child.wait(_REAP_S)
        self._socket = self._child = None

    def _exchange(self, line: bytes, within: Seconds) -> bytes:
        peer = self._socket or self._start()
        peer.settimeout(within)
        peer.sendall(line + b"\n")
        answer = peer.recv(_ANSWER_MAX)
        if not answer:
            raise OSError("it said nothing")
        return answer

    def _start(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        with theirs:
            module = f"{__package__}.helper"
            self._child = subprocess.Popen([sys.executable, "-m", module], stdin=theirs.fileno())
        self._socket = ours
        return ours
