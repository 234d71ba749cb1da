# SPDX-License-Identifier: BSD-3-Clause
"""What every store promises, on each ground."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jupyter_gpubroker.core.model import State
from jupyter_gpubroker.store import (
    Loaded,
    PolicyRow,
    Spent,
    StaleEpoch,
    Store,
    StoreError,
    Usage,
    Writes,
)

from .conftest import Ground
from .samples import DAY, QUARANTINED, SECRET, batch, entry, everything, launch, policy, session

pytestmark = pytest.mark.filterwarnings("error")


def reopened(ground: Ground) -> Loaded:
    """What the next broker would start from."""
    return ground.store().open()


def test_a_new_store_is_empty_and_has_a_name_that_stays(ground: Ground) -> None:
    loaded = ground.store().open()
    assert loaded.broker_id
    assert reopened(ground).broker_id == loaded.broker_id
    assert (list(loaded.jobs), loaded.seq, loaded.policy) == ([], 0, None)
    assert (list(loaded.usage), list(loaded.quarantined)) == ([], [])
    assert (loaded.submits, loaded.servers, loaded.drained) == ({}, {}, {})


def test_reopening_gives_what_was_committed(ground: Ground) -> None:
    store = ground.store()
    store.open()
    writes = everything()
    store.commit(writes)
    store.close()

    loaded = reopened(ground)
    assert list(loaded.jobs) == [batch(), session()]
    assert loaded.seq == 2
    assert list(loaded.usage) == list(writes.usage)
    assert list(loaded.spent) == list(writes.spent)
    assert list(loaded.quarantined) == [QUARANTINED]
    assert loaded.policy == policy()
    assert loaded.submits == {("ana", "key-1"): "b-1"}
    assert loaded.servers == {"bob/": 4}
    assert loaded.drained == {"n2": "fan is broken"}


def test_the_reader_sees_what_was_committed(ground: Ground) -> None:
    store = ground.store()
    store.open()
    writes = everything()
    store.commit(writes)
    assert list(store.entries(0)) == list(writes.entries)
    assert store.launch("b-1") == launch()
    assert store.job("s-1") == session()
    assert store.job("b-9") is None
    assert store.launch("b-9") is None
    assert store.launches([]) == {}
    many = [f"b-{number}" for number in range(2000)]
    assert store.launches(many) == {"b-1": launch()}


def test_a_job_is_replaced_as_a_whole(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(Writes(jobs=[batch(name="old", restarts=2)]))
    store.commit(Writes(jobs=[batch(name="between"), batch(name="new")]))
    assert store.job("b-1") == batch(name="new")
    assert list(reopened(ground).jobs) == [batch(name="new")]


REFUSED: dict[str, Writes] = {
    "a hole in the middle of the journal": Writes(entries=[entry(1), entry(3)]),
    "a journal that starts late": Writes(entries=[entry(2)]),
    "an entry twice": Writes(entries=[entry(1), entry(1)]),
    "facts that are not JSON": Writes(entries=[entry(1, facts={"who": {"ana"}})]),
    "a launch of no job": Writes(entries=[entry(1)], launches={"b-9": launch()}),
    "a key for no job": Writes(entries=[entry(1)], submits={("ana", "k"): "b-9"}),
    "a policy revision twice": Writes(entries=[entry(1)], policy=policy(7)),
}


@pytest.mark.parametrize("refused", REFUSED.values(), ids=REFUSED.keys())
def test_a_commit_that_is_refused_writes_nothing(ground: Ground, refused: Writes) -> None:
    store = ground.store()
    store.open()
    store.commit(Writes(policy=policy(7)))
    rest = everything()
    with pytest.raises(StoreError):
        store.commit(
            Writes(
                jobs=rest.jobs,
                entries=refused.entries,
                usage=rest.usage,
                spent=rest.spent,
                launches={**rest.launches, **refused.launches},
                quarantined=rest.quarantined,
                policy=refused.policy or policy(8),
                submits={**rest.submits, **refused.submits},
                servers=rest.servers,
                nodes=rest.nodes,
            )
        )
    assert store.job("b-1") is None
    assert store.launch("b-1") is None
    assert list(store.entries(0)) == []
    loaded = reopened(ground)
    assert (list(loaded.jobs), loaded.seq, loaded.policy) == ([], 0, policy(7))
    assert (list(loaded.usage), list(loaded.quarantined)) == ([], [])
    assert (list(loaded.spent), loaded.submits, loaded.servers) == ([], {}, {})
    assert loaded.drained == {}


def test_after_a_refusal_the_journal_goes_on_where_it_was(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(Writes(entries=[entry(1)]))
    with pytest.raises(StoreError, match=r"entry 2, got entry 5"):
        store.commit(Writes(entries=[entry(5)]))
    store.commit(Writes(entries=[entry(2)]))
    assert [item.seq for item in store.entries(0)] == [1, 2]


def test_a_refusal_never_repeats_a_value(ground: Ground) -> None:
    store = ground.store()
    store.open()
    with pytest.raises(StoreError, match="facts") as refused:
        store.commit(Writes(entries=[entry(1, facts={"who": {SECRET}})]))
    assert SECRET not in str(refused.value)


def test_the_journal_goes_on_over_a_reopening(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(Writes(entries=[entry(1), entry(2)]))
    store.close()
    assert store.open().seq == 2
    with pytest.raises(StoreError):
        store.commit(Writes(entries=[entry(1)]))
    store.commit(Writes(entries=[entry(3)]))
    assert [item.seq for item in store.entries(0)] == [1, 2, 3]


def test_the_journal_is_read_in_pages(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(Writes(entries=[entry(seq) for seq in range(1, 8)]))
    assert [item.seq for item in store.entries(2, limit=3)] == [3, 4, 5]
    assert [item.seq for item in store.entries(5)] == [6, 7]
    assert list(store.entries(7)) == []
    assert list(store.entries(99)) == []
    assert list(store.entries(0, limit=0)) == []


def test_the_story_of_a_job_is_its_last_entries_in_order(ground: Ground) -> None:
    store = ground.store()
    store.open()
    names = ["b-1", "b-2", "", "b-1", "b-2", "b-1"]
    store.commit(Writes(entries=[entry(n, job=name) for n, name in enumerate(names, 1)]))
    assert [item.seq for item in store.story("b-1")] == [1, 4, 6]
    assert [item.seq for item in store.story("b-1", limit=2)] == [4, 6]
    assert list(store.story("b-1", limit=0)) == []
    assert list(store.story("b-9")) == []


def test_facts_come_back_as_json_has_them(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(Writes(entries=[entry(1, facts={"to": ("n1", "n2"), "state": State.HELD})]))
    (found,) = store.entries(0)
    assert found.facts == {"to": ["n1", "n2"], "state": "held"}
    assert type(found.facts["state"]) is str


def test_an_older_opener_can_write_no_more(ground: Ground) -> None:
    old, new = ground.store(), ground.store()
    old.open()
    old.commit(Writes(entries=[entry(1)]))
    assert new.open().seq == 1
    with pytest.raises(StaleEpoch):
        old.commit(Writes(jobs=[batch()], entries=[entry(2)]))
    with pytest.raises(StaleEpoch):
        old.commit(Writes())
    assert new.job("b-1") is None
    new.commit(Writes(entries=[entry(2, event="job.noticed")]))
    assert [item.event for item in new.entries(1)] == ["job.noticed"]


def test_an_older_opener_may_open_again_and_is_then_the_newer(ground: Ground) -> None:
    first, second = ground.store(), ground.store()
    first.open()
    second.open()
    first.open()
    first.commit(Writes(entries=[entry(1)]))
    with pytest.raises(StaleEpoch):
        second.commit(Writes(entries=[entry(2)]))


def test_a_dropped_launch_is_gone_and_its_job_stays(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(Writes(jobs=[batch(), batch("b-2")], launches={"b-1": launch(), "b-2": launch()}))
    store.commit(Writes(drop_launches=["b-1", "b-9"]))
    assert store.launch("b-1") is None
    assert store.launch("b-2") == launch()
    assert store.job("b-1") == batch()


def test_a_launch_that_comes_and_goes_in_one_commit_is_gone(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(Writes(jobs=[batch()], launches={"b-1": launch()}, drop_launches=["b-1"]))
    assert store.launch("b-1") is None


def test_an_idempotency_key_belongs_to_one_user_and_its_newest_job(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(
        Writes(
            jobs=[batch("b-1"), batch("b-2", user="bob"), batch("b-3")],
            submits={("ana", "k"): "b-1", ("bob", "k"): "b-2"},
        )
    )
    store.commit(Writes(submits={("ana", "k"): "b-3"}))
    assert reopened(ground).submits == {("ana", "k"): "b-3", ("bob", "k"): "b-2"}


def test_what_ended_long_ago_is_not_loaded_but_still_found(ground: Ground) -> None:
    ended = {"state": State.COMPLETED, "code": 0}
    old = batch("b-old", since=1 * DAY, **ended)
    recent = batch("b-recent", since=31 * DAY, **ended)
    waiting = batch("b-waiting", since=0.0)
    store = ground.store()
    store.open()
    store.commit(
        Writes(
            jobs=[old, recent, waiting],
            submits={("ana", "k1"): "b-old", ("ana", "k2"): "b-recent"},
            entries=[entry(1, time=40 * DAY)],
        )
    )
    loaded = reopened(ground)
    assert {job.id for job in loaded.jobs} == {"b-recent", "b-waiting"}
    assert loaded.submits == {("ana", "k2"): "b-recent"}
    assert ground.made[-1].job("b-old") == old


def test_what_is_forgotten_leaves_no_row(ground: Ground) -> None:
    ended = {"state": State.FAILED, "code": 1}
    store = ground.store()
    store.open()
    store.commit(
        Writes(
            jobs=[
                batch("b-old", since=9.0, **ended),
                batch("b-young", since=10.0, **ended),
                batch(),
            ],
            submits={("ana", "k1"): "b-old", ("ana", "k2"): "b-young", ("ana", "k3"): "b-1"},
            launches={"b-old": launch(), "b-1": launch()},
            entries=[entry(n, time=time) for n, time in enumerate([3.0, 11.0, 4.0, 12.0], 1)],
        )
    )
    store.commit(Writes(forget_before=10.0))
    assert store.job("b-old") is None
    assert store.launch("b-old") is None
    assert [item.seq for item in store.entries(0)] == [2, 3, 4], "without holes"
    assert [item.seq for item in store.entries(2)] == [3, 4]
    loaded = reopened(ground)
    assert {job.id for job in loaded.jobs} == {"b-young", "b-1"}
    assert loaded.submits == {("ana", "k2"): "b-young", ("ana", "k3"): "b-1"}
    assert (loaded.seq, ground.made[-1].launch("b-1")) == (4, launch())


def test_the_last_entry_is_never_forgotten(ground: Ground) -> None:
    """The next one goes on from it."""
    store = ground.store()
    store.open()
    store.commit(Writes(forget_before=99.0))
    store.commit(Writes(entries=[entry(1), entry(2)], forget_before=99.0))
    assert [item.seq for item in store.entries(0)] == [2]
    store.close()
    assert store.open().seq == 2
    store.commit(Writes(entries=[entry(3)]))
    assert [item.seq for item in store.entries(0)] == [2, 3]
    assert [item.seq for item in store.story("b-1")] == [2, 3]


def test_jobs_are_loaded_in_the_order_of_their_submits(ground: Ground) -> None:
    store = ground.store()
    store.open()
    jobs = [batch("b-z", submitted=1.0), batch("b-a", submitted=1.0), batch("b-m", submitted=0.5)]
    store.commit(Writes(jobs=jobs))
    assert [job.id for job in reopened(ground).jobs] == ["b-m", "b-a", "b-z"]


def test_the_quarantine_is_replaced_as_a_whole_or_left_alone(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(Writes(quarantined=[QUARANTINED, QUARANTINED]))
    store.commit(Writes(servers={"bob/": 1}))
    assert list(reopened(ground).quarantined) == [QUARANTINED, QUARANTINED]
    store.open()
    store.commit(Writes(quarantined=[]))
    assert list(reopened(ground).quarantined) == []


def test_the_newest_policy_is_loaded(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(Writes(policy=policy(9)))
    newest = PolicyRow(10, "queues: {ü: {}}\n", "admin:max", 9.0)
    store.commit(Writes(policy=newest))
    assert reopened(ground).policy == newest


def test_usage_servers_and_drains_keep_their_newest_value(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(
        Writes(
            usage=[Usage("q", "ana", 1.0, 1.0), Usage("q", "bob", 2.0, 1.0)],
            servers={"ana/": 1, "bob/x": 7},
            nodes={"n1": "old", "n2": "fan"},
        )
    )
    store.commit(
        Writes(
            usage=[Usage("q", "ana", 1.5, 2.0)], servers={"ana/": 2}, nodes={"n1": "", "n3": "new"}
        )
    )
    loaded = reopened(ground)
    assert {row.user: row for row in loaded.usage} == {
        "ana": Usage("q", "ana", 1.5, 2.0),
        "bob": Usage("q", "bob", 2.0, 1.0),
    }
    assert loaded.servers == {"ana/": 2, "bob/x": 7}
    assert loaded.drained == {"n2": "fan", "n3": "new"}


CALLS: dict[str, Callable[[Store], object]] = {
    "commit": lambda store: store.commit(Writes()),
    "launch": lambda store: store.launch("b-1"),
    "entries": lambda store: store.entries(0),
    "story": lambda store: store.story("b-1"),
    "job": lambda store: store.job("b-1"),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS.keys())
def test_a_store_that_is_not_open_says_so(ground: Ground, call: Callable[[Store], object]) -> None:
    store = ground.store()
    with pytest.raises(StoreError, match="not open"):
        call(store)
    store.open()
    store.close()
    store.close()
    with pytest.raises(StoreError, match="not open"):
        call(store)


def test_what_was_spent_on_days_long_ago_is_forgotten(ground: Ground) -> None:
    store = ground.store()
    store.open()
    store.commit(Writes(spent=[Spent("q", "ana", day, 5.0) for day in (9, 10, 11)]))
    store.commit(Writes(spent=[Spent("q", "ana", 11, 7.0)], forget_before=10.5 * 86400))
    assert list(reopened(ground).spent) == [Spent("q", "ana", 10, 5.0), Spent("q", "ana", 11, 7.0)]
