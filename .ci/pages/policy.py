# SPDX-License-Identifier: BSD-3-Clause
"""The reference of the policy document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from jupyter_gpubroker.documents import Time, TimeOrZero, inside
from jupyter_gpubroker.policy import DEFAULT_DOCUMENT, PolicyDoc
from jupyter_gpubroker.wire import words_duration

WORDS: Mapping[str, str] = {"quota": "flavor"}
"""What the keys of a mapping are, if not names."""
DURATIONS = [item.__metadata__[0] for item in (Time, TimeOrZero)]


def page() -> str:
    """Every key of the policy document: what it is, its unit and its default."""
    lines = [
        "# Policy",
        "",
        "Generated from `jupyter_gpubroker.policy` by `make docs`; do not edit.",
        "",
        "A policy is a YAML document. Durations are written `90s`, `10m`, `2h`, `7d` or",
        "`1-12:00:00`. An unknown key is refused, with the line it stands in. How to check, apply",
        "and change a policy: [Set session times and limits](../how-to/policy.md).",
        "",
        "| key | unit | if it is left out | |",
        "|---|---|---|---|",
        *_keys(PolicyDoc, ""),
        "",
        "A limit never stops what runs; it keeps more from starting.",
        "",
        "## The policy that is imported at the first start",
        "",
        "```yaml",
        DEFAULT_DOCUMENT.rstrip(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _keys(model: type[BaseModel], above: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        key = f"{above}{field.alias or name}"
        nested = inside(field.annotation)
        if nested is not None and get_origin(field.annotation) is dict:
            key += f".<{WORDS.get(name, 'name')}>"
        about = " ".join((field.description or (nested and nested.__doc__) or "").split())
        about = about.removeprefix(f"``{name}``: ")
        about = about[:1].upper() + about[1:]
        yield f"| `{key}` | {_unit(field)} | {_default(field)} | {_plain(about)} |"
        if nested is not None:
            yield from _keys(nested, f"{key}.")


def _plain(text: str) -> str:
    return text.replace("``", "`")


def _unit(field: FieldInfo) -> str:
    kind = field.annotation
    if any(mark in DURATIONS for mark in field.metadata) or "BeforeValidator" in str(kind):
        return "duration"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " ".join(f"`{item.value}`" for item in kind)
    if "int" in str(kind) or kind is float:
        return "number"
    return "name" if kind is str else ""


def _default(field: FieldInfo) -> str:
    value = field.default
    if field.is_required():
        return "must be given"
    if value is None:
        return "no limit" if _unit(field) else "see there"
    if isinstance(value, BaseModel):
        fields = type(value).model_fields.items()
        return ", ".join(
            f"{part.alias or name} {_word(getattr(value, name), part)}" for name, part in fields
        )
    return _word(value, field)


def _word(value: object, field: FieldInfo) -> str:
    if isinstance(value, float):
        return words_duration(value) if _unit(field) == "duration" else f"`{value:g}`"
    return f"`{value}`"
