# SPDX-License-Identifier: BSD-3-Clause
"""The table: every endpoint, who may call it, and what answers."""

from __future__ import annotations

from ..wire import endpoints as e
from . import cluster, events, jobs, servers, sessions
from .base import Route, Who

ROUTES: tuple[Route, ...] = (
    Route(e.HEALTH, Who.ANY, cluster.health),
    Route(e.OPENAPI, Who.ANY, cluster.document),
    Route(e.ME, Who.USER, jobs.me),
    Route(e.SUBMIT, Who.USER, jobs.submit, fresh=True),
    Route(e.SUBMIT_LIST, Who.USER, jobs.submit_list, fresh=True),
    Route(e.JOBS, Who.USER, jobs.jobs),
    Route(e.SHOW, Who.OWNER, jobs.show),
    Route(e.EXPLAIN, Who.OWNER, jobs.explain),
    Route(e.CANCEL, Who.OWNER, jobs.cancel),
    Route(e.EXTEND, Who.OWNER, jobs.extend, fresh=True),
    Route(e.LOGS, Who.OWNER, jobs.logs),
    Route(e.OPEN, Who.SERVER, sessions.open_session, fresh=True),
    Route(e.SESSIONS, Who.USER, sessions.sessions),
    Route(e.RELEASE, Who.SESSION, sessions.release),
    Route(e.PARK, Who.SESSION, sessions.park),
    Route(e.RESUME, Who.SESSION, sessions.resume),
    Route(e.KEEP, Who.SESSION, sessions.keep),
    Route(e.DISCARD, Who.SESSION, jobs.cancel),
    Route(e.PROLONG, Who.SESSION, jobs.extend, fresh=True),
    Route(e.WAITS, Who.HUB, sessions.waits),
    Route(e.STARTED, Who.HOLDER, sessions.started),
    Route(e.HELLO, Who.SERVER, servers.hello),
    Route(e.ACTIVITY, Who.SERVER, servers.activity),
    Route(e.STATE, Who.SERVER, servers.state),
    Route(e.GONE, Who.HUB, servers.gone),
    Route(e.QUEUE, Who.USER, cluster.queue),
    Route(e.NODES, Who.USER, cluster.nodes),
    Route(e.SHAPES, Who.USER, cluster.shapes),
    Route(e.POLICY, Who.USER, cluster.policy),
    Route(e.APPLY, Who.ADMIN, cluster.apply_policy, fresh=True),
    Route(e.CHECK, Who.USER, cluster.check_policy),
    Route(e.EVENTS, Who.USER, events.events),
)
