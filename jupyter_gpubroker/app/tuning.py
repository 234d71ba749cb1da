# SPDX-License-Identifier: BSD-3-Clause
"""Settings of the interpreter for a process that decides again and again about many Jobs."""

from __future__ import annotations

import gc
import sys

YOUNG_MAX = 200_000
"""Objects made since the last look for garbage. A decision about a large cluster makes tens of
thousands, and leaves none behind that only a look would find; each look costs up to as much
as the decision. By default there is one for every 700 objects."""
SWITCH_S = 0.0005
"""After each system call the loop waits so long at most for the thread that encodes what is
stored; by default ten times as long."""


def tune() -> None:
    """For this process, once."""
    gc.set_threshold(YOUNG_MAX, 20, 20)
    sys.setswitchinterval(SWITCH_S)
