# SPDX-License-Identifier: BSD-3-Clause
"""The order of steps that park a set of processes, or bring it back: all or none. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from ...core.model import Process
from .state import State, Verb

_ORDER: Mapping[State, tuple[tuple[State, Verb], ...]] = {
    State.CHECKPOINTED: ((State.RUNNING, Verb.LOCK), (State.LOCKED, Verb.CHECKPOINT)),
    State.RUNNING: ((State.CHECKPOINTED, Verb.RESTORE), (State.LOCKED, Verb.UNLOCK)),
}
"""Goal -> what is done first with all that are in which state, and what then: processes that
share memory must all stand still before one of them is moved."""
_AFTER: Mapping[Verb, State] = {
    Verb.LOCK: State.LOCKED,
    Verb.CHECKPOINT: State.CHECKPOINTED,
    Verb.RESTORE: State.LOCKED,
    Verb.UNLOCK: State.RUNNING,
}


@dataclass(frozen=True, slots=True)
class Step:
    """One call for one process."""

    verb: Verb
    process: Process


@dataclass(frozen=True, slots=True)
class Course:
    """A set of processes on its way to one state; after the first failure, on its way back.

    ``next`` is the step to take; tell what came of it with ``done`` or ``failed``."""

    goal: State
    """CHECKPOINTED (park) or RUNNING (restore)."""
    states: tuple[tuple[Process, State], ...]
    """Where each process is; the order is that of the steps."""
    error: str = ""
    """The first failure, for people."""
    stuck: frozenset[Process] = frozenset()
    """Processes that failed on the way back: nothing more is tried with them."""

    @property
    def heading(self) -> State:
        """Where the processes are taken now."""
        if not self.error:
            return self.goal
        return State.RUNNING if self.goal is State.CHECKPOINTED else State.CHECKPOINTED

    @property
    def next(self) -> Step | None:
        """The next step; ``None`` = there is none, see ``arrived``."""
        for state, verb in _ORDER[self.heading]:
            for process, here in self.states:
                if here is state and process not in self.stuck:
                    return Step(verb, process)
        return None

    @property
    def arrived(self) -> bool:
        """Every process is where this was to take it."""
        return not self.error and all(here is self.goal for _, here in self.states)

    @property
    def strays(self) -> tuple[Process, ...]:
        """Processes that are neither where they were to go nor, after a failure, back."""
        return tuple(process for process, here in self.states if here is not self.heading)

    def begin(self) -> Course:
        """The course to take: one with a process that is lost or unreadable only goes back."""
        for process, here in self.states:
            if here not in (State.RUNNING, State.LOCKED, State.CHECKPOINTED):
                return self._back(f"process {process.pid} is {here.name.lower()}")
        return self

    def done(self, step: Step) -> Course:
        """The driver did it."""
        return self._with(step.process, _AFTER[step.verb])

    def failed(self, step: Step, here: State, why: str) -> Course:
        """The driver did not; ``here`` is what it says of the process since."""
        course = self._with(step.process, here)
        if self.error:
            return replace(course, stuck=self.stuck | {step.process})
        return course._back(f"{step.verb} of process {step.process.pid}: {why}")

    def _back(self, why: str) -> Course:
        return replace(self, error=self.error or why)

    def _with(self, process: Process, here: State) -> Course:
        states = tuple((p, here if p == process else state) for p, state in self.states)
        return replace(self, states=states)
