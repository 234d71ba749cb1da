# SPDX-License-Identifier: BSD-3-Clause
"""One writer: the lock that a broker takes before it opens anything, and ``open_store``."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Protocol

import sqlalchemy as sa

from . import Store, StoreError
from .database import explained, parse, prepare_folder, sqlite_path
from .memory import MemoryStore
from .sql import SqlStore

ADVISORY_KEY = 0x67707562726F6B72
"""``gpubrokr``: the lock of one PostgreSQL database (advisory locks are per database)."""


class WriterLock(Protocol):
    """Held by the broker that may write, from before it opens the store until it ends."""

    def acquire(self, blocking: bool = True) -> bool:
        """Take the lock; waits for it if ``blocking``, else False where another has it.

        StoreError if the lock cannot be reached. Taking it twice changes nothing."""
        ...

    def release(self) -> None:
        """Give it back. The end of the process, however it ends, does the same."""
        ...


class FileLock:
    """An exclusive flock. The file stays: who has it open may be waiting for it.

    Programs that the broker starts do not inherit it (close on exec)."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None

    def acquire(self, blocking: bool = True) -> bool:
        """See ``WriterLock.acquire``. The pid in the file is for people."""
        if self._fd is not None:
            return True
        prepare_folder(self.path)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            fd = os.open(self.path, flags, 0o600)
        except OSError as error:
            raise StoreError(f"{self.path}: cannot lock: {error.strerror}") from None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | (0 if blocking else fcntl.LOCK_NB))
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError:
            os.close(fd)
            return False
        except OSError as error:
            os.close(fd)
            raise StoreError(f"{self.path}: cannot lock: {error.strerror}") from None
        self._fd = fd
        return True

    def release(self) -> None:
        """See ``WriterLock.release``."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


class AdvisoryLock:
    """A PostgreSQL advisory lock, on a connection of its own that does nothing else.

    If that connection breaks the lock is gone and another broker may go on; the epoch
    then stops this one at its next commit."""

    def __init__(self, url: sa.URL) -> None:
        self._url = url
        self._connection: sa.Connection | None = None

    def acquire(self, blocking: bool = True) -> bool:
        """See ``WriterLock.acquire``. The connection's name shows the pid to people."""
        if self._connection is not None:
            return True
        with explained(self._url):
            engine = sa.create_engine(
                self._url,
                poolclass=sa.NullPool,
                isolation_level="AUTOCOMMIT",
                connect_args={"application_name": f"jupyter-gpubroker writer {os.getpid()}"},
            )
            connection = engine.connect()
            lock = sa.func.pg_advisory_lock if blocking else sa.func.pg_try_advisory_lock
            try:
                # The blocking one returns void, once it has the lock.
                refused = connection.scalar(sa.select(lock(ADVISORY_KEY))) is False
            except BaseException:
                connection.close()
                raise
        if refused:
            connection.close()
            return False
        self._connection = connection
        return True

    def release(self) -> None:
        """See ``WriterLock.release``."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class MemoryLock:
    """The lock of a store that no other process can reach: always free."""

    def acquire(self, blocking: bool = True) -> bool:
        """See ``WriterLock.acquire``."""
        return True

    def release(self) -> None:
        """See ``WriterLock.release``."""


def open_store(url: str) -> tuple[Store, WriterLock]:
    """The store at ``url``, and the lock to take before ``Store.open``; touches neither.

    ``memory:``, ``sqlite:///PATH`` or ``postgresql+psycopg://USER@HOST/DATABASE``;
    StoreError for another URL."""
    if url == "memory:":
        return MemoryStore(), MemoryLock()
    parsed = parse(url)
    path = sqlite_path(parsed)
    if path is None:
        return SqlStore(parsed), AdvisoryLock(parsed)
    return SqlStore(parsed), FileLock(path.with_name(path.name + ".lock"))
