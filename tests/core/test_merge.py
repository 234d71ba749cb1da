# SPDX-License-Identifier: BSD-3-Clause
"""One line of several queues."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpubroker.core.merge import merged
from jupyter_gpubroker.core.model import Job, Kind, Request


def job(number: int, queue: str) -> Job:
    """The job of that number."""
    return Job(f"{queue}{number}", Kind.BATCH, "ana", queue, "batch", Request(gpus=1))


def ids(jobs: object) -> list[str]:
    """Their names."""
    return [each.id for each in jobs]  # type: ignore[attr-defined]


LINES = st.lists(st.sampled_from("abc"), max_size=30).map(
    lambda queues: [job(n, queue) for n, queue in enumerate(queues)]
)


@given(LINES)
def test_equals_come_as_they_stand_in_the_line(line: list[Job]) -> None:
    assert list(merged(line, lambda job: 1)) == line


@given(LINES, st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)))
def test_each_queue_keeps_its_order_and_everybody_has_a_turn(
    line: list[Job], ranks: dict[str, int]
) -> None:
    found = list(merged(line, lambda job: ranks.get(job.queue, 0)))
    assert sorted(ids(found)) == sorted(ids(line))
    for queue in "abc":
        of_queue = [each for each in found if each.queue == queue]
        assert of_queue == [each for each in line if each.queue == queue]


def test_what_was_used_since_counts_at_the_turn() -> None:
    line = [job(0, "b"), job(1, "a"), job(2, "a"), job(3, "a"), job(4, "b")]
    had: list[str] = []

    def rank(each: Job) -> int:
        """``a`` owns two, ``b`` nothing."""
        return 0 if each.queue == "a" and sum(id_[0] == "a" for id_ in had) < 2 else 1

    for each in merged(line, rank):
        had.append(each.id)
    assert had == ["a1", "a2", "b0", "a3", "b4"]
