# SPDX-License-Identifier: BSD-3-Clause
"""Random worlds: at least five nodes and twenty Jobs in every state."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hypothesis import strategies as st

from jupyter_gpubroker.core.model import (
    GPU_MILLI,
    Class,
    Cohort,
    Equals,
    Kept,
    Kind,
    Levels,
    Order,
    Placement,
    PlacementRule,
    Queue,
    Quota,
    Request,
    Share,
    StageName,
    Terms,
)

from .worlds import MEMORY, World, ask, cpu_by_node, kept, node, policy

LADDERS = ((), ((StageName.PARK, 60.0),), ((StageName.SAVE, 60.0),))
USERS = "abcdefgh"
ROLES = ("idle", "idle", "idle", "busy", "shielded", "batch", "told", "stops", "gone")
SHAPES = (
    *(ask(0.25), ask(0.5), ask(0.5), ask(1), ask(1), ask(2), ask(3), ask(4), ask(1.5)),
    *(ask(1, cpu_milli=1500), ask(0.5, cpu_milli=1500), ask(1, flavors=("a100",))),
)
GANGS = (
    *SHAPES,
    ask(1, nodes=2),
    ask(2, nodes=2),
    ask(3, nodes=2),
    ask(4, nodes=2),
    ask(2, nodes=4),
)


@dataclass(frozen=True)
class Spec:
    """One Job of a random world."""

    role: str
    shape: Request
    user: str
    number: int
    """What bytes, idle times, ends and graces are made of."""

    @classmethod
    def draw(cls, draw: Random, roles: tuple[str, ...], shapes: tuple[Request, ...]) -> Spec:
        """Any Job with one of these roles and shapes."""
        return cls(draw.choice(roles), draw.choice(shapes), draw.choice(USERS), draw.randint(0, 9))


def first_fit(world: World, request: Request) -> Placement | None:
    """The simplest placement that is right; knows nothing of the scheduler."""
    used: dict[str, int] = {}
    leases = [job.lease.placement for job in world.jobs.values() if job.lease is not None]
    for placement in [*leases, *(held.shares for held in world.quarantined)]:
        for share in placement:
            used[share.device] = used.get(share.device, 0) + share.milli
    found: list[Share] = []
    for each in world.nodes.values():
        spare = each.cpu_milli - cpu_by_node(world).get(each.name, 0)
        if each.cpu_milli and spare < request.cpu_milli:
            continue
        needs = [GPU_MILLI] * request.gpus + [request.gpu_milli] * bool(request.gpu_milli)
        here: list[Share] = []
        for device in each.devices:
            wanted = not request.flavors or device.flavor in request.flavors
            if wanted and needs and used.get(device.uuid, 0) + needs[0] <= GPU_MILLI:
                milli = needs.pop(0)
                here.append(Share(each.name, device.uuid, milli, MEMORY * milli // GPU_MILLI))
        if not needs and len({share.node for share in found}) < request.nodes:
            found += here
    return tuple(found) if len({share.node for share in found}) == request.nodes else None


def _put(world: World, spec: Spec, takers: list[str]) -> None:
    placement = first_fit(world, spec.shape)
    if placement is None:
        return
    id_, ladder = f"r{len(world.jobs):02}", LADDERS[spec.number % len(LADDERS)]
    more = {
        "user": spec.user,
        "request": spec.shape,
        "granted": world.now - 1000 * (1 + spec.number % 3),
        "expires": world.now + 1000 * (1 + spec.number),
        "terms": Terms(park=ladder, grace=10.0 * (1 + spec.number % 4)),
    }
    since, mib = world.now - 100 * spec.number, 1000 * (spec.number % 5)
    taker = takers[spec.number % len(takers)] if takers else None
    match spec.role:
        case "idle":
            world.idles(id_, placement, mib, idle_since=since, **more)
        case "shielded":
            shield = world.now + 50 + spec.number
            world.idles(id_, placement, mib, idle_since=since, shield_until=shield, **more)
        case "busy":
            world.runs(id_, placement, **more)
        case "batch":
            world.runs(id_, placement, kind=Kind.BATCH, **more, **_history(world, spec))
        case "told":
            world.drains(id_, placement, taker or "gone", **more)
        case "stops":
            world.stops(id_, placement, taker, **more)
        case _:
            world.quarantine(placement)


def _history(world: World, spec: Spec) -> dict[str, Any]:
    """What a running batch Job had before, and when it saved its work; some never tell."""
    saved = world.now - 300 * spec.number if spec.number % 2 else None
    shield = world.now + 40 if spec.number % 5 == 0 else 0.0
    return {"gpu_seconds": 700.0 * spec.number, "saved_at": saved, "shield_until": shield}


def _nodes(world: World, sizes: list[int], away: int, cpus: bool) -> None:
    for index, size in enumerate(sizes):
        flavor = "a100" if index % 3 == 2 else "h100"
        cpu = 1000 * size if cpus and index % 2 else 0
        usable = index != away
        added = node(f"node{index}", size, flavor=flavor, usable=usable, cpu_milli=cpu)
        isles = 2 if index % 2 else size
        devices = tuple(replace(each, island=each.index // isles) for each in added.devices)
        world.add(replace(added, devices=devices))


def _parked(world: World, spec: Spec, index: int) -> tuple[Kept, ...]:
    """What a session keeps on a GPU's host; most keep nothing."""
    where = list(world.nodes.values())[index % len(world.nodes)]
    if spec.number != 1 or spec.shape.flavors or len(where.devices) < spec.shape.gpus + 1:
        return ()
    return (kept(where.name, where.devices[0].uuid),)


