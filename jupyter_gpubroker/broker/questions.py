# SPDX-License-Identifier: BSD-3-Clause
"""How a turn answers questions: each handler changes the batch or raises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..core import events as e
from ..core.amounts import words_duration
from ..core.leaving import ENDS_FOR_GOOD
from ..core.model import (
    LEASED,
    Binding,
    Conflict,
    Holder,
    Job,
    Refusal,
    Seconds,
    State,
)
from ..store import PolicyRow
from . import inputs as i
from .batch import Batch
from .entrance import Entrance, NewId, submit, submit_list, wants, with_time
from .idleness import judged, matters
from .world import World

SERVERS_MAX = 500
"""Servers of one user that are remembered without a session."""


def answer(batch: Batch, question: i.Question, new_id: NewId) -> i.Answer:
    """Decide one question. Refusal, Conflict and Unknown change nothing."""
    entrance = Entrance(batch, new_id)
    try:
        match question:
            case i.Submit():
                return i.Answer(submit(entrance, question))
            case i.SubmitList():
                return i.Answer(jobs=submit_list(entrance, question))
            case i.OpenSession():
                return i.Answer(_open_session(entrance, question))
            case i.Ask():
                return i.Answer(_ask(batch, question))
            case i.StillWaits():
                return i.Answer(_still_waits(batch, question))
            case i.ServerHello():
                return i.Answer(_hello(batch, question))
            case i.ServerGone():
                return i.Answer(_gone(batch, question))
            case i.ServerActivity():
                return i.Answer(_activity(batch, question))
            case i.ApplyPolicy():
                _apply_policy(batch, question)
            case i.DrainNode():
                _drain(batch, question)
            case _:
                raise AssertionError(question)
    except (Refusal, Conflict, i.Unknown) as error:
        return i.Answer(error=error)
    return i.Answer()


def _open_session(entrance: Entrance, question: i.OpenSession) -> Job:
    batch, world = entrance.batch, entrance.batch.world
    if question.binding is Binding.SERVER and question.attach:
        raise Refusal("binding", "a server has its GPUs from its start", "attach=false")
    newest = world.servers.get(question.server, 0)
    if question.incarnation < newest:
        raise Conflict(f"{question.server} has been started again since (start {newest})")
    old = world.session_of(question.server)
    if old is not None and _is_over(old):
        old = None
    if old is not None and _same(batch, old, question):
        note_incarnation(batch, question.server, question.incarnation)
        return _adopt(batch, old, question)
    # A wish that is refused must not cost the session that there is: this comes first.
    job = replace(entrance, replaced=old).make(question)
    note_incarnation(batch, question.server, question.incarnation)
    if old is not None:
        verb = e.Release() if old.state in LEASED else e.Cancel()
        batch.apply(old.id, verb, question.actor, {"replaced": question.request.words()})
    job = replace(
        job,
        server=question.server,
        incarnation=question.incarnation,
        attach=question.attach,
        binding=question.binding,
        holder=world.holders.get(question.server),
        name=question.server,
    )
    batch.put(job)
    world.asked[job.id] = batch.now
    batch.journal(question.actor, "job.submitted", job, wants(job))
    return job


def _is_over(job: Job) -> bool:
    """On its way out for good: the next one of its server is another."""
    if job.state is not State.STOPPING or job.notice is None:
        return False
    return job.notice.reason in ENDS_FOR_GOOD or job.binding is Binding.SERVER


def _same(batch: Batch, old: Job, question: i.OpenSession) -> bool:
    limits = batch.world.policy.classes.get(old.class_name)
    if limits is None or question.binding is not old.binding:
        return False
    return with_time(question.request, limits) == old.request


def _adopt(batch: Batch, old: Job, question: i.OpenSession) -> Job:
    """The living session goes on: it is the same wish."""
    job = old
    batch.world.asked[job.id] = batch.now
    if question.incarnation > old.incarnation:
        event = e.Adopt(question.incarnation, question.attach)
        job = batch.apply(old.id, event, question.actor)
    if job.state in (State.STOPPING, State.PARKED):
        batch.world.wanted[job.id] = question.actor
        resume_wanted(batch)
    return batch.world.jobs[job.id]


def resume_wanted(batch: Batch) -> None:
    """Sessions that were asked for again while they were being parked: resume them."""
    world = batch.world
    for job_id, actor in list(world.wanted.items()):
        state = world.jobs[job_id].state
        if state is State.STOPPING:
            continue
        del world.wanted[job_id]
        if state is State.PARKED:
            batch.apply(job_id, e.Resume(person=True), actor)


def note_incarnation(batch: Batch, server: str, incarnation: int) -> None:
    """Remember the newest start of a server; its old holder is no holder any more."""
    world = batch.world
    if incarnation > world.servers.get(server, 0):
        world.servers[server] = batch.servers[server] = incarnation
        world.holders.pop(server, None)
        world.activity.pop(server, None)
        world.gone.pop(server, None)


def _ask(batch: Batch, question: i.Ask) -> Job:
    job = batch.world.jobs.get(question.job)
    if job is None:
        raise i.Unknown(question.job)
    event = question.event
    if isinstance(event, e.Park):
        batch.world.wanted.pop(job.id, None)
    if isinstance(event, e.Extend):
        _may_extend(batch, job, event)
    return batch.apply(job.id, event, question.actor)


def _still_waits(batch: Batch, question: i.StillWaits) -> Job:
    """Nothing to write: what counts is when it was said."""
    job = batch.world.jobs.get(question.job)
    if job is None:
        raise i.Unknown(question.job)
    if job.id in batch.world.alive:
        batch.world.asked[job.id] = batch.now
    return job


def _may_extend(batch: Batch, job: Job, event: e.Extend) -> None:
    """Until forecasts exist: only while nobody waits, within the class's maximum."""
    if job.lease is None:
        raise Conflict(f"{job.id} is {job.state}: there is no lease to extend")
    waiting = [other for other in batch.world.alive.values() if other.state is State.QUEUED]
    if waiting:
        first = min(waiting, key=lambda other: (other.submitted, other.id))
        raise Conflict(
            f"{job.id} cannot be extended: {len(waiting)} waiting "
            f"(first {first.id} of {first.user})"
        )
    limits = batch.world.policy.classes.get(job.class_name)
    total = job.lease.expires - job.lease.since + job.served + event.seconds
    if limits is not None and total > limits.time_max:
        left = max(0.0, limits.time_max - (total - event.seconds))
        raise Refusal(
            "time",
            f"class {limits.name} allows {words_duration(limits.time_max)} in all",
            f"at most {words_duration(left)} more" if left else "",
        )


