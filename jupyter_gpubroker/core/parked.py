# SPDX-License-Identifier: BSD-3-Clause
"""Host memory that parked sessions take: an *image* is the GPU memory of one, moved there.

Images take from the host memory of their node, and together at most a part of it that the
policy names. Where there is no room for another one, the session keeps what the next rung
of its ladder keeps. A node that does not report its host memory has no cap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from .leaving import ENDS_FOR_GOOD
from .model import Job, JobId, Node, Rung, Snapshot, StageName, State, nodes_of


class Image(NamedTuple):
    """What one kernel or session has, or will have, in host memory."""

    node: str
    mib: int


def most_mib(node: Node, percent: int) -> int | None:
    """What may be parked on the node, MiB; ``None`` = it has no cap."""
    return node.host_memory_mib * percent // 100 if node.host_memory_mib else None


def images(job: Job, snapshot: Snapshot) -> Iterator[Image]:
    """What the Job has in host memory, or is moving there. An image stays until it has been
    restored and its session runs; one of a node that is gone, or was booted since, is gone."""
    for kept in job.kept:
        node = snapshot.nodes.get(kept.node)
        if kept.rung is Rung.GPU_STATE and node is not None and node.boot == kept.boot:
            yield Image(kept.node, kept.memory_mib)
    if job.state is State.STOPPING and (image := coming(job, snapshot.memory_mib)) is not None:
        yield image


def coming(job: Job, known: Mapping[JobId, int]) -> Image | None:
    """What parking it at once would leave on its node, at the most where nothing is ``known``
    of its GPU memory (MiB); ``None`` where it would not move any, or has an image already."""
    first = job.terms.park[0][0] if job.terms.park else None
    if job.lease is None or job.kept or first is not StageName.PARK:
        return None
    if job.notice is not None and job.notice.reason in ENDS_FOR_GOOD:
        return None
    shares = job.lease.placement
    return Image(shares[0].node, known.get(job.id) or sum(share.memory_mib for share in shares))


def rung(job: Job, room: bool = True) -> Rung:
    """What parking it keeps at best, by the first stage of its terms; without ``room`` for its
    GPU memory, by the next one."""
    names = [name for name, _ in job.terms.park if room or name is not StageName.PARK]
    kept = {StageName.PARK: Rung.GPU_STATE, StageName.SAVE: Rung.VARIABLES}
    return kept.get(names[0], Rung.SERVER) if names else Rung.SERVER


def on_node(jobs: Iterable[Job], snapshot: Snapshot, node: str) -> int:
    """What these have in host memory there, or are moving there, MiB."""
    return sum(image.mib for job in jobs for image in images(job, snapshot) if image.node == node)


def lacks(job: Job, snapshot: Snapshot, percent: int) -> str:
    """Why a session that leaves cannot keep its GPU memory, as a sentence; empty if it can.
    Those go before it whose notices end before its own."""
    image = coming(job, snapshot.memory_mib)
    node = None if image is None else snapshot.nodes.get(image.node)
    most = None if node is None else most_mib(node, percent)
    if image is None or node is None or most is None:
        return ""
    others = [other for other in snapshot.jobs.values() if other.id != job.id]
    there = on_node(others, snapshot, node.name)
    asked = sum(
        other.request.host_memory_mib
        for other in (job, *others)  # its own too: it comes back there
        if other.lease is not None and node.name in nodes_of(other.lease.placement)
    )
    left = min(most, node.host_memory_mib - asked) - there
    for other in _before(job, others):
        theirs = coming(other, snapshot.memory_mib)
        if theirs is not None and theirs.node == node.name and theirs.mib <= left:
            left -= theirs.mib
    if image.mib <= left:
        return ""
    return (
        f"{node.name} has {max(0, left)} MiB of host memory left for what is parked,"
        f" and this needs {image.mib} MiB"
    )


def _before(job: Job, others: Iterable[Job]) -> list[Job]:
    """Who has a notice that ends before that of the Job, the first to end first."""
    if job.state is not State.DRAINING:
        return []
    told = [other for other in others if other.state is State.DRAINING]
    return sorted((other for other in told if _end(other) < _end(job)), key=_end)


def _end(job: Job) -> tuple[float, JobId]:
    return job.deadline or 0.0, job.id
