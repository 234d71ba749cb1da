# SPDX-License-Identifier: BSD-3-Clause
"""The parts of a hosted attempt: started through shims all or none, looked at, signalled."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from ..core.model import Key, Process, Seconds
from ..devices import processes
from . import EngineError, StartRefused, shim

if TYPE_CHECKING:
    from .shim import Spec

_SHIM = Path(shim.__file__)
_PATIENCE: Seconds = 30.0
"""A shim that has not answered by then is given up; it leaves when its stdin closes."""


class State(Enum):
    """How far a part is."""

    WAITS = "waits"
    """Not started; a start may still come."""
    RUNS = "runs"
    LOST = "lost"
    """Started, but its shim is gone without a word: processes may live."""
    ENDED = "ended"
    """Its whole tree is gone, or it must never be started."""


@dataclass(frozen=True, slots=True)
class Part:
    """What one look at a part showed."""

    rank: int
    state: State
    main: Process | None = None
    shim: Process | None = None
    boot: str = ""
    code: int | None = None
    """Exit code of an ended part; ``None`` if it never ran."""
    time: int = 0
    """When it ended (ns)."""


def look(where: Path, rank: int, before: Part | None = None) -> Part:
    """The part whose shim writes into ``where``.

    ``before`` is an earlier look at it by the same process: what cannot change is not read
    again, since there may be hundreds of parts and ten looks a second."""
    if before and before.state is State.ENDED:
        return before
    ended = _facts(f"{where}/exit.json")
    part = before if before and before.main else _begun(where, rank)
    if ended:
        return replace(part, state=State.ENDED, code=ended["code"], time=ended["time"])
    if part.shim is None:
        return part
    if part.boot == _boot() and processes.alive(part.shim):
        return replace(part, state=State.RUNS)
    # It may have written its last word between our two looks.
    ended = _facts(f"{where}/exit.json")
    if ended:
        return replace(part, state=State.ENDED, code=ended["code"], time=ended["time"])
    return replace(part, state=State.LOST)


def _begun(where: Path, rank: int) -> Part:
    run = _facts(f"{where}/run.json")
    if run is None:
        return Part(rank, State.WAITS)
    return Part(rank, State.RUNS, Process(*run["main"]), Process(*run["shim"]), run["boot"])


def never(where: Path) -> None:
    """Make sure that a part that was not started never will be; nothing if a shim has it."""
    lock = shim.claim(str(where))
    if lock is None:
        return
    try:
        if not shim.decided(str(where)):
            shim.put(str(where / "exit.json"), {"code": None, "time": time.time_ns()})
    finally:
        os.close(lock)


def signal_process(process: Process, signum: int) -> None:
    """Signal exactly this process; nothing if it is gone."""
    try:
        fd = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    try:
        # The descriptor holds on to whatever has the pid now: compare, then signal it.
        if processes.alive(process):
            signal.pidfd_send_signal(fd, signum)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise EngineError(f"process {process.pid} may not be signalled: {error}") from error
    finally:
        os.close(fd)


def survivors(key: Key, uid: int, mains: Iterable[Process]) -> list[Process]:
    """Processes of an attempt that no shim watches any more, and all that descend from them.

    They are known by what they were launched with; only the job's own account counts, so
    that nobody can have another user's processes killed by naming a job."""
    parents, found = _parents(), {main for main in mains if processes.alive(main)}
    for pid in parents:
        environ = processes.environ_of(pid) if _uid(pid) == uid else {}
        marks = (environ.get("GPUBROKER_JOB"), environ.get("GPUBROKER_ATTEMPT"))
        if marks == (key.job, str(key.attempt)) and (process := processes.process_of(pid)):
            found.add(process)
    pids = {process.pid for process in found}
    for pid in sorted(parents):
        if _descends(pid, parents, pids) and (process := processes.process_of(pid)):
            found.add(process)
    return sorted(found)


