# SPDX-License-Identifier: BSD-3-Clause
"""The folder of an attempt: written by the job's user, read by the broker.

::

    rank-<r>.log               stdout and stderr of global rank r
    node-<n>.log               of the torchrun agent on node n
    code/                      the submitted files
    spool/                     GPUBROKER_SPOOL: how program and broker talk without a token
      marks-<r>.jsonl          the program appends {"checkpoint": STEP} or {"complete": true},
                               one JSON object a line, in one write
      stop                     the broker: {"reason": ..., "time": ...}; the program should save
                               its work and leave
      exit-<r>.json            how the rank ended (``rank``)

The broker may be root and the user may put anything here, so no link is ever followed,
everything has to belong to the job's user, and what is read is a claim about that user's own
work and nothing else. A file that is not like that counts as not there.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from . import LogChunk

CODE, SPOOL = "code", "spool"
_RANK_LOG = re.compile(r"rank-(\d{1,6})\.log", re.ASCII)
_MARKS = re.compile(r"marks-(\d{1,6})\.jsonl", re.ASCII)
_EXIT = re.compile(r"exit-(\d{1,6})\.json", re.ASCII)
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO must not hold us up
_AT_ONCE, _READS, _FILES = 65536, 256, 4096
"""Bytes in one read, reads of one file and files of a spool in one look: what a program may
say is more than enough, what it may cost the broker is not without a limit."""
_TAIL_BYTES, _TAIL_LINES = 4096, 20
_STEP_LIMIT = 2**63
_CODES, _TIMES = range(-64, 256), range(2**63)


def rank_log(rank: int) -> str:
    """Name of the log of a global rank."""
    return f"rank-{rank}.log"


def node_log(rank: int) -> str:
    """Name of the log of the torchrun agent on the node of that rank."""
    return f"node-{rank}.log"


@dataclass(frozen=True, slots=True)
class RankExit:
    """How a rank ended, by its own word."""

    rank: int
    code: int
    time: int
    """Nanoseconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Said:
    """What the program has said so far."""

    complete: bool = False
    checkpoint: int | None = None
    exits: tuple[RankExit, ...] = ()

    @property
    def failure(self) -> RankExit | None:
        """The rank that failed first."""
        failed = (rank for rank in self.exits if rank.code != 0)
        return min(failed, key=lambda rank: rank.time, default=None)


@dataclass
class Folder:
    """One attempt's folder at ``path``, of the user ``uid``; OSError where it cannot be read."""

    path: str
    uid: int
    _offsets: dict[str, int] = field(default_factory=dict)
    _said: Said = field(default_factory=Said)

    def read(self, name: str, offset: int, limit: int) -> LogChunk:
        """At most ``limit`` bytes of a file from ``offset``; FileNotFoundError if there is none."""
        with self._open() as folder, self._file(folder, name) as (fd, size):
            data = os.pread(fd, max(limit, 0), max(offset, 0))
            return LogChunk(data, max(offset, 0) + len(data), max(size, offset + len(data)))

    def ranks(self) -> Sequence[int]:
        """Ranks that have a log; FileNotFoundError if there is no such folder."""
        with self._open() as folder:
            names = os.listdir(folder)
        return sorted(int(match[1]) for match in map(_RANK_LOG.fullmatch, names) if match)

    def tail(self, name: str) -> str:
        """The last lines of a file; empty if there is none. They are shown to others than who
        wrote them: without what would control a terminal."""
        with suppress(OSError), self._open() as folder, self._file(folder, name) as (fd, size):
            data = os.pread(fd, _TAIL_BYTES, max(size - _TAIL_BYTES, 0))
            lines = data.decode(errors="replace").splitlines()[-_TAIL_LINES:]
            return "\n".join("".join(filter(_shown, line)) for line in lines)
        return ""

    def tell_stop(self, reason: str, time: float) -> None:
        """Write ``stop`` into the spool, for programs that ask instead of handling SIGTERM."""
        with self._open(SPOOL) as spool:
            draft = ".stop.new"
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=spool)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with open(os.open(draft, flags, 0o644, dir_fd=spool), "w", encoding="ascii") as file:
                json.dump({"reason": reason, "time": time}, file)
                os.fchown(file.fileno(), self.uid, -1)
            os.rename(draft, "stop", src_dir_fd=spool, dst_dir_fd=spool)

    def said(self) -> Said:
        """What the program has said; only what is new is read."""
        with suppress(OSError), self._open(SPOOL) as spool:
            with os.scandir(spool) as entries:
                names = sorted(entry.name for entry in islice(entries, _FILES))
            for name in names:
                with suppress(OSError):
                    self._hear(spool, name)
        return self._said

    def _hear(self, spool: int, name: str) -> None:
        if _MARKS.fullmatch(name):
            self._hear_marks(spool, name)
        elif (match := _EXIT.fullmatch(name)) and name not in self._offsets:
            with self._file(spool, name) as (fd, _):
                facts = _object(os.read(fd, _AT_ONCE))
            self._offsets[name] = 0
            code, time = facts.get("code"), facts.get("time")
            # Whatever is believed here ends in the store: no bool, nothing too large.
            if type(code) is int and type(time) is int and code in _CODES and time in _TIMES:
                ended = RankExit(int(match[1]), code, time)
                self._said = replace(self._said, exits=(*self._said.exits, ended))

    def _hear_marks(self, spool: int, name: str) -> None:
        with self._file(spool, name) as (fd, size):
            for _ in range(_READS):
                offset = self._offsets.get(name, 0)
                data = os.pread(fd, _AT_ONCE, offset) if size > offset else b""
                whole, _, rest = data.rpartition(b"\n")
                if len(rest) == _AT_ONCE:  # no mark is that long: not ours, skip it
                    rest = b""
                self._offsets[name] = offset + len(data) - len(rest)
                for line in whole.splitlines():
                    self._mark(_object(line))
                if len(data) < _AT_ONCE:
                    return

    def _mark(self, facts: dict[str, Any]) -> None:
        if facts.get("complete") is True:
            self._said = replace(self._said, complete=True)
        step = facts.get("checkpoint")
        if type(step) is int and 0 <= step < _STEP_LIMIT:
            step = max(step, self._said.checkpoint or 0)
            self._said = replace(self._said, checkpoint=step)

    @contextmanager
    def _open(self, *names: str) -> Iterator[int]:
        try:
            fd = os.open(self.path, _DIRECTORY)
        except OSError as error:
            raise FileNotFoundError(f"the folder {self.path} cannot be opened") from error
        try:
            self._check(fd, stat.S_ISDIR)
            for name in names:
                below = os.open(name, _DIRECTORY, dir_fd=fd)
                os.close(fd)
                fd = below
                self._check(fd, stat.S_ISDIR)
            yield fd
        finally:
            os.close(fd)

    @contextmanager
    def _file(self, folder: int, name: str) -> Iterator[tuple[int, int]]:
        try:
            fd = os.open(name, _FILE, dir_fd=folder)
        except OSError as error:
            raise FileNotFoundError(f"there is no plain file {name} in {self.path}") from error
        try:
            yield fd, self._check(fd, stat.S_ISREG).st_size
        finally:
            os.close(fd)

    def _check(self, fd: int, kind: Any) -> os.stat_result:
        facts = os.fstat(fd)
        if facts.st_uid != self.uid or not kind(facts.st_mode):
            raise FileNotFoundError(f"something else than the job's own files is in {self.path}")
        return facts


def _shown(character: str) -> bool:
    return character.isprintable() or character == "\t"


def _object(text: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}
