# SPDX-License-Identifier: BSD-3-Clause
"""A world as a literal -> what the scheduler reads, and its Plan as JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .. import documents
from .. import policy as policies
from ..core.model import (
    GPU_MILLI,
    LEASED,
    LEAVING,
    TERMINAL,
    Blocked,
    Class,
    Device,
    Holder,
    Idle,
    Job,
    Kept,
    Kind,
    Lease,
    Mode,
    Node,
    Notice,
    Placement,
    Plan,
    Policy,
    Process,
    Quarantined,
    Reason,
    Refusal,
    Request,
    Reservation,
    Rung,
    Share,
    Snapshot,
    Stage,
    StageName,
    State,
    Why,
    check,
    nodes_of,
)
from ..core.quota import day_of
from ..core.reserve import SESSIONS, Demand
from ..core.schedule import schedule
from .world import WORLD_MAX, JobDoc, NodeDoc, ReservedDoc, WorldDoc

Path = tuple[int | str, ...]
PARK_S = 60.0


def plan(text: str) -> dict[str, Any]:
    """The Plan of a world; Refusal naming line, key and remedy."""
    snapshot, policy = read(text)
    return as_json(snapshot, schedule(snapshot, policy))


def read(text: str) -> tuple[Snapshot, Policy]:
    """What the scheduler reads of a world; Refusal naming line, key and remedy."""
    doc = documents.read(text, WorldDoc, "world", WORLD_MAX)
    reader = _Reader(text, doc, policies.frozen(doc.policy))
    return reader.snapshot(), reader.policy


@dataclass
class _Reader:
    """Turns the parts of one world into the core's nouns, and checks that they fit together."""

    text: str
    doc: WorldDoc
    policy: Policy
    nodes: dict[str, Node] = field(default_factory=dict)
    devices: dict[str, tuple[str, Device]] = field(default_factory=dict)
    """Name -> (node, device)."""
    used: dict[str, int] = field(default_factory=dict)
    """Milli of each device that are held."""

    def snapshot(self) -> Snapshot:
        """All of it."""
        for index, node in enumerate(self.doc.nodes):
            self._node(node, ("nodes", index))
        jobs = {}
        for index, each in enumerate(self.doc.jobs):
            job = self._job(each, ("jobs", index))
            if job.id in jobs:
                raise self._wrong(("jobs", index, "id"), f"{job.id} is there twice", "rename one")
            jobs[job.id] = job
        quarantined = tuple(self._quarantined())
        idle = {each.id: each.idle for each in self.doc.jobs if each.idle is not None}
        return Snapshot(
            now=self.doc.now,
            nodes=self.nodes,
            jobs=jobs,
            usage=self._usage(),
            idle={id_: Idle(found.since, found.memory_mib) for id_, found in idle.items()},
            memory_mib={
                each.id: each.used_mib if each.idle is None else each.idle.memory_mib
                for each in self.doc.jobs
                if each.used_mib or each.idle is not None
            },
            quarantined=quarantined,
            spent=self._spent(),
            barred={each.id: _barred(each) for each in self.doc.jobs if each.barred},
            reserve=self._reserve(),
        )

    def _wrong(self, path: Path, message: str, remedy: str = "") -> Refusal:
        return documents.refusal_at(self.text, path, message, remedy)

    def _node(self, doc: NodeDoc, path: Path) -> None:
        if doc.name in self.nodes:
            raise self._wrong((*path, "name"), f"{doc.name} is there twice", "rename one")
        devices = [
            Device(f"{doc.name}/{n}", doc.flavor, doc.gpu_memory_mib, n) for n in range(doc.gpus)
        ] or [
            Device(each.uuid, each.flavor, each.memory_mib, index, each.usable, mig=each.mig)
            for index, each in enumerate(doc.devices)
        ]
        number = {index: island for island, each in enumerate(doc.islands) for index in each}
        devices = [replace(each, island=number.get(each.index, 0)) for each in devices]
        for device in devices:
            if device.uuid in self.devices:
                raise self._wrong(path, f"{device.uuid} is there twice", "rename one")
            self.devices[device.uuid] = (doc.name, device)
        self.nodes[doc.name] = Node(
            name=doc.name,
            engine=doc.engine,
            boot=doc.boot,
            devices=tuple(devices),
            cpu_milli=doc.cpu_milli,
            host_memory_mib=doc.memory_mib,
            usable=doc.usable,
            note="" if doc.usable else "not usable",
        )

    # --- jobs -----------------------------------------------------------------------------

    def _job(self, doc: JobDoc, path: Path) -> Job:
        class_ = self._class(doc, path)
        queue = self._queue(doc.queue, (*path, "queue"))
        self._check_state(doc, path)
        submitted = self.doc.now if doc.submitted is None else doc.submitted
        job = Job(
            id=doc.id,
            kind=doc.kind,
            user=doc.user,
            queue=queue,
            class_name=class_.name,
            request=self._request(doc, class_, path),
            name=doc.id,
            terms=class_.terms,
            state=doc.state,
            since=submitted,
            submitted=submitted,
            eligible=submitted if doc.eligible is None else doc.eligible,
            until=self.doc.now if doc.state in (State.HELD, State.PARKED) else None,
            shield_until=doc.shield_until or 0.0,
            served=doc.served,
            extended=doc.extended,
            gpu_seconds=doc.gpu_seconds,
            saved_at=doc.saved,
            left_for=doc.left_for,
            avoid=tuple(doc.avoid.items()),
        )
        if doc.kind is Kind.SESSION:
            job = self._session(job, doc, path)
        if doc.state in LEASED:
            job = self._leased(job, doc, path)
        if doc.reserved is not None:
            job = replace(job, reserved=self._reservation(doc.reserved, job, path))
        try:
            return check(job)
        except AssertionError:
            raise self._wrong(path, f"{doc.id} is no possible {doc.kind}") from None

    def _class(self, doc: JobDoc, path: Path) -> Class:
        fitting = {
            name: item for name, item in self.policy.classes.items() if doc.kind in item.kinds
        }
        if doc.class_ is None:
            return next(iter(fitting.values()))
        if doc.class_ not in fitting:
            message = f"{doc.class_!r} is not a class for a {doc.kind}"
            raise self._wrong((*path, "class"), message, "one of: " + ", ".join(fitting))
        return fitting[doc.class_]

    def _queue(self, name: str | None, path: Path) -> str:
        if name is not None and name not in self.policy.queues:
            remedy = "one of: " + ", ".join(self.policy.queues)
            raise self._wrong(path, f"{name!r} is not a queue", remedy)
        return name or self.policy.default_queue

    def _request(self, doc: JobDoc, class_: Class, path: Path) -> Request:
        try:
            return Request(
                nodes=doc.nodes,
                gpus=doc.gpus,
                gpu_milli=doc.gpu_milli,
                memory_mib=doc.memory_mib,
                cpu_milli=doc.cpu_milli,
                host_memory_mib=doc.host_memory_mib,
                flavors=doc.flavors,
                time_limit=doc.time_limit or class_.time_default,
            ).for_people()
        except Refusal as refusal:
            raise self._wrong((*path, refusal.field), refusal.message, refusal.remedy) from None

    def _check_state(self, doc: JobDoc, path: Path) -> None:
        """What a job of that state has to say, and what it must not."""
        if doc.state in TERMINAL:
            raise self._wrong((*path, "state"), f"{doc.id} has ended", "leave it out")
        if doc.state is State.PARKED and doc.kind is Kind.BATCH:
            raise self._wrong((*path, "state"), "a batch job is never parked", "queued")
        leased, leaving = doc.state in LEASED, doc.state in LEAVING
        for key, given, due in (
            ("placement", bool(doc.placement), leased),
            ("notice", doc.notice is not None, leaving),
        ):
            if given != due:
                must = "must say" if due else "has no"
                raise self._wrong((*path, key), f"a job that is {doc.state} {must} {key}")
        waits, session = doc.state is State.QUEUED, doc.kind is Kind.SESSION
        runs = doc.state is State.RUNNING
        for key, given, may, must in (
            ("reserved", doc.reserved is not None, waits, "nothing is reserved unless it waits"),
            ("barred", bool(doc.barred), waits, "only who waits can be barred"),
            (
                "idle",
                doc.idle is not None,
                session and runs,
                "only a running session is judged idle",
            ),
            (
                "used_mib",
                doc.used_mib > 0,
                session and leased,
                "only a session that has GPUs parks",
            ),
            ("used_mib", doc.used_mib > 0, doc.idle is None, "say it in idle"),
            (
                "saved",
                doc.saved is not None,
                leased and not session,
                "only a batch job that has GPUs saves",
            ),
            ("left_for", bool(doc.left_for), not session, "only a batch job remembers it"),
        ):
            if given and not may:
                raise self._wrong((*path, key), must)
        for name in doc.avoid:
            if name not in self.nodes:
                raise self._wrong((*path, "avoid", name), f"{name} is not a node", self._names())

    def _session(self, job: Job, doc: JobDoc, path: Path) -> Job:
        park = ((StageName.PARK, PARK_S), (StageName.RESTART, job.terms.stop))
        holder = Holder("host", "1", 1, 1) if doc.server_up else None
        job = replace(
            job,
            terms=replace(job.terms, park=park),
            server=f"{doc.user}/{doc.id}",
            incarnation=1,
            attach=True,
            holder=holder,
        )
        waits = doc.state in (State.QUEUED, State.PARKED, State.STARTING)
        if doc.parked_on is not None and waits:
            node = self.nodes.get(doc.parked_on.node)
            if node is None:
                where = (*path, "parked_on", "node")
                raise self._wrong(where, f"{doc.parked_on.node} is not a node", self._names())
            kept = Kept(
                "kernel",
                1,
                Rung.GPU_STATE,
                job.server,
                node.name,
                node.boot,
                doc.parked_on.devices,
                doc.parked_on.memory_mib,
                processes=(Process(1, 1),),
            )
            job = replace(job, kept=(kept,))
        elif doc.parked_on is not None:
            raise self._wrong((*path, "parked_on"), f"nothing is parked while it is {doc.state}")
        if doc.state is State.PARKED:
            kept_by = job.kept or (Kept("", 1, Rung.SERVER, job.server),)
            job = replace(job, kept=kept_by, parked_for=Reason.USER)
        return job

    def _reservation(self, doc: ReservedDoc, job: Job, path: Path) -> Reservation:
        booked, self.used = self.used, {}  # others have it still
        where = (*path, "reserved", "placement")
        placement = self._placement(doc.placement, where, job.request.memory_mib)
        self.used = booked
        return Reservation(placement, doc.start, doc.promised)

    def _leased(self, job: Job, doc: JobDoc, path: Path) -> Job:
        placement = self._placement(doc.placement, (*path, "placement"), job.request.memory_mib)
        self._check_whole(job, placement, path)
        granted = self.doc.now if doc.granted is None else doc.granted
        limit = job.request.time_limit or 0.0
        expires = granted + limit if doc.expires is None else doc.expires
        engine = self.nodes[placement[0].node].engine
        mode = Mode.HELD if job.kind is Kind.SESSION else Mode.HOSTED
        job = replace(
            job,
            attempt=1,
            started_attempt=0 if doc.state is State.STARTING else 1,
            since=granted,
            lease=Lease(engine, placement, 1, granted, expires, mode),
            until=None if doc.state is State.RUNNING else self.doc.now + job.terms.start,
        )
        if doc.notice is not None:
            told = doc.notice
            notice = Notice(told.reason, told.deadline, told.for_, f"{job.id}-notice")
            job = replace(job, notice=notice)
        if doc.state is State.STOPPING:
            job = replace(job, stages=(Stage(StageName.KILL, 30.0), Stage(StageName.FENCE, 120.0)))
        return job

    def _check_whole(self, job: Job, placement: Placement, path: Path) -> None:
        request, here = job.request, (*path, "placement")
        names = nodes_of(placement)
        if len(names) != request.nodes:
            raise self._wrong(here, f"is on {len(names)} nodes, it wants {request.nodes}")
        each = request.gpus + request.shared
        for name in names:
            count = sum(share.node == name for share in placement)
            if count != each:
                raise self._wrong(here, f"has {count} GPUs on {name}, it wants {request.words()}")

    # --- the rest -------------------------------------------------------------------------

    def _placement(self, names: Iterable[str], path: Path, memory_mib: int = 0) -> Placement:
        """``n1/0`` is the whole GPU, ``n1/0:500`` half of it; booked, so that none is given
        twice."""
        shares = []
        for index, name in enumerate(names):
            uuid, _, part = name.partition(":")
            if uuid not in self.devices:
                remedy = "as node/index; known: " + ", ".join(list(self.devices)[:8])
                raise self._wrong((*path, index), f"{uuid!r} is not a GPU of this world", remedy)
            if part and not (part.isdecimal() and 0 < int(part) <= GPU_MILLI):
                raise self._wrong((*path, index), f"{part!r} is no share", "1 … 1000 thousandths")
            milli = int(part or GPU_MILLI)
            self.used[uuid] = self.used.get(uuid, 0) + milli
            if self.used[uuid] > GPU_MILLI:
                message = f"{self.used[uuid]} thousandths of {uuid} are held, it has {GPU_MILLI}"
                raise self._wrong((*path, index), message)
            node, device = self.devices[uuid]
            mib = memory_mib if part and memory_mib else device.memory_mib * milli // GPU_MILLI
            shares.append(Share(node, uuid, milli, mib))
        return tuple(shares)

    def _names(self) -> str:
        return "one of: " + ", ".join(self.nodes)

    def _usage(self) -> Mapping[tuple[str, str], float]:
        return {
            (self._queue(each.queue, ("usage", index, "queue")), each.user): each.gpu_seconds
            * GPU_MILLI
            for index, each in enumerate(self.doc.usage)
        }

    def _spent(self) -> Mapping[tuple[str, str, int], float]:
        spent: dict[tuple[str, str, int], float] = {}
        for index, each in enumerate(self.doc.spent):
            queue = self._queue(each.queue, ("spent", index, "queue"))
            day = day_of(self.doc.now if each.granted is None else each.granted)
            key = (queue, each.user, day)
            spent[key] = spent.get(key, 0.0) + each.gpu_seconds * GPU_MILLI
        return spent

    def _reserve(self) -> tuple[Request, ...]:
        if self.doc.reserve and self.policy.reserve is not None:
            raise self._wrong(("reserve",), "the policy says how many", "leave it out")
        found: list[Request] = []
        for index, each in enumerate(self.doc.reserve):
            try:
                shape = Request(
                    gpus=each.gpus,
                    gpu_milli=each.gpu_milli,
                    memory_mib=each.memory_mib,
                    flavors=each.flavors,
                ).for_people()
            except Refusal as wrong:
                path = ("reserve", index, wrong.field)
                raise self._wrong(path, wrong.message, wrong.remedy) from None
            found += [shape] * each.sessions
        if len(found) > SESSIONS:
            raise self._wrong(("reserve",), f"are {len(found)} sessions, at most {SESSIONS}")
        found.sort(key=lambda shape: (-shape.most_milli(), shape.words()))
        return tuple(found) or Demand().sessions(self.policy, self.nodes.values(), self.doc.now)

    def _quarantined(self) -> Iterable[Quarantined]:
        for index, each in enumerate(self.doc.quarantined):
            shares = self._placement(each.placement, ("quarantined", index, "placement"))
            boots = {name: self.nodes[name].boot for name in nodes_of(shares)}
            yield Quarantined(shares, each.job, 1, boots, self.doc.now)


