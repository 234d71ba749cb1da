# SPDX-License-Identifier: BSD-3-Clause
"""Who submits what and when: the configuration ``baseline`` of Kueue's scalability test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...core.model import Device, Node, Seconds
from ...wire import ListedIn, RequestIn

ENGINE = "null"
PLAY = "play"
"""Program of every job; its argument is how many seconds it runs."""
QUOTA = 20
"""GPUs of each queue, which the queues of its cohort lend each other."""


@dataclass(frozen=True, slots=True)
class Size:
    """One class of jobs."""

    name: str
    gpus: int
    seconds: Seconds
    priority: int
    every: Seconds
    """Between two of a queue."""
    count: int
    """Of each queue."""


SIZES = (
    Size("large", 20, 1.0, 200, 1.2, 50),
    Size("medium", 5, 0.5, 100, 0.5, 100),
    Size("small", 1, 0.2, 50, 0.1, 350),
)


@dataclass(frozen=True, slots=True)
class Workload:
    """So many cohorts with so many queues each, and in every queue the same jobs."""

    cohorts: int = 5
    queues: int = 6
    counts: tuple[int, ...] = tuple(size.count for size in SIZES)
    """Of each of ``SIZES`` in a queue."""

    @property
    def total(self) -> int:
        """Jobs in all."""
        return self.cohorts * self.queues * sum(self.counts)

    def arrivals(self) -> Mapping[Seconds, list[ListedIn]]:
        """Seconds from the start -> what is submitted then, in the order of time."""
        found: dict[int, list[ListedIn]] = {}
        for size, count in zip(SIZES, self.counts, strict=True):
            for number in range(count):
                at = round(number * size.every * 1000)
                found.setdefault(at, []).extend(self._each_queue(size, number))
        return {at / 1000: found[at] for at in sorted(found)}

    def _each_queue(self, size: Size, number: int) -> Iterator[ListedIn]:
        for cohort, queue in self._queues():
            name = f"{queue}-{size.name}-{number}"
            yield ListedIn(
                request=RequestIn(gpus=size.gpus, flavors=(cohort,)),
                argv=(PLAY, str(size.seconds)),
                torchrun=False,
                name=name,
                queue=queue,
                class_name=size.name,
                key=name,
            )

    def _queues(self) -> Iterator[tuple[str, str]]:
        for cohort in range(1, self.cohorts + 1):
            for queue in range(1, self.queues + 1):
                yield f"cohort{cohort}", f"cohort{cohort}-queue{queue}"

    def nodes(self) -> list[Node]:
        """One machine for each cohort: the quota of its queues in one pool."""
        names = dict.fromkeys(cohort for cohort, _ in self._queues())
        return [
            Node(
                name,
                ENGINE,
                "boot",
                tuple(Device(f"{name}-{n}", name, 1024, n) for n in range(QUOTA * self.queues)),
            )
            for name in names
        ]

    def policy(self) -> str:
        """The policy document."""
        classes = [
            f"  {size.name}: {{kinds: [batch], priority: {size.priority}, "
            "time: {default: 10m, max: 1h}}"
            for size in SIZES
        ]
        cohorts = [f"  {cohort}: {{}}" for cohort in dict.fromkeys(c for c, _ in self._queues())]
        queues = [
            f"  {queue}: {{cohort: {cohort}, quota: {{{cohort}: {{nominal: {QUOTA}}}}}}}"
            for cohort, queue in self._queues()
        ]
        first = next(queue for _, queue in self._queues())
        return "\n".join(
            [
                f"default_queue: {first}",
                "classes:",
                *classes,
                "  interactive: {kinds: [session], time: {default: 1h, max: 1h}}",
                "cohorts:",
                *cohorts,
                "queues:",
                *queues,
                "",
            ]
        )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Workload:
        """As ``dataclasses.asdict`` wrote it, through JSON."""
        return cls(values["cohorts"], values["queues"], tuple(values["counts"]))
