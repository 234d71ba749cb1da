# SPDX-License-Identifier: BSD-3-Clause
"""What is wrong with a value, for people who know no Python: words for what a check found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

_MUST = {
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a smaller number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "finite_number": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "dict_type": "must be a mapping of keys",
    "model_type": "must be a mapping of keys",
    "model_attributes_type": "must be a mapping of keys",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "greater_than": "must be more than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must not have fewer than {min_length} entries",
    "too_long": "must not have more than {max_length} entries",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "enum": "must be {expected}",
    "literal_error": "must be {expected}",
}
_SHOWN_MAX = 40


def complaint(kind: str, context: Mapping[str, object], otherwise: str, given: str = "") -> str:
    """``must be at least 1, got 0``: of a check called ``kind``; ``otherwise`` where it is
    none of those that are known here."""
    if kind not in _MUST:
        return otherwise
    empty = kind in ("too_short", "string_too_short") and context.get("min_length") == 1
    words = "must not be empty" if empty else _MUST[kind].format_map(context)
    return f"{words}, got {given}" if given else words


def refuse_truth(annotation: object, value: object) -> None:
    """ValueError where true or false stands in a field that has no room for it: to Python they
    are the numbers 1 and 0, to people a mistake."""
    if _is_true_or_false(value) and not _may_be_truth(annotation):
        raise ValueError("must not be true or false")


def _is_true_or_false(value: object) -> bool:
    """It is, or one of what it holds."""
    if isinstance(value, Mapping):
        return any(map(_is_true_or_false, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_is_true_or_false, value))
    return isinstance(value, bool)


def _may_be_truth(annotation: object) -> bool:
    """True of what says bool, and of a model, which looks at its own fields."""
    inner = get_args(annotation)
    if inner:
        return any(map(_may_be_truth, inner))
    return annotation is bool or hasattr(annotation, "model_fields")


def shown(given: object) -> str:
    """A value as it was written; empty for what is too long to repeat."""
    if given is None or isinstance(given, bool):
        return {None: "nothing", True: "true", False: "false"}[given]
    if isinstance(given, str):
        return repr(given) if len(given) <= _SHOWN_MAX else ""
    if isinstance(given, int | float):
        return f"{given}" if -1e12 < given < 1e12 else ""
    if isinstance(given, Mapping):
        return "a mapping" if given else "an empty mapping"
    return "a list" if given else "an empty list"
