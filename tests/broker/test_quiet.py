# SPDX-License-Identifier: BSD-3-Clause
"""A start is no reason to decide anew; the end of its shield is."""

from __future__ import annotations

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import State

from .desk import Desk


def test_who_has_started_changes_nothing_before_its_shield_is_over() -> None:
    desk = Desk()
    desk.sees()
    runs, waits = desk.submit(4), desk.submit(4)
    plan = desk.broker.world.plan
    turn = desk.turn(i.Ask("engine:toy", runs.id, e.Started(1)))
    assert desk.job(runs).state is State.RUNNING
    assert desk.broker.world.plan is plan
    assert turn.next is not None
    assert turn.next <= desk.job(runs).shield_until == desk.now + 600.0
    desk.now += 600.0
    desk.turn()
    assert desk.broker.world.plan is not plan
    assert desk.job(waits).state is State.QUEUED


def test_where_nobody_waits_nobody_looks() -> None:
    desk = Desk()
    desk.sees()
    runs = desk.submit(4)
    turn = desk.turn(i.Ask("engine:toy", runs.id, e.Started(1)))
    assert turn.next == desk.job(runs).deadline
