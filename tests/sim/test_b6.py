# SPDX-License-Identifier: BSD-3-Clause
"""B6 on small clusters: they are full, Jobs come and go, and there are victims where it says so."""

from __future__ import annotations

from jupyter_gpubroker import policy
from jupyter_gpubroker.core.model import LEAVING, State
from jupyter_gpubroker.core.schedule import schedule
from jupyter_gpubroker.sim.benchmarks import b6
from jupyter_gpubroker.sim.benchmarks.b6 import GPUS, POLICY, SHAPES, Crowd

NODES, WAITING = 10, 60


def crowd(idle: float) -> Crowd:
    return Crowd.full(NODES, WAITING, idle, policy.parse(POLICY))


def leased(made: Crowd) -> int:
    return sum(job.lease.milli for job in made.jobs.values() if job.lease is not None)


def test_the_cluster_is_full_and_others_wait() -> None:
    for idle, sessions in ((0.0, 0), (0.3, 3 * GPUS)):
        made = crowd(idle)
        assert leased(made) == NODES * GPUS * 1000
        assert len(made.idle) == sessions
        assert sum(job.state is State.QUEUED for job in made.jobs.values()) == WAITING
    assert len(SHAPES) == len({*SHAPES}) == 50


def test_from_one_decision_to_the_next_some_end_and_as_many_come() -> None:
    made = crowd(0.0)
    rules = policy.parse(POLICY)
    before = {job.id for job in made.jobs.values()}
    placed = 0
    for _ in range(20):
        made.goes_on()
        free = NODES * GPUS * 1000 - leased(made)
        assert free > 0
        assert made.decided(rules) > 0
        placed += NODES * GPUS * 1000 - leased(made) < free
    after = {job.id for job in made.jobs.values()}
    assert len(after) == len(before)
    assert 0 < len(before - after) <= 20
    assert placed, "what became free is used"
    assert not any(job.state in LEAVING for job in made.jobs.values()), "nobody may be asked"


def test_idle_sessions_are_asked_to_leave_and_do() -> None:
    made = crowd(0.3)
    made.decided(policy.parse(POLICY))
    asked = [job.id for job in made.jobs.values() if job.state in LEAVING]
    assert asked
    made.goes_on()
    assert not {*asked} & {*made.jobs}


def test_what_a_decision_keeps_free_is_known_to_the_next_one() -> None:
    rules = policy.parse(POLICY)
    for idle in (0.0, 0.3):
        made = crowd(idle)
        for _ in range(5):
            made.decided(rules)
            kept_free = dict(schedule(made.snapshot(), rules).reserve)
            assert kept_free
            assert {job.id: job.reserved for job in made.index.reserved.values()} == kept_free
            made.goes_on()


def test_the_table_has_a_row_for_each_size() -> None:
    told: list[str] = []
    rows = b6.table([(3, 10), (6, 20)], 2, told.append)
    assert [(row["nodes"], row["waiting"]) for row in rows] == [(3, 10), (6, 20)]
    assert all(
        row[name]["worst"] >= row[name]["typical"] > 0
        for row in rows
        for name in ("full", "victims")
    )
    assert len(told) == 4
