# SPDX-License-Identifier: BSD-3-Clause
"""Policy documents: every bad one is refused, at once, with what is wrong with it."""

from __future__ import annotations

import pytest

from jupyter_gpubroker import policy
from jupyter_gpubroker.core.model import Equals, Levels, Order, Quota, Refusal

UNFOLDING = "\n".join(
    ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9))]
)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\0", "not YAML"),
        ("a: \x01", "not YAML"),
        ("half_life: " + "9" * 5000, "not YAML"),
        ("classes: {batch: {<<: 3}}", "not YAML"),
        ("[" * 3000, "nested too deeply at line 1"),
        ("- " * 3000, "nested too deeply at line 1"),
        ("{a: " * 3000, "nested too deeply at line 1"),
        (
            f"{UNFOLDING}\nclasses: {{batch: {{kinds: *a8}}}}\nqueues: {{}}",
            "has an alias at line 2",
        ),
        ("a: &a [*a]", "has an alias at line 1"),
        ("x: " + "y" * policy.DOCUMENT_MAX, "must not be longer than"),
        ("", "must be a mapping"),
        ("%YAML 9.9\n---\na: b", "not YAML"),
    ],
)
def test_what_is_no_policy_is_refused_before_it_costs_anything(text: str, says: str) -> None:
    with pytest.raises(Refusal, match=says):
        policy.parse(text)


@pytest.mark.parametrize("name", ['""', '"a b"', '"\\u202eb"', '"a\\nb"', "<b>", "x" * 65])
@pytest.mark.parametrize("old", ["  interactive:", "  default: {}"])
def test_names_of_classes_and_queues_are_plain_words(old: str, name: str) -> None:
    document = policy.DEFAULT_DOCUMENT.replace(old, old.replace(old.strip(" :{}"), name))
    with pytest.raises(Refusal, match=r"classes|queues"):
        policy.parse(document)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "  batch:  ",
            "  a: {kinds: [batch], priority: 5, time: {default: 1h, max: 2h}, yields_to: [batch]}\n"
            "  batch:  ",
            "batch of a could take from batch of batch, and batch of batch from batch of a;"
            " change a yields_to or priority",
        ),
        ("restarts: 3", "yields_to: [batch]", "batch of batch could take from batch of batch"),
        ("restarts: 3", "yields_to: [x]", "classes.batch.yields_to: 'x' is not one of classes"),
        (
            "default: {}",
            "default: {preempt_equals: levels}",
            "preempt_equals: levels needs order: shortest or order: attained",
        ),
        ("half_life: 7d", "levels: {factor: 1}", "levels.factor: must be more than 1.0"),
        ("half_life: 7d", "levels: {aging: .inf}", "levels.aging"),
    ],
)
def test_preemption_that_could_go_in_a_circle_is_refused(old: str, new: str, says: str) -> None:
    assert old in policy.DEFAULT_DOCUMENT
    with pytest.raises(Refusal) as caught:
        policy.parse(policy.DEFAULT_DOCUMENT.replace(old, new, 1))
    assert says in str(caught.value)


def test_order_and_levels_reach_the_scheduler() -> None:
    text = policy.DEFAULT_DOCUMENT.replace(
        "default: {}", "default: {order: attained, preempt_equals: levels}"
    ).replace("restarts: 3", "yields_to: []")
    read = policy.parse("levels: {first: 2h, factor: 8, aging: 0.5}\n" + text)
    queue = read.queues["default"]
    assert (queue.order, queue.preempt_equals) == (Order.ATTAINED, Equals.LEVELS)
    assert read.levels == Levels(7200.0, 8.0, 0.5)
    assert (read.classes["batch"].yields_to, read.classes["interactive"].yields_to) == ((), None)
    assert policy.default().levels == Levels()


def test_the_shipped_policy_is_one() -> None:
    assert list(policy.default().classes) == ["interactive", "batch"]


WORDS = {
    ("grace: 120s", "grace: soon"): "classes.interactive.grace: 'soon' is not a duration"
    " (for example 90s, 10m, 2h, 1-12:00:00) at line 16",
    ("waiting: 5 ", "waiting: five "): "classes.interactive.waiting: must be a whole number,"
    " got 'five' at line 21",
    ("waiting: 5 ", "waiting: 0 "): "classes.interactive.waiting: must be at least 1, got 0"
    " at line 21",
    ("[session]", "[notebook]"): "classes.interactive.kinds[0]: must be 'batch' or 'session',"
    " got 'notebook' at line 12",
    ("[session]", "session"): "classes.interactive.kinds: must be a list, got 'session' at line 12",
    ("{default: 2h, max: 8h}", "2h"): "classes.interactive.time: must be a mapping of keys,"
    " got '2h' at line 13",
    ("default: {}", "default: 3"): "queues.default: must be a mapping of keys, got 3 at line 33",
    ("  default: {}", "  {}"): "queues: must not be empty, got an empty mapping at line 32",
    ("half_life: 7d", "half_life: true"): "half_life: must not be true or false at line 5",
    ("default: {}", "default: {budget: {gpu_hours: 9, per: 36h}}"): "queues.default.budget.per:"
    " must be whole days, at most 30, for example 7d at line 33",
    ("default: {}", "default: {budget: {gpu_hours: 9}}"): "queues.default.budget.per:"
    " must be given at line 33",
    ("default: {}", "default: {cohort: lab}"): "policy: queues.default.cohort 'lab' is not one of"
    " cohorts (there are none)",
    ("default: {}", "default: {quota: {h100: {nominal: 2, lend: 1}}}"): "policy:"
    " queues.default.quota.h100.lend needs a cohort: there is nobody else",
    ("half_life: 7d", "cohorts: {a: {parent: b}, b: {parent: a}}"): "policy:"
    " cohorts.a.parent leads back to itself: a → b → a",
    (
        "half_life: 7d",
        "cohorts: {a: {quota: {h100: {nominal: -1}}}}",
    ): "cohorts.a.quota.h100.nominal: must be at least 0, got -1 at line 5",
    ("parked_percent: 50", "parked_percent: 101"): "parked_percent: must be at most 100, got 101"
    " at line 8",
    ("parked_percent: 50", "parked_percent: half"): "parked_percent: must be a whole number,"
    " got 'half' at line 8",
    ("half_life: 7d", "groups: {phd: vision}"): "policy: groups.phd 'vision' is not one of queues",
}


