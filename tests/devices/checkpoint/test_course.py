# SPDX-License-Identifier: BSD-3-Clause
"""Whatever fails, in whatever order: a set of processes ends whole, or is said to be astray."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpubroker.core.model import Process
from jupyter_gpubroker.devices.checkpoint.course import Course, Step
from jupyter_gpubroker.devices.checkpoint.state import State, Verb

P = [Process(pid, 100 + pid) for pid in range(1, 5)]
ENDS = [State.CHECKPOINTED, State.RUNNING]
STEADY = [State.RUNNING, State.LOCKED, State.CHECKPOINTED]


def _course(goal: State, *states: State) -> Course:
    return Course(goal, tuple(zip(P, states, strict=False))).begin()


def _walk(course: Course, failures: dict[int, State]) -> tuple[Course, list[Step]]:
    """Take all steps; the n-th fails where ``failures`` says so, and leaves that state."""
    steps: list[Step] = []
    while (step := course.next) is not None:
        where = failures.get(len(steps))
        steps.append(step)
        course = course.done(step) if where is None else course.failed(step, where, "no")
        assert len(steps) <= 5 * len(P), "it does not end"
    return course, steps


def test_all_are_locked_before_one_is_moved_and_moved_back_before_one_runs() -> None:
    parked, steps = _walk(_course(State.CHECKPOINTED, State.RUNNING, State.RUNNING), {})
    assert parked.arrived
    assert [step.verb for step in steps] == [Verb.LOCK, Verb.LOCK, Verb.CHECKPOINT, Verb.CHECKPOINT]
    back, steps = _walk(_course(State.RUNNING, State.CHECKPOINTED, State.CHECKPOINTED), {})
    assert back.arrived
    assert [step.verb for step in steps] == [Verb.RESTORE, Verb.RESTORE, Verb.UNLOCK, Verb.UNLOCK]


@pytest.mark.parametrize("at", range(4))
def test_a_step_that_fails_and_changes_nothing_is_rolled_back(at: int) -> None:
    before = [State.RUNNING, State.RUNNING, State.LOCKED, State.LOCKED][at]
    course, _ = _walk(_course(State.CHECKPOINTED, State.RUNNING, State.RUNNING), {at: before})
    assert {state for _, state in course.states} == {State.RUNNING}
    assert (course.strays, course.arrived) == ((), False)
    assert "no" in course.error


def test_a_process_that_is_lost_is_left_alone_and_the_others_run() -> None:
    start = _course(State.CHECKPOINTED, State.RUNNING, State.RUNNING)
    course, steps = _walk(start, {3: State.FAILED})
    assert [step.verb for step in steps[4:]] == [Verb.RESTORE, Verb.UNLOCK]
    assert course.states == ((P[0], State.RUNNING), (P[1], State.FAILED))
    assert course.strays == (P[1],)


def test_a_restore_that_fails_parks_again_what_was_back() -> None:
    start = _course(State.RUNNING, State.CHECKPOINTED, State.CHECKPOINTED)
    course, _ = _walk(start, {1: State.CHECKPOINTED})
    assert {state for _, state in course.states} == {State.CHECKPOINTED}
    assert not course.arrived


@pytest.mark.parametrize("lost", [State.FAILED, State.UNKNOWN])
def test_nothing_is_parked_beside_a_process_that_is_lost(lost: State) -> None:
    course, steps = _walk(_course(State.CHECKPOINTED, State.RUNNING, lost), {})
    assert not steps
    assert course.strays == (P[1],)
    assert not course.arrived


@given(
    st.sampled_from(ENDS),
    st.lists(st.sampled_from(STEADY), min_size=1, max_size=len(P)),
    st.dictionaries(st.integers(0, 4 * len(P)), st.sampled_from(list(State))),
)
def test_every_way_ends_with_all_here_or_all_there_or_strays_named(
    goal: State, states: list[State], failures: dict[int, State]
) -> None:
    course, _ = _walk(_course(goal, *states), failures)
    assert course.arrived == (not course.error)
    for process, state in course.states:
        assert (state is course.heading) == (process not in course.strays)
        if course.strays and state in STEADY and state is not course.heading:
            assert process in course.stuck, "it would have answered, and nobody asked"
