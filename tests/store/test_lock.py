# SPDX-License-Identifier: BSD-3-Clause
"""One writer: real processes race for the lock, and kill -9 hands it on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from jupyter_gpubroker.store import StoreError
from jupyter_gpubroker.store.lock import FileLock, open_store

from ..conftest import ROOT
from ..until import until
from .conftest import Cluster, Ground

pytestmark = pytest.mark.filterwarnings("error")

# Takes the lock, and leaves a child behind that outlives it, as the shims of jobs do.
BROKER = """
import subprocess, sys
from jupyter_gpubroker.store.lock import open_store
store, lock = open_store(sys.argv[1])
lock.acquire()
child = subprocess.Popen(["cat"], stdin=sys.stdin)
print("mine", child.pid, flush=True)
child.wait()
"""


@dataclass
class Broker:
    """A process that wants the lock; it and its child end when its stdin is closed."""

    process: subprocess.Popen[bytes]
    out: Path

    @property
    def said(self) -> list[str]:
        return self.out.read_text().split()

    @property
    def pid(self) -> int:
        return self.process.pid


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[str], Broker]]:
    """Start a broker process for a URL."""
    brokers: list[Broker] = []

    def start_one(url: str) -> Broker:
        out = tmp_path / f"broker{len(brokers)}.out"
        with out.open("wb") as stdout:
            process = subprocess.Popen(
                [sys.executable, "-c", BROKER, url],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=stdout,
            )
        brokers.append(Broker(process, out))
        return brokers[-1]

    yield start_one
    for broker in brokers:
        assert broker.process.stdin is not None
        broker.process.stdin.close()
        broker.process.kill()
        broker.process.wait()


def waits_for_a_file(broker: Broker) -> bool:
    """True if the kernel has the process in the line for an flock."""
    lines = Path("/proc/locks").read_text().splitlines()
    return any("-> FLOCK" in line and str(broker.pid) in line.split() for line in lines)


def waits_for_postgres(cluster: Cluster, broker: Broker) -> bool:
    """True if the server has the process in the line for an advisory lock."""
    return bool(
        cluster.run(
            "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) "
            "WHERE locktype = 'advisory' AND NOT granted "
            f"AND application_name = 'jupyter-gpubroker writer {broker.pid}'"
        )
    )


def test_of_two_brokers_one_waits_until_the_other_is_killed(
    database: Ground, start: Callable[[str], Broker], request: pytest.FixtureRequest
) -> None:
    def waits(broker: Broker) -> bool:
        if database.url.startswith("sqlite"):
            return waits_for_a_file(broker)
        return waits_for_postgres(request.getfixturevalue("cluster"), broker)

    racers = [start(database.url), start(database.url)]
    until(lambda: any(map(waits, racers)), timeout=120, what="a racer in the line")
    until(lambda: any(racer.said for racer in racers), timeout=120, what="a winner")
    waiter, holder = sorted(racers, key=lambda racer: bool(racer.said))
    assert holder.said[0] == "mine"
    assert waiter.said == []
    assert waits(waiter)
    _, third = open_store(database.url)
    assert third.acquire(blocking=False) is False

    holder.process.kill()
    until(lambda: waiter.said, timeout=120, what="the waiter's turn")
    child = int(holder.said[1])
    assert Path(f"/proc/{child}").exists(), "a job's process outlives its broker"
    assert third.acquire(blocking=False) is False


def test_the_lock_is_taken_and_given_back(database: Ground) -> None:
    (_, one), (_, other) = open_store(database.url), open_store(database.url)
    assert one.acquire(blocking=False)
    assert one.acquire(), "taking it twice changes nothing"
    assert not other.acquire(blocking=False)
    one.release()
    one.release()
    assert other.acquire()
    assert not one.acquire(blocking=False)
    other.release()


def test_the_lock_is_free_of_the_store(database: Ground) -> None:
    store, lock = open_store(database.url)
    assert lock.acquire()
    assert store.open().seq == 0
    store.close()
    _, other = open_store(database.url)
    assert not other.acquire(blocking=False)
    lock.release()


def test_the_lock_file_shows_who_has_it(tmp_path: Path, start: Callable[[str], Broker]) -> None:
    broker = start(f"sqlite:///{tmp_path}/state/broker.sqlite")
    until(lambda: broker.said, timeout=120, what="the lock")
    file = tmp_path / "state" / "broker.sqlite.lock"
    assert file.read_text() == f"{broker.pid}\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_opening_takes_nothing_and_makes_nothing(tmp_path: Path) -> None:
    open_store(f"sqlite:///{tmp_path}/state/broker.sqlite")
    assert list(tmp_path.iterdir()) == []


def test_a_link_in_place_of_the_lock_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "broker.sqlite.lock").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreError, match=r"broker\.sqlite\.lock: cannot lock"):
        FileLock(tmp_path / "broker.sqlite.lock").acquire()
    assert not (tmp_path / "victim").exists()


def test_a_store_in_memory_needs_no_lock() -> None:
    store, lock = open_store("memory:")
    assert lock.acquire(blocking=False)
    assert store.open().seq == 0
    lock.release()
    store.close()
