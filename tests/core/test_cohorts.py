# SPDX-License-Identifier: BSD-3-Clause
"""Quota arithmetic: literal trees, and what holds in every tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core.cohorts import ANY, NOW, SOON, Account, Cohorts
from jupyter_gpubroker.core.model import Cohort, Policy, Queue, Quota

from .worlds import policy

LAB = {"lab": Cohort("lab")}


def tree(queues: Mapping[str, Queue], cohorts: Mapping[str, Cohort] = LAB) -> Cohorts:
    """The accounts of these."""
    return Cohorts(policy(queues=queues, cohorts=cohorts))


def member(name: str, nominal: int, cohort: str | None = "lab", **more: int) -> Queue:
    """A queue with one quota for all flavors."""
    return Queue(name, cohort=cohort, quota={ANY: Quota(nominal, **more)})


def left(cohorts: Cohorts, *queues: str, row: str = ANY) -> list[int]:
    """What each of these may use besides."""
    return [cohorts.account(name, row).available(NOW) for name in queues]


def test_a_queue_without_quota_and_cohort_is_not_governed() -> None:
    cohorts = tree({"a": Queue("a"), "b": member("b", 8, None), "c": Queue("c", cohort="lab")})
    assert list(cohorts.queues) == ["b", "c"]


def test_a_queue_alone_has_what_it_owns() -> None:
    cohorts = tree({"a": member("a", 8, None)})
    cohorts.account("a", ANY).add(NOW, 5)
    assert left(cohorts, "a") == [3]


def test_what_one_does_not_use_the_others_may() -> None:
    cohorts = tree({"a": member("a", 8), "b": member("b", 4), "c": Queue("c", cohort="lab")})
    assert left(cohorts, *"abc") == [12, 12, 12]
    cohorts.account("c", ANY).add(NOW, 10)
    assert left(cohorts, *"abc") == [2, 2, 2]
    cohorts.account("c", ANY).add(NOW, -10)
    assert left(cohorts, *"abc") == [12, 12, 12]


def test_a_bound_on_lending_keeps_the_rest_and_one_on_borrowing_holds_above_nominal() -> None:
    cohorts = tree({"a": member("a", 8, lend=2), "b": member("b", 4, borrow=1)})
    assert left(cohorts, "a", "b") == [12, 5]
    cohorts.account("b", ANY).add(NOW, 5)
    assert left(cohorts, "a", "b") == [7, 0]
    cohorts.account("a", ANY).add(NOW, 7)
    assert left(cohorts, "a", "b") == [0, 0]


def test_cohorts_in_cohorts_lend_and_borrow_as_queues_do() -> None:
    cohorts = tree(
        {"a": member("a", 4, "vision"), "b": member("b", 4, "vision"), "c": member("c", 4, "text")},
        {
            "lab": Cohort("lab", quota={ANY: Quota(2)}),
            "vision": Cohort("vision", "lab", {ANY: Quota(0, borrow=3, lend=6)}),
            "text": Cohort("text", "lab", {ANY: Quota(1)}),
        },
    )
    # c: its own 4, 1 of text, 2 of the lab, and 6 that vision lends.
    assert left(cohorts, *"abc") == [11, 11, 13]
    cohorts.account("c", ANY).add(NOW, 13)
    assert left(cohorts, *"abc") == [2, 2, 0]
    cohorts.account("a", ANY).add(NOW, 2)
    cohorts.account("c", ANY).add(NOW, -9)
    assert left(cohorts, *"abc") == [9, 9, 9]


def test_every_named_flavor_is_a_row_of_the_whole_tree() -> None:
    cohorts = tree(
        {
            "a": Queue("a", cohort="lab", quota={"h100": Quota(4)}),
            "b": Queue("b", cohort="lab", quota={ANY: Quota(2)}),
            "c": member("c", 9, None),
        }
    )
    assert [cohorts.row("b", flavor) for flavor in ("h100", "a100")] == ["h100", ANY]
    assert cohorts.row("c", "h100") == ANY
    assert (left(cohorts, *"ab", row="h100"), left(cohorts, *"ab")) == ([4, 4], [2, 2])
    assert cohorts.relatives("a") == ("a", "b")


def test_a_queue_and_a_cohort_may_have_one_name() -> None:
    cohorts = tree({"lab": member("lab", 4), "b": member("b", 4)})
    assert left(cohorts, "lab", "b") == [8, 8]


def test_more_may_be_in_use_than_is_allowed_by_now() -> None:
    cohorts = tree({"a": member("a", 4), "b": member("b", 4)})
    cohorts.account("a", ANY).add(NOW, 10)
    assert left(cohorts, "a", "b") == [-2, -2]


@pytest.mark.parametrize(("weight", "share"), [(1, 0.125), (2, 0.0625)])
def test_the_dominant_share_is_that_of_kueue_and_no_integer(weight: int, share: float) -> None:
    queues = {name: member(name, 8) for name in "abcd"}
    queues["a"] = replace(queues["a"], shares=weight)
    cohorts = tree(queues)
    assert cohorts.share("a") == 0.0
    cohorts.account("a", ANY).add(SOON, 12)
    assert cohorts.share("a") == share


def test_the_dominant_share_is_the_largest_of_all_rows() -> None:
    quota = {"h100": Quota(4), "a100": Quota(2)}
    cohorts = tree({name: Queue(name, cohort="lab", quota=quota) for name in "ab"})
    cohorts.account("a", "h100").add(SOON, 5)
    assert cohorts.share("a") == 1 / 8
    cohorts.account("a", "a100").add(SOON, 3)
    assert cohorts.share("a") == 1 / 4


# --- every tree -------------------------------------------------------------------------


@dataclass(frozen=True)
class Forest:
    """Random cohorts and queues, and a random user of them."""

    policy: Policy
    draw: Random

    def uses(self, cohorts: Cohorts, steps: int = 40) -> dict[str, list[int]]:
        """Take what there is, and give back, at random; what each queue has then."""
        held: dict[str, list[int]] = {name: [] for name in self.policy.queues}
        for _ in range(steps):
            name = self.draw.choice(list(held))
            account, want = cohorts.account(name, ANY), self.draw.randint(1, 6)
            if held[name] and self.draw.random() < 0.3:
                account.add(NOW, -held[name].pop(self.draw.randrange(len(held[name]))))
            elif want <= account.available(NOW):
                account.add(NOW, want)
                held[name].append(want)
        return held


def quota(draw: Random, *, root: bool) -> dict[str, Quota]:
    """Any, or none."""
    if draw.random() < 0.2:
        return {}
    bounds = [None if root or draw.random() < 0.5 else draw.randint(0, 8) for _ in "bl"]
    return {ANY: Quota(draw.randint(0, 12), *bounds)}


def forest(seed: int) -> Forest:
    """The forest of that number."""
    draw = Random(seed)
    cohorts: dict[str, Cohort] = {}
    for number in range(draw.randint(1, 5)):
        parent = draw.choice([None, *cohorts]) if cohorts else None
        cohorts[f"c{number}"] = Cohort(f"c{number}", parent, quota(draw, root=parent is None))
    queues = {
        f"q{number}": Queue(
            f"q{number}", cohort=draw.choice(list(cohorts)), quota=quota(draw, root=False)
        )
        for number in range(draw.randint(1, 8))
    }
    return Forest(policy(queues=queues, cohorts=cohorts), draw)


forests = st.builds(forest, st.integers(0, 2**32))


def accounts(cohorts: Cohorts, names: Mapping[str, object]) -> list[Account]:
    """Those of these queues and of all cohorts above, each once."""
    found: dict[int, Account] = {}
    for name in names:
        account: Account | None = cohorts.account(name, ANY)
        while account is not None:
            found[id(account)] = account
            account = account.parent
    return list(found.values())


@given(forests)
def test_no_quota_is_exceeded_at_any_level(some: Forest) -> None:
    cohorts = Cohorts(some.policy)
    some.uses(cohorts)
    for account in accounts(cohorts, some.policy.queues):
        if account.parent is None:
            assert account.used[NOW] <= account.owned
        elif account.borrow is not None:
            assert account.used[NOW] <= account.owned + account.borrow
        assert account.used[NOW] <= account.most


@given(forests)
def test_what_is_used_is_what_is_held_and_what_a_cohort_uses_is_what_its_members_share(
    some: Forest,
) -> None:
    cohorts = Cohorts(some.policy)
    held = some.uses(cohorts)
    every = accounts(cohorts, held)
    for name, amounts in held.items():
        assert cohorts.account(name, ANY).used[NOW] == sum(amounts)
    leaves = [cohorts.account(name, ANY) for name in held]
    for account in every:
        shared = [max(0, a.used[NOW] - a.kept) for a in every if a.parent is account]
        assert account in leaves or account.used[NOW] == sum(shared)


@given(forests, st.lists(st.tuples(st.integers(0, 7), st.integers(-9, 9)), max_size=30))
def test_in_which_order_things_are_taken_and_given_back_does_not_matter(
    some: Forest, moves: list[tuple[int, int]]
) -> None:
    names = list(some.policy.queues)
    orders = [moves, moves[::-1], sorted(moves)]
    found = []
    for order in orders:
        cohorts = Cohorts(some.policy)
        for number, milli in order:
            cohorts.account(names[number % len(names)], ANY).add(NOW, milli)
        found.append([account.used for account in accounts(cohorts, some.policy.queues)])
    assert found[0] == found[1] == found[2]


@given(forests)
def test_who_stays_inside_nominal_is_let_in_while_nobody_borrows(some: Forest) -> None:
    cohorts = Cohorts(some.policy)
    every = [cohorts.account(name, ANY) for name in some.policy.queues]
    for account in every:
        account.add(NOW, some.draw.randint(0, account.nominal))
    for account in every:
        assert account.available(NOW) >= account.unused(NOW)


@given(forests)
def test_what_is_available_can_be_taken_and_not_more(some: Forest) -> None:
    cohorts = Cohorts(some.policy)
    some.uses(cohorts)
    for name in some.policy.queues:
        account = cohorts.account(name, ANY)
        before = account.available(NOW)
        account.add(NOW, before)
        assert account.available(NOW) == 0
        account.add(NOW, -before)
        assert account.available(NOW) == before


@settings(max_examples=50)
@given(forests)
def test_the_columns_know_nothing_of_each_other(some: Forest) -> None:
    cohorts = Cohorts(some.policy)
    some.uses(cohorts)
    assert all(not account.used[SOON] for account in accounts(cohorts, some.policy.queues))
