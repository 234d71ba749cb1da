# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints about Jobs of both kinds."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from ..broker.inputs import Ask, Submit, Unknown, about
from ..core.events import Cancel, Event, Extend
from ..core.model import LEASED, Job, Key, Refusal
from ..wire import ExtendIn, JobsQuery, LogQuery, SubmitIn, SubmitListIn, parse_duration
from ..wire import answered as a
from ..wire.asked import KEY_MAX
from ..wire.endpoints import IDEMPOTENCY_KEY
from .auth import Forbidden, Principal, PrincipalKind
from .base import Call
from .launches import launch_of
from .views import full_event

STORY = 200
"""Entries in the story of a Job."""


async def me(call: Call) -> a.PrincipalOut:
    """GET /me."""
    who = call.principal
    return a.PrincipalOut(kind=who.kind.value, user=who.user, admin=who.admin, server=who.server)


async def submit(call: Call) -> a.JobOut:
    """POST /jobs."""
    body = call.given(SubmitIn)
    key = call.handler.request.headers.get(IDEMPOTENCY_KEY, "")
    if len(key) > KEY_MAX:
        raise Refusal(IDEMPOTENCY_KEY, f"must not be longer than {KEY_MAX} characters")
    question = _question(_submitter(call), body, key)
    repeated = _is_known(call, key)
    job = await call.desk.ask(question)
    assert job is not None
    call.status = 200 if repeated else 201
    return call.view.job(job)


async def submit_list(call: Call) -> list[a.SubmittedOut]:
    """POST /jobs/list."""
    who, asked = _submitter(call), call.given(SubmitListIn).jobs
    questions = []
    for place, body in enumerate(asked):
        with about(place):
            questions.append(_question(who, body, body.key))
    keys = [body.key for body in asked]
    new = [
        not _is_known(call, key) and not (key and key in keys[:place])
        for place, key in enumerate(keys)
    ]
    jobs = await call.desk.submit(questions)
    call.status = 201 if any(new) else 200
    return [
        a.SubmittedOut(id=job.id, state=job.state, new=first)
        for job, first in zip(jobs, new, strict=True)
    ]


def _submitter(call: Call) -> Principal:
    if call.principal.kind is PrincipalKind.HUB:
        raise Forbidden("the Hub submits no jobs: a job belongs to the user who submits it")
    return call.principal


def _is_known(call: Call, key: str) -> bool:
    return bool(key) and (call.principal.user, key) in call.desk.world.submits


def _question(who: Principal, body: SubmitIn, key: str) -> Submit:
    request = body.request.to_request()
    return Submit(
        actor=who.actor,
        user=who.user,
        request=request,
        launch=launch_of(body, request),
        name=body.name,
        queue=body.queue,
        class_name=body.class_name,
        groups=who.groups,
        max_restarts=body.max_restarts,
        requeue=body.requeue,
        exit_zero_done=body.exit_zero_done,
        idempotency=key,
    )


async def jobs(call: Call) -> list[a.JobOut]:
    """GET /jobs."""
    asked = call.asked(JobsQuery)
    found = [
        job
        for job in jobs_of(call, everybody=asked.all)
        if asked.kind in (None, job.kind) and asked.state in (None, job.state)
    ]
    return call.view.jobs(found[: asked.limit])


def jobs_of(call: Call, *, everybody: bool) -> Sequence[Job]:
    """The principal's Jobs, or all of them, newest first; Forbidden if it may not."""
    world = call.desk.world
    if not everybody:
        return world.of_user(call.principal.user)
    if not call.principal.sees_all:
        raise Forbidden("all: only an admin sees the work of others")
    return newest(world.jobs.values())


def newest(jobs: Iterable[Job]) -> Sequence[Job]:
    """Jobs, newest first."""
    return sorted(jobs, key=lambda job: (job.submitted, job.id), reverse=True)


async def show(call: Call) -> a.JobOut:
    """GET /jobs/ID."""
    return call.view.job(call.job)


async def explain(call: Call) -> a.ExplainOut:
    """GET /jobs/ID/explain."""
    story = await call.desk.story(call.job.id, STORY)
    return a.ExplainOut(
        job=call.view.job(call.job),
        factors=call.view.factors(call.job),
        story=tuple(full_event(entry) for entry in story),
    )


async def cancel(call: Call) -> a.JobOut:
    """POST /jobs/ID/cancel and /sessions/ID/cancel."""
    return await verb(call, Cancel())


async def extend(call: Call) -> a.JobOut:
    """POST /jobs/ID/extend and /sessions/ID/extend."""
    return await verb(call, Extend(parse_duration(call.given(ExtendIn).time)))


async def verb(call: Call, event: Event) -> a.JobOut:
    """Ask the broker to do something with the Job in the path."""
    job = await call.desk.ask(Ask(actor=call.principal.actor, job=call.job.id, event=event))
    return call.view.job(job or call.job)


async def logs(call: Call) -> a.LogOut:
    """GET /jobs/ID/logs. Text is cut at whole characters, so that nothing is lost."""
    asked, job = call.asked(LogQuery), call.job
    attempt = asked.attempt or job.attempt
    if attempt > job.attempt:
        raise Refusal("attempt", f"{job.id} has made {job.attempt} so far")
    # Judged before reading: what is written in between is read next time.
    ended = attempt < job.attempt or job.state not in LEASED
    if attempt == 0:
        return _no_log(asked, (), ended=job.deadline is None and job.outcome != "")
    key = Key(job.id, attempt)
    ranks = tuple(await call.desk.ranks(key))
    try:
        chunk = await call.desk.logs(key, asked.rank, asked.offset, asked.limit)
    except FileNotFoundError:
        if ended and asked.rank not in ranks and ranks:
            words = ", ".join(map(str, ranks))
            raise Unknown(f"{key} has no log of rank {asked.rank}; ranks: {words}") from None
        return _no_log(asked, ranks, ended=ended)
    whole = ended and chunk.next_offset >= chunk.size
    text, cut = _decode(chunk.data, whole=whole)
    return a.LogOut(
        rank=asked.rank,
        text=text,
        next_offset=chunk.next_offset - cut,
        size=chunk.size,
        ranks=ranks,
        ended=ended,
    )


def _no_log(asked: LogQuery, ranks: tuple[int, ...], *, ended: bool) -> a.LogOut:
    return a.LogOut(
        rank=asked.rank, text="", next_offset=asked.offset, size=0, ranks=ranks, ended=ended
    )


def _decode(data: bytes, *, whole: bool) -> tuple[str, int]:
    """The text, and how many bytes at the end are the beginning of a character."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=whole)
    return text, len(decoder.getstate()[0])