def _wait(world: World, spec: Spec, index: int) -> None:
    id_ = f"w{index:02}"
    if spec.role == "batch":
        urgent = "urgent" if spec.number == 0 else "batch"
        names = list(world.nodes)[: 2 if spec.number == 1 else 0]
        avoid = tuple((name, world.now + 60 * (i + 1)) for i, name in enumerate(names))
        had = 400.0 * (spec.number % 3)
        more = {"avoid": avoid, "gpu_seconds": had, "served": had}
        world.waits(id_, spec.shape, user=spec.user, class_name=urgent, **more)
    elif spec.shape.nodes == 1:
        parked = _parked(world, spec, index)
        world.session(id_, spec.shape, user=spec.user, attach=spec.number == 0, kept=parked)
    else:
        world.waits(id_, spec.shape, user=spec.user)


def _queue(draw: Random) -> Queue:
    order = draw.choice(list(Order))
    equals = Equals.OFF if order is Order.FAIR else draw.choice(list(Equals))
    return Queue("default", order=order, preempt_equals=equals)


def _cohorts(draw: Random) -> dict[str, Any]:
    """Queues that lend each other, and one that does not, with rows of their own for a flavor
    or not."""
    rows = draw.choice((("*",), ("*",), ("*", "a100"), ("h100", "a100")))

    def quota(*, root: bool = False) -> dict[str, Quota]:
        bounds = [None if root or draw.random() < 0.6 else draw.randint(0, 4) for _ in "bl"]
        milli = [bound if bound is None else bound * GPU_MILLI for bound in bounds]
        return {row: Quota(draw.randint(0, 8) * GPU_MILLI, *milli) for row in rows}

    return {
        "cohorts": {"lab": Cohort("lab"), "part": Cohort("part", "lab", quota())},
        "queues": {
            "default": Queue("default", cohort="lab", quota=quota()),
            "vision": Queue("vision", cohort="part", quota=quota()),
            "text": Queue("text", cohort="part"),
            "alone": Queue("alone", quota=quota(root=True)),
            "free": Queue("free"),
        },
    }


def random_world(
    seed: int, running: int, waiting: int, limits: bool, quotas: bool = False
) -> World:
    """The world of that number: Jobs that run, idle or leave, and Jobs that wait."""
    draw = Random(seed)
    rule = draw.choice(list(PlacementRule))
    queues = {"default": _queue(draw), "vision": Queue("vision")}
    levels = Levels(1000.0, 3.0)
    world = World(policy=policy(placement=rule, queues=queues, levels=levels))
    if limits and draw.random() < 0.5:
        classes = {**world.policy.classes}
        classes["interactive"] = Class("interactive", (Kind.SESSION,), running=2)
        limited = replace(queues["default"], running_gpus=draw.choice((3, 12, 12)))
        world.policy = replace(world.policy, classes=classes, queues={"default": limited})
    if quotas:
        world.policy = replace(world.policy, **_cohorts(draw))
    sizes = [draw.randint(1, 4) for _ in range(draw.randint(5, 7))]
    _nodes(world, sizes, away=draw.randint(0, 12), cpus=draw.random() < 0.3)
    for index in range(waiting):
        _wait(world, Spec.draw(draw, ("batch", "batch", "session"), GANGS), index)
    takers = [job.id for job in world.jobs.values() if job.kind is Kind.BATCH]
    for _ in range(running):
        _put(world, Spec.draw(draw, ROLES, SHAPES), takers)
    if world.policy.cohorts:
        for job in list(world.jobs.values()):
            world.put(replace(job, queue=draw.choice(list(world.policy.queues))))
    for name in USERS:
        world.usage["default", name] = float(draw.randint(0, 3))
    return world


def worlds(waiting: int = 25, limits: bool = True) -> st.SearchStrategy[World]:
    """Any random world of at least twenty Jobs; shrinks to fewer of them."""
    return st.builds(
        random_world,
        st.integers(0, 2**32),
        st.integers(10, 35) if waiting > 10 else st.integers(20, 35),
        st.integers(10, waiting) if waiting > 10 else st.integers(1, waiting),
        st.just(limits),
    )
