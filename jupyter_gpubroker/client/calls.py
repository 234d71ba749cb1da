# SPDX-License-Identifier: BSD-3-Clause
"""Every call of the API as a value: the blocking and the async client send the same."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from ..core.model import Kind, State
from ..wire import asked as q
from ..wire import endpoints as e
from ..wire.answered import (
    ExplainOut,
    HealthOut,
    JobOut,
    LogOut,
    NodeOut,
    PolicyOut,
    PrincipalOut,
    QueueRow,
    SessionState,
    ShapesOut,
    SubmittedOut,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request that was not sent yet."""

    endpoint: e.Endpoint[T]
    job: str = ""
    body: q.In | None = None
    query: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The path with the Job's id in its place."""
        return self.endpoint.path.replace(e.JOB, quote(self.job, safe=""))

    @property
    def content(self) -> bytes | None:
        """The body: what was set and nothing else."""
        if self.body is None:
            return None
        return self.body.model_dump_json(by_alias=True, exclude_unset=True).encode()

    @property
    def params(self) -> dict[str, str]:
        """The query: what was given."""
        given = {name: value for name, value in self.query.items() if value is not None}
        return {name: _word(value) for name, value in given.items()}


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- the broker ---------------------------------------------------------------------------


def health() -> Call[HealthOut]:
    """How the broker is."""
    return Call(e.HEALTH)


def me() -> Call[PrincipalOut]:
    """Who you are to the broker."""
    return Call(e.ME)


def queue() -> Call[list[QueueRow]]:
    """Everything that waits, in order."""
    return Call(e.QUEUE)


def nodes() -> Call[list[NodeOut]]:
    """The machines and their GPUs."""
    return Call(e.NODES)


def shapes() -> Call[ShapesOut]:
    """What can be asked for."""
    return Call(e.SHAPES)


def policy() -> Call[PolicyOut]:
    """The policy in force."""
    return Call(e.POLICY)


def apply_policy(document: str) -> Call[PolicyOut]:
    """Put a policy in force (admin)."""
    return Call(e.APPLY, body=q.PolicyIn(document=document))


def check_policy(document: str) -> Call[PolicyOut]:
    """Check a policy and change nothing."""
    return Call(e.CHECK, body=q.PolicyIn(document=document))


# --- jobs ---------------------------------------------------------------------------------


def submit(body: q.SubmitIn, *, key: str = "") -> Call[JobOut]:
    """Submit a batch job. Sent again with the same ``key``, it gives the job it made."""
    return Call(e.SUBMIT, body=body, headers={e.IDEMPOTENCY_KEY: key or uuid.uuid4().hex})


def submit_list(bodies: Sequence[q.ListedIn]) -> Call[list[SubmittedOut]]:
    """Submit several batch jobs in one transaction: all of them or none. Each may have a
    ``key``; sent again, it gives the job that it made."""
    return Call(e.SUBMIT_LIST, body=q.SubmitListIn(jobs=tuple(bodies)))


def jobs(
    *,
    everybody: bool = False,
    kind: Kind | None = None,
    state: State | None = None,
    limit: int | None = None,
) -> Call[list[JobOut]]:
    """Your jobs and sessions, newest first; ``everybody`` for admins."""
    query = {"all": everybody or None, "kind": kind, "state": state, "limit": limit}
    return Call(e.JOBS, query=query)


def show(job: str) -> Call[JobOut]:
    """One job or session."""
    return Call(e.SHOW, job)


def explain(job: str) -> Call[ExplainOut]:
    """A job, why it waits, and its story."""
    return Call(e.EXPLAIN, job)


def cancel(job: str) -> Call[JobOut]:
    """Stop a job or session; what it kept is deleted."""
    return Call(e.CANCEL, job)


def extend(job: str, time: str | float) -> Call[JobOut]:
    """More leased time for a job or session, as ``30m`` or seconds."""
    return Call(e.EXTEND, job, body=q.ExtendIn(time=time))


def logs(
    job: str,
    rank: int = 0,
    *,
    offset: int = 0,
    limit: int | None = None,
    attempt: int | None = None,
) -> Call[LogOut]:
    """Part of a rank's log from byte ``offset``; go on at its ``next_offset``."""
    query = {"rank": rank, "offset": offset, "limit": limit, "attempt": attempt}
    return Call(e.LOGS, job, query=query)


# --- sessions and servers -----------------------------------------------------------------


def open_session(body: q.SessionIn) -> Call[JobOut]:
    """A GPU for a server: a new session, or the living one."""
    return Call(e.OPEN, body=body)


def sessions(*, everybody: bool = False) -> Call[list[JobOut]]:
    """Your living sessions."""
    return Call(e.SESSIONS, query={"all": everybody or None})


def release(session: str) -> Call[JobOut]:
    """End a session; nothing is kept."""
    return Call(e.RELEASE, session)


def park(session: str) -> Call[JobOut]:
    """Give its GPUs back and keep its state."""
    return Call(e.PARK, session)


def resume(session: str, *, person: bool = True) -> Call[JobOut]:
    """Queue a parked session; ``person``: somebody asked, it was not just a cell."""
    return Call(e.RESUME, session, body=q.ResumeIn(person=person))


def keep(session: str) -> Call[JobOut]:
    """It is still needed: not to be taken for a while."""
    return Call(e.KEEP, session)


def discard(session: str) -> Call[JobOut]:
    """End a session and delete what it kept."""
    return Call(e.DISCARD, session)


def waits(session: str) -> Call[JobOut]:
    """A start at the Hub still waits for it: the place is kept for whoever asks."""
    return Call(e.WAITS, session)


def started(session: str, attempt: int) -> Call[JobOut]:
    """The kernels are bound to this attempt."""
    return Call(e.STARTED, session, body=q.StartedIn(attempt=attempt))


def hello(body: q.HolderIn) -> Call[SessionState]:
    """A server's extension is up."""
    return Call(e.HELLO, body=body)


def activity(body: q.ActivityIn) -> Call[SessionState]:
    """What a server's kernels do."""
    return Call(e.ACTIVITY, body=body)


def server_state(server: str = "", *, user: str = "") -> Call[SessionState]:
    """The session of a server; only the Hub names a user."""
    return Call(e.STATE, query={"server": server, "user": user or None})


def gone(body: q.GoneIn) -> Call[SessionState]:
    """The Hub saw a server end."""
    return Call(e.GONE, body=body)
