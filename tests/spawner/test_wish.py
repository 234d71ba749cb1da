# SPDX-License-Identifier: BSD-3-Clause
"""``user_options``: any value is a wish or a refusal that names the option."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpubroker.core.model import Refusal
from jupyter_gpubroker.spawner.wish import Wish, from_form, read


@pytest.mark.parametrize(
    ("options", "wish"),
    [
        ({}, Wish()),
        ({"gpus": "none"}, Wish()),
        ({"gpus": "0.5"}, Wish("0.5")),
        ({"gpus": 2, "time": "2h", "queue": "vision"}, Wish("2", "2h", "vision")),
        ({"gpus": 0.25, "time": 90}, Wish("0.25", "90")),
        ({"gpus": " 1 ", "time": None, "discard": True}, Wish("1", discard=True)),
        ({"gpus": "1", "image": ["a", "b"]}, Wish("1")),
    ],
)
def test_form_and_api_say_the_same_in_their_own_ways(options: dict[str, Any], wish: Wish) -> None:
    assert read(options) == wish


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"gpus": "half"}, "gpus"),
        ({"gpus": True}, "gpus"),
        ({"gpus": ["1"]}, "gpus"),
        ({"gpus": 0}, "gpus"),
        ({"gpus": "-1"}, "gpus"),
        ({"gpus": float("nan")}, "gpus"),
        ({"gpus": float("inf")}, "gpus"),
        ({"gpus": "1", "time": "soon"}, "time"),
        ({"gpus": "none", "time": "soon"}, "time"),
        ({"gpus": "1", "time": -5}, "time"),
        ({"gpus": "1", "queue": {"a": 1}}, "queue"),
        ({"gpus": "1", "discard": "on"}, "discard"),
        ({"gpus": "1", "discard": 1}, "discard"),
    ],
)
def test_a_value_that_means_nothing_is_refused_with_a_remedy(
    options: dict[str, Any], field: str
) -> None:
    with pytest.raises(Refusal) as refused:
        read(options)
    assert refused.value.field == field
    assert refused.value.remedy


@given(
    st.dictionaries(
        st.sampled_from(["gpus", "time", "queue", "discard", "else"]),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
            lambda more: st.lists(more, max_size=2) | st.dictionaries(st.text(), more, max_size=2),
        ),
    )
)
def test_whatever_is_given_it_is_a_wish_or_a_refusal(options: dict[str, Any]) -> None:
    field, request = "", None
    try:
        wish = read(options)
        request = wish.request.to_request() if wish.gpus else None
    except Refusal as refusal:
        field = refusal.field
    assert field in ("", "gpus", "time", "queue", "discard")
    assert request is None or request.gpus + request.gpu_milli > 0


def test_the_form_gives_what_was_filled_in_and_nothing_else() -> None:
    form = {
        "gpus": ["0.5"],
        "time": ["2h"],
        "queue": [""],
        "discard": ["on"],
        "_xsrf": ["secret"],
    }
    assert from_form(form) == {"gpus": "0.5", "time": "2h", "queue": "", "discard": True}
    assert from_form({"gpus": ["none"]}) == {"gpus": "none"}
