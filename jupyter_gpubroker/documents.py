# SPDX-License-Identifier: BSD-3-Clause
"""YAML (and so JSON) documents that people write -> pydantic models.

Unknown keys are refused; every error names the line, the key and the remedy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import Annotated, Any, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import ErrorDetails
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent

from .core.amounts import parse_duration
from .core.complaints import complaint, refuse_truth, shown
from .core.model import Refusal

M = TypeVar("M", bound=BaseModel)

DEPTH_MAX = 16
"""Levels of nesting; a policy has four."""
_TOLD_MAX = 10
"""Wrong things that are told at once."""


def _seconds(value: object) -> object:
    try:
        return parse_duration(value)
    except Refusal as refusal:
        raise ValueError(f"{refusal.message} ({refusal.remedy})") from None


def _seconds_or_zero(value: object) -> object:
    return 0.0 if str(value).strip() in ("0", "0s") else _seconds(value)


_WRITTEN = WithJsonSchema(
    {"type": ["string", "number"], "examples": ["90s", "10m", "2h", "1-12:00:00", 90]}
)
Time = Annotated[float, BeforeValidator(_seconds), _WRITTEN]
TimeOrZero = Annotated[float, BeforeValidator(_seconds_or_zero), _WRITTEN]


class Strict(BaseModel):
    """Base of all documents: what is not known is refused."""

    # The docstrings of keys are the reference of the document.
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_for_numbers(cls, value: object, info: ValidationInfo) -> object:
        refuse_truth(cls.model_fields[info.field_name or ""].annotation, value)
        return value


def read(text: str, model: type[M], name: str, longest: int) -> M:
    """The document; Refusal naming line, key and remedy. ``name`` is what it is called,
    ``longest`` the most characters it may have."""
    document = _load(text, name, longest)
    if not isinstance(document, Mapping):
        raise Refusal(name, "must be a mapping of keys", _known(model, ()))
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise _refusal(error, document, model, name) from None


def written(text: str) -> Any:
    """What a right document says, as plain values: nothing is filled in."""
    return YAML(typ="safe", pure=True).load(StringIO(text))


@dataclass(frozen=True, slots=True)
class Difference:
    """One key that is not the same in two documents, with what is written of it; what is left
    out is said to be the default."""

    key: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.key}: {self.old} → {self.new}"


def differences(
    values: Sequence[dict[str, Any]], texts: Sequence[str], ordered: Sequence[str]
) -> list[Difference]:
    """How two documents differ, by key: what they mean (``values``), as it is written.
    ``ordered`` are the mappings in which the order of names means something."""
    return list(_differences("", values, [written(text) for text in texts], ordered))


def _differences(
    key: str, values: Sequence[Any], texts: Sequence[Any], ordered: Sequence[str]
) -> Iterator[Difference]:
    same = values[0] == values[1]
    if same and key and (key not in ordered or list(values[0]) == list(values[1])):
        return
    if not all(isinstance(value, dict) for value in values):
        yield Difference(key, *map(_told, values, texts))
        return
    for name in dict.fromkeys([*values[0], *values[1]]):
        path = f"{key}.{name}" if key else str(name)
        inner = [value.get(name, _ABSENT) for value in values]
        below = [text.get(name, _ABSENT) if isinstance(text, dict) else _ABSENT for text in texts]
        yield from _differences(path, inner, below, ordered)
    if key in ordered and same:
        yield Difference(key, *(" ".join(map(str, value)) for value in values))


_ABSENT = object()


def _told(value: Any, text: Any) -> str:
    if value is _ABSENT:
        return "nothing"
    if text is _ABSENT:
        return "no limit" if value is None else f"{flow(value)} (default)"
    return flow(text)


def flow(value: object) -> str:
    """A plain value as it stands in one line of YAML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {flow(item)}" for name, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def refusal_at(document: str, path: tuple[int | str, ...], message: str, remedy: str) -> Refusal:
    """What a reader of the document finds wrong with one of its values, with its line."""
    line = _line(YAML(typ="rt").load(StringIO(document)), path)
    where = f" at line {line}" if line is not None else ""
    return Refusal(dotted(path), f"{message}{where}", remedy)