def bound(owner: str, devices: Set[str]) -> list[Process]:
    """Processes whose launch environment names this owner and one of these devices."""
    found = []
    for pid in _parents():
        environ = processes.environ_of(pid)
        visible = environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        ours = processes.owner_of(environ) == owner and not devices.isdisjoint(visible)
        if ours and (process := processes.process_of(pid)):
            found.append(process)
    return sorted(found)


def heads(found: Iterable[Process]) -> list[Process]:
    """Those that no other of them has started: they see to their children themselves."""
    found, parents = list(found), _parents()
    pids = {process.pid for process in found}
    return [process for process in found if parents.get(process.pid) not in pids]


def start(where: Sequence[Path], specs: Sequence[Spec], nodes: Sequence[str]) -> None:
    """Start parts that were not started: all or none.

    StartRefused if one cannot start, EngineError if that is not known; nothing has run and
    nothing will."""
    with _Shims() as shims:
        for place, spec in zip(where, specs, strict=True):
            shims.open(place, spec)
        end = time.monotonic() + _PATIENCE
        for talk, node in zip(shims.talks, nodes, strict=True):
            _judge(talk.hear(end), node)
        for talk in shims.talks:
            talk.say(b"go\n")
        for talk in shims.talks:
            # From here on nothing is refused any more: run.json and exit.json tell the rest.
            with suppress(EngineError):
                talk.hear(end)


def _judge(answer: str, node: str) -> None:
    word, _, text = answer.partition(" ")
    if word == "refused":
        # Its node is not named to the broker: all are this machine, the next would refuse too.
        raise StartRefused(f"{node}: {text}")
    if word not in ("ready", "already"):
        raise EngineError(f"{node}: the shim of this part {word or 'died (see its shim.log)'}")


class _Talk:
    """The dialogue with one shim."""

    def __init__(self, where: Path, spec: Spec) -> None:
        with open(where / "shim.log", "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-ISE", str(_SHIM), str(where)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd="/",
                env={},
            )
        self._heard = b""
        self.say(json.dumps(spec).encode() + b"\n")

    def say(self, data: bytes) -> None:
        """A line for the shim; if it is gone, its silence will tell."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(data)
            self._process.stdin.flush()

    def hear(self, end: float) -> str:
        """Its next line, empty if it died; EngineError at ``end`` (monotonic)."""
        assert self._process.stdout is not None
        fd = self._process.stdout.fileno()
        ready = select.poll()
        ready.register(fd, select.POLLIN)
        while b"\n" not in self._heard:
            if not ready.poll(max(0.0, end - time.monotonic()) * 1000):
                raise EngineError(f"a shim did not answer within {_PATIENCE:g} s")
            data = os.read(fd, 4096)
            if not data:
                return ""
            self._heard += data
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode(errors="replace")

    def close(self) -> None:
        """End the dialogue; the shim has long left this process's children."""
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
        self._process.wait()


class _Shims:
    """Shims of one gang; leaving the block ends every dialogue."""

    def __init__(self) -> None:
        self.talks: list[_Talk] = []

    def open(self, where: Path, spec: Spec) -> None:
        """Start a shim and tell it what to run."""
        try:
            self.talks.append(_Talk(where, spec))
        except OSError as error:
            raise EngineError(f"cannot start a shim: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for talk in self.talks:
            talk.close()


def _facts(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb") as file:
            facts: dict[str, Any] = json.load(file)
    except FileNotFoundError:
        return None
    return facts


_boot = cache(processes.boot_id)


def _parents() -> dict[int, int]:
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                parents[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return parents


def _descends(pid: int, parents: dict[int, int], roots: set[int]) -> bool:
    seen = 0
    while pid in parents and seen <= len(parents):
        pid, seen = parents[pid], seen + 1
        if pid in roots:
            return True
    return False


def _uid(pid: int) -> int:
    # The owner of /proc/PID would be root for a process that must not be dumped.
    with suppress(OSError), open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.startswith("Uid:"):
                return int(line.split()[1])
    return -1
