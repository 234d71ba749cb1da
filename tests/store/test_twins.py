# SPDX-License-Identifier: BSD-3-Clause
"""The in-memory store is a twin: whatever is written, it says what SQLite says."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core.model import Job, State
from jupyter_gpubroker.store import Loaded, Spent, Store, StoreError, Usage, Writes
from jupyter_gpubroker.store.database import parse
from jupyter_gpubroker.store.memory import MemoryStore
from jupyter_gpubroker.store.sql import SqlStore

from .samples import DAY, QUARANTINED, batch, entry, launch, policy

pytestmark = pytest.mark.filterwarnings("error")

IDS = st.sampled_from(["b-1", "b-2", "b-3"])
NAMES = st.sampled_from(["", "x", "ü/y"])
TIMES = st.sampled_from([0.0, 1.5, 31 * DAY, 70 * DAY])
JOBS = st.builds(
    lambda job, state, since, submitted: batch(job, state=state, since=since, submitted=submitted),
    IDS,
    st.sampled_from([State.QUEUED, State.COMPLETED]),
    TIMES,
    TIMES,
)
WRITES = st.builds(
    Writes,
    jobs=st.lists(JOBS, max_size=3),
    entries=st.lists(st.builds(lambda at: entry(0, time=at), TIMES), max_size=2),
    usage=st.lists(st.builds(Usage, NAMES, NAMES, st.just(2.5), TIMES), max_size=2),
    spent=st.lists(
        st.builds(Spent, NAMES, NAMES, st.sampled_from([0, 30, 31, 70]), st.just(2.5)), max_size=2
    ),
    launches=st.dictionaries(IDS, st.builds(lambda cwd: launch(cwd=cwd), NAMES), max_size=1),
    drop_launches=st.lists(IDS, max_size=2),
    quarantined=st.none() | st.lists(st.just(QUARANTINED), max_size=2),
    policy=st.none() | st.builds(policy, st.integers(1, 6)),
    submits=st.dictionaries(st.tuples(NAMES, NAMES), IDS, max_size=1),
    servers=st.dictionaries(NAMES, st.integers(0, 2**40), max_size=2),
    nodes=st.dictionaries(NAMES, NAMES, max_size=2),
    forget_before=st.none() | TIMES,
)


class Pair:
    """The same commits to both; each step is either taken by both or refused by both."""

    def __init__(self, stores: Sequence[Store]) -> None:
        self.stores = stores
        self.seq = 0

    def commit(self, writes: Writes, gap: int) -> None:
        """Commit with entries that go on after ``gap``; 0 = as they should."""
        seqs = range(self.seq + 1 + gap, self.seq + 1 + gap + len(writes.entries))
        numbered = [replace(e, seq=seq) for e, seq in zip(writes.entries, seqs, strict=True)]
        taken = [self._taken(store, replace(writes, entries=numbered)) for store in self.stores]
        assert taken[0] == taken[1]
        self.seq += len(numbered) if taken[0] else 0

    def _taken(self, store: Store, writes: Writes) -> bool:
        try:
            store.commit(writes)
        except StoreError:
            return False
        return True

    def opened(self) -> list[Loaded]:
        """What each loads, without its name and in plain lists."""
        found = [store.open() for store in self.stores]
        return [
            replace(
                loaded,
                broker_id="",
                jobs=list(loaded.jobs),
                usage=list(loaded.usage),
                spent=list(loaded.spent),
                quarantined=list(loaded.quarantined),
            )
            for loaded in found
        ]

    def looked_up(self) -> list[list[object]]:
        """What each answers to all its readers."""
        ids = ("b-1", "b-2", "b-3")
        return [
            [*map(store.job, ids), *map(store.launch, ids), list(store.entries(0))]
            for store in self.stores
        ]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(st.tuples(WRITES, st.sampled_from([0, 0, 0, 0, 1])), max_size=6))
def test_memory_and_sqlite_agree(steps: list[tuple[Writes, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sql = SqlStore(parse(f"sqlite:///{folder}/twin.sqlite"))
        pair = Pair([MemoryStore(), sql])
        pair.opened()
        try:
            for writes, gap in steps:
                pair.commit(writes, gap)
            looked_up = pair.looked_up()
            assert looked_up[0] == looked_up[1]
            loaded = pair.opened()
            assert loaded[0] == loaded[1]
        finally:
            sql.close()


def test_the_twins_would_notice_a_difference() -> None:
    first, second = MemoryStore(), MemoryStore()
    pair = Pair([first, second])
    pair.opened()
    pair.commit(Writes(jobs=[batch()]), gap=0)
    second.data.jobs["b-1"] = batch(user="eve")
    found: list[Sequence[Job]] = [loaded.jobs for loaded in pair.opened()]
    assert found[0] != found[1]
