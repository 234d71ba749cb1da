# SPDX-License-Identifier: BSD-3-Clause
"""Whatever people write: a value within limits, or a Refusal. Nothing else, ever."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpubroker.core.amounts import (
    GPUS_MAX,
    MEMORY_MAX_MIB,
    TIME_MAX_S,
    parse_duration,
    parse_memory,
    parse_share,
    words_duration,
)
from jupyter_gpubroker.core.model import Refusal

NUMBERS = st.one_of(
    st.integers(),
    st.integers(min_value=-(10**5000), max_value=10**5000),
    st.floats(),
    st.booleans(),
    st.none(),
)
TEXTS = st.one_of(
    st.text(),
    st.from_regex(r"[0-9.:eE+\-smhdKMGTiB _]{0,40}", fullmatch=True),
    st.from_regex(r"\d{1,400}(\.\d{1,400})?[smhd]?", fullmatch=True),
    st.sampled_from(["half", "1e400", "-1", "0", "NaN", "inf", "٣", "1_0", "１", "9" * 5000 + "h"]),
)
ANYTHING = st.one_of(NUMBERS, TEXTS, st.lists(st.integers(), max_size=2))


def value_of(parse: Callable[[Any, str], Any], value: object) -> Any:
    """The value; None where it is refused as it should be."""
    try:
        return parse(value, "that")
    except Refusal as error:
        told = error
    assert told.field == "that"
    assert told.message
    assert told.remedy
    assert len(told.message) < 200
    return None


@given(ANYTHING)
@example(float("nan"))
@example("1000000000h")
@example("99999-00:00:00")
def test_a_duration_is_at_most_a_year_or_refused(value: object) -> None:
    seconds = value_of(parse_duration, value)
    assert seconds is None or 0 < seconds <= TIME_MAX_S


@given(ANYTHING)
@example("1e400")
@example("half")
@example(0)
@example(-1)
@example(1e-12)
def test_a_number_of_gpus_is_positive_or_refused(value: object) -> None:
    found = value_of(parse_share, value)
    if found is not None:
        whole, milli = found
        assert 0 <= milli < 1000
        assert 0 < whole * 1000 + milli <= GPUS_MAX * 1000


@given(ANYTHING)
@example("9" * 400 + "GiB")
def test_an_amount_of_memory_is_positive_or_refused(value: object) -> None:
    mib = value_of(parse_memory, value)
    assert mib is None or 0 < mib <= MEMORY_MAX_MIB


GOOD: list[tuple[Callable[[Any], Any], object, object]] = [
    (parse_duration, 90, 90.0),
    (parse_duration, "90", 90.0),
    (parse_duration, "90s", 90.0),
    (parse_duration, "1.5h", 5400.0),
    (parse_duration, "1d12h", 129600.0),
    (parse_duration, "02:30", 9000.0),
    (parse_duration, "02:30:10", 9010.0),
    (parse_duration, "1-12:00:00", 129600.0),
    (parse_duration, " 10m ", 600.0),
    (parse_share, "0.5", (0, 500)),
    (parse_share, 0.29, (0, 290)),
    (parse_share, 3, (3, 0)),
    (parse_share, "1.25", (1, 250)),
    (parse_share, "0.0001", (0, 1)),
    (parse_memory, "20GB", 19074),
    (parse_memory, "20GiB", 20480),
    (parse_memory, "20 gib", 20480),
    (parse_memory, 1024, 1024),
    (parse_memory, 1024.5, 1025),
    (parse_memory, "1B", 1),
]


@pytest.mark.parametrize(("parse", "value", "expected"), GOOD)
def test_what_people_write_is_understood(
    parse: Callable[[Any], Any], value: object, expected: object
) -> None:
    assert parse(value) == expected


BAD = [True, "half", "٣", "1_0", "1e400", "", " ", "-1", "0", None, "1 2", "NaN", float("inf")]


@pytest.mark.parametrize("parse", [parse_duration, parse_share, parse_memory])
@pytest.mark.parametrize("value", BAD)
def test_what_is_no_value_is_refused(parse: Callable[[Any], Any], value: object) -> None:
    with pytest.raises(Refusal):
        parse(value)


@pytest.mark.parametrize(("text", "remedy"), [("20", "write 20GiB"), ("1.5", "for example 20GiB")])
def test_memory_as_text_needs_a_unit(text: str, remedy: str) -> None:
    with pytest.raises(Refusal, match="has no unit") as refused:
        parse_memory(text)
    assert refused.value.remedy.startswith(remedy)


@given(st.floats(min_value=0, max_value=TIME_MAX_S, allow_nan=False))
def test_a_duration_in_words_says_about_the_same(seconds: float) -> None:
    words = words_duration(seconds).split()
    units = {"s": 1, "min": 60, "h": 3600, "d": 86400}
    said = sum(int(n) * units[unit] for n, unit in zip(words[::2], words[1::2], strict=True))
    assert math.isclose(said, seconds, rel_tol=0.05, abs_tol=1)
