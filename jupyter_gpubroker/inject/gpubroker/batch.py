# SPDX-License-Identifier: BSD-3-Clause
"""A job's program talks to the queue through files in the job's spool: no token, no network."""

from __future__ import annotations

import json
import os
import signal
import threading

_leave = threading.Event()
_lock = threading.Lock()


def should_stop() -> bool:
    """True once the job was asked to leave: save, say ``checkpointed(step)``, and exit.

    The first call makes SIGTERM set this flag instead of ending the program, unless the
    program has a handler of its own; call it first in the main thread."""
    spool = os.environ.get("GPUBROKER_SPOOL")
    if not spool:
        return False
    _listen()
    return _leave.is_set() or os.path.exists(os.path.join(spool, "stop"))


def checkpointed(step: int) -> None:
    """Record that everything up to ``step`` is saved; call it after the save is complete.

    TypeError if ``step`` is no integer, ValueError if it is negative."""
    if isinstance(step, bool) or not isinstance(step, int):
        raise TypeError(f"step must be an integer, got {step!r}")
    if step < 0:
        raise ValueError(f"step must not be negative, got {step}")
    _mark({"checkpoint": step})


def complete() -> None:
    """Record that the work is done: whatever ends this process later, it is not run again."""
    _mark({"complete": True})


def _mark(line: dict[str, object]) -> None:
    spool = os.environ.get("GPUBROKER_SPOOL")
    if not spool:
        return
    data = (json.dumps(line) + "\n").encode()
    # One write to a file of this rank's own: lines never mix, and none is read half.
    with _lock, open(os.path.join(spool, f"marks-{_rank()}.jsonl"), "ab", buffering=0) as file:
        file.write(data)
        os.fsync(file.fileno())


def _rank() -> int:
    try:
        return int(os.environ.get("RANK", "0"))
    except ValueError:
        return 0


def _listen() -> None:
    main = threading.current_thread() is threading.main_thread()
    if main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, lambda _number, _frame: _leave.set())
