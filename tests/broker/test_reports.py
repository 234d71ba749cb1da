# SPDX-License-Identifier: BSD-3-Clause
"""What servers report all the time costs a decision only where it could change one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core.model import Device, Job, Mode, Node, State
from jupyter_gpubroker.engines import Phase, Report

from .desk import Desk
from .theatre import Theatre

Said = dict[str, bool | float]
QUIET: Said = {"idle_for": 3.0}
BUSY: Said = {"busy": True}


@pytest.fixture
def stage() -> Theatre:
    """One session that has its GPU for long, and reports nothing yet."""
    made = Theatre()
    made.session("ana", gpus=1)
    made.run(700)
    return made


def decides(stage: Theatre, said: Said) -> bool:
    """Whether this report makes a new Plan."""
    before = stage.broker.world.plan
    stage.active("ana", **said)  # type: ignore[arg-type]
    return stage.broker.world.plan is not before


@pytest.mark.parametrize(
    ("first", "then", "new"),
    [
        (QUIET, {"idle_for": 3.1}, False),
        (QUIET, {"idle_for": 1.0}, False),
        (QUIET, BUSY, False),
        (BUSY, BUSY, False),
        (BUSY, QUIET, True),
        (QUIET, {"idle_for": 60.0}, True),
        (QUIET, {"idle_for": 700.0}, True),
        ({"idle_for": 700.0}, {"idle_for": 700.2}, False),
        ({"idle_for": 700.0}, BUSY, True),
    ],
)
def test_a_report_is_a_reason_to_decide_anew_only_if_it_brings_something_nearer(
    first: Said, then: Said, new: bool, stage: Theatre
) -> None:
    assert decides(stage, first), "the first word of a server"
    assert decides(stage, then) is new


def test_an_end_that_an_engine_tells_of_its_own_accord_is_recorded_and_forgotten() -> None:
    desk = Desk()
    desk.turn(i.NodesSeen("toy", [Node("node1", "toy", "b1", (Device("GPU-0", "sim", 1000),))]))
    job = desk.submit(1)
    told = Report(desk.job(job).key, Phase.RUNNING, Mode.HOSTED)
    start = i.Duty(i.Act.START, "toy", told.key)
    desk.turn(i.ReportsSeen("toy", [told]), i.DutyDone(start, i.Did.DONE))
    assert desk.job(job).state is State.RUNNING
    over = replace(told, phase=Phase.EXITED, codes=(0,), code=0)
    turn = desk.turn(i.ReportsSeen("toy", [told, over]))
    assert desk.job(job).state is State.COMPLETED
    assert [(duty.act, duty.key) for duty in turn.duties] == [(i.Act.FORGET, told.key)]
    assert not desk.turn(i.DutyDone(turn.duties[0], i.Did.DONE)).duties


def test_an_engine_that_tells_nothing_of_a_job_has_said_nothing() -> None:
    desk = Desk()
    desk.sees()
    job = desk.submit(1)
    start = i.Duty(i.Act.START, "toy", desk.job(job).key)
    desk.turn(i.DutyDone(start, i.Did.DONE), i.ReportsSeen("toy", []))
    assert desk.job(job).state is State.STARTING


def test_a_report_of_use_answers_a_notice_at_once(stage: Theatre) -> None:
    session: Job = next(iter(stage.broker.world.living()))
    stage.active("ana", idle_for=650.0)
    stage.submit("bo", nodes=2, gpus=4)
    stage.run(2)
    assert stage.job(session.id).state is State.DRAINING
    stage.active("ana", busy=True)
    assert stage.job(session.id).state is State.RUNNING
