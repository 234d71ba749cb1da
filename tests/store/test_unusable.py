# SPDX-License-Identifier: BSD-3-Clause
"""A database that cannot be used: a sentence that names it and says what to do."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from jupyter_gpubroker.store import StoreError
from jupyter_gpubroker.store.lock import open_store

from .conftest import Cluster, Ground

pytestmark = pytest.mark.filterwarnings("error")

NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """An empty folder, for its owner only."""
    with tempfile.TemporaryDirectory(prefix="gb-", dir="/tmp") as name:
        yield Path(name)


@contextmanager
def nobody(folder: Path) -> Iterator[None]:
    """Without rights beyond the owner's of ``folder``: root, who has more, becomes nobody."""
    if os.geteuid() != 0:
        yield
        return
    for path in (folder, *folder.iterdir()):
        os.chown(path, NOBODY, NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


def refusal(path: Path) -> str:
    """Why the store at ``path`` does not open; the sentence begins with the path."""
    store, _ = open_store(f"sqlite:///{path}")
    with pytest.raises(StoreError) as refused:
        store.open()
    store.close()
    assert str(refused.value).startswith(f"{path}: ")
    return str(refused.value)


def execute(path: Path, *statements: str) -> None:
    """Change a SQLite file from outside."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_a_folder_in_a_missing_folder_is_not_made(folder: Path) -> None:
    path = folder / "srv" / "state" / "broker.sqlite"
    assert f"{folder / 'srv'} does not exist; make it first" in refusal(path)
    assert list(folder.iterdir()) == []


def test_a_folder_that_everybody_may_write_to_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    assert "use a folder of its own" in refusal(folder / "broker.sqlite")


def test_a_folder_without_the_right_to_write_is_refused(folder: Path) -> None:
    folder.chmod(0o500)
    with nobody(folder):
        assert "may not write to" in refusal(folder / "broker.sqlite")
        assert "chown" in refusal(folder / "state" / "broker.sqlite")
    assert list(folder.iterdir()) == []


def test_a_file_without_the_right_to_write_is_refused(folder: Path) -> None:
    path = folder / "broker.sqlite"
    path.touch(mode=0o400)
    with nobody(folder):
        assert "may not write it; give it to the account of the broker" in refusal(path)


def test_a_folder_is_no_database(folder: Path) -> None:
    (folder / "state").mkdir()
    assert "is not a file; name another path" in refusal(folder / "state")


def test_a_file_in_place_of_the_folder_is_named(folder: Path) -> None:
    (folder / "state").touch()
    assert f"cannot use {folder / 'state'}" in refusal(folder / "state" / "broker.sqlite")


def test_a_file_that_is_no_database_is_left_alone(folder: Path) -> None:
    path = folder / "notes.txt"
    path.write_text("not a database\n" * 100)
    assert "is not a SQLite database; name another path" in refusal(path)
    assert path.read_text() == "not a database\n" * 100


def test_the_database_of_a_hub_is_left_alone(folder: Path) -> None:
    path = folder / "jupyterhub.sqlite"
    execute(path, "CREATE TABLE alembic_version (version_num TEXT)", "CREATE TABLE users (id INT)")
    assert "holds tables of another program (alembic_version, users)" in refusal(path)
    with closing(sqlite3.connect(path)) as connection:
        assert len(connection.execute("SELECT name FROM sqlite_master").fetchall()) == 2


def test_a_newer_database_is_left_alone(folder: Path) -> None:
    path = folder / "broker.sqlite"
    store, _ = open_store(f"sqlite:///{path}")
    store.open()
    store.close()
    execute(path, "UPDATE gpubroker_schema SET version_num = '9999'")
    assert "has schema 9999, which is newer than this jupyter-gpubroker" in refusal(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT epoch FROM meta").fetchone() == (1,)


def test_a_row_that_cannot_be_read_is_a_sentence(folder: Path) -> None:
    path = folder / "broker.sqlite"
    store, _ = open_store(f"sqlite:///{path}")
    store.open()
    store.close()
    execute(
        path,
        "INSERT INTO jobs (id, kind, user, queue, state, submitted, body) "
        "VALUES ('b-1', 'batch', 'ana', 'q', 'queued', 0, '{\"id\": 7}')",
    )
    assert "Job.id: expected str, got int" in refusal(path)


def test_a_refused_store_opens_once_the_reason_is_gone(folder: Path) -> None:
    store, lock = open_store(f"sqlite:///{folder}/srv/state/broker.sqlite")
    calls: tuple[Callable[[], object], ...] = (lock.acquire, store.open)
    for call in calls:
        with pytest.raises(StoreError, match="make it first"):
            call()
    (folder / "srv").mkdir()
    assert lock.acquire()
    assert store.open().seq == 0
    store.close()
    lock.release()


def test_a_server_that_does_not_answer_is_named_without_its_password(cluster: Cluster) -> None:
    nowhere = f"{cluster.folder}/nowhere"
    url = f"postgresql+psycopg://broker:hunter2@/gb?host={nowhere}"
    store, lock = open_store(url)
    calls: tuple[Callable[[], object], ...] = (lock.acquire, store.open)
    for call in calls:
        with pytest.raises(StoreError, match="check that PostgreSQL runs") as refused:
            call()
        assert "nowhere" in str(refused.value)
        assert "hunter2" not in str(refused.value)


def test_a_database_that_a_server_lacks_is_named(cluster: Cluster) -> None:
    store, _ = open_store(cluster.url("no_such_database"))
    with pytest.raises(StoreError, match='"no_such_database" does not exist'):
        store.open()


def test_tables_of_another_program_on_a_server_are_left_alone(cluster: Cluster) -> None:
    name = cluster.new_database()
    cluster.run("CREATE TABLE servers (id INT)", name)
    ground = Ground(cluster.url(name))
    with pytest.raises(StoreError, match=r"another program \(servers\)"):
        ground.store().open()
    assert ground.rows() == {"servers": []}


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("broker.sqlite", "the store URL cannot be read"),
        ("", "the store URL cannot be read"),
        ("sqlite://", "names no file"),
        ("sqlite:///:memory:", "names no file"),
        ("mysql://root:hunter2@db/gb", "mysql: no such store"),
        ("postgresql+asyncpg://db/gb", "no such store"),
    ],
)
def test_a_url_of_nothing_we_know_is_refused_at_once(url: str, sentence: str) -> None:
    with pytest.raises(StoreError, match=sentence) as refused:
        open_store(url)
    assert "sqlite:///PATH" in str(refused.value)
    assert "hunter2" not in str(refused.value)
