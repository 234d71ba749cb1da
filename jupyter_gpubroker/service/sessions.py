# SPDX-License-Identifier: BSD-3-Clause
"""Endpoints about Sessions."""

from __future__ import annotations

from ..broker.inputs import OpenSession, StillWaits
from ..core.events import Keep, Park, Release, Resume, Started
from ..core.model import TERMINAL, Binding, Kind
from ..wire import ResumeIn, SessionIn, SessionsQuery, StartedIn
from ..wire import answered as a
from .auth import Forbidden, PrincipalKind
from .base import Call
from .jobs import jobs_of, verb


async def open_session(call: Call) -> a.JobOut:
    """POST /sessions."""
    body = call.given(SessionIn)
    binding = Binding(body.binding)
    if binding is Binding.SERVER and call.principal.kind is not PrincipalKind.HUB:
        raise Forbidden("binding: only the Hub launches a server with its GPUs")
    hub = call.principal.kind is PrincipalKind.HUB
    if body.groups and not hub:
        raise Forbidden("groups: only the Hub says in which groups a user is")
    before = call.desk.world.session_of(call.server)
    question = OpenSession(
        actor=call.principal.actor,
        user=call.server.partition("/")[0],
        server=call.server,
        request=body.request.to_request(),
        incarnation=body.incarnation,
        attach=body.attach,
        binding=binding,
        queue=body.queue,
        class_name=body.class_name,
        groups=body.groups if hub else call.principal.groups,
    )
    job = await call.desk.ask(question)
    assert job is not None
    call.status = 200 if before is not None and before.id == job.id else 201
    return call.view.job(job)


async def sessions(call: Call) -> list[a.JobOut]:
    """GET /sessions."""
    everybody = call.asked(SessionsQuery).all
    return call.view.jobs(
        job
        for job in jobs_of(call, everybody=everybody)
        if job.kind is Kind.SESSION and job.state not in TERMINAL
    )


async def release(call: Call) -> a.JobOut:
    """POST /sessions/ID/release."""
    return await verb(call, Release())


async def park(call: Call) -> a.JobOut:
    """POST /sessions/ID/park."""
    return await verb(call, Park())


async def resume(call: Call) -> a.JobOut:
    """POST /sessions/ID/resume."""
    return await verb(call, Resume(person=call.given(ResumeIn).person))


async def keep(call: Call) -> a.JobOut:
    """POST /sessions/ID/keep."""
    return await verb(call, Keep())


async def waits(call: Call) -> a.JobOut:
    """POST /sessions/ID/waits."""
    job = await call.desk.ask(StillWaits(call.principal.actor, call.job.id))
    assert job is not None
    return call.view.job(job)


async def started(call: Call) -> a.JobOut:
    """POST /sessions/ID/started."""
    return await verb(call, Started(call.given(StartedIn).attempt))
