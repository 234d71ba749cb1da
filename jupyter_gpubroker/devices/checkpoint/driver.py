# SPDX-License-Identifier: BSD-3-Clause
"""The checkpoint calls of ``libcuda.so.1`` by ctypes (cuda.h of CUDA 12.8 and later).

Every call blocks and may hang: only the helper process makes them."""

from __future__ import annotations

import ctypes

from .state import State, Verb

_LIBRARY, _PREFIX = "libcuda.so.1", "cuCheckpointProcess"
_CALLS = {
    Verb.STATE: "GetState",
    Verb.LOCK: "Lock",
    Verb.CHECKPOINT: "Checkpoint",
    Verb.RESTORE: "Restore",
    Verb.UNLOCK: "Unlock",
}


class DriverError(Exception):
    """The driver cannot do it; the text is for people."""


class LockArgs(ctypes.Structure):
    """``CUcheckpointLockArgs``: 64 bytes."""

    _fields_ = [
        ("timeout_ms", ctypes.c_uint),
        ("reserved0", ctypes.c_uint),
        ("reserved1", ctypes.c_uint64 * 7),
    ]


class Driver:
    """The library, ready to be asked. Nothing of CUDA is made in any GPU by it."""

    def __init__(self) -> None:
        """DriverError without the library, without the calls (before driver 570), or where
        it cannot be initialised."""
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError as error:
            raise DriverError(f"there is no NVIDIA driver here (no {_LIBRARY})") from error
        if not hasattr(self._library, f"{_PREFIX}Lock"):
            raise DriverError("this NVIDIA driver cannot checkpoint (570 or later can)")
        # Restore asks for this, or for persistence mode.
        self._check("cuInit", self._library.cuInit(0))

    def state(self, pid: int) -> State:
        """What the driver says of a process; DriverError if it does not."""
        found = ctypes.c_int()
        self._call(Verb.STATE, pid, ctypes.byref(found))
        return State(found.value)

    def do(self, verb: Verb, pid: int, timeout_ms: int) -> None:
        """Do it, or DriverError; ``timeout_ms`` bounds how long a lock waits for what the
        process computes."""
        args = LockArgs(timeout_ms=timeout_ms)
        self._call(verb, pid, ctypes.byref(args) if verb is Verb.LOCK else None)

    def _call(self, verb: Verb, pid: int, args: object) -> None:
        name = _PREFIX + _CALLS[verb]
        self._check(name, getattr(self._library, name)(pid, args))

    def _check(self, call: str, code: int) -> None:
        if code:
            name = ctypes.c_char_p()
            self._library.cuGetErrorName(code, ctypes.byref(name))
            raise DriverError(f"{call}: {(name.value or b'an error').decode()} ({code})")
