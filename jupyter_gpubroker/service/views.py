# SPDX-License-Identifier: BSD-3-Clause
"""What one principal may see of the world, as the wire shows it. Pure: nothing is changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..broker.idleness import judge
from ..broker.planning import usage
from ..broker.world import World
from ..core.factors import factors
from ..core.leaving import below_park
from ..core.model import (
    GPU_MILLI,
    LEAVING,
    WAITING,
    Binding,
    Device,
    Job,
    Kind,
    Node,
    Reason,
    Seconds,
    Snapshot,
    StageName,
    State,
    Why,
)
from ..store import Entry
from ..wire import answered as a
from . import Desk
from .auth import Principal

_REASONS: Mapping[Reason, str] = {
    Reason.IDLE: "Idle",
    Reason.PREEMPTED: "Preempted",
    Reason.USER: "Asked to park",
    Reason.CELL: "No cell runs",
    Reason.START: "It did not start in time",
    Reason.DRAIN: "The node is being drained",
    Reason.TIME: "Its time is up",
    Reason.OVER: "It used more than its share",
    Reason.LOST: "A node was lost",
    Reason.HOLDER: "Its Jupyter server is gone",
    Reason.RELEASE: "Released",
    Reason.CANCEL: "Cancelled",
}
_KEPT: Mapping[StageName, str] = {
    StageName.PARK: "everything is kept, GPU memory too",
    StageName.SAVE: "variables are saved, documents and outputs are kept",
    StageName.RESTART: "documents and outputs are kept, variables are lost",
}
_LOST = (Reason.RELEASE, Reason.CANCEL)
"""Nothing is kept of a session that leaves for these."""


@dataclass(frozen=True, slots=True)
class View:
    """The world through the eyes of one principal, at one time."""

    desk: Desk
    principal: Principal
    now: Seconds

    @property
    def world(self) -> World:
        """What the broker knows."""
        return self.desk.world

    def owns(self, job: Job) -> bool:
        """Whether it is the principal's own work."""
        return job.user == self.principal.user

    def may_see(self, job: Job) -> bool:
        """Whether the principal may know more of it than that it exists."""
        return self.owns(job) or self.principal.sees_all

    # --- one job ------------------------------------------------------------------------

    def job(self, job: Job) -> a.JobOut:
        """A Job that the principal may see."""
        return a.JobOut(
            id=job.id,
            kind=job.kind,
            user=job.user,
            queue=job.queue,
            class_name=job.class_name,
            name=job.name,
            state=job.state,
            stage=str(job.stages[0].name) if job.stages else "",
            since=job.since,
            submitted=job.submitted,
            deadline=job.deadline,
            request=_request(job),
            lease=self._lease(job),
            notice=self._notice(job),
            why=self._why(job),
            kept=tuple(a.KeptOut(**_kept(kept)) for kept in job.kept),
            parked_for=job.parked_for,
            server=job.server,
            incarnation=job.incarnation,
            idle=self._idle(job),
            keeps_left=_keeps_left(job),
            attempt=job.attempt,
            restarts=job.restarts,
            max_restarts=job.terms.max_restarts,
            preemptions=job.preemptions,
            checkpoint=job.checkpoint,
            code=job.code,
            failed_rank=job.failed_rank,
            outcome=job.outcome,
            gpu_seconds=job.gpu_seconds + _running_gpu_seconds(job, self.now),
        )

    def jobs(self, jobs: Iterable[Job]) -> list[a.JobOut]:
        """Several Jobs that the principal may see."""
        return [self.job(job) for job in jobs]

    def _lease(self, job: Job) -> a.LeaseOut | None:
        lease = job.lease
        if lease is None:
            return None
        return a.LeaseOut(
            attempt=lease.attempt,
            since=lease.since,
            expires=lease.expires,
            mode=lease.mode,
            shares=tuple(
                a.ShareOut(
                    node=share.node,
                    device=share.device,
                    milli=share.milli,
                    memory_mib=share.memory_mib,
                )
                for share in lease.placement
            ),
            guarantees=a.GuaranteesOut.model_validate(self.desk.guarantees(job)),
            prepared=job.prepared,
            env=self.desk.environment(job) if self.may_see(job) else {},
        )

    def _notice(self, job: Job) -> a.NoticeOut | None:
        notice = job.notice
        if notice is None:
            return None
        taker = self.world.jobs.get(notice.for_job or "")
        idle = notice.reason is Reason.IDLE and job.state is State.DRAINING
        return a.NoticeOut(
            id=notice.id,
            reason=notice.reason,
            deadline=notice.deadline,
            for_job=notice.for_job,
            for_user=None if taker is None else taker.user,
            text=_notice_text(self._told(job), notice.reason, taker),
            can_keep=idle and _keeps_left(job) > 0,
        )

    def _told(self, job: Job) -> Job:
        """The same, but without a rung for which there will be no room."""
        lacks = job.state is State.DRAINING and self.world.lacks_room(job)
        return below_park(job) if lacks else job

    def _why(self, job: Job) -> a.WhyOut | None:
        why = self.world.plan.why.get(job.id) if job.state in WAITING else None
        if why is None:
            return None
        others = (self.world.jobs.get(other) for other in why.waits_for)
        users = dict.fromkeys(other.user for other in others if other is not None)
        return a.WhyOut(
            code=why.code,
            text=why.text,
            position=why.position,
            waits_for=why.waits_for,
            waits_for_users=tuple(users),
            until=why.until,
            rules=why.rules,
            nodes=why.nodes,
        )

    def factors(self, job: Job) -> tuple[a.FactorOut, ...]:
        """What decides when it is the turn of a Job that waits."""
        world = self.world
        if job.state is not State.QUEUED or job.queue not in world.policy.queues:
            return ()
        read = Snapshot(self.now, nodes={}, jobs=world.alive, usage=usage(world, self.now))
        found = factors(job, read, world.policy)
        return tuple(a.FactorOut(name=each.name, text=each.text) for each in found)

    def _idle(self, job: Job) -> a.IdleOut | None:
        if job.kind is not Kind.SESSION or job.lease is None:
            return None
        if job.binding is Binding.SERVER:
            return None  # it is never judged
        found = judge(self.world, job, self.now)
        facts = "" if found.idle is None else found.idle.facts
        return a.IdleOut(
            idle=found.idle is not None, since=found.since, after=found.after, facts=facts
        )

    # --- many ---------------------------------------------------------------------------

    def queue(self) -> list[a.QueueRow]:
        """Everything that waits, in the order in which it would start."""
        why = self.world.plan.why
        waiting = [job for job in self.world.living() if job.state in WAITING]
        waiting.sort(key=lambda job: (_position(why.get(job.id)), job.submitted, job.id))
        return [
            a.QueueRow(
                id=job.id,
                kind=job.kind,
                user=job.user,
                queue=job.queue,
                class_name=job.class_name,
                # A name is its owner's own words: nobody else's business.
                name=job.name if self.may_see(job) else "",
                words=job.request.words(),
                submitted=job.submitted,
                why=self._why(job),
                mine=self.owns(job),
            )
            for job in waiting
        ]

    def nodes(self) -> list[a.NodeOut]:
        """The machines, and who holds what on them."""
        held = _Held.of(self.world)
        return [self._node(node, held) for node in self.world.usable_nodes().values()]

    def _node(self, node: Node, held: _Held) -> a.NodeOut:
        devices = tuple(self._device(node, device, held) for device in node.devices)
        return a.NodeOut(name=node.name, usable=node.usable, note=node.note, devices=devices)

    def _device(self, node: Node, device: Device, held: _Held) -> a.DeviceOut:
        place = (node.name, device.uuid)
        jobs = held.jobs.get(place, [])
        kinds = ["leaving" if job.state in LEAVING else str(job.kind) for job in jobs]
        if place in held.quarantined:
            kinds.append("quarantined")
        free = GPU_MILLI - held.milli.get(place, 0)
        return a.DeviceOut(
            uuid=device.uuid,
            index=device.index,
            flavor=device.flavor,
            memory_mib=device.memory_mib,
            mig=device.mig,
            island=device.island,
            usable=device.usable,
            note=device.note,
            free_milli=max(0, free) if node.usable and device.usable else 0,
            users=tuple(dict.fromkeys(job.user for job in jobs)),
            kinds=tuple(dict.fromkeys(kinds)),
            mine=any(self.owns(job) for job in jobs),
        )

    def shapes(self) -> a.ShapesOut:
        """What can be asked for at all."""
        world = self.world
        nodes = self.nodes()
        devices = [device for node in nodes for device in node.devices]
        most = max((len(node.devices) for node in nodes), default=0)
        return a.ShapesOut(
            gpus_per_node=tuple(range(1, most + 1)),
            nodes=len(nodes),
            flavors=tuple(dict.fromkeys(device.flavor for device in devices)),
            device_memory_mib=max((device.memory_mib for device in devices), default=0),
            queues=tuple(world.policy.queues),
            classes=tuple(
                a.ClassOut(
                    name=limits.name,
                    kinds=limits.kinds,
                    time_default=limits.time_default,
                    time_max=limits.time_max,
                )
                for limits in world.policy.classes.values()
            ),
            free_gpus=sum(device.free_milli for device in devices) / GPU_MILLI,
        )

    def state(self, key: str) -> a.SessionState:
        """All that the extension of a server needs."""
        session = self.world.session_of(key)
        return a.SessionState(
            seq=self.world.seq,
            key=key,
            session=None if session is None else self.job(session),
            empty_env=self.desk.environment(None),
        )

    def event(self, entry: Entry) -> a.EventOut:
        """An entry in full if it is about the principal's work, else a hint."""
        if not self.sees(entry):
            return a.EventOut(seq=entry.seq, time=entry.time, event="changed")
        return full_event(entry)

    def sees(self, entry: Entry) -> bool:
        """Whether the principal may read an entry."""
        own = bool(entry.user) and entry.user == self.principal.user
        return own or self.principal.sees_all


