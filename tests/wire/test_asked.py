# SPDX-License-Identifier: BSD-3-Clause
"""Request bodies: any JSON is a valid request or an error that names a field."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from jupyter_gpubroker.core.model import Refusal, Request
from jupyter_gpubroker.wire import In, RequestIn, SessionIn, SubmitIn, refusal_of
from jupyter_gpubroker.wire import endpoints as e
from jupyter_gpubroker.wire.endpoints import Endpoint

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
ENDPOINTS: list[Endpoint[Any]] = [item for item in vars(e).values() if isinstance(item, Endpoint)]
MODELS: set[type[In]] = {
    model for item in ENDPOINTS for model in (item.body, item.query) if model is not None
}


def fields_of(model: type[In]) -> list[str]:
    return [info.alias or name for name, info in model.model_fields.items()]


@pytest.mark.parametrize("model", sorted(MODELS, key=str))
@given(data=st.data())
def test_any_json_is_valid_or_an_error_that_names_a_field(
    model: type[In], data: st.DataObject
) -> None:
    names = st.sampled_from([*fields_of(model), "other"])
    value = data.draw(st.dictionaries(names, JSON, max_size=4) | JSON)
    try:
        model.model_validate_json(json.dumps(value))
    except ValidationError as error:
        refusal = refusal_of(error, model)
        assert refusal.field
        assert refusal.message


@given(st.dictionaries(st.sampled_from(fields_of(RequestIn)), JSON))
def test_any_shape_is_a_request_or_refused(value: dict[str, object]) -> None:
    try:
        request = RequestIn.model_validate_json(json.dumps(value)).to_request()
    except (ValidationError, Refusal):
        return
    assert isinstance(request, Request)
    assert request.words()


def refusal(model: type[In], body: object) -> Refusal:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(body)
    return refusal_of(caught.value, model)


def test_an_unknown_key_is_named_with_the_known_ones() -> None:
    found = refusal(SubmitIn, {"argv": ["x"], "request": {"gpu": 1}})
    assert found.field == "request.gpu"
    assert "gpus" in found.remedy
    assert "class" in refusal(SubmitIn, {"argv": ["x"], "clas": 1}).remedy


def test_an_alternative_of_types_does_not_show_in_the_name_of_the_field() -> None:
    assert refusal(SubmitIn, {"argv": ["x"], "request": {"gpus": []}}).field == "request.gpus"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "argv"),
        ({"argv": []}, "argv"),
        ({"argv": ["a\0b"]}, "argv.0"),
        ({"argv": ["x"], "env": {"A=B": "c"}}, "env.A=B"),
        ({"argv": ["x"], "env": {"A": "\0"}}, "env.A"),
        ({"argv": ["x"], "files": {"../x": ""}}, "files.../x"),
        ({"argv": ["x"], "files": {"..": ""}}, "files..."),
        ({"argv": ["x"], "files": {"é" * 101: ""}}, f"files.{'é' * 101}"),
        ({"argv": ["x"], "cwd": "a/folder"}, "cwd"),
        ({"argv": ["x"], "name": "n" * 81}, "name"),
        ({"argv": ["x"], "max_restarts": -1}, "max_restarts"),
    ],
)
def test_what_would_harm_later_is_refused_now(body: dict[str, object], field: str) -> None:
    assert refusal(SubmitIn, body).field == field


@pytest.mark.parametrize("name", ["a/b", "a\n", "\x9b31m", "\u202eb", "a\0"])
def test_the_name_of_a_server_is_one_that_can_be_shown(name: str) -> None:
    assert refusal(SessionIn, {"server": name}).field == "server"


def test_a_share_is_given_in_one_way() -> None:
    with pytest.raises(Refusal, match="not as both"):
        RequestIn(gpus=2, memory="20GiB").to_request()
    assert RequestIn(gpus="1", memory="20GiB").to_request().memory_mib == 20480
    assert RequestIn(memory="20GiB").to_request().memory_mib == 20480
