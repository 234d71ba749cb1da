# SPDX-License-Identifier: BSD-3-Clause
"""The REST reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from jupyter_gpubroker.service.openapi import document
from jupyter_gpubroker.service.routes import ROUTES


def page() -> str:
    """Every endpoint, and every model that it takes or answers."""
    api = document(ROUTES, "")
    operations = [
        (method.upper(), path, operation)
        for path, methods in api["paths"].items()
        for method, operation in methods.items()
    ]
    answers = operations[0][2]["responses"]
    lines = [
        "# REST",
        "",
        "Generated from `jupyter_gpubroker.service` by `make docs`; do not edit. The same as an",
        "OpenAPI document is served at `/api/v1/openapi.json`. Through a Hub the paths begin with",
        "`/services/gpubroker`, and the header `Authorization: token …` says who asks; over the",
        "unix socket of a broker without a Hub the account of the asking process does.",
        "",
        "| endpoint | what it does | who may | takes |",
        "|---|---|---|---|",
        *(_endpoint(*operation) for operation in operations),
        "",
        "## Answers that are no answer",
        "",
        "The body is an [ErrorOut](#errorout): the field, what is wrong, and what would work.",
        "",
        "| status | meaning |",
        "|---|---|",
        *(f"| {code} | {item['description']} |" for code, item in answers.items() if code != "200"),
        *_models(api["components"]["schemas"]),
        "",
    ]
    return "\n".join(lines)


def _endpoint(method: str, path: str, operation: Mapping[str, Any]) -> str:
    takes = [f"`{item['name']}`" for item in operation["parameters"] if item["in"] != "path"]
    body = operation.get("requestBody")
    if body is not None:
        takes.insert(0, _kind(body["content"]["application/json"]["schema"]))
    content = next(iter(operation["responses"]["200"]["content"].items()))
    answer = f"{_kind(content[1]['schema'])}{' as events' if 'event' in content[0] else ''}"
    does = f"{operation['summary']} → {answer}"
    return f"| `{method} {path}` | {does} | {operation['description']} | {', '.join(takes)} |"


def _kind(schema: Mapping[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(item) for item in schema["anyOf"]))
    if "enum" in schema:
        return " ".join(f"`{word}`" for word in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"list of {_kind(schema.get('items', {}))}"
    return str(schema.get("type", "any"))


def _models(schemas: Mapping[str, Any]) -> Iterator[str]:
    for name, schema in sorted(schemas.items()):
        yield from ("", f"## {name}", "")
        if text := schema.get("description"):
            yield from (" ".join(text.split()), "")
        if "enum" in schema:
            yield _kind(schema)
        fields = schema.get("properties", {})
        if fields:
            yield from ("| field | type | |", "|---|---|---|")
        for field, item in fields.items():
            must = "" if field not in schema.get("required", ()) else "required"
            text = " ".join(item.get("description", "").split())
            yield f"| `{field}` | {_kind(item)} | {text or must} |"
