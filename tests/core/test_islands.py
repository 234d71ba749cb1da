# SPDX-License-Identifier: BSD-3-Clause
"""GPUs that are joined more closely than others of their node go together."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpubroker.core.model import Device, Node, PlacementRule

from .test_placement import devices, place
from .worlds import MEMORY, World, ask, kept, node, on, policy

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