def dotted(path: tuple[int | str, ...]) -> str:
    """``jobs[3].queue``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")


def _line(node: Any, path: tuple[int | str, ...]) -> int | None:
    """Line (from 1) of the deepest part of ``path`` that exists in a round-trip node."""
    line: int | None = None
    for part in path:
        try:
            where = node.lc.key(part) if hasattr(node, "keys") else node.lc.item(part)
            line = int(where[0]) + 1
            node = node[part]
        except (AttributeError, KeyError, TypeError, IndexError):
            break
    return line


def _refusal(error: ValidationError, document: Any, model: type[M], name: str) -> Refusal:
    found = error.errors()
    inner = [item["loc"] for item in found]
    # What holds something wrong is often wrong only for that.
    found = [item for item in found if not any(_holds(item["loc"], loc) for loc in inner)]
    found.sort(key=lambda item: item["type"] != "extra_forbidden")
    told = [_wrong(item, document, model, name) for item in found[:_TOLD_MAX]]
    if len(told) == 1:
        return told[0]
    more = [f"and {len(found) - _TOLD_MAX} more"] if len(found) > _TOLD_MAX else []
    field = told[0].field
    lines = [str(told[0]).removeprefix(f"{field}: "), *map(str, told[1:]), *more]
    return Refusal(field, "\n  ".join(lines))


def _holds(outer: tuple[int | str, ...], inner: tuple[int | str, ...]) -> bool:
    return len(outer) < len(inner) and inner[: len(outer)] == outer


def _wrong(item: ErrorDetails, document: Any, model: type[BaseModel], name: str) -> Refusal:
    path = tuple(item["loc"])
    line = _line(document, path)
    said = item["msg"].removeprefix("Value error, ")
    message = complaint(item["type"], item.get("ctx", {}), said, shown(item["input"]))
    remedy = ""
    if item["type"] == "extra_forbidden":
        message, remedy = "unknown key", _known(model, path[:-1])
    elif item["type"] == "missing":
        message = "must be given"
    where = f" at line {line}" if line is not None else ""
    return Refusal(dotted(path) or name, f"{message}{where}", remedy)


def _known(model: type[BaseModel], path: tuple[int | str, ...]) -> str:
    """The keys that would be right there."""
    for part in path:
        for name, field in model.model_fields.items():
            if part in (name, field.alias):
                model = inside(field.annotation) or model
    keys = (field.alias or name for name, field in model.model_fields.items())
    return "known keys: " + ", ".join(sorted(keys))


def inside(kind: Any) -> type[BaseModel] | None:
    """The document that a field holds, alone, in a list or by name."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return kind
    return next((found for arg in get_args(kind) if (found := inside(arg))), None)


def _load(text: str, name: str, longest: int) -> Any:
    """What the text holds. It may come from anybody: a small one must not unfold into a huge
    one, and one that is no YAML in any way is refused, whatever the parser thinks of it."""
    if len(text) > longest:
        raise Refusal(name, f"must not be longer than {longest} characters")
    try:
        _check_shape(text, name)
        return YAML(typ="rt").load(StringIO(text))
    except Refusal:
        raise
    except MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise Refusal(name, f"not YAML{where}: {error.problem}") from None
    except (YAMLError, ValueError) as error:
        lines = str(error).splitlines() or ["it cannot be read"]
        raise Refusal(name, f"not YAML: {lines[0]}") from None


def _check_shape(text: str, name: str) -> None:
    depth = 0
    for event in YAML(typ="rt", pure=True).parse(StringIO(text)):
        depth += isinstance(event, CollectionStartEvent)
        depth -= isinstance(event, CollectionEndEvent)
        line = event.start_mark.line + 1
        if depth > DEPTH_MAX:
            raise Refusal(name, f"is nested too deeply at line {line}")
        if isinstance(event, AliasEvent):
            raise Refusal(name, f"has an alias at line {line}", "write out what * stands for")