@pytest.mark.parametrize(("change", "says"), WORDS.items())
def test_what_is_wrong_is_told_by_key_and_line_and_without_words_of_a_library(
    change: tuple[str, str], says: str
) -> None:
    with pytest.raises(Refusal) as refused:
        policy.parse(policy.DEFAULT_DOCUMENT.replace(*change, 1))
    assert str(refused.value) == says


def test_everything_that_is_wrong_is_told_one_a_line_and_at_most_ten() -> None:
    text = policy.DEFAULT_DOCUMENT.replace("waiting: 5 ", "waiting: five ")
    with pytest.raises(Refusal) as refused:
        policy.parse(text.replace(" grace:", " grase:"))
    assert [line.split(": ")[0].strip() for line in str(refused.value).splitlines()] == [
        "classes.interactive.grase",
        "classes.batch.grase",
        "classes.interactive.waiting",
    ]
    queues = "".join(f"  q{n}: 3\n" for n in range(12))
    with pytest.raises(Refusal) as refused:
        policy.parse(policy.DEFAULT_DOCUMENT + queues)
    lines = str(refused.value).splitlines()
    assert (len(lines), lines[-1].strip()) == (11, "and 2 more")


def changed(*changes: tuple[str, str]) -> list[str]:
    """What these replacements change of the shipped policy."""
    new = policy.DEFAULT_DOCUMENT
    for old, other in changes:
        assert old in new
        new = new.replace(old, other, 1)
    return [str(each) for each in policy.differences(policy.DEFAULT_DOCUMENT, new)]


def test_a_difference_is_told_by_key_as_it_is_written() -> None:
    assert changed(("half_life: 7d", "half_life: 14d"), ("running: 2 ", "running: 3 ")) == [
        "half_life: 7d → 14d",
        "classes.interactive.running: 2 → 3",
    ]


def test_other_words_for_the_same_are_no_difference() -> None:
    assert changed(("half_life: 7d", "half_life: 168h"), ("# decay", "# how")) == []


def test_what_is_left_out_or_new_is_told_as_one() -> None:
    assert changed(
        ("    waiting: 200\n", ""),
        ("half_life: 7d", "removed_users: cancel"),
        ("  default: {}", "  default: {budget: {gpu_hours: 9, per: 7d}}\n  course: {shares: 2}"),
    ) == [
        "removed_users: finish (default) → cancel",
        "classes.batch.waiting: 200 → no limit",
        "queues.default.budget: no limit → {gpu_hours: 9, per: 7d}",
        "queues.course: nothing → {shares: 2}",
    ]


def test_the_order_of_classes_means_something() -> None:
    text = policy.DEFAULT_DOCUMENT
    head, _, rest = text.partition("  batch:")
    batch, _, tail = rest.partition("\nqueues:")
    first, _, interactive = head.partition("  interactive:")
    swapped = f"{first}  batch:{batch}\n  interactive:{interactive}queues:{tail}"
    found = policy.differences(text, swapped)
    assert [str(each) for each in found] == ["classes: interactive batch → batch interactive"]


def test_quotas_are_written_in_gpus() -> None:
    text = policy.DEFAULT_DOCUMENT.replace(
        "  default: {}",
        "  default: {cohort: lab, quota: {h100: {nominal: 4, borrow: 2}}}\n"
        "cohorts: {lab: {quota: {'*': {nominal: 1}}}}",
    )
    found = policy.parse(text)
    assert found.queues["default"].quota == {"h100": Quota(4000, borrow=2000)}
    assert found.cohorts["lab"].quota == {"*": Quota(1000)}


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("restarts: 3", "restarts: true", "classes.batch.restarts"),
        ("  default: {}", "  default: {shares: true}", "queues.default.shares"),
        ("  default: {}", "  default: {users: {ana: true}}", "queues.default.users"),
        ("reserve: auto", "reserve: false", "reserve"),
        ("half_life: 7d", "half_life: true", "half_life"),
        ("classes:", "levels: {factor: true}\nclasses:", "levels.factor"),
    ],
)
def test_true_is_no_number(old: str, new: str, field: str) -> None:
    document = policy.DEFAULT_DOCUMENT.replace(old, new, 1)
    assert document != policy.DEFAULT_DOCUMENT
    with pytest.raises(Refusal, match="must not be true or false at line") as caught:
        policy.parse(document)
    assert caught.value.field == field