@dataclass(frozen=True, slots=True)
class _Held:
    """Who holds what, by (node, device)."""

    jobs: Mapping[tuple[str, str], Sequence[Job]]
    milli: Mapping[tuple[str, str], int]
    quarantined: frozenset[tuple[str, str]]

    @classmethod
    def of(cls, world: World) -> _Held:
        jobs: dict[tuple[str, str], list[Job]] = {}
        milli: dict[tuple[str, str], int] = {}
        shares = [(s, job) for job in world.leased() if job.lease for s in job.lease.placement]
        lost = [share for item in world.quarantined for share in item.shares]
        for share, job in shares:
            jobs.setdefault((share.node, share.device), []).append(job)
        for share in [*(share for share, _ in shares), *lost]:
            place = (share.node, share.device)
            milli[place] = milli.get(place, 0) + share.milli
        return cls(jobs, milli, frozenset((share.node, share.device) for share in lost))


def full_event(entry: Entry) -> a.EventOut:
    """An entry as its owner sees it."""
    return a.EventOut(
        seq=entry.seq,
        time=entry.time,
        event=entry.event,
        job=entry.job,
        state=entry.state,
        actor=entry.actor,
        facts=dict(entry.facts),
    )


def _request(job: Job) -> a.RequestOut:
    request = job.request
    return a.RequestOut(
        nodes=request.nodes,
        gpus=request.gpus,
        gpu_milli=request.gpu_milli,
        memory_mib=request.memory_mib,
        flavors=request.flavors,
        time_limit=request.time_limit,
        words=request.words(),
    )


