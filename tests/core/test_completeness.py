# SPDX-License-Identifier: BSD-3-Clause
"""What fits is placed: ``fit`` against a search of everything, in small random worlds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from random import Random

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core.ledger import BOTH, Ledger
from jupyter_gpubroker.core.model import (
    GPU_MILLI,
    Device,
    Job,
    Node,
    Placement,
    PlacementRule,
    Request,
    Share,
    nodes_of,
)
from jupyter_gpubroker.core.placement import Packing, fit

from .worlds import World, kept, node, policy

SEEDS = st.integers(0, 2**32)
FLAVORS = ("a100", "h100", "slice")


def random_node(draw: Random, name: str) -> Node:
    """Up to five devices, of any kind and in any island."""
    alike = draw.random() < 0.5
    flavor = draw.choice(FLAVORS)
    devices = []
    for index in range(draw.randint(1, 5)):
        flavor = flavor if alike else draw.choice(FLAVORS)
        mig = flavor == "slice"
        memory = 1000 if mig else draw.choice((4000, 8000))
        usable, island = draw.random() < 0.95, draw.choice((0, 0, 1, 2))
        device = Device(f"{name}/{index}", flavor, memory, index, usable, mig=mig, island=island)
        devices.append(device)
    return node(
        name,
        devices=tuple(devices),
        engine=draw.choice(("local", "local", "other")),
        cpu_milli=draw.choice((0, 3000)),
        host_memory_mib=draw.choice((0, 3000)),
        usable=draw.random() < 0.95,
    )


def random_request(draw: Random) -> Request:
    """Shares by milli or memory, whole GPUs, both, gangs."""
    share = draw.choice(({}, {"gpu_milli": draw.randint(1, 9) * 100}, {"memory_mib": 700}))
    gpus = draw.choice((0, 1, 1, 2, 3) if share else (1, 1, 2, 2, 3))
    return Request(
        nodes=1 if share else draw.choice((1, 1, 2, 3)),
        gpus=gpus,
        **share,
        cpu_milli=draw.choice((0, 1000, 2000)),
        host_memory_mib=draw.choice((0, 1000, 2000)),
        flavors=draw.choice(((), (), (), ("slice",), ("h100", "slice"), ("a100", "h100"))),
    )


def cuts(request: Request, devices: tuple[Device, ...], name: str) -> Placement | None:
    """The Shares of these devices, that of a share first; ``None`` if it is too small."""
    shares = []
    for index, device in enumerate(devices):
        milli, mib = GPU_MILLI, device.memory_mib
        if request.shared and not index:
            mib = request.memory_mib or device.memory_mib * request.gpu_milli // GPU_MILLI
            milli = request.gpu_milli or -(-1000 * mib // device.memory_mib)
        if milli > GPU_MILLI:
            return None
        shares.append(Share(name, device.uuid, milli, mib))
    return tuple(shares)


def parts(request: Request, there: Node) -> Iterator[Placement]:
    """Every way to cut one node's part out of an empty node."""
    for wholes in combinations(there.devices, request.gpus):
        for first in there.devices if request.shared else (None,):
            if first is None or first not in wholes:
                found = cuts(request, (*([first] if first else []), *wholes), there.name)
                if found is not None:
                    yield found


def suits(request: Request, device: Device) -> bool:
    if request.flavors:
        return device.flavor in request.flavors
    return device.flavor != "slice" or (not request.gpus and bool(request.memory_mib))


def is_legal(world: World, job: Job, part: Placement) -> bool:
    """True if that part of the Job may be there, beside all who are there."""
    there, request = world.nodes[part[0].node], job.request
    devices = {device.uuid: device for device in there.devices}
    milli, memory, cpu, host = Counter[str](), Counter[str](), 0, 0
    for other in world.jobs.values():
        placement = other.lease.placement if other.lease is not None else ()
        for share in placement:
            milli[share.device] += share.milli
            memory[share.device] += share.memory_mib
        if there.name in nodes_of(placement):
            cpu += other.request.cpu_milli
            host += other.request.host_memory_mib
    host += sum(each.memory_mib for each in job.kept if each.node == there.name)
    need = request.host_memory_mib
    pins = {uuid for each in job.kept for uuid in each.devices}
    return (
        there.usable
        and there.name not in dict(job.avoid)
        and (not pins or pins <= {share.device for share in part})
        and (not there.cpu_milli or cpu + request.cpu_milli <= there.cpu_milli)
        and (not there.host_memory_mib or not need or host + need <= there.host_memory_mib)
        and all(
            devices[share.device].usable
            and suits(request, devices[share.device])
            and milli[share.device] + share.milli <= GPU_MILLI
            and memory[share.device] + share.memory_mib <= devices[share.device].memory_mib
            for share in part
        )
    )


