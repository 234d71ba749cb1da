# SPDX-License-Identifier: BSD-3-Clause
"""What is wrong with an input, told alike by everybody who reads one."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ..core.complaints import complaint
from ..core.model import Refusal


def refusal_of(error: ValidationError, model: type[BaseModel]) -> Refusal:
    """The first thing wrong with an input, as a Refusal naming the field."""
    found = error.errors(include_url=False)
    first = next((item for item in found if item["type"] == "extra_forbidden"), found[0])
    return _refusal(first, model)


def _refusal(detail: ErrorDetails, model: type[BaseModel]) -> Refusal:
    field = ".".join(str(part) for part in detail["loc"] if part != "[key]") or "body"
    inner = detail.get("ctx", {}).get("error")
    match detail["type"]:
        case "json_invalid":
            return Refusal("body", f"is not JSON: {detail['ctx']['error']}")
        case "extra_forbidden":
            return Refusal(field, "is not known", _known(detail["loc"], model))
        case "missing":
            return Refusal(field, "is missing")
        case "value_error" if isinstance(inner, Refusal):
            return Refusal(field, inner.message, inner.remedy)
        case "value_error":
            return Refusal(field, str(inner))
        case _:
            # What was given is not repeated: it may be a secret.
            said = complaint(detail["type"], detail.get("ctx", {}), _lower(detail["msg"]))
            return Refusal(field, said)


def _known(loc: Sequence[int | str], model: type[BaseModel]) -> str:
    """The keys that would be right where an unknown one stands."""
    for part in loc[:-1]:
        info = model.model_fields.get(str(part))
        inner = None if info is None else info.annotation
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return ""
        model = inner
    return "known: " + ", ".join(info.alias or name for name, info in model.model_fields.items())


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
