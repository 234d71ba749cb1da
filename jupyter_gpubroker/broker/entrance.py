# SPDX-License-Identifier: BSD-3-Clause
"""The way into the queue: what is asked for is checked and becomes a Job."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ..core.feasible import affordable, possible
from ..core.model import (
    WAITING,
    Class,
    Conflict,
    Job,
    JobId,
    Kind,
    Refusal,
    Request,
    Terms,
)
from ..store import LaunchRow
from . import inputs as i
from .batch import Batch
from .index import Line

NewId = Callable[[Kind], JobId]

NAME_MAX = 80
POSSIBLE_MAX = 1000
"""Requests that are remembered to be possible."""


@dataclass(frozen=True, slots=True)
class Entrance:
    """The way into the queue: checks a request and makes its Job."""

    batch: Batch
    new_id: NewId
    replaced: Job | None = None
    """Ends when the new one comes in: it takes no room any more."""
    made: list[Job] = field(default_factory=list)
    """Of a list: they come in with the last one, and take room already."""

    def _class(self, name: str, kind: Kind) -> Class:
        classes = self.batch.world.policy.classes
        fitting = [item for item in classes.values() if kind in item.kinds]
        if not name:
            return fitting[0]
        if name not in {item.name for item in fitting}:
            names = ", ".join(item.name for item in fitting)
            raise Refusal("class", f"{name!r} is not a class for a {kind}", f"one of: {names}")
        return classes[name]

    def _queue(self, name: str, groups: Sequence[str]) -> str:
        policy = self.batch.world.policy
        if name and name not in policy.queues:
            names = ", ".join(policy.queues)
            raise Refusal("queue", f"{name!r} is not a queue", f"one of: {names}")
        of_groups = (queue for group, queue in policy.groups.items() if group in groups)
        name = name or next(of_groups, policy.default_queue)
        allowed = policy.queues[name].groups
        if allowed and not any(group in allowed for group in groups):
            theirs = [
                queue.name
                for queue in policy.queues.values()
                if not queue.groups or any(group in queue.groups for group in groups)
            ]
            raise Refusal(
                "queue",
                f"queue {name} is for {' or '.join(allowed)}, and you are in no such group",
                f"your queues: {', '.join(theirs)}" if theirs else "ask an admin for a queue",
            )
        return name

    def _room(self, user: str, limits: Class, queue: str) -> None:
        of_queue = self.batch.world.policy.queues[queue].waiting
        if limits.waiting is not None:
            waiting = self._waiting(lambda line: line[:2] == (user, limits.name))
            if waiting >= limits.waiting:
                raise Refusal(
                    "class",
                    f"{user} has {waiting} waiting jobs in class {limits.name}, the most allowed",
                    "cancel one, or wait until one has started",
                )
        if of_queue is not None:
            waiting = self._waiting(lambda line: line[2] == queue)
            if waiting >= of_queue:
                raise Refusal(
                    "queue",
                    f"queue {queue} has {waiting} waiting jobs, the most allowed",
                    "wait until one has started, or use another queue",
                )

    def _waiting(self, counts: Callable[[Line], bool]) -> int:
        """How many wait in the lines that count."""
        known = self.batch.world.index.waiting.items()
        waiting = sum(count for line, count in known if counts(line))
        waiting += sum(_takes_place(job, counts) for job in self.made)
        return waiting - (self.replaced is not None and _takes_place(self.replaced, counts))

    def _possible(self, request: Request, limits: Class, queue: str) -> Request:
        """The same Request, one object for all that are equal; Refusal if it can never run
        here. What has been found possible stays so until the machines or the policy are others."""
        world = self.batch.world
        question = (request, limits, queue, world.policy.revision)
        known = world.possible.get(question)
        if known is not None:
            return known
        possible(request, tuple(world.nodes.values()), limits)
        affordable(request, queue, world.policy, world.nodes)
        if len(world.possible) >= POSSIBLE_MAX:
            world.possible.clear()
        world.possible[question] = request
        return request

    def make(self, asked: i.Submit | i.OpenSession) -> Job:
        """A QUEUED Job of what is asked for; Refusal if it can never run or is one too many."""
        user = asked.user
        kind = Kind.BATCH if isinstance(asked, i.Submit) else Kind.SESSION
        limits = self._class(asked.class_name, kind)
        queue = self._queue(asked.queue, asked.groups)
        request = with_time(asked.request, limits)
        request = self._possible(request, limits, queue)
        self._room(user, limits, queue)
        now = self.batch.now
        wait = limits.terms.max_wait
        return Job(
            id=self.new_id(kind),
            kind=kind,
            user=user,
            queue=queue,
            class_name=limits.name,
            request=request,
            terms=limits.terms,
            since=now,
            submitted=now,
            eligible=now,
            until=None if wait is None else now + wait,
        )


def _takes_place(job: Job, counts: Callable[[Line], bool]) -> bool:
    return counts((job.user, job.class_name, job.queue)) and job.state in WAITING


def with_time(request: Request, limits: Class) -> Request:
    """The request with its class's default time where it names none."""
    return replace(request, time_limit=request.time_limit or limits.time_default)


