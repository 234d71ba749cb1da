# SPDX-License-Identifier: BSD-3-Clause
"""Bad input: 4xx that names the field and the remedy, and nothing is changed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.service.routes import ROUTES
from jupyter_gpubroker.wire import endpoints as e
from jupyter_gpubroker.wire.endpoints import Endpoint

from .conftest import House
from .hub import OWN
from .thread import Thread


async def post(house: House, path: str, body: object, method: str = "POST") -> httpx.Response:
    async with house.http(house.hub.user("ana", server="", admin=True)) as http:
        return await http.request(method, f"api/v1/{path}", json=body)


SUBMITS: list[tuple[dict[str, Any], str]] = [
    ({"gpus": 9}, "gpus"),
    ({"gpus": "0"}, "gpus"),
    ({"gpus": -1}, "gpus"),
    ({"gpus": "half"}, "gpus"),
    ({"gpus": "NaN"}, "gpus"),
    ({"gpus": "1e400"}, "gpus"),
    ({"gpus": True}, "request.gpus"),
    ({"gpus": None}, "request.gpus"),
    ({"nodes": 0}, "nodes"),
    ({"nodes": True}, "request.nodes"),
    ({"nodes": 10**30}, "request.nodes"),
    ({"nodes": 3}, "nodes"),
    ({"nodes": 2, "gpus": 0.5}, "nodes"),
    ({"flavors": ["h9000"]}, "flavors"),
    ({"memory": "20 apples"}, "memory"),
    ({"memory": "9" * 400}, "memory"),
    ({"memory": "20"}, "memory"),
    ({"host_memory": "64"}, "host_memory"),
    ({"cpus": 1e308}, "request.cpus"),
    ({"time": "1000000000h"}, "time"),
    ({"time": "never"}, "time"),
    ({"time": "300d"}, "time"),
    ({"gpu": 1}, "request.gpu"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("request_", "field"), SUBMITS)
async def test_a_shape_that_cannot_be_is_refused(
    house: House, request_: dict[str, Any], field: str
) -> None:
    seq = house.desk.world.seq
    response = await post(house, "jobs", {"argv": ["train.py"], "request": request_})
    told = response.json()
    assert (response.status_code, told["error"], told["field"]) == (400, "refused", field)
    assert told["message"]
    assert (house.desk.world.seq, house.desk.world.jobs) == (seq, {})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '"x"', "\xff", '{"argv": ["\\ud800"]}', "NaN"]
)
async def test_what_is_no_json_object_is_refused(house: House, text: str) -> None:
    async with house.http(house.hub.user("ana")) as http:
        response = await http.post("api/v1/jobs", content=text.encode("latin-1"))
    assert response.status_code == 400
    assert response.json()["field"] in ("body", "argv")


@pytest.mark.asyncio
async def test_numbers_that_no_float_holds_are_refused(house: House) -> None:
    for value in ("1e400", "NaN", "-Infinity", "1" * 5000):
        text = f'{{"argv": ["x"], "request": {{"gpus": {value}}}}}'
        async with house.http(house.hub.user("ana")) as http:
            response = await http.post("api/v1/jobs", content=text)
        assert response.status_code == 400, value


@pytest.mark.asyncio
async def test_an_endpoint_without_a_body_takes_none(house: House) -> None:
    job = house.desk.stage.submit("ana")
    response = await post(house, f"jobs/{job.id}/cancel", {"really": True})
    assert (response.status_code, response.json()["field"]) == (400, "really")
    assert house.desk.stage.job(job.id) == job


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("query", "field"),
    [("kind=cat", "kind"), ("limit=0", "limit"), ("state=", "state"), ("x=1", "x"), ("=1", "body")],
)
async def test_a_query_is_checked_like_a_body(house: House, query: str, field: str) -> None:
    async with house.http(house.hub.user("ana")) as http:
        response = await http.get(f"api/v1/jobs?{query}")
    assert (response.status_code, response.json()["field"]) == (400, field)


@pytest.mark.asyncio
async def test_a_long_idempotency_key_is_refused(house: House) -> None:
    async with house.http(house.hub.user("ana")) as http:
        response = await http.post(
            "api/v1/jobs", json={"argv": ["x"]}, headers={"Idempotency-Key": "k" * 200}
        )
    assert (response.status_code, response.json()["field"]) == (400, "Idempotency-Key")


@pytest.mark.asyncio
async def test_a_policy_is_refused_with_line_and_key(house: House) -> None:
    for method, path in (("PUT", "policy"), ("POST", "policy/check")):
        response = await post(house, path, {"document": "classes: {}\nqeues: 1\n"}, method)
        assert response.status_code == 400
        assert "qeues" in response.json()["field"]
        assert "line 2" in response.json()["message"]
    assert house.desk.world.policy_row is None


@pytest.mark.asyncio
async def test_a_body_without_end_is_not_read(house: House) -> None:
    async with house.http(house.hub.user("ana")) as http:
        try:
            response = await http.post("api/v1/jobs", content=b"x" * (17 * 2**20))
        except httpx.HTTPError:
            return  # the service has hung up in the middle
    assert response.status_code in (400, 413)


@pytest.mark.asyncio
@pytest.mark.parametrize("method", ["DELETE", "PATCH", "PUT"])
async def test_a_method_that_is_not_there_is_405_in_json(house: House, method: str) -> None:
    async with house.http(house.hub.user("ana")) as http:
        response = await http.request(method, "api/v1/jobs")
    assert response.status_code == 405
    assert response.json()["error"] == "method-not-allowed"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path", ["api/v1/", "api/v2/jobs", "api/v1/jobs/", "x", "api/v1/jobs/%ff", "health/x"]
)
async def test_a_path_that_is_not_there_is_404_in_json(house: House, path: str) -> None:
    async with house.http(house.hub.user("ana")) as http:
        response = await http.get(path)
    assert response.status_code in (400, 404)
    assert response.json()["error"] in ("not-found", "refused")


@pytest.mark.asyncio
@pytest.mark.parametrize("job", ["b-none", "..", "%2e%2e", "a%2fb", "%00", "é", "x" * 5000])
async def test_an_id_that_is_none_is_404(house: House, job: str) -> None:
    async with house.http(house.hub.user("ana")) as http:
        response = await http.get(f"api/v1/jobs/{job}/logs")
    assert response.status_code == 404
    assert len(response.text) < 500


@pytest.mark.asyncio
async def test_head_and_options_are_answered(house: House) -> None:
    async with house.http(house.hub.user("ana")) as http:
        for path in ("health", "api/v1/queue", "api/v1/events"):
            response = await http.head(path)
            assert (response.status_code, response.content) == (200, b"")
        response = await http.options("api/v1/policy")
    assert response.status_code == 204
    assert response.headers["Allow"] == "GET, PUT, HEAD, OPTIONS"


# --- any JSON whatever --------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
WRITING = [route.endpoint for route in ROUTES if route.endpoint.body is not None]


def fields(endpoint: Endpoint[Any]) -> list[str]:
    assert endpoint.body is not None
    return [info.alias or name for name, info in endpoint.body.model_fields.items()]


@pytest.fixture(scope="module")
def thread() -> Iterator[Thread]:
    made = Thread()
    yield made
    made.close()


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_any_json_gives_an_answer_and_a_refusal_changes_nothing(
    thread: Thread, data: st.DataObject
) -> None:
    endpoint = data.draw(st.sampled_from(WRITING))
    names = st.sampled_from([*fields(endpoint), "other"])
    body = data.draw(st.dictionaries(names, JSON, max_size=5) | JSON)
    house = thread.house
    desk = house.desk
    job = next(iter(desk.world.jobs), None) or desk.stage.submit("ana", lasts=1e9).id
    token = OWN if endpoint in (e.GONE, e.WAITS) else house.hub.user("ana", server="", admin=True)
    seq, jobs = desk.world.seq, dict(desk.world.jobs)

    async def call() -> httpx.Response:
        async with house.http(token) as http:
            path = endpoint.path.replace(e.JOB, job).lstrip("/")
            return await http.request(endpoint.method, path, content=json.dumps(body))

    response = thread.do(call())
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        told = response.json()
        assert told["message"]
        assert told["field"] or told["error"] != "refused"
        assert (desk.world.seq, desk.world.jobs) == (seq, jobs)
