# SPDX-License-Identifier: BSD-3-Clause
"""GPUs that are joined more closely than others of their node go together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from jupyter_gpubroker.core.model import Device, Node, PlacementRule

from .test_placement import devices, place
from .worlds import MEMORY, World, ask, kept, node, noticed, on, policy

BOTH_RULES = pytest.mark.parametrize("rule", list(PlacementRule))


def isles(name: str, *sizes: int) -> Node:
    """A node whose islands have so many GPUs."""
    at = [island for island, size in enumerate(sizes) for _ in range(size)]
    gpus = tuple(
        Device(f"{name}/{index}", "h100", MEMORY, index, island=island)
        for index, island in enumerate(at)
    )
    return node(name, devices=gpus)


def world_of(rule: PlacementRule, *nodes: Node) -> World:
    return World(policy=policy(placement=rule)).add(*nodes)


def without_islands(world: World) -> World:
    """The same, if one knew nothing of them."""
    flat = {
        name: replace(each, devices=tuple(replace(device, island=0) for device in each.devices))
        for name, each in world.nodes.items()
    }
    return replace(world, nodes=flat)


@BOTH_RULES
def test_gpus_come_from_one_island_where_they_fit_in_one(rule: PlacementRule) -> None:
    world = world_of(rule, isles("node1", 4, 4))
    world.runs("a", on("node1/0", "node1/5"))
    world.runs("b", on("node1/4"))
    assert place(world, ask(3)) == ["node1/1", "node1/2", "node1/3"]
    assert place(world, ask(2)) == ["node1/6", "node1/7"]
    assert place(without_islands(world), ask(2)) == ["node1/1", "node1/2"]


@BOTH_RULES
def test_an_island_of_another_node_is_better_than_a_fuller_node(rule: PlacementRule) -> None:
    world = world_of(rule, isles("node1", 2, 2), isles("node2", 4, 4))
    assert place(world, ask(3)) == ["node2/0", "node2/1", "node2/2"]
    assert place(without_islands(world), ask(3)) == ["node1/0", "node1/1", "node1/2"]


@BOTH_RULES
def test_what_fits_in_no_island_gets_few_of_them_and_is_not_dropped(rule: PlacementRule) -> None:
    world = world_of(rule, isles("node1", 2, 2, 4))
    assert place(world, ask(6)) == [f"node1/{index}" for index in (4, 5, 6, 7, 0, 1)]
    world.runs("a", on("node1/0", "node1/2", "node1/4", "node1/5", "node1/6"))
    assert place(world, ask(3)) == ["node1/1", "node1/3", "node1/7"]
    assert place(world, ask(4)) is None


@BOTH_RULES
def test_a_small_job_breaks_up_no_island_that_a_larger_one_wants(rule: PlacementRule) -> None:
    world = world_of(rule, isles("node1", 4, 4))
    world.runs("a", on("node1/4"))
    world.waits("b", ask(4))
    assert place(world, ask(1)) == ["node1/5"]
    assert place(world, ask(0.5)) == ["node1/5"]
    assert place(without_islands(world), ask(1)) == ["node1/0"]


def test_fragmentation_breaks_up_an_island_that_nobody_wants_whole() -> None:
    world = world_of(PlacementRule.FRAGMENTATION, isles("node1", 4, 3))
    for name in "abcd":
        world.waits(name, ask(3))
    assert place(world, ask(1)) == ["node1/0"]
    world.policy = policy(placement=PlacementRule.BEST_FIT)
    assert place(world, ask(1)) == ["node1/4"]


@BOTH_RULES
def test_a_share_lies_in_the_island_of_the_gpus_beside_it(rule: PlacementRule) -> None:
    world = world_of(rule, isles("node1", 4, 4))
    world.runs("a", on("node1/0", "node1/1", "node1/2"))
    world.runs("b", on("node1/3", milli=400))
    world.runs("c", on("node1/4", milli=100))
    world.waits("d", ask(0.5))
    assert place(world, ask(1.5)) == ["node1/4", "node1/5"]
    world.runs("e", on("node1/5", "node1/6", "node1/7"))
    assert place(world, ask(1.5)) is None


@BOTH_RULES
def test_each_part_of_a_gang_gets_an_island(rule: PlacementRule) -> None:
    world = world_of(rule, isles("node1", 2, 2), isles("node2", 4, 4), isles("node3", 4, 4))
    world.runs("a", on("node3/0"))
    gang = ask(3, nodes=2)
    assert place(world, gang) == [f"node{at}" for at in ("2/0", "2/1", "2/2", "3/1", "3/2", "3/3")]
    assert place(without_islands(world), gang) != place(world, gang)


@BOTH_RULES
def test_gpus_beside_those_with_parked_memory_come_from_their_island(rule: PlacementRule) -> None:
    world = world_of(rule, isles("node1", 4, 4))
    job = world.session("s", ask(2), kept=(kept("node1", "node1/6"),))
    assert devices(world, job) == ["node1/6", "node1/4"]


# --- who has to leave ---------------------------------------------------------------


def idle_on(world: World, *devices: str, **more: float) -> None:
    """One idle session on each, the later the less long idle."""
    for index, device in enumerate(devices):
        since = world.now - 900 + index
        world.idles(device, on(device), 100, idle_since=since, **more)


@BOTH_RULES
def test_of_those_who_lose_the_same_the_ones_of_one_island_leave(rule: PlacementRule) -> None:
    world = world_of(rule, isles("node1", 2, 2))
    idle_on(world, "node1/0", "node1/2", "node1/1", "node1/3")
    world.waits("x", ask(2))
    assert noticed(without_islands(world).plan()) == ["node1/0", "node1/2"]
    plan = world.plan()
    assert noticed(plan) == ["node1/0", "node1/1"]
    assert [share.device for share in dict(plan.promise)["x"]] == ["node1/0", "node1/1"]


def test_an_island_of_another_node_is_better_than_those_who_are_idle_longer() -> None:
    world = world_of(PlacementRule.BEST_FIT, isles("node1", 1, 1), isles("node2", 2))
    idle_on(world, "node1/0", "node1/1", "node2/0", "node2/1")
    world.waits("x", ask(2))
    assert noticed(without_islands(world).plan()) == ["node1/0", "node1/1"]
    assert noticed(world.plan()) == ["node2/0", "node2/1"]


def test_nobody_loses_more_for_an_island_and_no_one_more_has_to_leave() -> None:
    world = world_of(PlacementRule.BEST_FIT, isles("node1", 2, 2))
    idle_on(world, "node1/0", "node1/2", "node1/1", "node1/3")
    world.waits("x", ask(2))
    for dear in ("node1/1", "node1/3"):
        world.idles(dear, on(dear), 101)
    assert noticed(world.plan()) == ["node1/0", "node1/2"]
    world.remove("node1/3")  # one of its GPUs and one of the other island are enough
    assert noticed(world.plan()) == ["node1/2"]
    world.runs("node1/2", on("node1/2"))
    world.idle.pop("node1/2")
    assert noticed(world.plan()) == ["node1/0"]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32))
def test_no_set_loses_less_and_one_that_loses_as_little_is_not_left_out_for_its_island(
    seed: int,
) -> None:
    draw = Random(seed)
    world = world_of(PlacementRule.BEST_FIT, isles("node1", 2, 2, 4))
    gpus = draw.randint(2, 4)
    for device in world.nodes["node1"].devices:
        match draw.choice(("idle", "idle", "idle", "busy", "free")):
            case "idle":
                mib, since = draw.choice((100, 100, 200)), world.now - draw.randint(0, 900)
                world.idles(device.uuid, on(device.uuid), mib, idle_since=since)
            case "busy":
                world.runs(device.uuid, on(device.uuid))
    busy = [job for job in world.jobs if job not in world.idle]

    def loss(some: Iterable[Device]) -> tuple[int, int]:
        gone = [world.idle[device.uuid] for device in some if device.uuid in world.idle]
        return sum(idle.memory_mib for idle in gone), len(gone)

    able = [device for device in world.nodes["node1"].devices if device.uuid not in busy]
    sets = [(loss(some), len({d.island for d in some})) for some in combinations(able, gpus)]
    assume(sets and min(sets)[0][1])  # it does not start without anybody leaving
    world.waits("x", ask(gpus))
    plan = world.plan()
    where = [
        device for device in able if device.uuid in {s.device for s in dict(plan.promise)["x"]}
    ]
    assert sorted(d.uuid for d in where if d.uuid in world.idle) == noticed(plan)
    assert loss(where) == min(sets)[0]
    assert (len({device.island for device in where}) == 1) == (min(sets)[1] == 1)