def submit(entrance: Entrance, question: i.Submit) -> Job:
    """A batch Job, or the one that its key has made."""
    known = _known(entrance.batch, question)
    if known is not None:
        return known
    job = _batch_job(entrance, question)
    _enter(entrance.batch, question, job)
    return job


def submit_list(entrance: Entrance, question: i.SubmitList) -> tuple[Job, ...]:
    """All are made before any comes in: whatever is wrong with one changes nothing."""
    jobs: list[Job] = []
    keys: dict[tuple[str, str], Job] = {}
    for place, each in enumerate(question.submits):
        key = (each.user, each.idempotency)
        with i.about(place):
            job = _known(entrance.batch, each)
            if job is None and key in keys:
                job = _repeated(keys[key], each)
            if job is None:
                job = _batch_job(entrance, each)
                entrance.made.append(job)
        if each.idempotency:
            keys[key] = job
        jobs.append(job)
    new = {job.id: job for job in entrance.made}
    for job, each in zip(jobs, question.submits, strict=True):
        if new.pop(job.id, None) is not None:
            _enter(entrance.batch, each, job)
    return tuple(jobs)


def _known(batch: Batch, question: i.Submit) -> Job | None:
    """The Job that its key has made; Conflict where another is asked for with it."""
    if not question.idempotency:
        return None
    known = batch.world.submits.get((question.user, question.idempotency))
    job = None if known is None else batch.world.jobs.get(known)
    return None if job is None else _repeated(job, question)


def _batch_job(entrance: Entrance, question: i.Submit) -> Job:
    if not question.launch.argv:
        raise Refusal("argv", "must name a program", "for example: python train.py")
    job = entrance.make(question)
    return replace(
        job,
        name=_called(question),
        terms=_restarts(job.terms, question.max_restarts),
        torchrun=question.launch.torchrun,
        requeue=question.requeue,
        exit_zero_done=question.exit_zero_done,
    )


def _enter(batch: Batch, question: i.Submit, job: Job) -> None:
    batch.put(job)
    batch.launches[job.id] = question.launch
    if question.idempotency:
        key = (question.user, question.idempotency)
        batch.submits[key] = batch.world.submits[key] = job.id
    batch.journal(question.actor, "job.submitted", job, wants(job))


def _name(launch: LaunchRow) -> str:
    """What a person would call it: the script, the module or the program that is run."""
    program, *rest = launch.argv
    words = rest if program == launch.python else launch.argv
    if "-c" in words[:1]:
        words = ()
    word = next((word for word in words if not word.startswith("-")), program)
    return word.rsplit("/", 1)[-1]


def _called(question: i.Submit) -> str:
    return _one_line(question.name or _name(question.launch))


def _repeated(job: Job, question: i.Submit) -> Job:
    """The Job that the key made before; Conflict where another is asked for with it, which
    would never run."""
    asked = question.request
    same = (
        replace(asked, time_limit=asked.time_limit or job.request.time_limit) == job.request
        and _called(question) == job.name
        and question.queue in ("", job.queue)
        and question.class_name in ("", job.class_name)
    )
    if not same:
        raise Conflict(f"this Idempotency-Key was used for another job, {job.id}")
    return job


def _one_line(name: str) -> str:
    """As it may stand in everybody's queue: nothing that moves a cursor or breaks a line."""
    words = "".join(letter if letter.isprintable() else " " for letter in name[: 4 * NAME_MAX])
    return " ".join(words.split())[:NAME_MAX]


def _restarts(terms: Terms, asked: int | None) -> Terms:
    return terms if asked is None else replace(terms, max_restarts=asked)


def wants(job: Job) -> dict[str, object]:
    """What the journal tells of a Job that comes in."""
    return {"wants": job.request.words(), "time_limit": job.request.time_limit, "queue": job.queue}
