# SPDX-License-Identifier: BSD-3-Clause
"""What the driver says of a process, and what can be asked of it."""

from __future__ import annotations

from enum import IntEnum, StrEnum


class State(IntEnum):
    """A process as the driver sees it (``CUprocessState``)."""

    UNKNOWN = -1
    """The driver did not say, or said something newer than this."""
    RUNNING = 0
    LOCKED = 1
    """Its calls of CUDA wait; its memory is on the GPU."""
    CHECKPOINTED = 2
    """Its memory is in host memory, and it holds no GPU."""
    FAILED = 3
    """What it had on the GPU is lost."""

    @classmethod
    def _missing_(cls, value: object) -> State:
        return cls.UNKNOWN


class Verb(StrEnum):
    """What can be asked of the driver for one process."""

    STATE = "state"
    LOCK = "lock"
    CHECKPOINT = "checkpoint"
    RESTORE = "restore"
    UNLOCK = "unlock"
