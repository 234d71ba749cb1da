# SPDX-License-Identifier: BSD-3-Clause
"""The queues' lines merged into one, while quotas are used up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import islice

from .model import Job


def merged(line: Sequence[Job], rank: Callable[[Job], int]) -> Iterator[Job]:
    """Every Job of the line, and those of each queue in their order there.

    Of the queues' first Jobs comes next which is of the least rank, at the time of its turn;
    of equals the first in the line. A rank may only grow while Jobs have their turns, or be
    seen too late: then the Job comes no later than if it had not fallen."""
    waiting: dict[str, list[tuple[int, Job]]] = {}
    for index, job in enumerate(line):
        waiting.setdefault(job.queue, []).append((index, job))
    queues = {queue: iter(jobs) for queue, jobs in waiting.items()}
    heads: list[tuple[int, int, Job]] = []

    def advance(queue: str) -> None:
        for index, job in islice(queues[queue], 1):
            heappush(heads, (rank(job), index, job))

    for queue in queues:
        advance(queue)
    while heads:
        known, index, job = heappop(heads)
        now = rank(job)
        if now > known:
            heappush(heads, (now, index, job))
        else:
            yield job
            advance(job.queue)
