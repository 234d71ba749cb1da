# SPDX-License-Identifier: BSD-3-Clause
"""Parked images take host memory: of their node, and at most the part that the policy names."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core.events import Deadline, Freed, NoRoom, Park
from jupyter_gpubroker.core.ledger import Ledger
from jupyter_gpubroker.core.lifecycle import advance
from jupyter_gpubroker.core.model import (
    LEAVING,
    Job,
    Kept,
    Kind,
    Placement,
    Reason,
    Rung,
    StageName,
    State,
    Terms,
)
from jupyter_gpubroker.core.parked import lacks, on_node

from .worlds import PARKABLE, World, ask, kept, node, noticed, on, placed

HOST = 10_000


def world_of(*hosts: int, gpus: int = 4) -> World:
    """Nodes ``node1`` … with so much host memory, of which half may be parked."""
    names = [f"node{index + 1}" for index in range(len(hosts))]
    pairs = zip(names, hosts, strict=True)
    return World().add(*(node(name, gpus, host_memory_mib=host) for name, host in pairs))


def image(name: str, mib: int, **more: Any) -> Kept:
    """What a kernel has parked on ``name``."""
    return replace(kept(name, f"{name}/0", **more), memory_mib=mib)


def parks(world: World, id_: str, *images: Kept) -> Job:
    """A parked session."""
    job = world.session(id_, ask(1), kept=images)
    parked = replace(job, state=State.PARKED, until=world.now + 9, parked_for=Reason.USER)
    return world.put(parked)


def left(world: World, name: str = "node1") -> list[tuple[int, int]]:
    """Free host memory, and free room for images: now, and soon."""
    ledger = Ledger(world.snapshot(), world.policy)
    for job in world.jobs.values():
        if job.state in LEAVING:
            ledger.leave(job)
    room = ledger.room(name)
    assert room.memory is not None
    assert room.parked is not None
    return [(room.memory.now, room.parked.now), (room.memory.soon, room.parked.soon)]


def test_an_image_takes_host_memory_as_long_as_it_lies_there() -> None:
    world = world_of(HOST, HOST)
    assert left(world) == [(10_000, 5_000)] * 2
    parks(world, "two", image("node1", 300), image("node1", 200))
    world.session("back", ask(1), kept=(image("node1", 1000),))
    world.runs("old", on("node1/0"))
    assert left(world) == [(8_500, 3_500)] * 2
    back = replace(
        world.runs("starts", on("node1/1")), state=State.STARTING, until=world.now, kept=()
    )
    world.put(replace(back, kept=(image("node1", 500),), started_attempt=0))
    assert left(world) == [(8_000, 3_000)] * 2
    assert left(world, "node2") == [(10_000, 5_000)] * 2


def test_images_of_another_boot_or_rung_or_of_no_node_take_nothing() -> None:
    world = world_of(HOST)
    parks(world, "booted", image("node1", 300, boot="boot-0"))
    parks(world, "restarted", image("node1", 300, rung=Rung.SERVER))
    parks(world, "gone", image("node9", 300))
    parks(world, "disk", image("", 300))
    assert left(world) == [(10_000, 5_000)] * 2


def test_a_node_that_does_not_say_what_it_has_has_no_cap() -> None:
    world = World().add(node("node1"))
    parks(world, "a", image("node1", 10**6))
    job = world.idles("s", on("node1/0"), 10**6)
    assert Ledger(world.snapshot(), world.policy).room("node1").parked is None
    assert lacks(job, world.snapshot(), 0) == ""


def test_who_leaves_needs_room_soon_and_who_stops_needs_it_now() -> None:
    world = world_of(HOST)
    world.drains("leaves", on("node1/0"), None)
    world.memory_mib["leaves"] = 3000
    assert left(world) == [(10_000, 5_000), (7_000, 2_000)]
    world.stops("stops", on("node1/1"))
    world.memory_mib["stops"] = 1000
    assert left(world) == [(9_000, 4_000), (6_000, 1_000)]
    world.stops("ends", on("node1/2"), reason=Reason.RELEASE)
    world.stops("unknown", on("node1/3", milli=10))  # as much as its share has
    assert left(world)[0] == (9_000 - 819, 4_000 - 819)


def test_who_stays_after_all_gives_the_room_back_and_so_does_a_trial() -> None:
    world = world_of(HOST)
    job = world.idles("s", on("node1/0"), 3000)
    ledger = Ledger(world.snapshot(), world.policy)
    room = ledger.room("node1")
    assert room.parked is not None
    with ledger.trial():
        ledger.leave(job)
        assert room.parked.soon == 2000
    assert room.parked.soon == 5000
    ledger.leave(job)
    ledger.stay(job)
    assert (room.parked.now, room.parked.soon) == (5000, 5000)
    with ledger.trial():
        ledger.leave(job)
    ledger.leave(job)
    assert room.parked.soon == 2000


def test_a_job_that_needs_the_host_memory_waits_for_the_image_to_go() -> None:
    world = world_of(HOST)
    parks(world, "p", image("node1", 4000))
    world.waits("small", ask(1, host_memory_mib=6000))
    world.waits("large", ask(1, host_memory_mib=4001))
    plan = world.plan()
    assert placed(plan) == {"small": ["node1/0"]}
    assert plan.why["large"].code == "fragmented"
    world.remove("p", "small")
    assert "large" in placed(world.plan())


def test_who_is_kept_out_by_what_is_parked_alone_is_told_whose_it_is() -> None:
    world = world_of(HOST, 100)
    parks(world, "p", image("node1", 4000))
    world.drains("q", on("node1/0"), None)
    world.memory_mib["q"] = 1000
    world.runs("other", on("node1/1"), kind=Kind.BATCH)
    world.waits("large", ask(1, host_memory_mib=7000))
    why = world.plan().why["large"]
    assert why.text == "the memory that it needs beside its GPUs is taken by what p, q parked"
    assert (why.code, sorted(why.waits_for)) == ("fragmented", ["other", "p", "q"])
    world.remove(*why.waits_for)
    assert "large" in placed(world.plan())


def test_who_would_lose_the_gpu_memory_is_regretted_more() -> None:
    world = world_of(HOST, HOST, gpus=1)
    world.idles("large", on("node1/0"), 4000)
    world.idles("small", on("node2/0"), 3000)
    world.waits("job", ask(1))
    assert noticed(world.plan()) == ["small"]
    parks(world, "p", image("node2", 2500))  # the small one does not fit any more
    assert noticed(world.plan()) == ["large"]
    world.policy = replace(world.policy, parked_percent=60)
    assert noticed(world.plan()) == ["small"]


def test_the_other_victims_of_a_set_are_counted() -> None:
    """Two that fit alone and not together lose more than two that are larger and do."""
    world = world_of(HOST, 2 * HOST, gpus=2)
    world.idles("a", on("node1/0"), 2600)
    world.idles("b", on("node1/1"), 2600)
    world.idles("c", on("node2/0"), 2700)
    world.idles("d", on("node2/1"), 2700)
    world.waits("job", ask(2))
    assert noticed(world.plan()) == ["c", "d"]
    world.policy = replace(world.policy, parked_percent=100)
    assert noticed(world.plan()) == ["a", "b"]


def test_without_room_the_ladder_goes_on_with_its_next_rung() -> None:
    world = World().add(node("node1"))
    stopping, _ = advance(world.runs("s", on("node1/0")), Park(), world.now)
    assert stopping.stages[0].name is StageName.PARK
    after, _ = advance(stopping, NoRoom("full"), world.now)
    assert after.stages == stopping.stages[1:]
    assert [name for name, _ in after.terms.park] == [StageName.RESTART]
    assert after.until == world.now + 60
    kept_, _ = advance(after, Freed(1), world.now)
    assert (kept_.state, kept_.rung) == (State.PARKED, Rung.SERVER)


def test_who_leaves_later_has_what_the_first_ones_left() -> None:
    world = world_of(HOST)
    first = world.drains("b", on("node1/0"), None, deadline=world.now + 10)
    second = world.drains("a", on("node1/1"), None, deadline=world.now + 20)
    small = world.drains("c", on("node1/2"), None, deadline=world.now + 30)
    world.memory_mib |= {"a": 3000, "b": 3000, "c": 2000}
    snapshot = world.snapshot()
    words = "node1 has 2000 MiB of host memory left for what is parked, and this needs 3000 MiB"
    assert [lacks(job, snapshot, 50) for job in (first, second, small)] == ["", words, ""]
    world.runs("job", on("node1/3"), kind=Kind.BATCH, request=ask(1, host_memory_mib=8000))
    assert "has 2000 MiB" in lacks(first, world.snapshot(), 50)


def test_what_asked_for_host_memory_is_parked_where_it_can_come_back_beside_its_image() -> None:
    world = world_of(HOST)
    for host, said in ((7000, False), (7001, True)):
        job = world.idles("s", on("node1/0"), 3000, request=ask(1, host_memory_mib=host))
        assert bool(lacks(job, world.snapshot(), 50)) is said
        ledger = Ledger(world.snapshot(), world.policy)
        ledger.leave(job)
        parked = ledger.room("node1").parked
        assert parked is not None
        assert parked.soon == (5000 if said else 2000)


def _random(seed: int) -> World:
    """Sessions of any sizes on a few nodes that are short of host memory, and jobs."""
    draw = Random(seed)
    world = world_of(*(draw.choice([4000, 8000, 16_000]) for _ in range(5)))
    world.policy = replace(world.policy, parked_percent=draw.choice([0, 30, 50, 100]))
    for name, each in world.nodes.items():
        for device in each.devices:
            id_, mib = f"s{device.uuid}", draw.randrange(1, 4000)
            ladder = draw.choice([PARKABLE, PARKABLE, PARKABLE[:1], ()])
            where: Placement = on(device.uuid)
            match draw.randrange(6):
                case 0:
                    parks(world, id_, image(name, draw.randrange(1, 400)))
                case 1:
                    host = draw.choice([0, 500])
                    request = ask(1, host_memory_mib=host)
                    world.runs(id_, where, kind=Kind.BATCH, request=request)
                case 2:
                    world.drains(id_, where, None, terms=Terms(park=ladder))
                    world.memory_mib[id_] = mib
                case _:
                    world.idles(id_, where, mib, terms=Terms(park=ladder))
    for index in range(20):
        request = ask(draw.randint(1, 3), host_memory_mib=draw.choice([0, 0, 700, 3000]))
        world.waits(f"w{index:02}", request)
    return world


def _parked(world: World, id_: str, percent: int) -> None:
    """The notice is over: it stops as the broker would have it, and is parked."""
    job = world.put(advance(world.jobs[id_], Deadline(), world.now)[0])
    if job.stages[0].name is StageName.PARK and lacks(job, world.snapshot(), percent):
        job = world.put(advance(job, NoRoom(), world.now)[0])
    lease, images = job.lease, ()
    if job.stages[0].name is StageName.PARK and lease is not None:
        where = lease.placement[0].node
        images = (image(where, world.memory_mib[id_]),)
    world.put(advance(job, Freed(job.attempt, images), world.now)[0])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_parked_images_never_exceed_the_cap_after_plans_are_carried_out(seed: int) -> None:
    world = _random(seed)
    percent = world.policy.parked_percent
    before = _sums(world)
    for _ in range(4):
        world.apply(world.plan())
        world.now += 1000
        for job in sorted(world.jobs.values(), key=lambda job: job.id):
            if job.state is State.DRAINING:
                _parked(world, job.id, percent)
        for name, total in _sums(world).items():
            most = world.nodes[name].host_memory_mib * percent // 100
            assert total <= max(most, before[name]), name
        done = [job.id for job in world.jobs.values() if job.state is State.STARTING]
        world.remove(*done)


def _sums(world: World) -> dict[str, int]:
    jobs, snapshot = [*world.jobs.values()], world.snapshot()
    return {name: on_node(jobs, snapshot, name) for name in world.nodes}


@pytest.mark.parametrize("seed", range(20))
def test_the_books_of_a_cycle_say_what_one_session_alone_would_be_told(seed: int) -> None:
    world = _random(seed)
    for job in [*world.jobs.values()]:
        if job.state is State.DRAINING:
            world.remove(job.id)
    snapshot = world.snapshot()
    ledger = Ledger(snapshot, world.policy)
    for job in snapshot.jobs.values():
        known = ledger.image(job) if job.state is State.RUNNING else None
        if known is not None:
            fits = known[0].mib <= known[1]
            assert fits == (not lacks(job, snapshot, world.policy.parked_percent)), job.id
