# SPDX-License-Identifier: BSD-3-Clause
"""Fair Tree: the vector of facts/semantics.md, and what it promises."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from math import isclose

from hypothesis import assume, given
from hypothesis import strategies as st

from jupyter_gpubroker.core.fairshare import fair_tree
from jupyter_gpubroker.core.model import Queue

SHARES = {
    "a": Queue("a", shares=40, user_shares={"u1": 1, "u2": 1}),
    "b": Queue("b", shares=60, user_shares={"u3": 2, "u4": 1}),
}


def test_the_published_example() -> None:
    usage = {("a", "u1"): 30.0, ("a", "u2"): 15.0, ("b", "u3"): 50.0, ("b", "u4"): 5.0}
    ranks = fair_tree(usage, SHARES)
    assert sorted(ranks, key=ranks.__getitem__) == [
        ("b", "u4"),
        ("b", "u3"),
        ("a", "u2"),
        ("a", "u1"),
    ]


def test_who_used_nothing_comes_before_all_others_of_the_queue() -> None:
    ranks = fair_tree({("q", "ana"): 1e-300, ("q", "bo"): 0.0, ("q", "cy"): 0.0}, {})
    assert ranks == {("q", "bo"): 0, ("q", "cy"): 0, ("q", "ana"): 2}


def test_users_of_equal_queues_are_compared_with_each_other() -> None:
    usage = {("p", "ana"): 3.0, ("p", "bo"): 1.0, ("q", "cy"): 2.0, ("q", "di"): 2.0}
    assert fair_tree(usage, {}) == {
        ("p", "bo"): 0,
        ("q", "cy"): 1,
        ("q", "di"): 1,
        ("p", "ana"): 3,
    }


names = st.sampled_from("abcde")
amounts = st.one_of(st.just(0.0), st.floats(1e-6, 1e12))
usages = st.dictionaries(st.tuples(names, names), amounts, max_size=25)
queues = st.dictionaries(
    names,
    st.builds(
        Queue,
        name=names,
        shares=st.integers(1, 100),
        user_shares=st.dictionaries(names, st.integers(1, 100), max_size=3),
    ),
)


@given(usages, queues)
def test_all_of_the_better_queue_come_before_all_of_the_worse_one(
    usage: Mapping[tuple[str, str], float], policy: Mapping[str, Queue]
) -> None:
    assume(not _equal_queues(usage, policy))
    ranks = fair_tree(usage, policy)
    assert sorted(ranks) == sorted(usage)
    in_order = [queue for queue, _ in sorted(ranks, key=lambda account: (ranks[account], account))]
    blocks = [queue for i, queue in enumerate(in_order) if in_order[i - 1 : i] != [queue]]
    assert len(blocks) == len(dict.fromkeys(in_order))


def _equal_queues(usage: Mapping[tuple[str, str], float], policy: Mapping[str, Queue]) -> bool:
    """True if two queues are equal: then their users are mixed."""
    per_share: dict[str, float] = {}
    for (queue, _), used in usage.items():
        shares = policy[queue].shares if queue in policy else 1
        per_share[queue] = per_share.get(queue, 0.0) + used / shares
    amounts = sorted(per_share.values())
    return any(isclose(one, other) for one, other in pairwise(amounts))


@given(usages, queues, st.floats(1.0, 1e6))
def test_using_more_never_moves_anybody_forward(
    usage: dict[tuple[str, str], float], policy: Mapping[str, Queue], more: float
) -> None:
    before = fair_tree(usage, policy)
    for account, used in usage.items():
        after = fair_tree({**usage, account: used + more}, policy)
        assert after[account] >= before[account]
