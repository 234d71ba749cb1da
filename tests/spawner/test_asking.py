# SPDX-License-Identifier: BSD-3-Clause
"""What a person who starts a server is told."""

from __future__ import annotations

import re
import time

from jupyter_gpubroker.spawner.asking import clock


def test_a_time_has_its_day_unless_that_is_today() -> None:
    now = time.localtime()

    def noon(days: int) -> float:
        return time.mktime((now.tm_year, now.tm_mon, now.tm_mday + days, 12, 0, 0, 0, 0, -1))

    assert clock(noon(0)) == "12:00 (the Hub's time)"
    for days in (-1, 1, 40):
        assert re.fullmatch(r"[1-9]\d? \w+, 12:00 \(the Hub's time\)", clock(noon(days)))
