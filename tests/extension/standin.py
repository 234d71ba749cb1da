# SPDX-License-Identifier: BSD-3-Clause
"""A broker over real HTTP whose state the test writes by hand.

For what a real broker reaches only by way of scheduling and time. Answers are made of the
wire's models, so they can hold nothing that a broker could not say.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets, bind_unix_socket
from tornado.web import Application, RequestHandler

from jupyter_gpubroker import wire
from jupyter_gpubroker.core.model import State

from ..until import until_async

UUID = "GPU-00000000-0000-0000-0000-000000000001"
PREFIX = "/services/gpubroker"
EMPTY = {"CUDA_VISIBLE_DEVICES": ""}


def request(words: str = "0.5 GPU", **changes: Any) -> wire.RequestOut:
    """The shape of a Job."""
    shape = {"nodes": 1, "gpus": 0, "gpu_milli": 500, "memory_mib": 0, "flavors": ()}
    return wire.RequestOut(**{**shape, "time_limit": 7200.0, "words": words, **changes})


def lease(attempt: int = 1, *, prepared: bool = True, env: Any = None) -> wire.LeaseOut:
    """Half of the one device."""
    return wire.LeaseOut(
        attempt=attempt,
        since=time.time(),
        expires=time.time() + 7200,
        mode="held",
        shares=(wire.ShareOut(node="node1", device=UUID, milli=500, memory_mib=0),),
        guarantees=wire.GuaranteesOut(
            memory="none", fault=False, parkable=True, sentence="Nothing is enforced."
        ),
        prepared=prepared,
        env={"CUDA_VISIBLE_DEVICES": UUID} if env is None else env,
    )


def why(position: int = 1, text: str = "all GPUs are taken") -> wire.WhyOut:
    """Why a Job waits."""
    return wire.WhyOut(
        code="capacity",
        text=text,
        position=position,
        waits_for=("b-other",),
        waits_for_users=("bo",),
        until=time.time() + 600,
    )


def job(job_id: str = "b-1", kind: str = "batch", **changes: Any) -> wire.JobOut:
    """A Job; ``changes`` to one that was just queued."""
    fields: dict[str, Any] = {
        "id": job_id,
        "kind": kind,
        "user": "ana",
        "queue": "default",
        "class_name": kind,
        "name": "",
        "state": "queued",
        "since": time.time(),
        "submitted": time.time(),
        "deadline": None,
        "request": request(),
        "lease": None,
        "notice": None,
        "why": None,
        "kept": (),
        "parked_for": None,
        "attempt": 0,
        "restarts": 0,
        "max_restarts": 3,
        "preemptions": 0,
        "checkpoint": None,
        "code": None,
        "failed_rank": None,
        "outcome": "",
        "gpu_seconds": 0.0,
    }
    return wire.JobOut(**{**fields, **changes})


def kept(kernel: str) -> tuple[wire.KeptOut, ...]:
    """What one parked kernel kept."""
    return (wire.KeptOut(kernel=kernel, rung="gpu_state", memory_mib=1024, node="node1"),)


@dataclass
class Asked:
    """One request that came in."""

    method: str
    path: str
    body: Any
    token: str
    key: str


Answer = Callable[["StandIn", Asked], Any]


@dataclass
class StandIn:
    """The state, and what was asked. Safe to change from any thread."""

    key: str = "ana/"
    session: wire.JobOut | None = None
    jobs: dict[str, wire.JobOut] = field(default_factory=dict)
    logs: dict[tuple[str, int], str] = field(default_factory=dict)
    queue: list[wire.QueueRow] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    refuse: dict[str, tuple[int, wire.ErrorOut]] = field(default_factory=dict)
    """``METHOD path`` -> what is answered instead."""
    seq: int = 1
    url: str = ""
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _events: list[wire.EventOut] = field(default_factory=list)

    def change(self, **changes: Any) -> None:
        """Change the session (``None`` for a field resets it) and tell the stream."""
        assert self.session is not None
        self.let(self.session.model_copy(update=changes))

    def let(self, session: wire.JobOut | None) -> None:
        """This is the session now."""
        name = (session or self.session or job("s-0", "session")).id
        self.session = None if session is None else wire.JobOut(**dict(session))
        self.say("entry", name, "" if session is None else str(session.state))

    def say(self, event: str, name: str = "", state: str = "") -> None:
        """Write one event to the stream."""
        with self._changed:
            self.seq += 1
            self._events.append(
                wire.EventOut(seq=self.seq, time=time.time(), event=event, job=name, state=state)
            )
            self._changed.notify_all()

    def posts(self, ending: str) -> list[Asked]:
        """The POSTs to paths with this end, in order."""
        return [a for a in self.asked if a.method == "POST" and a.path.endswith(ending)]

    def events_after(self, seq: int) -> list[wire.EventOut]:
        """What the stream has to tell after ``seq``."""
        with self._changed:
            return [event for event in self._events if event.seq > seq]

    def state(self) -> wire.SessionState:
        """GET /servers/state."""
        return wire.SessionState(
            seq=self.seq, key=self.key, session=self.session, empty_env=dict(EMPTY)
        )


# --- answers ----------------------------------------------------------------------------


def _open(broker: StandIn, asked: Asked) -> Any:
    broker.let(job("s-1", "session", server=broker.key, why=why()))
    return broker.session


def _verb(**changes: Any) -> Answer:
    def answer(broker: StandIn, _asked: Asked) -> Any:
        broker.change(**changes)
        return broker.session

    return answer


def _release(broker: StandIn, _asked: Asked) -> Any:
    assert broker.session is not None
    ended = broker.session.model_copy(update={"state": State.COMPLETED, "lease": None})
    broker.let(None)
    return ended


def _submit(broker: StandIn, asked: Asked) -> Any:
    body = wire.SubmitIn.model_validate(asked.body)
    submitted = job(f"b-{len(broker.jobs) + 1}", name=body.name, why=why())
    broker.jobs[submitted.id] = submitted
    broker.say("entry", submitted.id, "queued")
    return submitted


def _cancel(broker: StandIn, asked: Asked) -> Any:
    name = asked.path.split("/")[2]
    update = {"state": State.CANCELLED, "outcome": "cancelled by ana"}
    broker.jobs[name] = broker.jobs[name].model_copy(update=update)
    broker.say("entry", name, "cancelled")
    return broker.jobs[name]


POSTS: dict[str, Answer] = {
    "/sessions": _open,
    "/jobs": _submit,
    "resume": _verb(state=State.QUEUED, why=why()),
    "park": _verb(state=State.PARKED, why=None),
    "keep": _verb(),
    "extend": _verb(),
    "started": _verb(state=State.RUNNING),
    "release": _release,
    "cancel": _cancel,
    "/servers/hello": lambda broker, _: broker.state(),
    "/servers/activity": lambda broker, _: broker.state(),
}


class _Handler(RequestHandler):
    def initialize(self, broker: StandIn) -> None:
        self.broker = broker

    async def prepare(self) -> None:
        body = json.loads(self.request.body) if self.request.body else None
        self.path = self.request.path.removeprefix(PREFIX).removeprefix(wire.API)
        headers = self.request.headers
        asked = Asked(
            self.request.method or "",
            self.path,
            body,
            headers.get("Authorization", ""),
            headers.get(wire.IDEMPOTENCY_KEY, ""),
        )
        self.broker.asked.append(asked)
        self.last = asked
        refused = self.broker.refuse.get(f"{asked.method} {asked.path}")
        if refused:
            self.set_status(refused[0])
            await self.finish(refused[1].model_dump_json())

    async def post(self, _path: str) -> None:
        answer = POSTS.get(self.path) or POSTS[self.path.rpartition("/")[2]]
        self.put(answer(self.broker, self.last))

    async def get(self, _path: str) -> None:
        broker, parts = self.broker, self.path.strip("/").split("/")
        if self.path == "/events":
            await self.stream()
        elif parts[0] == "jobs" and len(parts) > 1:
            self.get_job(parts)
        else:
            plain: dict[str, Any] = {
                "/servers/state": broker.state(),
                "/queue": broker.queue,
                "/jobs": list(broker.jobs.values()),
                "/nodes": [],
                "/me": wire.PrincipalOut(kind="user", user="ana", admin=False, server=""),
                "/shapes": wire.ShapesOut(
                    gpus_per_node=(1, 2),
                    nodes=1,
                    flavors=("sim",),
                    device_memory_mib=24576,
                    queues=("default",),
                    classes=(),
                    free_gpus=1.0,
                ),
                "/health": wire.HealthOut(status="ok", problems=(), version="0", seq=broker.seq),
            }
            self.put(plain[self.path])

    def get_job(self, parts: list[str]) -> None:
        broker, name = self.broker, parts[1]
        every = {**broker.jobs, **({broker.session.id: broker.session} if broker.session else {})}
        if name not in every:
            self.set_status(404)
            self.put(wire.ErrorOut(error="not-found", message=f"there is no job {name}"))
        elif len(parts) == 2:
            self.put(every[name])
        elif parts[2] == "explain":
            story = tuple(event for event in broker.events_after(0) if event.job == name)
            self.put(wire.ExplainOut(job=every[name], factors=(), story=story))
        else:
            self.get_log(name)

    def get_log(self, name: str) -> None:
        query = parse_qs(self.request.query)
        rank, offset, limit = (int(query[q][0]) for q in ("rank", "offset", "limit"))
        ranks = tuple(sorted(rank for owner, rank in self.broker.logs if owner == name))
        text = self.broker.logs.get((name, rank), "")
        part = text[offset : offset + limit]
        ended = self.broker.jobs[name].state in ("completed", "failed", "cancelled")
        self.put(
            wire.LogOut(
                rank=rank,
                text=part,
                next_offset=offset + len(part),
                size=len(text),
                ranks=ranks,
                ended=ended,
            )
        )

    left = False

    async def stream(self) -> None:
        self.set_header("Content-Type", wire.STREAM)
        after = int(self.get_query_argument("after", str(self.broker.seq)))
        hello = wire.EventOut(seq=after, time=time.time(), event="hello")
        self.write(f"id: {after}\nevent: hello\ndata: {hello.model_dump_json()}\n\n")
        told = [after]
        while not self.left:
            for event in self.broker.events_after(told[-1]):
                told.append(event.seq)
                self.write(f"id: {told[-1]}\nevent: entry\ndata: {event.model_dump_json()}\n\n")
            await self.flush()
            await until_async(lambda: self.left or self.broker.events_after(told[-1]), timeout=3600)

    def on_connection_close(self) -> None:
        self.left = True

    def put(self, answer: Any) -> None:
        many = isinstance(answer, list)
        dumped = (
            [item.model_dump(mode="json", by_alias=True) for item in answer]
            if many
            else answer.model_dump(mode="json", by_alias=True)
        )
        self.set_header("Content-Type", "application/json")
        self.write(json.dumps(dumped))


@contextmanager
def serving(broker: StandIn, socket_path: str = "") -> Iterator[StandIn]:
    """Serve on a free port of the loopback interface, or on a unix socket, in a thread."""
    ready, stop = threading.Event(), threading.Event()

    async def serve() -> None:
        prefix = "" if socket_path else PREFIX
        server = HTTPServer(Application([(prefix + "(/.*)", _Handler, {"broker": broker})]))
        sockets = [bind_unix_socket(socket_path)] if socket_path else bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        port = sockets[0].getsockname()[1] if not socket_path else 0
        broker.url = f"unix:{socket_path}" if socket_path else f"http://127.0.0.1:{port}{prefix}"
        ready.set()
        await asyncio.to_thread(stop.wait)
        server.stop()
        await server.close_all_connections()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield broker
    finally:
        stop.set()
        thread.join(30)
