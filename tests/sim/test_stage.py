# SPDX-License-Identifier: BSD-3-Clause
"""Machines, servers and calls that misbehave one at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import Reason, Request, Rung, StageName, State
from jupyter_gpubroker.sim.agenda import FIRST, LOOK, TURN, Agenda
from jupyter_gpubroker.sim.engine import Work
from jupyter_gpubroker.sim.faults import Faults, Unanswered
from tests.broker.theatre import LAUNCH, Theatre


def test_time_leaps_and_one_instant_has_an_order() -> None:
    agenda, seen = Agenda(100.0), list[str]()
    agenda.at(300.0, lambda: seen.append("turn"), TURN)
    agenda.at(300.0, lambda: seen.append("look"), LOOK)
    agenda.at(300.0, lambda: seen.append("first"), FIRST)
    agenda.at(300.0, lambda: seen.append("second"))
    agenda.at(50.0, lambda: seen.append(f"past, at {agenda.now}"))
    agenda.at(float("inf"), lambda: seen.append("never"))
    agenda.run(1000.0)
    assert seen == ["past, at 100.0", "first", "second", "look", "turn"]
    assert (agenda.now, agenda.next) == (1000.0, None)


def test_a_quiet_day_costs_few_turns() -> None:
    stage = Theatre()
    stage.calm_s = None
    job = stage.submit("ana", lasts=500.0)
    stage.run(5)
    before = stage.turns
    stage.run(400)
    assert stage.turns == before
    stage.run(86400)
    assert stage.job(job.id).state is State.COMPLETED
    assert stage.turns < before + 10


def test_a_machine_that_cannot_be_reached_keeps_its_gpus_until_there_is_proof() -> None:
    stage = Theatre(count=1)
    job = stage.submit("ana", gpus=4, lasts=10_000)
    waits = stage.submit("bo", gpus=1)
    stage.run(5)
    stage.engine.hide("node1", "it cannot be reached")
    stage.run(5)
    lost = stage.job(job.id)
    assert lost.notice is not None
    assert (lost.state, lost.notice.reason) == (State.STOPPING, Reason.LOST)
    stage.run(300)
    assert stage.job(job.id).state is State.QUEUED
    assert stage.world.quarantined
    stage.engine.show("node1")
    stage.run(0)
    assert stage.job(waits.id).state is State.QUEUED, "the machine is back, and still computes"
    stage.run(60)
    assert stage.job(waits.id).state in (State.RUNNING, State.COMPLETED)


def test_a_machine_that_booted_anew_is_proof() -> None:
    stage = Theatre(count=2)
    gang = stage.submit("ana", nodes=2, gpus=4, lasts=10_000)
    stage.run(5)
    stage.engine.die("node2")
    stage.run(5)
    assert stage.job(gang.id).state is State.STOPPING
    stage.engine.show("node2")
    stage.run(60)
    again = stage.job(gang.id)
    assert (again.state, again.attempt, again.restarts) == (State.RUNNING, 2, 1)


def test_the_boot_of_one_machine_proves_nothing_of_another() -> None:
    stage = Theatre(count=2)
    gang = stage.submit("ana", nodes=2, gpus=4, lasts=10_000)
    stage.run(5)
    stage.engine.hide("node1", "it cannot be reached")
    stage.engine.hide("node2", "it cannot be reached")
    stage.run(300)
    assert stage.job(gang.id).state is State.QUEUED
    stage.engine.die("node2")
    stage.run(5)
    (left,) = stage.world.quarantined
    assert [share.node for share in left.shares] == ["node1"] * 4
    (freed,) = (entry for entry in stage.store.entries(0) if entry.event == "quarantine.freed")
    assert freed.facts["devices"] == [f"GPU-2-{n}" for n in range(4)]
    stage.engine.show("node1")
    stage.engine.show("node2")
    stage.run(60)
    assert not stage.world.quarantined
    assert stage.job(gang.id).state is State.RUNNING


def test_an_end_that_nobody_recorded_is_quarantined() -> None:
    stage = Theatre(count=1)
    job = stage.submit("ana", lasts=10_000)
    stage.run(5)
    stage.engine.lose_end(stage.job(job.id).key)
    stage.run(300)
    assert stage.job(job.id).attempt == 2
    (item,) = stage.world.quarantined
    assert (item.job, item.attempt) == (job.id, 1)


def test_a_launch_that_was_lost_is_made_good() -> None:
    stage = Theatre()
    stage.faults = Faults(call=1.0)
    job = stage.submit("ana", lasts=30)
    stage.run(8)
    stage.faults = Faults()
    stage.run(300)
    done = stage.job(job.id)
    assert done.state is State.COMPLETED
    assert stage.engine.ends[job.id] == 1


def test_who_asks_a_broker_that_is_down_gets_no_answer() -> None:
    stage = Theatre()
    stage.faults = Faults(down=50.0)
    stage.crash()
    with pytest.raises(Unanswered):
        stage.ask(i.Submit("user:ana", "ana", Request(gpus=1), LAUNCH))
    stage.run(60)
    assert stage.submit("ana").state is State.STARTING


def test_a_commit_that_fails_changes_nothing_that_is_known() -> None:
    stage = Theatre()
    stage.faults = Faults(commit=1.0)
    with pytest.raises(Unanswered):
        stage.ask(i.Submit("user:ana", "ana", Request(gpus=1), LAUNCH, idempotency="x"))
    stage.faults = Faults()
    stage.run(5)
    once = stage.submit("ana", idempotency="x")
    assert [job.id for job in stage.world.jobs.values()] == [once.id]


def test_a_clock_that_was_set_back_while_the_broker_was_down_ends_nothing_early() -> None:
    stage = Theatre()
    job = stage.submit("ana", lasts=400)
    stage.run(5)
    stage.faults = replace(stage.faults, clock=5000.0)
    stage.crash()
    stage.faults = Faults()
    stage.run(10)
    assert abs(stage.now - stage.agenda.now) > 1
    if stage.now < stage.agenda.now:
        stage.run(500)
        assert stage.job(job.id).state is State.COMPLETED


def test_a_session_is_parked_and_comes_back_in_the_same_process() -> None:
    stage = Theatre()
    session = stage.session("ana", gpus=1)
    stage.run(3)
    (before,) = stage.engine.uses.values()
    stage.ask(i.Ask("user:ana", session.id, e.Park()))
    stage.run(5)
    parked = stage.job(session.id)
    assert (parked.state, parked.rung) == (State.PARKED, Rung.GPU_STATE)
    assert before.parked
    stage.ask(i.Ask("user:ana", session.id, e.Resume()))
    stage.run(5)
    assert stage.job(session.id).state is State.RUNNING
    assert list(stage.engine.uses.values()) == [before]
    assert not before.parked


def test_what_was_parked_and_is_gone_is_told_and_not_waited_for() -> None:
    stage = Theatre()
    session = stage.session("ana", gpus=1)
    stage.run(3)
    stage.ask(i.Ask("user:ana", session.id, e.Park()))
    stage.run(5)
    stage.engine.uses.clear()
    stage.run(60)
    assert stage.job(session.id).rung is Rung.NOTHING
    stage.ask(i.Ask("user:ana", session.id, e.Resume()))
    stage.run(5)
    assert stage.job(session.id).state is State.RUNNING


def test_kernels_that_cannot_be_parked_are_restarted_by_their_server() -> None:
    stage = Theatre()
    session = stage.session("ana", gpus=1)
    stage.run(3)
    (use,) = stage.engine.uses.values()
    stage.engine.stubborn["ana/"] = True
    stage.ask(i.Ask("user:ana", session.id, e.Park()))
    stage.run(70)
    stopping = stage.job(session.id)
    assert stopping.stages[0].name is StageName.RESTART
    stage.engine.stubborn.clear()
    stage.servers["ana"].reconcile()
    stage.run(5)
    parked = stage.job(session.id)
    assert (parked.state, parked.rung) == (State.PARKED, Rung.SERVER)
    assert use.process not in stage.engine.uses


def test_a_server_that_starts_again_takes_its_session_over() -> None:
    stage = Theatre()
    session = stage.session("ana", gpus=1)
    stage.run(3)
    stage.servers["ana"].end(orphans=True)
    stage.run(31)
    assert stage.job(session.id).state is State.DRAINING
    stage.ask(i.OpenSession("hub", "ana", "ana/", Request(gpus=1), 2))
    stage.hello("ana", 2)
    stage.run(5)
    assert stage.job(session.id).state is State.RUNNING
    assert stage.job(session.id).holder == stage.servers["ana"].holder


def test_a_start_that_takes_too_long_is_taken_back() -> None:
    stage = Theatre(count=1)
    job = stage.submit("ana")
    stage.engine.works[job.id] = Work(pending=1000.0)
    stage.run(200)
    tried = stage.job(job.id)
    assert tried.start_failures == 1
    assert tried.avoid[0][0] == "node1"
