# SPDX-License-Identifier: BSD-3-Clause
"""The OpenAPI document, from the routes and the wire schema."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import models_json_schema

from ..wire import IDEMPOTENCY_KEY, STREAM, ErrorOut
from ..wire.endpoints import JOB, SUBMIT, Endpoint
from .base import Route, Who

_REF = "#/components/schemas/{model}"
_ERRORS = {
    "400": "refused: the field, why, and what would work",
    "401": "no token, or one that the Hub does not know",
    "403": "not allowed",
    "404": "no such job of yours",
    "409": "the job's state does not allow it",
    "429": "too many at once",
    "503": "the broker is degraded, or the Hub cannot be asked",
}
_WHO = {
    Who.ANY: "Needs no token.",
    Who.USER: "For every user.",
    Who.OWNER: "For the job's owner, admins and the Hub.",
    Who.SESSION: "For the session's owner (a server's token: its own session), admins, the Hub.",
    Who.HOLDER: "For the server that holds the session, and the Hub.",
    Who.SERVER: "For the server that is named, and the Hub.",
    Who.HUB: "For the Hub.",
    Who.ADMIN: "For admins.",
}


@functools.cache
def document(routes: tuple[Route, ...], version: str) -> Mapping[str, Any]:
    """OpenAPI 3.1; ``security`` is the Hub's token, over unix sockets nothing."""
    models = [route.endpoint.body for route in routes if route.endpoint.body is not None]
    _, schemas = models_json_schema(
        [(model, "validation") for model in dict.fromkeys(models)], ref_template=_REF
    )
    components: dict[str, Any] = dict(schemas.get("$defs", {}))
    _schema(TypeAdapter(ErrorOut), components)
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        operation = _operation(route, components)
        paths.setdefault(route.endpoint.path, {})[route.endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "jupyter-gpubroker", "version": version},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "token": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "token <JUPYTERHUB_API_TOKEN>; unix sockets need none",
                }
            },
        },
    }


def _operation(route: Route, components: dict[str, Any]) -> dict[str, Any]:
    endpoint = route.endpoint
    answer = _schema(endpoint.adapter, components)
    kind = STREAM if endpoint.stream else "application/json"
    operation: dict[str, Any] = {
        "summary": endpoint.does,
        "description": _WHO[route.who],
        "operationId": f"{endpoint.method.lower()}{endpoint.path}".replace("/", "_"),
        "parameters": _parameters(endpoint),
        "responses": {
            "200": {"description": "done", "content": {kind: {"schema": answer}}},
            **{status: _error(text) for status, text in _ERRORS.items()},
        },
        "security": [] if route.who is Who.ANY else [{"token": []}],
    }
    if endpoint.body is not None:
        schema = {"$ref": _REF.format(model=endpoint.body.__name__)}
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    return operation


def _parameters(endpoint: Endpoint[Any]) -> list[dict[str, Any]]:
    text = {"type": "string"}
    found: list[dict[str, Any]] = []
    if JOB in endpoint.path:
        found.append({"name": "job", "in": "path", "required": True, "schema": text})
    if endpoint is SUBMIT:
        found.append({"name": IDEMPOTENCY_KEY, "in": "header", "schema": text})
    if endpoint.stream:
        found.append({"name": "Last-Event-ID", "in": "header", "schema": text})
    if endpoint.query is not None:
        schema = TypeAdapter(endpoint.query).json_schema()
        defs = schema.get("$defs", {})
        for name, item in schema["properties"].items():
            found.append({"name": name, "in": "query", "schema": _inline(item, defs)})
    return found


def _inline(item: Any, defs: dict[str, Any]) -> Any:
    """A schema without references: query parameters have only small enums to name."""
    if isinstance(item, dict):
        if "$ref" in item:
            return defs[item["$ref"].rpartition("/")[2]]
        return {key: _inline(value, defs) for key, value in item.items()}
    return [_inline(value, defs) for value in item] if isinstance(item, list) else item


def _schema(adapter: TypeAdapter[Any], components: dict[str, Any]) -> dict[str, Any]:
    """The schema of an answer; models in it become components."""
    schema = adapter.json_schema(ref_template=_REF, mode="serialization")
    components |= schema.pop("$defs", {})
    if "properties" not in schema:
        return schema
    components[schema["title"]] = schema
    return {"$ref": _REF.format(model=schema["title"])}


def _error(text: str) -> dict[str, Any]:
    schema = {"$ref": _REF.format(model=ErrorOut.__name__)}
    return {"description": text, "content": {"application/json": {"schema": schema}}}
