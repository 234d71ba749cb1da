# SPDX-License-Identifier: BSD-3-Clause
"""What a broker is made of."""

from __future__ import annotations

from jupyter_gpubroker.app.setup import steady_clock


def test_a_step_of_the_wall_clock_moves_no_deadline() -> None:
    times = {"wall": 1_700_000_000.0, "steady": 50.0}
    now = steady_clock(lambda: times["wall"], lambda: times["steady"])
    assert now() == 1_700_000_000.0
    times.update(wall=1_700_003_600.0, steady=60.0)
    assert now() == 1_700_000_010.0
