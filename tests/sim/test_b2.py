# SPDX-License-Identifier: BSD-3-Clause
"""B2 on a small, made up trace: what it reads, and that orders with levels help."""

from __future__ import annotations

from random import Random

import pytest

from jupyter_gpubroker.core.model import Order, Refusal
from jupyter_gpubroker.sim.benchmarks import b2

HEAD = "job_id,gpus,submit_s,service_s"


def lines(seed: int = 3) -> list[str]:
    """A few long jobs that take everything, and short ones that come while they run."""
    draw = Random(seed)
    long = [f"l{n},8,{n},{draw.randint(60_000, 90_000)}" for n in range(4)]
    short = [
        f"s{n},{draw.choice((1, 2, 4))},{5000 + 900 * n},{draw.randint(30, 900)}" for n in range(30)
    ]
    return [*long, *short]


def made(rows: list[str]) -> b2.Trace:
    return b2.trace("\n".join([HEAD, *rows]), "trace.csv", nodes=2, gpus=4)


def test_short_jobs_do_not_wait_for_long_ones_where_levels_are_on() -> None:
    some = made(lines())
    fair = b2.one(some, b2.Case("t", Order.FAIR, seed=1))
    attained = b2.one(some, b2.Case("t", Order.ATTAINED))
    shortest = b2.one(some, b2.Case("t", Order.SHORTEST, seed=1))
    assert attained.mean < fair.mean / 2
    assert shortest.mean < fair.mean / 2
    assert (fair.unfinished, attained.unfinished, shortest.unfinished) == (0, 0, 0)
    assert fair.preemptions == 0 < attained.preemptions


def test_the_order_of_the_lines_changes_nothing() -> None:
    rows = lines()
    assert made(rows) == made(rows[::-1])


def test_more_gpus_than_a_node_has_are_whole_nodes_and_limits_are_drawn_by_seed() -> None:
    some = made(["a,8,5,100", "b,3,1,50"])
    assert [(row.name, row.request.nodes, row.request.gpus) for row in some.jobs] == [
        ("b", 1, 3),
        ("a", 2, 4),
    ]
    known, again, other = (b2.limited(some.jobs, seed) for seed in (1, 1, 2))
    assert known == again != other
    for row in known:
        over = (row.request.time_limit or 0.0) - b2.RESTARTS * b2.RESTART_S
        assert row.runtime <= over <= 5 * row.runtime
    assert {row.request.time_limit for row in b2.limited(some.jobs, None)} == {b2.UNKNOWN_S}


@pytest.mark.parametrize(
    ("row", "said"),
    [("a,0,0,1", "line 2: gpus: 0 is out of range"), ("a,5,0,1", "line 2: gpus: 5 are not")],
)
def test_what_is_wrong_is_said_with_line_and_field(row: str, said: str) -> None:
    with pytest.raises(Refusal, match=said):
        made([row])
    with pytest.raises(Refusal, match="has no jobs"):
        made([])


def test_all_constants_are_halved_and_doubled() -> None:
    words = [case.words() for case in b2.cases()]
    assert len(words) == len(set(words))
    for name in ("first", "factor", "aging"):
        assert sum(name in each for each in words) == 2
