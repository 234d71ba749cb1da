# SPDX-License-Identifier: BSD-3-Clause
"""What sessions ask for is seen, and batch leaves room for the next ones."""

from __future__ import annotations

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import Blocked, Job, State
from jupyter_gpubroker.policy import DEFAULT_DOCUMENT, parse

from .theatre import Theatre


def waits(theatre: Theatre, job: Job) -> bool:
    return theatre.job(job.id).state is State.QUEUED


def test_batch_leaves_room_for_as_many_gpus_as_sessions_took_lately() -> None:
    theatre = Theatre(3)
    theatre.session("ana", gpus=2)
    theatre.submit("bo", gpus=4, lasts=500.0)
    theatre.submit("bo", gpus=2, lasts=500.0)
    third, fourth = (theatre.submit("bo", gpus=2) for _ in range(2))
    assert [waits(theatre, job) for job in (third, fourth)] == [False, True]
    why = theatre.world.plan.why[fourth.id]
    assert (why.code, why.rules) == (Blocked.RESERVE, ("reserve",))
    theatre.session("cy", gpus=2)
    assert theatre.world.demand.depth == 4000
    theatre.run(60.0)
    assert theatre.world.demand.depth == 0, "the jobs that ended gave more back"


def test_a_session_that_parks_gives_back_and_comes_again_when_it_is_resumed() -> None:
    theatre = Theatre(3)
    ana = theatre.session("ana", gpus=2)
    assert (theatre.world.demand.depth, theatre.world.demand.depths) == (2000, {2: 1.0})
    theatre.run(1.0)
    theatre.ask(i.Ask("user:ana", ana.id, e.Park()))
    theatre.run(1.0)
    assert theatre.job(ana.id).state is State.PARKED
    assert theatre.world.demand.depth == 0
    theatre.ask(i.Ask("user:ana", ana.id, e.Resume()))
    theatre.run(1.0)
    assert theatre.world.demand.depth == 2000
    assert round(theatre.world.demand.depths[2], 3) == 2.0


def test_no_room_is_left_where_the_policy_says_so() -> None:
    theatre = Theatre(3)
    text = DEFAULT_DOCUMENT.replace("reserve: auto ", "reserve: off")
    theatre.ask(i.ApplyPolicy("admin:eve", text, parse(text)))
    theatre.session("ana", gpus=2)
    jobs = [theatre.submit("bo", gpus=2, lasts=500.0) for _ in range(5)]
    assert not any(waits(theatre, job) for job in jobs)
    text = text.replace("reserve: off", "reserve: 1")
    theatre.ask(i.ApplyPolicy("admin:eve", text, parse(text)))
    theatre.run(501.0)
    jobs = [theatre.submit("bo", gpus=2) for _ in range(5)]
    assert [waits(theatre, job) for job in jobs] == [False] * 4 + [True]
