# SPDX-License-Identifier: BSD-3-Clause
"""What servers report all the time costs a decision only where it could change one."""

from __future__ import annotations

import pytest

from jupyter_gpubroker.core.model import Job, State

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


def test_a_report_of_use_answers_a_notice_at_once(stage: Theatre) -> None:
    session: Job = next(iter(stage.broker.world.living()))
    stage.active("ana", idle_for=650.0)
    stage.submit("bo", nodes=2, gpus=4)
    stage.run(2)
    assert stage.job(session.id).state is State.DRAINING
    stage.active("ana", busy=True)
    assert stage.job(session.id).state is State.RUNNING
