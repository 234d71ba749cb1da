# SPDX-License-Identifier: BSD-3-Clause
"""Frozen records <-> JSON values, driven by their type hints.

A record is a dataclass or a NamedTuple. Its fields may be str, int, float, bool, bytes,
enums, records, ``X | None``, tuples, mappings with str keys, and ``object`` for free JSON.
All fields are written, also those at their default, so that a default that changes later
does not change what was stored. Reading ignores unknown keys and takes the default of
missing ones: that is the forward migration of a field that came or went.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter
from pydantic_core import PydanticSerializationError

T = TypeVar("T")
_Turn = Callable[[Any], Any]
"""One direction for one type hint."""


class CodecError(ValueError):
    """A value does not have the type that its field declares. Names the field, never the
    value: it may be a secret."""


def encode(record: object) -> dict[str, Any]:
    """The record as a dict of JSON values; CodecError if a field has another type."""
    cls: Any = type(record)
    encoded: dict[str, Any] = _turns(cls)[0](record)
    return encoded


def dumps(record: object) -> str:
    """The JSON text of ``encode(record)``, in most cases written several times as fast.
    CodecError as there."""
    cls: Any = type(record)
    writer, others = _writer(cls)
    if not any(getattr(record, name) for name in others):
        # Its errors quote values: below they are told without.
        with suppress(PydanticSerializationError):
            return writer.dump_json((record,), warnings="error")[1:-1].decode()
    return json.dumps(encode(record), separators=(",", ":"))


@cache
def _writer(cls: Any) -> tuple[TypeAdapter[tuple[Any, ...]], tuple[str, ...]]:
    """Who writes records of a type fast, and fields that it writes otherwise than ``encode``."""
    # Around a record of the standard library only a container may have a configuration.
    writer = TypeAdapter(tuple[cls, ...], config=ConfigDict(ser_json_inf_nan="constants"))
    others = [name for name, hint in get_type_hints(cls).items() if _is_other(hint)]
    return writer, tuple(others)


def _is_other(hint: Any) -> bool:
    """True of bytes and NamedTuples, and of what may hold them."""
    if not isinstance(hint, type) or get_args(hint):
        return any(_is_other(arg) for arg in get_args(hint))
    if dataclasses.is_dataclass(hint):
        return any(_is_other(inner) for inner in get_type_hints(hint).values())
    return hint is bytes or issubclass(hint, tuple)


def decode(cls: type[T], data: object) -> T:
    """The record of type ``cls`` that ``data`` holds; CodecError if it holds none."""
    hint: Any = cls
    decoded: T = _turns(hint)[1](data)
    return decoded


def plain(value: object) -> Any:
    """Free JSON in its plain form: tuples become lists, str subclasses str.

    CodecError for what JSON cannot say."""
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {_str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    raise _wrong("a JSON value", value)


def _wrong(wanted: str, value: object) -> CodecError:
    return CodecError(f"expected {wanted}, got {type(value).__name__}")


@cache
def _turns(hint: Any) -> tuple[_Turn, _Turn]:
    """How to encode and decode a value of that type; TypeError for a type without a form."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return _optional(hint)
    if origin is tuple:
        return _tuple(get_args(hint))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(get_args(hint))
    if hint is object or hint is Any:
        return plain, plain
    if hint in _SCALARS:
        return _SCALARS[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _enum(hint)
    return _record(hint)


def _str(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    raise _wrong("str", value)


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _wrong("bool", value)


def _int(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise _wrong("int", value)


def _float(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise _wrong("float", value)


def _from_bytes(value: Any) -> str:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    raise _wrong("bytes", value)


def _to_bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_str(value), validate=True)
    except binascii.Error as error:
        raise CodecError(f"not base64: {error}") from None


_SCALARS: Mapping[Any, tuple[_Turn, _Turn]] = {
    str: (_str, _str),
    bool: (_bool, _bool),
    int: (_int, _int),
    float: (_float, _float),
    bytes: (_from_bytes, _to_bytes),
}


def _optional(hint: Any) -> tuple[_Turn, _Turn]:
    inner = [arg for arg in get_args(hint) if arg is not types.NoneType]
    if len(inner) != 1:
        raise TypeError(f"{hint}: a union other than X | None has no stored form")
    encode_one, decode_one = _turns(inner[0])
    return (
        lambda value: None if value is None else encode_one(value),
        lambda value: None if value is None else decode_one(value),
    )


def _tuple(args: tuple[Any, ...]) -> tuple[_Turn, _Turn]:
    if len(args) == 2 and args[1] is ...:
        encode_one, decode_one = _turns(args[0])
        return (
            lambda value: [encode_one(item) for item in _sequence(value)],
            lambda value: tuple([decode_one(item) for item in _sequence(value)]),
        )
    encoders, decoders = zip(*map(_turns, args), strict=True)

    def each(turns: tuple[_Turn, ...], value: Any) -> Iterable[Any]:
        if len(_sequence(value)) != len(turns):
            raise CodecError(f"expected {len(turns)} items, got {len(value)}")
        return [turn(item) for turn, item in zip(turns, value, strict=True)]

    return lambda value: each(encoders, value), lambda value: tuple(each(decoders, value))


def _sequence(value: Any) -> list[Any] | tuple[Any, ...]:
    if isinstance(value, list | tuple):
        return value
    raise _wrong("a list", value)


def _mapping(args: tuple[Any, ...]) -> tuple[_Turn, _Turn]:
    if args[0] is not str:
        raise TypeError(f"a mapping with {args[0]} keys has no stored form")

    def both(turn: _Turn) -> _Turn:
        def run(value: Any) -> dict[str, Any]:
            if not isinstance(value, Mapping):
                raise _wrong("a mapping", value)
            return {_str(key): turn(item) for key, item in value.items()}

        return run

    encode_one, decode_one = _turns(args[1])
    return both(encode_one), both(decode_one)


def _enum(cls: type[Enum]) -> tuple[_Turn, _Turn]:
    def encode_member(value: Any) -> Any:
        if isinstance(value, cls):
            return value.value
        raise _wrong(cls.__name__, value)

    def decode_member(value: Any) -> Enum:
        try:
            return cls(value)
        except ValueError:
            raise CodecError(f"not a {cls.__name__}") from None

    return encode_member, decode_member


def _fields(cls: Any) -> dict[str, bool]:
    """The fields of a record, and whether each must be given."""
    if dataclasses.is_dataclass(cls):
        missing = dataclasses.MISSING
        return {
            field.name: field.default is missing and field.default_factory is missing
            for field in dataclasses.fields(cls)
        }
    if isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_field_defaults"):
        names: tuple[str, ...] = getattr(cls, "_fields")  # noqa: B009 - NamedTuple's own
        return {name: name not in cls._field_defaults for name in names}
    raise TypeError(f"{cls}: a value of this type has no stored form")


def _record(cls: Any) -> tuple[_Turn, _Turn]:
    required = _fields(cls)
    hints = get_type_hints(cls)
    turns = {name: _turns(hints[name]) for name in required}

    def encode_record(value: Any) -> dict[str, Any]:
        if type(value) is not cls:
            raise _wrong(cls.__name__, value)
        name = ""
        try:
            encoded = {}
            for name, (encode_field, _) in turns.items():
                encoded[name] = encode_field(getattr(value, name))
        except CodecError as error:
            raise CodecError(f"{cls.__name__}.{name}: {error}") from None
        return encoded

    def decode_record(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise _wrong(f"a mapping for {cls.__name__}", data)
        name = ""
        try:
            known = {}
            for name, (_, decode_field) in turns.items():
                if name in data:
                    known[name] = decode_field(data[name])
                elif required[name]:
                    raise CodecError("missing")
        except CodecError as error:
            raise CodecError(f"{cls.__name__}.{name}: {error}") from None
        try:
            return cls(**known)
        except (AssertionError, ValueError) as error:
            raise CodecError(f"{cls.__name__}: {error}") from None

    return encode_record, decode_record
