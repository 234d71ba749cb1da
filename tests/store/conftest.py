# SPDX-License-Identifier: BSD-3-Clause
"""The grounds that a store can stand on, and a PostgreSQL cluster of our own."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
import sqlalchemy as sa

from jupyter_gpubroker.store import Store
from jupyter_gpubroker.store.database import parse
from jupyter_gpubroker.store.memory import Data, MemoryStore
from jupyter_gpubroker.store.sql import SqlStore

from .. import needs


@dataclass
class Ground:
    """One place that holds a store's data; each ``store()`` is another broker's view."""

    url: str = "memory:"
    data: Data = field(default_factory=Data)
    made: list[Store] = field(default_factory=list)

    def store(self) -> Store:
        """A store on this ground, not opened yet; closed after the test."""
        store = MemoryStore(self.data) if self.url == "memory:" else SqlStore(parse(self.url))
        self.made.append(store)
        return store

    def rows(self) -> dict[str, list[tuple[object, ...]]]:
        """Every row of every table, as anybody with the database reads them."""
        engine = sa.create_engine(parse(self.url))
        found = sa.MetaData()
        with engine.connect() as connection:
            found.reflect(connection)
            rows = {
                table.name: [tuple(row) for row in connection.execute(sa.select(table))]
                for table in found.sorted_tables
            }
        engine.dispose()
        return rows


@dataclass
class Cluster:
    """A running PostgreSQL that listens on a unix socket in ``folder`` only."""

    folder: Path
    numbers: Iterator[int] = field(default_factory=count)

    def url(self, database: str, folder: Path | None = None) -> str:
        """The URL of a database; ``folder`` if the socket is not the server's own."""
        return f"postgresql+psycopg://broker@/{database}?host={folder or self.folder}"

    def new_database(self) -> str:
        """The name of a new empty database."""
        name = f"gb{next(self.numbers)}"
        self.run(f"CREATE DATABASE {name}")
        return name

    def run(self, sql: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """The answer to a statement of the cluster's owner, outside a transaction."""
        url = parse(self.url(database))
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            answer = connection.exec_driver_sql(sql)
            return [tuple(row) for row in answer] if answer.returns_rows else []


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A private cluster; PostgreSQL refuses to run as root, so it runs as ``postgres``."""
    needs.module("psycopg", enable="pip install 'psycopg[binary]'")
    initdb, pg_ctl = needs.postgres("initdb"), needs.postgres("pg_ctl")
    folder = Path(tempfile.mkdtemp(prefix="gb-pg-", dir="/tmp"))
    account = pwd.getpwnam("postgres") if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    os.chown(folder, account.pw_uid, account.pw_gid)

    def run(*argv: str) -> None:
        done = subprocess.run(
            argv,
            cwd=folder,
            env={"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8"},
            user=account.pw_uid,
            group=account.pw_gid,
            extra_groups=[] if os.geteuid() == 0 else None,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr

    data = str(folder / "data")
    settings = f"-c listen_addresses='' -c fsync=off -k {folder}"
    try:
        run(initdb, "-D", data, "-U", "broker", "--auth=trust", "-E", "UTF8", "--no-sync")
        run(
            pg_ctl, "-D", data, "-w", "-t", "60", "-l", str(folder / "log"), "-o", settings, "start"
        )
        try:
            yield Cluster(folder)
        finally:
            run(pg_ctl, "-D", data, "-w", "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder)


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    """Every kind of ground: the contract holds on each."""
    yield from _ground(request.param, request, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    """The grounds that are databases."""
    yield from _ground(request.param, request, tmp_path)


def _ground(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    url = "memory:"
    if kind == "sqlite":
        url = f"sqlite:///{tmp_path}/state/broker.sqlite"
    if kind == "postgres":
        servers: Cluster = request.getfixturevalue("cluster")
        url = servers.url(servers.new_database())
    ground = Ground(url)
    yield ground
    for store in ground.made:
        store.close()
