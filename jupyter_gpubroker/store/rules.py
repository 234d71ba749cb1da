# SPDX-License-Identifier: BSD-3-Clause
"""What every store enforces alike."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.model import Seconds
from . import KEPT_S, Entry, StoreError


def oldest(last: Entry | None) -> Seconds:
    """Jobs that ended before this are not loaded, where this is the last Entry.

    Counted from the journal and not from a clock: the same store loads the same, whatever the
    clock says."""
    return last.time - KEPT_S if last else 0.0


def follow(seq: int, entries: Sequence[Entry]) -> int:
    """The seq after these entries have followed ``seq``; StoreError at a hole."""
    for entry in entries:
        seq += 1
        if entry.seq != seq:
            raise StoreError(f"the journal goes on with entry {seq}, got entry {entry.seq}")
    return seq
