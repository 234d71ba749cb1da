# SPDX-License-Identifier: BSD-3-Clause
"""Who is asked to leave so that a Job can enter: a transaction on the Ledger.

Simulate, choose a set that loses little, drop whoever is not needed, verify that the
entering Job then fits whole; only then is anybody told. Node first: per node the
cheapest set that makes room there, then the cheapest nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial

from .ledger import SOON, Ledger, NodeRoom, View, lease_of
from .model import (
    GPU_MILLI,
    Job,
    Kind,
    Placement,
    Reason,
    Rung,
    Seconds,
    Snapshot,
    StageName,
    State,
    nodes_of,
)
from .placement import Ask, Look, Packing, Spot, fit


class Told(IntEnum):
    """Whether a Victim knows already; who knows is taken first."""

    FOR_THIS = 0
    """Its notice names the taker."""
    WHERE_PROMISED = 1
    """It has a device that the taker was promised."""
    FOR_ANOTHER = 2
    NOT_YET = 3


@dataclass(frozen=True, slots=True)
class Victim:
    """A session that may be asked to leave, or was asked and can still be reprieved."""

    job: Job
    reason: Reason
    """The relation along which it is taken."""
    told: Told
    memory_mib: int
    """What parking would move."""
    idle_since: Seconds

    @property
    def loss(self) -> int:
        """What its user loses by the rung that would apply."""
        return rung(self.job).loss

    @property
    def regret(self) -> tuple[Told, int, int, Seconds, Seconds, str]:
        """The less, the sooner it is taken: loss, bytes, longest idle, newest grant, id."""
        granted = lease_of(self.job).since
        return self.told, self.loss, self.memory_mib, self.idle_since, -granted, self.job.id


@dataclass(frozen=True, slots=True)
class Way:
    """How a Job enters: who leaves for it, and where it will start."""

    victims: tuple[Victim, ...]
    placement: Placement


Cost = tuple[int, int, int, tuple[tuple[Seconds, Seconds, str], ...], int, int]


def cost(victims: Sequence[Victim]) -> Cost:
    """What a set of victims costs: first those who have to be told (what they lose, what is
    moved, how many, which), then those taken from another's notice, then all."""
    asked = [victim for victim in victims if victim.told is Told.NOT_YET]
    return (
        sum(victim.loss for victim in asked),
        sum(victim.memory_mib for victim in asked),
        len(asked),
        tuple(sorted(victim.regret[3:] for victim in asked)),
        sum(victim.told for victim in victims if victim.told is not Told.NOT_YET),
        len(victims),
    )


def rung(job: Job) -> Rung:
    """What parking it keeps at best, by the first stage of its terms."""
    if not job.terms.park:
        return Rung.SERVER
    first, _ = job.terms.park[0]
    return {StageName.PARK: Rung.GPU_STATE, StageName.SAVE: Rung.VARIABLES}.get(first, Rung.SERVER)


def relation(taker: Job, victim: Job, snapshot: Snapshot) -> Reason | None:
    """Whether, and for which reason, ``taker`` may take from ``victim``.

    *Idle*: batch takes a session that is judged idle and not shielded. Nothing else is
    ever a victim, and sessions take from nobody.
    """
    idle = (
        victim.kind is Kind.SESSION
        and victim.state is State.RUNNING
        and victim.id in snapshot.idle
        and victim.shield_until <= snapshot.now
    )
    return Reason.IDLE if taker.kind is Kind.BATCH and idle else None


def recallable(job: Job) -> bool:
    """True if the Job was told to leave for another and can still be reprieved."""
    return (
        job.state is State.DRAINING
        and job.notice is not None
        and job.notice.for_job is not None
        and job.notice.reason in (Reason.IDLE, Reason.PREEMPTED)
    )


def victims(taker: Job, snapshot: Snapshot, recalled: Sequence[Job]) -> tuple[Victim, ...]:
    """Whom the taker may take from: running sessions, and those of ``recalled`` (see
    ``recallable``), who know already."""
    if taker.kind is not Kind.BATCH:
        return ()
    found = [_recalled(taker, job, snapshot) for job in recalled]
    for id_ in sorted(snapshot.idle):
        job = snapshot.jobs.get(id_)
        reason = relation(taker, job, snapshot) if job is not None else None
        if job is not None and reason is not None:
            idle = snapshot.idle[id_]
            found.append(Victim(job, reason, Told.NOT_YET, idle.memory_mib, idle.since))
    return tuple(found)


def _recalled(taker: Job, job: Job, snapshot: Snapshot) -> Victim:
    assert job.notice is not None
    place = taker.reserved.placement if taker.reserved is not None else ()
    promised = [(share.node, share.device) for share in place]
    if job.notice.for_job == taker.id:
        told = Told.FOR_THIS
    elif any((share.node, share.device) in promised for share in lease_of(job).placement):
        told = Told.WHERE_PROMISED
    else:
        told = Told.FOR_ANOTHER
    return Victim(job, job.notice.reason, told, snapshot.memory_mib.get(job.id, 0), job.since)