def _barred(doc: JobDoc) -> Why:
    """Sessions wait for their servers, batch where a broken policy was replaced."""
    code = Blocked.SERVER if doc.kind is Kind.SESSION else Blocked.LIMIT
    return Why(code, doc.barred)


def as_json(snapshot: Snapshot, made: Plan) -> dict[str, Any]:
    """A Plan as JSON values."""
    return {
        "now": snapshot.now,
        "place": [{"job": id_, "placement": _shares(where)} for id_, where in made.place],
        "notices": [
            {
                "job": id_,
                "reason": str(notice.reason),
                "deadline": notice.deadline,
                "for": notice.for_job,
            }
            for id_, notice in made.notice
        ],
        "reprieves": list(made.reprieve),
        "reservations": [
            {
                "job": id_,
                "placement": _shares(found.placement),
                "start": found.start,
                "promised": found.promised,
            }
            for id_, found in made.reserve
        ],
        "why": {id_: _why(why) for id_, why in made.why.items()},
        "next": made.next,
    }


def _shares(placement: Placement) -> list[dict[str, Any]]:
    return [
        {
            "node": share.node,
            "device": share.device,
            "milli": share.milli,
            "memory_mib": share.memory_mib,
        }
        for share in placement
    ]


def _why(why: Why) -> dict[str, Any]:
    return {
        "code": str(why.code),
        "text": why.text,
        "position": why.position,
        "waits_for": list(why.waits_for),
        "until": why.until,
        "rules": list(why.rules),
        "nodes": list(why.nodes),
    }
