# SPDX-License-Identifier: BSD-3-Clause
"""Values as people write them: durations, numbers of GPUs, amounts of memory.

Whatever is given, the answer is a value within limits or a ``Refusal``.
"""

from __future__ import annotations

import math
import re

from .model import GPU_MILLI, Refusal

_DURATION = re.compile(r"(?:(\d{1,4})-)?(\d{1,3}):(\d{2})(?::(\d{2}))?", re.ASCII)
_PARTS = re.compile(r"(?:\d+(?:\.\d+)?[smhd])+", re.ASCII)
_PART = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)
_NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_MEMORY = re.compile(r"(\d+(?:\.\d+)?) *([KMGT]?I?B)?", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BYTES |= {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_STEPS = ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s"))
_TEXT_MAX = 64
"""Longer texts are no values, and Python refuses to read very long numbers."""

TIME_MAX_S = 366 * 86400.0
"""Longest time that can be asked for: a year; policy says less."""
GPUS_MAX = 10**6
MEMORY_MAX_MIB = 10**9


def parse_duration(value: object, field: str = "time") -> float:
    """Seconds from ``90``, ``90s``, ``10m``, ``2h``, ``1d12h``, ``02:30:00`` or
    ``1-12:00:00``; Refusal naming ``field`` otherwise."""
    text = _text(value)
    seconds = math.nan
    if match := _DURATION.fullmatch(text):
        days, hours, minutes, rest = (int(part or 0) for part in match.groups())
        seconds = float(days * 86400 + hours * 3600 + minutes * 60 + rest)
    elif _PARTS.fullmatch(text):
        seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    elif _NUMBER.fullmatch(text):
        seconds = float(text)
    if math.isnan(seconds):
        raise Refusal(field, f"{text!r} is not a duration", "for example 90s, 10m, 2h, 1-12:00:00")
    if not 0 < seconds <= TIME_MAX_S:
        raise Refusal(field, f"{text!r} is out of range", "more than 0 and at most 366 days")
    return seconds


def parse_share(value: object, field: str = "gpus") -> tuple[int, int]:
    """``(whole GPUs, milli of one more)`` from ``2``, ``0.5``, ``1.25``; Refusal otherwise.

    Rounded up to a thousandth of a GPU."""
    text = _text(value)
    if not _NUMBER.fullmatch(text):
        raise Refusal(field, f"{text!r} is not a number of GPUs", "for example 1, 2 or 0.5")
    number = float(text)
    if number <= 0:
        raise Refusal(field, f"must be more than 0, got {text}", "for example 0.5")
    if number > GPUS_MAX:
        raise Refusal(field, f"{text} GPUs are out of range", "for example 1, 2 or 0.5")
    # round() first: 0.29 * 1000 is a little more than 290.
    return divmod(max(1, math.ceil(round(number * GPU_MILLI, 6))), GPU_MILLI)


def parse_memory(value: object, field: str = "memory") -> int:
    """MiB, rounded up, from ``20GB`` (10**9) or ``20GiB`` (2**30); a number that is no text
    counts MiB. Refusal otherwise: nobody who writes ``20`` means 20 MiB."""
    text = _text(value)
    match = _MEMORY.fullmatch(text.upper())
    if not match:
        raise Refusal(field, f"{text!r} is not an amount of memory", "for example 20GiB or 20GB")
    if isinstance(value, str) and not match.group(2):
        remedy = f"write {text}GiB" if text.isdigit() else "for example 20GiB or 20GB"
        raise Refusal(field, f"{text!r} has no unit", remedy)
    unit = _BYTES[match.group(2)] if match.group(2) else 2**20
    mib = float(match.group(1)) * unit / 2**20
    if not 0 < mib < MEMORY_MAX_MIB:
        raise Refusal(field, f"{text!r} is out of range", "for example 20GiB or 20GB")
    return math.ceil(mib)


def words_duration(seconds: float) -> str:
    """``2 h 5 min``, ``40 s``: a duration for people."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    for size, unit, part, smaller in _STEPS:
        if whole >= size:
            count, rest = divmod(whole, size)
            return f"{count} {unit}" + (f" {rest // part} {smaller}" if rest >= part else "")
    raise AssertionError(whole)


def words_gpus(milli: int) -> str:
    """``2 GPUs``, ``1 GPU``, ``0.5 GPU``: an amount of GPUs for people."""
    return f"{milli / GPU_MILLI:g} GPU" + ("s" if milli > GPU_MILLI or not milli else "")


def _text(value: object) -> str:
    """What was written, cut where it can be no value any more; ``True`` is no number."""
    if isinstance(value, int) and value.bit_length() > 4 * _TEXT_MAX:
        return "a very large number"
    text = str(value).strip()
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]}…"
