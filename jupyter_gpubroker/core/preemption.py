# SPDX-License-Identifier: BSD-3-Clause
"""Who is asked to leave so that a Job can enter: a transaction on the Ledger.

Simulate, choose a set that loses little, drop whoever is not needed, verify that the
entering Job then fits whole; only then is anybody told. Node first: per node the
cheapest set that makes room there, then the cheapest nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from .ledger import SOON, Ledger, NodeRoom, View, lease_of
from .model import (
    GPU_MILLI,
    Job,
    Placement,
    Seconds,
    nodes_of,
)
from .placement import Ask, Look, Packing, Spot, fit
from .victims import NOTHING, Standing, Told, Victim


@dataclass(frozen=True, slots=True)
class Way:
    """How a Job enters: who leaves for it, and where it will start."""

    victims: tuple[Victim, ...]
    placement: Placement


Detail = tuple[Seconds, float, Seconds, str]
Cost = tuple[Standing, int, int, float, int, int, tuple[Detail, ...], int, int]


def cost(victims: Sequence[Victim], islands: int = 1) -> Cost:
    """What a set of victims costs: first those who have to be told (the standing of the highest,
    what they lose, what is moved, what is not saved, how many), then on how many islands of a
    node the taker is, then which have to be told, those taken from another's notice, and all.

    A job over two islands is slower as long as it runs, but nobody loses more for that: islands
    outrank only who was idle longest and who came last, which is no loss to anybody."""
    asked = [victim for victim in victims if victim.told is Told.NOT_YET]
    return (
        max((victim.standing for victim in asked), default=NOTHING),
        _losses(asked),
        sum(victim.memory_mib for victim in asked),
        sum(victim.unsaved for victim in asked),
        len(asked),
        islands,
        tuple(sorted(victim.regret[4:] for victim in asked)),
        sum(victim.told for victim in victims if victim.told is not Told.NOT_YET),
        len(victims),
    )


def _losses(victims: Sequence[Victim]) -> int:
    """What they lose who leave together: the room for images is for the first ones by id."""
    left: dict[str, int] = {}
    total = 0
    for victim in sorted(victims, key=lambda victim: victim.job.id):
        node, mib = victim.image or ("", 0)
        room = left.get(node, victim.left_mib)
        total += replace(victim, left_mib=room).loss
        left[node] = room - mib if mib <= room else room
    return total


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
    lenders = _lenders(ledger, job, victims, view)
    if lenders is None:
        return None
    with ledger.trial():
        for victim in lenders:
            ledger.leave(victim.job)
        lent = dict.fromkeys(victim.job.id for victim in lenders)
        others = [victim for victim in victims if victim.job.id not in lent]
        chosen = _cheapest_nodes(ledger, job, others, packing, considered, view)
    return minimal(ledger, job, [*lenders, *chosen], packing, view)


def _lenders(
    ledger: Ledger, job: Job, victims: Sequence[Victim], view: View
) -> list[Victim] | None:
    """Victims whose leaving makes room in the quota of the Job's queue, the least regretted
    first; ``None`` = there is none even then."""
    quotas, found = ledger.quotas, list[Victim]()
    if quotas is None:
        return found
    kin = _weighed(ledger, [victim for victim in victims if quotas.kin(job, victim.job)])
    with ledger.trial():
        for victim in sorted(kin, key=lambda victim: victim.regret):
            if quotas.wishes(job, view):
                break
            ledger.leave(victim.job)
            found.append(victim)
        return found if quotas.wishes(job, view) else None


def _cheapest_nodes(
    ledger: Ledger,
    job: Job,
    victims: Sequence[Victim],
    packing: Packing,
    considered: int,
    view: View,
) -> list[Victim]:
    """The victims of the nodes that cost least, empty where there are too few nodes."""
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
            offers.append(_Offer(cost((), place.islands), place, ()))
        elif _could(room, ask, there, view):
            closed.append((room, there))
    closed.sort(key=lambda item: (-item[0].milli(view), item[0].node.name))
    for room, there in closed[: max(considered, job.request.nodes)]:
        offer = _cheapest(ledger, room, _weighed(ledger, there), partial(look.at, room))
        if offer is not None:
            offers.append(offer)
    return _together(offers, job.request.nodes)


def _weighed(ledger: Ledger, victims: Iterable[Victim]) -> list[Victim]:
    """The same, with what is left for their images when all who leave have left."""
    known = [(victim, ledger.image(victim.job)) for victim in victims]
    return [v if it is None else replace(v, image=it[0], left_mib=it[1]) for v, it in known]


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
    """The cheapest of some greedy sets: by regret, by regret for what it frees there, and where
    the first is on several islands, for each of them those by regret who are on it."""

    def size(victim: Victim) -> int:
        shares = lease_of(victim.job).placement
        return sum(share.milli for share in shares if share.node == room.node.name)

    def by_size(victim: Victim) -> tuple[Told, Standing, float, float, float, str]:
        freed = size(victim)
        return (
            victim.told,
            victim.standing,
            victim.loss / freed,
            victim.memory_mib / freed,
            -freed,
            victim.job.id,
        )

    by_regret = sorted(victims, key=lambda victim: victim.regret)
    first = _greedy(ledger, by_regret, place)
    if first is None:
        return None  # not even if all of them leave
    orders = [sorted(victims, key=by_size)] if len(first.victims) > 1 else []
    if first.place.islands > 1:
        orders += _by_island(room, by_regret)
    found = [first, *(_greedy(ledger, each, place) for each in orders)]
    return min((o for o in found if o is not None), key=lambda offer: offer.cost)


def _by_island(room: NodeRoom, victims: list[Victim]) -> Iterator[list[Victim]]:
    """For each island of the node the same in the same order, but first who has GPUs of it."""
    places, islands = room.layout.places, room.layout.islands
    theirs = {
        victim.job.id: [
            islands[places[share.device]]
            for share in lease_of(victim.job).placement
            if share.node == room.node.name and share.device in places
        ]
        for victim in victims
    }
    for island in range(len(room.layout.kinds)):
        there = [victim for victim in victims if island in theirs[victim.job.id]]
        yield there + [victim for victim in victims if island not in theirs[victim.job.id]]


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
    return _Offer(cost(needed, found.islands), found, needed)


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