def minimal(
    ledger: Ledger, job: Job, victims: Sequence[Victim], packing: Packing, view: View = SOON
) -> Way | None:
    """The Way in which the Job fits when all victims have left, less those that are not
    needed; ``None`` if it does not fit."""

    def fits() -> bool:
        return fit(ledger, job, view, packing) is not None

    with ledger.trial():
        for victim in victims:
            ledger.leave(victim.job)
        if not fits():
            return None
        needed = _minimise(ledger, victims, fits)
        placement = fit(ledger, job, view, packing)
    assert placement is not None
    return Way(needed, placement)


def make_way(
    ledger: Ledger,
    job: Job,
    victims: Sequence[Victim],
    packing: Packing,
    considered: int,
    view: View = SOON,
) -> Way | None:
    """The cheapest Way that was found; at most ``considered`` nodes are searched (but as
    many as a gang needs)."""
    ask = Ask.of(job, packing)
    look = Look(ask, view, packing)
    offers: list[_Offer] = []
    closed: list[tuple[NodeRoom, list[Victim]]] = []
    by_node: dict[str, list[Victim]] = {}
    for victim in victims:
        for name in nodes_of(lease_of(victim.job).placement):
            by_node.setdefault(name, []).append(victim)
    for room in ledger.rooms:
        there = by_node.get(room.node.name, [])
        place = look.at(room)
        if place is not None:
            offers.append(_Offer(cost(()), place, ()))
        elif _could(room, ask, there, view):
            closed.append((room, there))
    closed.sort(key=lambda item: (-item[0].milli(view), item[0].node.name))
    for room, there in closed[: max(considered, job.request.nodes)]:
        offer = _cheapest(ledger, room, there, partial(look.at, room))
        if offer is not None:
            offers.append(offer)
    return minimal(ledger, job, _together(offers, job.request.nodes), packing, view)


def _could(room: NodeRoom, ask: Ask, victims: Sequence[Victim], view: View) -> bool:
    """False where not even all victims would make room: not worth a search."""
    wanted = [device for device in room.devices if ask.wants(device.device)]
    uuids = [device.device.uuid for device in wanted]
    free = sum(device.milli.free(view) for device in wanted)
    freed = sum(
        share.milli
        for victim in victims
        for share in lease_of(victim.job).placement
        if share.node == room.node.name and share.device in uuids
    )
    enough = free + freed >= ask.request.gpus * GPU_MILLI
    return bool(victims) and ask.allows(room.node) and enough


@dataclass(frozen=True, slots=True)
class _Offer:
    """What it costs that one node takes its part of the Job."""

    cost: Cost
    place: Spot
    victims: tuple[Victim, ...]


def _cheapest(
    ledger: Ledger, room: NodeRoom, victims: list[Victim], place: Callable[[], Spot | None]
) -> _Offer | None:
    """The cheaper of two greedy sets: by regret, and by regret for what it frees there."""

    def size(victim: Victim) -> int:
        shares = lease_of(victim.job).placement
        return sum(share.milli for share in shares if share.node == room.node.name)

    def by_size(victim: Victim) -> tuple[Told, float, float, str]:
        freed = size(victim)
        return victim.told, victim.loss / freed, victim.memory_mib / freed, victim.job.id

    by_regret = sorted(victims, key=lambda victim: victim.regret)
    offers = [_greedy(ledger, by_regret, place)]
    if offers[0] is not None and len(offers[0].victims) > 1:
        offers.append(_greedy(ledger, sorted(victims, key=by_size), place))
    found = [offer for offer in offers if offer is not None]
    return min(found, key=lambda offer: offer.cost, default=None)


def _greedy(
    ledger: Ledger, victims: list[Victim], place: Callable[[], Spot | None]
) -> _Offer | None:
    """One victim after the other until it fits, less those that are not needed."""
    with ledger.trial():
        chosen: list[Victim] = []
        for victim in victims:
            ledger.leave(victim.job)
            chosen.append(victim)
            if place() is not None:
                break
        else:
            return None
        needed = _minimise(ledger, chosen, lambda: place() is not None)
        found = place()
    assert found is not None
    return _Offer(cost(needed), found, needed)


def _minimise(
    ledger: Ledger, victims: Sequence[Victim], fits: Callable[[], bool]
) -> tuple[Victim, ...]:
    """Let stay, most regretted first, whoever is not needed; all of them have left before."""
    needed: list[Victim] = []
    for victim in sorted(victims, key=lambda victim: victim.regret, reverse=True):
        ledger.stay(victim.job)
        if not fits():
            ledger.leave(victim.job)
            needed.append(victim)
    return tuple(reversed(needed))


def _together(offers: list[_Offer], nodes: int) -> list[Victim]:
    """The victims of the cheapest so many nodes of one engine, each once."""
    offers.sort(key=lambda offer: (offer.cost, offer.place))
    chosen: dict[str, list[_Offer]] = {}
    for offer in offers:
        parts = chosen.setdefault(offer.place.engine, [])
        parts.append(offer)
        if len(parts) == nodes:
            once = {victim.job.id: victim for part in parts for victim in part.victims}
            return list(once.values())
    return []