def _hello(batch: Batch, question: i.ServerHello) -> Job | None:
    world = batch.world
    if question.incarnation < world.servers.get(question.server, 0):
        raise Conflict(f"{question.server} has been started again since")
    note_incarnation(batch, question.server, question.incarnation)
    _remember(world, question.server, question.holder)
    batch.changed |= world.gone.pop(question.server, None) is not None
    world.mute.pop(question.server, None)
    session = world.session_of(question.server)
    if session is None or session.holder == question.holder:
        return session
    hello = e.Hello(question.holder, question.incarnation)
    return batch.apply(session.id, hello, question.actor)


def _remember(world: World, server: str, holder: Holder) -> None:
    """The holder of a session that may be asked for later; of each user the newest only."""
    world.holders.pop(server, None)
    world.holders[server] = holder
    user = server.partition("/")[0]
    theirs = [key for key in world.holders if key.startswith(f"{user}/")]
    for key in theirs[:-SERVERS_MAX]:
        del world.holders[key]


def _gone(batch: Batch, question: i.ServerGone) -> Job | None:
    world = batch.world
    session = world.session_of(question.server)
    if question.incarnation < world.servers.get(question.server, 0):
        return session
    if session is None or session.incarnation > question.incarnation:
        return session
    if question.how is i.HowGone.MUTE:
        return _mute(batch, session, question)
    world.wanted.pop(session.id, None)
    match question.how:
        case i.HowGone.STOPPED:
            return batch.apply(session.id, e.Release(), question.actor)
        case i.HowGone.WITHDRAWN:
            return _withdraw(batch, session, question.actor)
        case i.HowGone.FAILED:
            leaves: e.Event = e.Park() if session.kept else e.Release()
            if session.state in (State.QUEUED, State.PARKED) and session.kept:
                leaves = e.Withdraw()
            return batch.apply(session.id, leaves, question.actor)
        case i.HowGone.GONE:
            return holder_gone(batch, session, question.actor)
    raise AssertionError(question)


