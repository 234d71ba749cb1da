# SPDX-License-Identifier: BSD-3-Clause
"""One story, told as often as there are steps in it: each time another one goes wrong."""

from __future__ import annotations

import pytest

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import Conflict, Kind, Mode, Request, State
from jupyter_gpubroker.sim.faults import Fate, Faults, Unanswered
from tests.broker.theatre import LAUNCH, Theatre

CRASH, COMMIT = 0.25, 0.75
"""By these probabilities the stage says what it asks about."""


class Anomaly(Theatre):
    """Everything goes well but for one step."""

    def __init__(self, kind: str, number: int, *, written: bool = False) -> None:
        self.kind, self.number, self.written = kind, number, written
        self.seen = {"crash": 0, "commit": 0, "call": 0}
        self.fate = Fate.WELL
        super().__init__(count=1)
        self.faults = Faults(crash=CRASH, commit=COMMIT)

    def happens(self, probability: float) -> bool:
        names = {CRASH: "crash", COMMIT: "commit", 0.5: "written"}
        return probability in names and self._is_now(names[probability])

    def _is_now(self, kind: str) -> bool:
        if kind == "written":
            return self.written
        self.seen[kind] += 1
        return (kind, self.seen[kind]) == (self.kind, self.number)

    def _do(self, duty: i.Duty, drawn: Fate) -> tuple[i.Did, str, str]:
        """A held lease is on record before its start returns: that one cannot be lost."""
        held = duty.act is i.Act.START and duty.mode is Mode.HELD
        bad = Fate.FAILS if held and self.fate is Fate.LOST else self.fate
        return super()._do(duty, bad if self._is_now("call") else drawn)

    def insist(self, question: i.Question) -> str:
        """Ask until somebody answers; the Job's id."""
        while True:
            try:
                job = self.ask(question)
            except Unanswered:
                self.run(1)
            except Conflict:
                return ""
            else:
                return "" if job is None else job.id


def tell(stage: Anomaly) -> None:
    """Jobs that wait for each other; a session that is parked, resumed and released."""
    session = stage.insist(_session())
    stage.hello("ana")
    first = stage.insist(_submit("bo", 3, "first"))
    second = stage.insist(_submit("cy", 4, "second"))
    stage.run(20)
    stage.insist(i.Ask("user:ana", session, e.Park()))
    stage.run(80)
    stage.insist(i.Ask("user:ana", session, e.Resume()))
    third = stage.insist(_submit("bo", 4, "third"))
    stage.run(300)
    stage.insist(i.Ask("user:bo", third, e.Cancel()))
    stage.insist(i.Ask("user:ana", session, e.Release()))
    stage.run(1200)
    jobs = {job.id: job for job in stage.world.jobs.values()}
    assert sorted(jobs) == sorted([session, first, second, third]), "made twice, or lost"
    assert not stage.world.alive, [f"{job.id} {job.state}" for job in stage.world.living()]
    for done in (first, second):
        assert jobs[done].state is State.COMPLETED
        assert stage.engine.ends[done] == 1
    assert not stage.engine.alive()
    assert not stage.engine.uses
    assert not stage.world.quarantined


def _session() -> i.OpenSession:
    return i.OpenSession("hub", "ana", "ana/", Request(gpus=1), 1)


def _submit(user: str, gpus: int, key: str) -> i.Submit:
    request = Request(gpus=gpus, time_limit=600.0)
    return i.Submit(f"user:{user}", user, request, LAUNCH, idempotency=key)


def steps(kind: str) -> int:
    """How many steps of a kind the story has where nothing goes wrong."""
    stage = Anomaly("", 0)
    tell(stage)
    assert {job.kind for job in stage.world.jobs.values()} == set(Kind)
    return stage.seen[kind]


def test_the_story_ends_well_whichever_step_the_broker_dies_at() -> None:
    count = steps("crash")
    assert count > 100
    for number in range(1, count + 1):
        tell(Anomaly("crash", number))


@pytest.mark.parametrize("written", [False, True])
def test_the_story_ends_well_whichever_commit_fails(written: bool) -> None:
    count = steps("commit")
    assert count > 10
    for number in range(1, count + 1):
        tell(Anomaly("commit", number, written=written))


@pytest.mark.parametrize("fate", [Fate.FAILS, Fate.UNHEARD, Fate.LOST])
def test_the_story_ends_well_whichever_call_goes_wrong(fate: Fate) -> None:
    count = steps("call")
    assert count > 5
    for number in range(1, count + 1):
        stage = Anomaly("call", number)
        stage.fate = fate
        tell(stage)
