# SPDX-License-Identifier: BSD-3-Clause
"""What a shell is made of: values from configuration, and the real things they name."""

from __future__ import annotations

import base64
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..core.model import JobId, Kind, Policy, Seconds
from ..devices import Devices
from ..engines import Engine
from ..store import Store


@dataclass(frozen=True, slots=True)
class Setup:
    """Built by ``app.serve`` from configuration, by tests from what they need."""

    store: Store
    engines: Mapping[str, Engine]
    devices: Devices
    """Of this host: they compute what binds a process and say what is guaranteed."""
    policy: Policy
    """Of ``policy_document``; the default where that document is bad."""
    policy_document: str
    jobs_folder: Callable[[str], Path]
    """Account (empty = the broker's own) -> where its jobs have their folders."""
    parse_policy: Callable[[str, int], Policy]
    account: Callable[[str], str]
    """User -> account its jobs run as (empty = the broker's own); Refusal if there is none."""
    policy_file: str = ""
    """Where ``policy_document`` is from; empty = it came with the package, or the file was bad."""
    isolation: str = ""
    """What every lease says of the isolation between users; empty = nothing to say."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Sentences of what is already known to be missing, by topic."""
    clock: Callable[[], Seconds] = time.time


def _awake_or_not() -> Seconds:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def steady_clock(
    wall: Callable[[], Seconds] = time.time, steady: Callable[[], Seconds] = _awake_or_not
) -> Callable[[], Seconds]:
    """Seconds since the epoch as the wall clock is now, and steady from here on: when that is
    set forward or back later, no deadline of a running broker moves."""
    offset = wall() - steady()
    return lambda: offset + steady()


def new_id(kind: Kind) -> JobId:
    """``b-`` or ``s-`` and 13 letters of base32 (64 random bits)."""
    letters = base64.b32encode(secrets.token_bytes(8)).decode("ascii").rstrip("=").lower()
    return f"{'b' if kind is Kind.BATCH else 's'}-{letters}"