def _kept(kept: object) -> dict[str, object]:
    return {name: getattr(kept, name) for name in ("kernel", "rung", "memory_mib", "node")}


def _keeps_left(job: Job) -> int:
    if job.kind is not Kind.SESSION or job.lease is None:
        return 0
    return max(0, job.terms.keeps - job.keeps_used)


def _running_gpu_seconds(job: Job, now: Seconds) -> float:
    if job.lease is None:
        return 0.0
    return max(0.0, now - job.lease.since) * job.lease.milli / GPU_MILLI


def _position(why: Why | None) -> int:
    # 0 = has no place in the order (held): last.
    return why.position if why is not None and why.position > 0 else 2**31


def _notice_text(job: Job, reason: Reason, taker: Job | None) -> str:
    """Why, for whom, and what is kept: one or two sentences."""
    who = "" if taker is None else f"; {taker.user} needs its GPUs ({taker.request.words()})"
    text = f"{_REASONS[reason]}{who}."
    if job.binding is Binding.SERVER:
        return f"{text} Its server is stopped."
    ladder = job.terms.park if job.kind is Kind.SESSION and reason not in _LOST else ()
    kept = _KEPT.get(ladder[0][0]) if ladder else None
    return text if kept is None else f"{text} {kept[:1].upper()}{kept[1:]}."
