# SPDX-License-Identifier: BSD-3-Clause
"""The journal in words: what happened, one line each."""

from __future__ import annotations

from collections.abc import Iterable

from ..store import Entry


def story(entries: Iterable[Entry]) -> tuple[str, ...]:
    """``1012.5  b-3 of ana: job.placed by broker, now starting; devices node1/GPU-1-0``."""
    return tuple(_line(entry) for entry in entries)


def _line(entry: Entry) -> str:
    who = f"{entry.job} of {entry.user}: " if entry.job else ""
    state = f", now {entry.state}" if entry.state else ""
    facts = "; ".join(f"{name} {_words(value)}" for name, value in entry.facts.items())
    return f"{entry.time:10.1f}  {who}{entry.event} by {entry.actor}{state}; {facts}"


def _words(value: object) -> str:
    if isinstance(value, list):
        return " ".join(_words(item) for item in value)
    if isinstance(value, dict):
        return "/".join(str(item) for item in value.values())
    return f"{value:.1f}" if isinstance(value, float) else str(value)
