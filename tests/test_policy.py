# SPDX-License-Identifier: BSD-3-Clause
"""Policy documents: every bad one is refused, at once, with what is wrong with it."""

from __future__ import annotations

import pytest

from jupyter_gpubroker import policy
from jupyter_gpubroker.core.model import Refusal

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


def test_the_shipped_policy_is_one() -> None:
    assert list(policy.default().classes) == ["interactive", "batch"]
