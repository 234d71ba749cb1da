# SPDX-License-Identifier: BSD-3-Clause
"""Reach a database: files and modes, connections, and its errors in words for people."""

from __future__ import annotations

import importlib.util
import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from . import StoreError

BUSY_MS = 20_000
"""How long SQLite waits for another process's write before it gives up."""

SQLITE_PRAGMAS = (
    f"PRAGMA busy_timeout = {BUSY_MS}",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    # A dropped launch held an environment: its bytes are zeroed, not just unlinked.
    "PRAGMA secure_delete = ON",
)


def parse(url: str) -> sa.URL:
    """The URL of a database that can hold a store; StoreError for any other."""
    try:
        parsed = sa.make_url(url)
    except ArgumentError:
        # The text is not repeated: it may hold a password.
        raise StoreError(
            "the store URL cannot be read; use sqlite:///PATH, "
            "postgresql+psycopg://USER@HOST/DATABASE or memory:"
        ) from None
    match parsed.drivername:
        case "sqlite" | "sqlite+pysqlite":
            if not parsed.database or parsed.database == ":memory:":
                raise StoreError("sqlite:// names no file; use sqlite:///PATH, or memory:")
            return parsed.set(drivername="sqlite")
        case "postgresql" | "postgresql+psycopg":
            if importlib.util.find_spec("psycopg") is None:
                raise StoreError("PostgreSQL needs psycopg: pip install 'psycopg[binary]'")
            return parsed.set(drivername="postgresql+psycopg")
    raise StoreError(
        f"{parsed.drivername}: no such store; use sqlite:///PATH or "
        "postgresql+psycopg://USER@HOST/DATABASE"
    )


def sqlite_path(url: sa.URL) -> Path | None:
    """The file of a SQLite URL; ``None`` for a server."""
    return Path(url.database or "") if url.drivername == "sqlite" else None


def where(url: sa.URL) -> str:
    """The database for people: a path, or a URL without its password."""
    path = sqlite_path(url)
    return str(path) if path else url.render_as_string(hide_password=True)


def prepare_folder(path: Path) -> None:
    """Make the folder of ``path`` for this account only; its parent must exist.

    StoreError if that cannot be, or if others could swap what lies in it."""
    folder = path.parent
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        mode = folder.stat().st_mode
    except FileNotFoundError:
        raise StoreError(f"{path}: {folder.parent} does not exist; make it first") from None
    except OSError as error:
        raise StoreError(f"{path}: cannot use {folder}: {error.strerror}; {_GIVE}") from None
    if mode & stat.S_IWOTH:
        raise StoreError(f"{path}: everybody may write to {folder}; use a folder of its own")
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=True):
        raise StoreError(f"{path}: this account may not write to {folder}; {_GIVE}")


def prepare_file(path: Path) -> None:
    """Make an empty file for this account only, or close an existing one to others.

    An existing file is never opened here: closing it would drop the locks that SQLite
    holds on it in this process."""
    prepare_folder(path)
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600))
        return
    except FileExistsError:
        pass
    except OSError as error:
        raise StoreError(f"{path}: cannot be made: {error.strerror}; {_GIVE}") from None
    if not path.is_file():
        raise StoreError(f"{path}: is not a file; name another path")
    if not os.access(path, os.R_OK | os.W_OK, effective_ids=True):
        raise StoreError(f"{path}: this account may not write it; {_GIVE}")
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


_GIVE = "give it to the account of the broker (chown)"


def make_engine(url: sa.URL) -> sa.Engine:
    """Connections to the database. Parameters never show up in errors: they hold
    environments."""
    if sqlite_path(url) is None:
        return sa.create_engine(url, hide_parameters=True, pool_pre_ping=True)
    engine = sa.create_engine(url, hide_parameters=True)
    sa.event.listen(engine, "connect", _set_up_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


def _set_up_sqlite(connection: Any, _record: object) -> None:
    # The driver's own BEGIN comes too late and not before DDL; ours is in _begin_sqlite.
    connection.isolation_level = None
    for pragma in SQLITE_PRAGMAS:
        answer = connection.execute(pragma).fetchone()
        if "journal_mode" in pragma and answer[0] != "wal":
            raise StoreError(f"SQLite answers {answer[0]} for WAL; use a local disk")


def _begin_sqlite(connection: sa.Connection) -> None:
    # A transaction that will write says so at once: one that read first cannot wait for
    # another's write, it fails.
    write = connection.get_execution_options().get("write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


@contextmanager
def explained(url: sa.URL) -> Iterator[None]:
    """Turn what a database raises into a StoreError that names it and says what to do."""
    try:
        yield
    except StoreError as error:
        if not str(error).startswith(where(url)):
            error.args = (f"{where(url)}: {error}",)
        raise
    except DBAPIError as error:
        raise StoreError(f"{where(url)}: {_reason(error, url)}") from error
    except (SQLAlchemyError, ValueError, OverflowError) as error:
        raise StoreError(f"{where(url)}: {error}") from error


def _reason(error: DBAPIError, url: sa.URL) -> str:
    # Only the first line: PostgreSQL's next ones may quote the row.
    said = str(error.orig).strip().partition("\n")[0]
    if sqlite_path(url) is None:
        if error.connection_invalidated or isinstance(error, sa.exc.OperationalError):
            return f"{said}; check that PostgreSQL runs and that the URL is right"
        return said
    match getattr(error.orig, "sqlite_errorcode", 0) & 0xFF:
        case sqlite3.SQLITE_NOTADB:
            return "is not a SQLite database; name another path or restore a copy"
        case sqlite3.SQLITE_BUSY:
            return "another process keeps it locked; stop that process"
        case sqlite3.SQLITE_FULL:
            return "the disk is full; make room"
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY:
            return f"{said}; {_GIVE}"
    return said
