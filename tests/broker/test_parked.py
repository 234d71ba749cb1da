# SPDX-License-Identifier: BSD-3-Clause
"""Host memory for what is parked: who does not fit keeps less, and is told."""

from __future__ import annotations

from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.core import events as e
from jupyter_gpubroker.core.model import Job, Rung, StageName, State

from .theatre import Theatre

HOST = 3000
"""MiB: one image of a whole GPU (1000) may be parked, and one of a half."""


def park(stage: Theatre, job: Job) -> Job:
    """Its owner parks it."""
    stage.ask(i.Ask(f"user:{job.user}", job.id, e.Park()))
    return stage.job(job.id)


def opened(stage: Theatre, *users: str) -> list[Job]:
    """A running session of one GPU for each."""
    jobs = [stage.session(user, gpus=1) for user in users]
    stage.run(5)
    assert all(stage.job(job.id).state is State.RUNNING for job in jobs)
    return jobs


def test_what_does_not_fit_is_kept_by_the_next_rung_and_the_journal_says_why() -> None:
    stage = Theatre(count=1, host_memory_mib=HOST)
    ana, bo = opened(stage, "ana", "bo")
    assert park(stage, ana).stages[0].name is StageName.PARK
    assert park(stage, bo).stages[0].name is StageName.RESTART, "ana is being parked"
    stage.run(5)
    assert [stage.job(job.id).rung for job in (ana, bo)] == [Rung.GPU_STATE, Rung.SERVER]
    (entry,) = [it for it in stage.store.data.entries if it.event == "job.park-skipped"]
    assert (entry.job, entry.facts["stage"]) == (bo.id, "restart")
    assert entry.facts["text"] == (
        "node1 has 500 MiB of host memory left for what is parked, and this needs 1000 MiB"
    )


def test_the_room_is_there_again_when_the_first_one_runs() -> None:
    stage = Theatre(count=1, host_memory_mib=HOST)
    ana, bo = opened(stage, "ana", "bo")
    park(stage, ana)
    stage.run(5)
    stage.ask(i.Ask("user:ana", ana.id, e.Resume()))
    stage.run(5)
    assert stage.job(ana.id).state is State.RUNNING
    park(stage, bo)
    stage.run(5)
    assert stage.job(bo.id).rung is Rung.GPU_STATE


def test_a_drained_node_has_host_memory_all_the_same() -> None:
    stage = Theatre(count=1, host_memory_mib=HOST)
    jobs = opened(stage, "ana", "bo")
    stage.ask(i.DrainNode("admin:eve", "node1", "maintenance"))
    for job in jobs:
        park(stage, job)
    stage.run(5)
    assert [stage.job(job.id).rung for job in jobs] == [Rung.GPU_STATE, Rung.SERVER]


def test_a_running_cell_is_not_taken_where_parking_would_end_it() -> None:
    stage = Theatre(count=1, host_memory_mib=HOST)
    ana, bo = opened(stage, "ana", "bo")
    park(stage, ana)
    stage.run(5)
    for _ in range(70):
        stage.active("bo", busy=True)
        stage.run(30)
    stage.submit("cy", gpus=4)
    stage.run(5)
    assert stage.job(bo.id).state is State.RUNNING
    stage.ask(i.Ask("user:ana", ana.id, e.Release()))
    stage.active("bo", busy=True)
    stage.submit("di", gpus=1)
    stage.run(5)
    assert stage.job(bo.id).state is State.DRAINING
