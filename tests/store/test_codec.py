# SPDX-License-Identifier: BSD-3-Clause
"""Records survive being written and read, also by another version of this code."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from math import inf
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core.model import Job, Kept, Process, Quarantined, Request, Share
from jupyter_gpubroker.store import Entry, LaunchRow, PolicyRow, Usage
from jupyter_gpubroker.store.codec import CodecError, decode, dumps, encode

from .samples import SECRET, batch, launch, session

pytestmark = pytest.mark.filterwarnings("error")

FREE_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)

REQUESTS = st.builds(
    Request,
    nodes=st.integers(1, 9),
    gpus=st.integers(1, 8),
    cpu_milli=st.integers(0, 9000),
    flavors=st.lists(st.text(), max_size=2).map(tuple),
    time_limit=st.none() | st.floats(1, 1e9),
) | st.builds(Request, gpu_milli=st.integers(1, 999))

SHARES = st.builds(
    Share, st.text(), st.text(min_size=1), milli=st.integers(1, 1000), memory_mib=st.integers()
)


@cache
def anything(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that the codec knows."""
    known = {Request: REQUESTS, Share: SHARES, object: FREE_JSON}
    if hint in known:
        return known[hint]
    if hint is float:
        return st.floats(allow_nan=False)
    if get_origin(hint) in (Union, types.UnionType):
        return st.one_of([anything(arg) for arg in get_args(hint)])
    if get_origin(hint) is tuple:
        first, *others = get_args(hint)
        if others == [...]:
            return st.lists(anything(first), max_size=3).map(tuple)
        return st.tuples(anything(first), *map(anything, others))
    if get_origin(hint) is Mapping:
        return st.dictionaries(st.text(), anything(get_args(hint)[1]), max_size=3)
    if is_dataclass(hint) and isinstance(hint, type):
        hints = get_type_hints(hint)
        return st.builds(
            hint, **{field.name: anything(hints[field.name]) for field in fields(hint)}
        )
    if isinstance(hint, type) and issubclass(hint, Enum):
        return st.sampled_from(list(hint))
    assert hint in (str, int, bool, bytes, Process, types.NoneType), hint
    return st.from_type(hint)


@pytest.mark.parametrize("cls", [Job, Quarantined, LaunchRow, Entry, PolicyRow, Usage])
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_is_read_is_what_was_written(cls: type, data: st.DataObject) -> None:
    record = data.draw(anything(cls))
    assert decode(cls, json.loads(json.dumps(encode(record)))) == record


@pytest.mark.parametrize("cls", [Job, Quarantined, LaunchRow, Usage])
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_fast_way_writes_the_same(cls: type, data: st.DataObject) -> None:
    record = data.draw(anything(cls))
    assert json.loads(dumps(record)) == encode(record)


def test_the_fast_way_writes_and_refuses_what_is_odd_as_the_slow_one() -> None:
    for odd in (batch(name="\ud800"), batch(until=inf), batch(since=3), batch(name="Größe")):
        assert decode(Job, json.loads(dumps(odd))) == odd
    with pytest.raises(CodecError, match=r"Job\.user: expected str, got list") as refused:
        dumps(batch(user=[SECRET]))
    assert SECRET not in str(refused.value)
    with pytest.raises(CodecError, match=r"Job\.kept: expected Kept, got Share"):
        dumps(batch(kept=(Share("n", "d", 1),)))


def test_lists_are_read_as_tuples_and_enums_as_members() -> None:
    job = decode(Job, json.loads(json.dumps(encode(session()))))
    assert type(job.stages) is tuple
    assert type(job.state) is type(session().state)
    assert type(job.kept[0].processes[0]) is Process


def test_unknown_keys_are_ignored_also_deep_inside() -> None:
    data = encode(session())
    data["horoscope"] = "leo"
    data["lease"]["colour"] = {"r": 1}
    assert decode(Job, data) == session()


def test_missing_keys_take_their_default() -> None:
    data = encode(batch())
    for name in ("avoid", "preemptions", "terms", "state", "until"):
        del data[name]
    del data["request"]["flavors"]
    assert decode(Job, data) == batch()


def test_defaults_are_written_so_that_they_stay_what_they_were() -> None:
    assert encode(Usage("q", "ana", 0.0, 0.0)).keys() == {"queue", "user", "milli_seconds", "time"}
    assert encode(Request(gpus=1))["nodes"] == 1


def test_a_missing_key_without_default_is_named() -> None:
    data = encode(session())
    del data["lease"]["engine"]
    with pytest.raises(CodecError, match=r"Job\.lease: Lease\.engine: missing"):
        decode(Job, data)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("user", 7),
        ("attempt", "1"),
        ("attempt", True),
        ("attempt", 1.5),
        ("since", "now"),
        ("requeue", 1),
        ("state", "asleep"),
        ("stages", "park"),
        ("avoid", [["n1"]]),
        ("request", []),
        ("request", {"gpus": -1}),
        ("kept", [{"kernel": "k"}]),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_field(name: str, value: object) -> None:
    with pytest.raises(CodecError, match=rf"Job\.{name}"):
        decode(Job, {**encode(batch()), name: value})


def test_what_is_refused_is_not_repeated() -> None:
    with pytest.raises(CodecError, match=r"LaunchRow\.env") as refused:
        encode(launch(env=[SECRET]))
    assert SECRET not in str(refused.value)
    with pytest.raises(CodecError, match="not base64") as refused:
        decode(LaunchRow, {**encode(launch()), "files": {"a": f"{SECRET}!"}})
    assert SECRET not in str(refused.value)


def test_a_record_of_another_class_is_refused() -> None:
    with pytest.raises(CodecError, match=r"Job\.kept: expected Kept, got Share"):
        encode(batch(kept=(Share("n", "d", 1),)))
    with pytest.raises(CodecError, match="a mapping for Kept"):
        decode(Kept, ["k1"])


@dataclass(frozen=True)
class _Vague:
    value: int | str


@dataclass(frozen=True)
class _Odd:
    value: Mapping[int, str]


@dataclass(frozen=True)
class _Foreign:
    value: complex


@pytest.mark.parametrize("cls", [_Vague, _Odd, _Foreign])
def test_a_type_without_a_stored_form_is_a_mistake_of_the_programmer(cls: type) -> None:
    with pytest.raises(TypeError, match="no stored form"):
        encode(cls(1))