def random_world(seed: int) -> tuple[World, Job]:
    """A few nodes, some Jobs on them where they happen to fit, and one that waits."""
    draw = Random(seed)
    world = World(policy=policy(placement=draw.choice(list(PlacementRule))))
    world.add(*(random_node(draw, f"node{index}") for index in range(draw.randint(1, 4))))
    for index in range(draw.randint(0, 8)):
        there, request = draw.choice(list(world.nodes.values())), random_request(draw)
        job = Job(f"r{index}", world.waits("x", request).kind, "", "", "", request)
        some = [part for part in parts(request, there) if is_legal(world, job, part)]
        if some and request.nodes == 1:
            world.runs(job.id, draw.choice(some), request=request)
    for index in range(3):
        world.waits(f"w{index}", random_request(draw))
    request = random_request(draw)
    avoid = ((draw.choice(list(world.nodes)), world.now + 9),) if draw.random() < 0.2 else ()
    if request.nodes == 1 and draw.random() < 0.3:
        there = draw.choice(list(world.nodes.values()))
        most = min(request.gpus + request.shared, len(there.devices))
        some = draw.sample(there.devices, draw.randint(1, most))
        pins = kept(there.name, *(device.uuid for device in some))
        return world, world.session("x", request, kept=(pins,), avoid=avoid)
    return world, world.waits("x", request, avoid=avoid)


def islands(world: World, part: Placement) -> int:
    numbers = {device.uuid: device.island for device in world.nodes[part[0].node].devices}
    return len({numbers[share.device] for share in part})


@settings(max_examples=1500, deadline=None, phases=(Phase.reuse, Phase.generate))
@given(SEEDS)
def test_what_fits_anywhere_is_placed_and_what_is_placed_is_legal(seed: int) -> None:
    world, job = random_world(seed)
    snapshot = world.snapshot()
    found = fit(Ledger(snapshot), job, BOTH, Packing.of(snapshot, world.policy))
    legal = {
        name: some
        for name, each in world.nodes.items()
        if (some := [p for p in parts(job.request, each) if is_legal(world, job, p)])
    }
    able = Counter(world.nodes[name].engine for name in legal)
    assert (found is not None) == any(count >= job.request.nodes for count in able.values())
    world.remove("w0", "w1", "w2")
    assert (found is not None) == ("x" in dict(world.plan().place))
    if found is None:
        return
    names = nodes_of(found)
    assert len(names) == job.request.nodes
    assert len({world.nodes[name].engine for name in names}) == 1
    for name in names:
        part = tuple(share for share in found if share.node == name)
        whole = tuple(sorted(part[job.request.shared :], key=lambda share: share.device))
        assert (*part[: job.request.shared], *whole) in legal[name]
    if job.request.nodes == 1 and not job.kept:
        least = min(islands(world, part) for some in legal.values() for part in some)
        assert islands(world, found) == least


@settings(max_examples=300, deadline=None, phases=(Phase.reuse, Phase.generate))
@given(SEEDS)
def test_a_job_that_is_gone_never_keeps_another_from_fitting(seed: int) -> None:
    world, job = random_world(seed)

    def fits() -> bool:
        snapshot = world.snapshot()
        return fit(Ledger(snapshot), job, BOTH, Packing.of(snapshot, world.policy)) is not None

    before = fits()
    for name in [name for name in world.jobs if name.startswith("r")]:
        world.remove(name)
        assert fits() >= before
        before = fits()


def test_worlds_are_of_both_kinds() -> None:
    """Else the properties above would say little."""
    outcomes: Counter[tuple[bool, bool]] = Counter()
    for seed in range(300):
        world, job = random_world(seed)
        snapshot = world.snapshot()
        found = fit(Ledger(snapshot), job, BOTH, Packing.of(snapshot, world.policy))
        outcomes[found is not None, bool(job.kept)] += 1
    assert min(outcomes[fits, pinned] for fits in (True, False) for pinned in (True, False)) >= 10
