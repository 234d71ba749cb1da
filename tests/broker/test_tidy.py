# SPDX-License-Identifier: BSD-3-Clause
"""What ended a month ago is forgotten, in memory and in the store."""

from __future__ import annotations

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import State
from jupyter_gpubroker.store import KEPT_S

from .desk import Desk


def test_what_ended_long_ago_is_forgotten_with_its_key_and_what_lives_is_not() -> None:
    desk = Desk()
    desk.sees()
    living, ended = desk.submit(4, key="k1"), desk.submit(1, key="k2")
    desk.turn(i.Ask("user:ana", ended.id, e.Cancel()))
    desk.now += KEPT_S - 10
    desk.turn(i.Tidy())
    assert desk.broker.world.jobs[ended.id].state is State.CANCELLED
    assert desk.store.job(ended.id) == desk.broker.world.jobs[ended.id]
    assert desk.submit(1, key="k2").id == ended.id

    desk.now += 20
    seq = desk.broker.world.seq
    (answer,) = desk.turn(i.Ask("user:ana", ended.id, e.Cancel()), i.Tidy()).answers
    assert answer.job is not None, "whoever asked at that moment is answered"
    assert ended.id not in desk.broker.world.jobs
    assert desk.store.job(ended.id) is None
    assert [entry.seq for entry in desk.store.entries(0)] == [seq], "the last one stays"
    assert desk.submit(4, key="k1").id == living.id
    assert desk.submit(1, key="k2").id != ended.id, "a key is remembered as long as its job"
