# SPDX-License-Identifier: BSD-3-Clause
"""What a person wants of a start: ``user_options``, from the form and the API alike.

| option    | values                                   | if left out            |
|-----------|------------------------------------------|------------------------|
| `gpus`    | `"none"`, a share `0.5`, a number `2`    | `"none"`               |
| `time`    | `"90s"`, `"30m"`, `"2h"`, `"1-12:00:00"` | the class's default    |
| `queue`   | name of a queue                          | the default queue      |
| `discard` | `true`: delete what is parked here       | `false`                |

Other options are left to the spawner below and to the Hub's hooks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..client import Refusal
from ..wire import RequestIn, parse_duration, parse_share

NONE = "none"
FIELDS = ("gpus", "time", "queue")


@dataclass(frozen=True, slots=True)
class Wish:
    """A checked wish; empty texts mean that nothing was said."""

    gpus: str = ""
    """Empty = no GPU."""
    time: str = ""
    queue: str = ""
    discard: bool = False

    @property
    def request(self) -> RequestIn:
        """As the broker wants it."""
        given = {"gpus": self.gpus} | ({"time": self.time} if self.time else {})
        return RequestIn.model_validate(given)


def read(options: Mapping[str, Any]) -> Wish:
    """The wish in ``user_options``; Refusal naming the option and the remedy."""
    gpus, time = _word(options, "gpus") or NONE, _word(options, "time")
    if gpus != NONE:
        _check_gpus(gpus)
    if time:
        parse_duration(time)
    discard = options.get("discard") or False
    if not isinstance(discard, bool):
        raise Refusal("discard", f"{discard!r} is neither true nor false", "leave it out to keep")
    return Wish("" if gpus == NONE else gpus, time, _word(options, "queue"), discard)


def _check_gpus(gpus: str) -> None:
    try:
        parse_share(gpus)
    except Refusal as refusal:
        raise Refusal("gpus", refusal.message, "for example 0.5, 1 or 2; none = no GPU") from None


def _word(options: Mapping[str, Any], name: str) -> str:
    value = options.get(name)
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Refusal(name, f"must be a text, got {str(value)[:64]!r}", 'for example "gpus": "0.5"')
    return str(value).strip()


def from_form(form: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """``user_options`` from the fields of the spawn form, or of a query."""
    options: dict[str, Any] = {name: form[name][0] for name in FIELDS if form.get(name)}
    if form.get("discard"):
        options["discard"] = True
    return options
