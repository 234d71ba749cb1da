# SPDX-License-Identifier: BSD-3-Clause
"""The engine seam: who starts, stops and watches processes on machines.

An engine acts on what the broker has committed. Every verb is idempotent and keyed
by ``(job, attempt)``; ``poll()`` returns everything of ours that exists, so that a
restarted broker needs nothing but its store and one poll. "Preempted" is the
broker's own record; an engine reports only what it saw.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, runtime_checkable

from ..core.model import (
    Binding,
    JobId,
    Kept,
    Key,
    Mode,
    Node,
    Placement,
    Process,
    Seconds,
    StageName,
)


class EngineError(Exception):
    """The engine could not do it now; the duty is tried again."""


class StartRefused(EngineError):
    """Nothing was started and nothing will be; ``node`` is the one that refused, if one did."""

    def __init__(self, text: str, node: str = "") -> None:
        super().__init__(text)
        self.text = text
        self.node = node


class RestoreRefused(EngineError):
    """What was parked could not be restored here; it is still kept."""


class Phase(StrEnum):
    """How far an attempt is. A report never goes backwards in this order."""

    PENDING = "pending"
    """Accepted; not every part runs yet."""
    RUNNING = "running"
    EXITED = "exited"
    """Every process of every part is proven gone (hosted), or the GPUs are proven
    free and no process of the lease is on them (held)."""


class Stop(StrEnum):
    """How an attempt is asked to leave; each is stronger than the one before."""

    PARK = "park"
    """Held: checkpoint the GPU state of the lease's processes to host memory."""
    TERM = "term"
    """SIGTERM to all parts (held: nothing, the server's extension does it; to the server, if
    it was launched with the GPUs)."""
    KILL = "kill"
    """SIGKILL to the whole tree of every part (held: to its processes on the GPUs, and to all
    that were launched with them, if the server was)."""


@dataclass(frozen=True, slots=True)
class Caps:
    """What an engine can do."""

    ladder: tuple[StageName, ...] = ()
    """The rungs by which a session can leave its GPUs, best first."""


@dataclass(frozen=True, slots=True)
class Launch:
    """All an engine needs to start one attempt.

    A held lease has no ``argv``: ``start`` grants the devices, restores ``kept``
    and launches nothing.
    """

    mode: Mode
    placement: Placement
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str = ""
    user: str = ""
    """Account to run as; empty = the broker's own."""
    torchrun: bool = False
    """``argv`` follows ``python -m torch.distributed.run <rendezvous options>``."""
    python: str = ""
    """Interpreter of the submitting kernel; torchrun agents run with it."""
    folder: str = ""
    """Folder of the attempt (logs, code, spool; ``engines.folder``); the engine makes it, as
    the job's user."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Submitted code: written to ``code/`` in the folder, as the job's user. An argument
    that is one of these names is replaced by its path there."""
    time_limit: Seconds = 0.0
    server: str = ""
    """Held: the session key, as in GPUBROKER_SESSION."""
    kept: tuple[Kept, ...] = ()
    """Held: what to restore before ``start`` returns."""
    binding: Binding = Binding.KERNEL
    """Held: whether the server itself is launched with the devices, and has to go with them."""


@dataclass(frozen=True, slots=True)
class Report:
    """What an engine knows of one attempt."""

    key: Key
    phase: Phase
    mode: Mode
    codes: tuple[int | None, ...] = ()
    """Exit code per part (node rank); negative = signal; None = lives, or was lost."""
    code: int | None = None
    """Exit code of the whole: 0, or that of the first part that failed."""
    failed_rank: int | None = None
    """Global rank where known, else node rank, of the first failure."""
    text: str = ""
    """Why it failed, for people: last lines of the failing rank."""
    processes: tuple[Process, ...] = ()
    memory_mib: int = 0
    """Held: GPU memory its processes use now, not counting what is parked."""
    kept: tuple[Kept, ...] = ()
    """Held: what is parked at this moment."""
    lost: str = ""
    """A part is lost, or its machine cannot be reached: why. Nothing is proven by it. A key
    that is known must never be left out instead: absence says that it never ran."""
    complete: bool = False
    """The program said that its work is done."""
    checkpoint: int | None = None
    """Last step the program said it saved."""

    @property
    def all_zero(self) -> bool:
        """True if it is over and every part gave 0."""
        return self.phase is Phase.EXITED and all(code == 0 for code in self.codes)


@dataclass(frozen=True, slots=True)
class Poll:
    """One look at everything an engine knows.

    ``began`` is when the look began: a key's absence means something only if the
    look began after its ``start`` had returned plus ``settle``.
    """

    began: Seconds
    reports: Mapping[Key, Report]
    settle: Seconds = 0.0
    parked: tuple[Kept, ...] = ()
    """Everything that is parked on its hosts, wanted or not."""


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Part of one rank's log."""

    data: bytes
    next_offset: int
    """Where to go on reading."""
    size: int
    """Bytes there are at present."""


@runtime_checkable
class Watchable(Protocol):
    """An Engine that tells of its own accord; it is looked at more rarely."""

    def watch(self) -> AsyncIterator[Sequence[Report]]:
        """Reports as they happen, for ever: those that ``poll`` would hold too. Nothing follows
        from what it does not tell; EngineError where it cannot tell any more."""
        ...


class Engine(Protocol):
    """Runs launches on real machines. Every verb may be repeated with the same key."""

    name: str
    caps: Caps

    async def nodes(self) -> Sequence[Node]:
        """The machines and their devices as they are now; EngineError if unknown."""
        ...

    async def start(self, key: Key, launch: Launch) -> None:
        """Start all parts or none. StartRefused: nothing runs and nothing will."""
        ...

    async def signal(self, key: Key, signum: int) -> None:
        """Send a signal to every part's processes; unknown keys are ignored."""
        ...

    async def stop(self, key: Key, how: Stop) -> None:
        """Ask every part to leave, or make it; unknown keys are ignored."""
        ...

    async def poll(self) -> Poll:
        """Everything of ours that exists or ended not long ago: the only recovery path."""
        ...

    async def logs(self, key: Key, rank: int, offset: int, limit: int) -> LogChunk:
        """Bytes of a rank's log from ``offset``; FileNotFoundError if there is none."""
        ...

    async def ranks(self, key: Key) -> Sequence[int]:
        """Ranks that have a log."""
        ...

    async def drop(self, kept: Kept) -> None:
        """Forget what was parked."""
        ...

    async def forget(self, key: Key) -> None:
        """The broker has recorded the end of this key; it need not be reported any more."""
        ...

    async def prune(self, before: Seconds, living: Collection[JobId]) -> None:
        """Remove what is left of keys that were forgotten before that time, the folders with
        their logs too, as the job's user and following no link; nothing of ``living`` Jobs."""
        ...
