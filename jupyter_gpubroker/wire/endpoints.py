# SPDX-License-Identifier: BSD-3-Clause
"""The endpoints: one description for the service, the OpenAPI document and the clients."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from . import answered as a
from . import asked as q

SERVICE = "gpubroker"
"""The broker's name as a service of a Hub."""
USE = f"access:services!service={SERVICE}"
"""The scope that lets a token use the broker."""
ADMIN = f"custom:{SERVICE}:admin"
"""The scope that makes a token an admin's."""
API = "/api/v1"
JOB = "{job}"
"""Stands for a Job's id in a path."""
IDEMPOTENCY_KEY = "Idempotency-Key"
STREAM = "text/event-stream"

T = TypeVar("T")


@dataclass(frozen=True)
class Endpoint(Generic[T]):
    """One method of one path: what it takes and what it answers."""

    method: str
    path: str
    """Below the service's prefix."""
    answer: type[T]
    does: str
    """One line for people."""
    body: type[q.In] | None = None
    query: type[q.In] | None = None
    stream: bool = False
    """Answers with server-sent events whose data are ``answer``."""

    @property
    def pattern(self) -> str:
        """The path as a regular expression; the Job's id is group ``job``."""
        return re.escape(self.path).replace(re.escape(JOB), "(?P<job>[^/]+)")

    @cached_property
    def adapter(self) -> TypeAdapter[T]:
        """Writes and reads answers."""
        return TypeAdapter(self.answer)


def _get(path: str, answer: type[T], does: str, query: type[q.In] | None = None) -> Endpoint[T]:
    return Endpoint("GET", API + path, answer, does, query=query)


def _post(path: str, answer: type[T], does: str, body: type[q.In] = q.Nothing) -> Endpoint[T]:
    return Endpoint("POST", API + path, answer, does, body=body)


HEALTH = Endpoint("GET", "/health", a.HealthOut, "how the broker is; never an error")
OPENAPI = _get("/openapi.json", dict[str, Any], "this document")
ME = _get("/me", a.PrincipalOut, "who you are to the broker")

SUBMIT = _post("/jobs", a.JobOut, "submit a batch job", q.SubmitIn)
SUBMIT_LIST = _post(
    "/jobs/list",
    list[a.SubmittedOut],
    "submit several batch jobs, all or none",
    q.SubmitListIn,
)
JOBS = _get("/jobs", list[a.JobOut], "your jobs and sessions, newest first", q.JobsQuery)
SHOW = _get(f"/jobs/{JOB}", a.JobOut, "one job or session")
EXPLAIN = _get(f"/jobs/{JOB}/explain", a.ExplainOut, "a job, why it waits, and its story")
CANCEL = _post(f"/jobs/{JOB}/cancel", a.JobOut, "stop it; what it kept is deleted")
EXTEND = _post(f"/jobs/{JOB}/extend", a.JobOut, "more leased time", q.ExtendIn)
LOGS = _get(f"/jobs/{JOB}/logs", a.LogOut, "part of the log of one rank", q.LogQuery)

OPEN = _post("/sessions", a.JobOut, "a GPU for a server, or the one it has", q.SessionIn)
SESSIONS = _get("/sessions", list[a.JobOut], "your living sessions", q.SessionsQuery)
RELEASE = _post(f"/sessions/{JOB}/release", a.JobOut, "end it; nothing is kept")
PARK = _post(f"/sessions/{JOB}/park", a.JobOut, "give its GPUs back and keep its state")
RESUME = _post(f"/sessions/{JOB}/resume", a.JobOut, "queue it to get GPUs back", q.ResumeIn)
KEEP = _post(f"/sessions/{JOB}/keep", a.JobOut, "it is still needed: not to be taken for a while")
DISCARD = _post(f"/sessions/{JOB}/cancel", a.JobOut, "discard it; what it kept is deleted")
PROLONG = _post(f"/sessions/{JOB}/extend", a.JobOut, "more leased time", q.ExtendIn)
WAITS = _post(f"/sessions/{JOB}/waits", a.JobOut, "a start at the Hub still waits for it")
STARTED = _post(f"/sessions/{JOB}/started", a.JobOut, "its kernels are bound", q.StartedIn)

HELLO = _post("/servers/hello", a.SessionState, "a server's extension is up", q.HolderIn)
ACTIVITY = _post("/servers/activity", a.SessionState, "what its kernels do", q.ActivityIn)
STATE = _get("/servers/state", a.SessionState, "the session of a server", q.StateQuery)
GONE = _post("/servers/gone", a.SessionState, "the Hub saw a server end", q.GoneIn)

QUEUE = _get("/queue", list[a.QueueRow], "everything that waits, in order")
NODES = _get("/nodes", list[a.NodeOut], "the machines and their GPUs")
SHAPES = _get("/shapes", a.ShapesOut, "what can be asked for")
POLICY = _get("/policy", a.PolicyOut, "the policy in force")
APPLY = Endpoint(
    "PUT", f"{API}/policy", a.PolicyOut, "put a policy in force (admin)", body=q.PolicyIn
)
CHECK = _post("/policy/check", a.PolicyOut, "check a policy and change nothing", q.PolicyIn)
EVENTS = Endpoint(
    "GET",
    f"{API}/events",
    a.EventOut,
    "what happens, from one event on; Last-Event-ID resumes",
    query=q.EventsQuery,
    stream=True,
)