def _mute(batch: Batch, session: Job, question: i.ServerGone) -> Job:
    """Nobody in the server would bind its kernels: it is granted nothing, and a grant that
    waits for a hello is taken back."""
    if session.holder is not None:
        raise Conflict(f"{question.server} has said hello")
    batch.world.mute[question.server] = question.incarnation
    batch.changed = True
    if session.state is State.STARTING:
        return batch.apply(session.id, e.Withdraw(), question.actor)
    return session


def _withdraw(batch: Batch, session: Job, actor: str) -> Job:
    if session.state in (State.RUNNING, State.DRAINING):
        return batch.apply(session.id, e.Release(), actor)
    return batch.apply(session.id, e.Withdraw(), actor)


def holder_gone(batch: Batch, session: Job, actor: str) -> Job:
    """Proof that a server is gone. RUNNING and DRAINING sessions get their grace as a
    notice; in other states the broker itself waits so long before it says so."""
    world = batch.world
    world.holders.pop(session.server, None)
    world.activity.pop(session.server, None)
    if session.state in (State.RUNNING, State.DRAINING):
        return batch.apply(session.id, e.HolderGone(session.incarnation), actor)
    if session.server not in world.gone:
        world.gone[session.server] = batch.now
        batch.changed = True
    return session


def _activity(batch: Batch, question: i.ServerActivity) -> Job | None:
    world = batch.world
    session = world.session_of(question.server)
    if session is None or question.incarnation < world.servers.get(question.server, 0):
        return session
    before = judged(world, session, batch.now)
    old = world.activity.get(question.server)
    known: Mapping[str, Seconds] = {} if old is None else old.busy_since
    sources = [kernel.id for kernel in question.kernels if kernel.busy]
    sources += ["children"] if question.children else []
    world.activity[question.server] = i.Activity(
        at=batch.now,
        kernels=question.kernels,
        terminals_idle_for=question.terminals_idle_for,
        children=question.children,
        busy_since={source: known.get(source, batch.now) for source in sources},
    )
    # Hundreds of servers say every half a minute that nothing has changed.
    if matters(before, judged(world, session, batch.now)):
        batch.changed = True
    return session


def _apply_policy(batch: Batch, question: i.ApplyPolicy) -> None:
    world = batch.world
    for job in world.living():
        if job.class_name not in question.policy.classes:
            raise Refusal("classes", f"class {job.class_name} has living jobs ({job.id})")
        if job.queue not in question.policy.queues:
            raise Refusal("queues", f"queue {job.queue} has living jobs ({job.id})")
    revision = (world.policy_row.revision if world.policy_row else 0) + 1
    row = PolicyRow(revision, question.document, question.actor, batch.now)
    world.policy = replace(question.policy, revision=revision)
    world.policy_row = batch.policy = row
    world.problems.pop("policy", None)
    for job in world.living():
        batch.apply(job.id, e.Retune(world.policy.classes[job.class_name].terms), "broker")
    batch.journal(question.actor, "policy.applied", None, {"revision": revision})
    batch.changed = True


def _drain(batch: Batch, question: i.DrainNode) -> None:
    world = batch.world
    if question.node not in world.nodes:
        names = ", ".join(world.nodes)
        raise Refusal("node", f"{question.node!r} is not a node", f"one of: {names}")
    batch.nodes[question.node] = question.note
    if question.note:
        world.drained[question.node] = question.note
    else:
        world.drained.pop(question.node, None)
    batch.journal(
        question.actor, "node.drained", None, {"node": question.node, "note": question.note}
    )
    batch.changed = True
