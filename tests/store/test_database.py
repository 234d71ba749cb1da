# SPDX-License-Identifier: BSD-3-Clause
"""What only a database can get right or wrong: schema, secrets, transactions, modes."""

from __future__ import annotations

import resource
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from jupyter_gpubroker.core.model import Quarantined
from jupyter_gpubroker.store import Entry, StoreError, Usage, Writes, tables
from jupyter_gpubroker.store.database import make_engine, parse
from jupyter_gpubroker.store.migrations import VERSION_TABLE, migrate

from .conftest import Ground
from .samples import SECRET, batch, entry, everything, launch, session

pytestmark = pytest.mark.filterwarnings("error")


@contextmanager
def connected(url: str) -> Iterator[sa.Connection]:
    """A connection as the store makes them, in a transaction that is rolled back."""
    engine = make_engine(parse(url))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


# --- schema


def test_the_migrations_make_the_tables_that_the_code_uses(database: Ground) -> None:
    database.store().open()
    with connected(database.url) as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, tables.metadata) == []


def test_opening_again_migrates_nothing(database: Ground) -> None:
    database.store().open()
    before = database.rows()
    database.store().open()
    after = database.rows()
    assert [row[0] for row in after.pop(VERSION_TABLE)] == ["0002"]
    assert before.pop("meta")[0][2] + 1 == after.pop("meta")[0][2]  # type: ignore[operator]
    before.pop(VERSION_TABLE)
    assert before == after


def test_a_migration_that_is_cut_short_leaves_nothing(database: Ground) -> None:
    if database.url.startswith("sqlite"):
        Path(parse(database.url).database or "").parent.mkdir()
    with connected(database.url) as connection:
        migrate(connection)
        assert "jobs" in sa.inspect(connection).get_table_names()
    assert database.rows() == {}
    assert database.store().open().seq == 0


# --- secrets


def test_an_environment_is_in_its_own_column_only_and_goes_with_its_launch(
    database: Ground,
) -> None:
    store = database.store()
    store.open()
    store.commit(everything())
    held = {
        (table, place)
        for table, rows in database.rows().items()
        for row in rows
        for place, value in enumerate(row)
        if SECRET in str(value)
    }
    assert held == {("launches", list(tables.launches.c).index(tables.launches.c.env))}

    store.commit(Writes(drop_launches=["b-1"], entries=[entry(3)]))
    assert SECRET not in str(database.rows())


def test_a_dropped_environment_is_not_left_in_the_file(tmp_path: Path) -> None:
    ground = Ground(f"sqlite:///{tmp_path}/state/broker.sqlite")
    store = ground.store()
    store.open()
    store.commit(Writes(jobs=[batch()], launches={"b-1": launch()}))
    store.close()
    files = list((tmp_path / "state").iterdir())
    assert any(SECRET.encode() in file.read_bytes() for file in files)

    store.open()
    store.commit(Writes(drop_launches=["b-1"]))
    store.close()
    files = list((tmp_path / "state").iterdir())
    assert files
    assert not any(SECRET.encode() in file.read_bytes() for file in files)


def test_an_error_of_the_database_shows_no_environment(database: Ground) -> None:
    store = database.store()
    store.open()
    with pytest.raises(StoreError) as refused:
        store.commit(Writes(launches={"b-9": launch()}))
    error: BaseException | None = refused.value
    while error is not None:
        assert SECRET not in str(error)
        error = error.__cause__


# --- transactions


def test_a_commit_is_one_statement_per_table(database: Ground) -> None:
    store = database.store()
    store.open()
    numbers = range(1, 101)
    seen: Counter[str] = Counter()

    def count(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        seen[" ".join(statement.split()[:3])] += 1

    sa.event.listen(sa.Engine, "before_cursor_execute", count)
    try:
        store.commit(
            Writes(
                jobs=[batch(f"b-{n}") for n in numbers],
                entries=[Entry(n, 0.0, "broker", "job.submitted", f"b-{n}") for n in numbers],
                usage=[Usage("q", f"user{n}", 0.0, 0.0) for n in numbers],
                launches={f"b-{n}": launch() for n in numbers},
                drop_launches=[f"b-{n}" for n in range(1, 51)],
                quarantined=[Quarantined((), f"b-{n}", 1, {}, 0.0) for n in numbers],
                submits={("ana", f"k{n}"): f"b-{n}" for n in numbers},
                servers={f"user{n}/": n for n in numbers},
                nodes={f"n{n}": "x" if n % 2 else "" for n in numbers},
            )
        )
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", count)
    begins = seen.pop("BEGIN IMMEDIATE", 0)
    assert begins == (1 if database.url.startswith("sqlite") else 0)
    assert seen == {
        "UPDATE meta SET": 1,
        "INSERT INTO jobs": 1,
        "INSERT INTO entries": 1,
        "INSERT INTO usage": 1,
        "INSERT INTO launches": 1,
        "DELETE FROM launches": 1,
        "DELETE FROM quarantine": 1,
        "INSERT INTO quarantine": 1,
        "INSERT INTO submits": 1,
        "INSERT INTO servers": 1,
        "INSERT INTO drained": 1,
        "DELETE FROM drained": 1,
    }


def test_reads_go_on_while_commits_happen(database: Ground) -> None:
    store = database.store()
    store.open()
    store.commit(Writes(jobs=[batch()]))
    done = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not done.is_set():
            try:
                seqs = [item.seq for item in store.entries(0)]
                if seqs != list(range(1, len(seqs) + 1)) or store.job("b-1") is None:
                    wrong.append(seqs)
            except StoreError as error:
                wrong.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for seq in range(1, 41, 2):
            store.commit(Writes(jobs=[batch(attempt=seq)], entries=[entry(seq), entry(seq + 1)]))
    finally:
        done.set()
        reader.join()
    assert wrong == []


def test_a_full_disk_writes_nothing_and_the_store_goes_on(tmp_path: Path) -> None:
    ground = Ground(f"sqlite:///{tmp_path}/state/broker.sqlite")
    store = ground.store()
    store.open()
    store.commit(Writes(entries=[entry(1)]))
    big = [entry(seq, facts={"text": "x" * 100_000}) for seq in range(2, 22)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, hard))
    try:
        with pytest.raises(StoreError, match=r"broker\.sqlite: "):
            store.commit(Writes(jobs=[session()], entries=big))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert store.job("s-1") is None
    assert [item.seq for item in store.entries(0)] == [1]
    store.commit(Writes(jobs=[session()], entries=big))
    assert len(store.entries(0)) == 21


# --- files


def test_the_files_are_for_the_account_of_the_broker_only(tmp_path: Path) -> None:
    ground = Ground(f"sqlite:///{tmp_path}/state/broker.sqlite")
    store = ground.store()
    store.open()
    store.commit(everything())
    folder = tmp_path / "state"
    assert folder.stat().st_mode & 0o777 == 0o700
    modes = {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()}
    assert modes == {
        "broker.sqlite": 0o600,
        "broker.sqlite-wal": 0o600,
        "broker.sqlite-shm": 0o600,
    }


def test_a_file_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    file = tmp_path / "broker.sqlite"
    file.touch(mode=0o644)
    Ground(f"sqlite:///{file}").store().open()
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_commit_is_synced_before_it_returns(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/broker.sqlite"
    with connected(url) as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
        }
    full = 2
    assert settings == {
        "journal_mode": "wal",
        "synchronous": full,
        "foreign_keys": 1,
        "secure_delete": 1,
    }
