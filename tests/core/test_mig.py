# SPDX-License-Identifier: BSD-3-Clause
"""Nodes of whole GPUs and MIG slices: who gets which."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpubroker.core.feasible import possible
from jupyter_gpubroker.core.model import (
    Blocked,
    Device,
    Node,
    PlacementRule,
    Refusal,
    Request,
    Share,
)

from .test_placement import place
from .worlds import World, ask, node, on, policy

SLICE = "h100-mig-1g.10gb"
BOTH_RULES = pytest.mark.parametrize("rule", list(PlacementRule))


def mixed(name: str = "node1", gpus: int = 1, slices: int = 2) -> Node:
    """GPU 0 cut into slices, and whole GPUs."""
    small = [Device(f"{name}/{i}", SLICE, 10_000, 0, mig=True) for i in range(slices)]
    large = [Device(f"{name}/{slices + i}", "h100", 80_000, 1 + i) for i in range(gpus)]
    return node(name, devices=(*small, *large))


def world_of(*nodes: Node, rule: PlacementRule = PlacementRule.BEST_FIT) -> World:
    return World(policy=policy(placement=rule)).add(*nodes)


@BOTH_RULES
def test_a_gpu_or_a_part_of_one_is_no_slice(rule: PlacementRule) -> None:
    world = world_of(mixed(), rule=rule)
    assert place(world, ask(1)) == ["node1/2"]
    assert place(world, ask(0.1)) == ["node1/2"]
    world.runs("a", on("node1/2"))
    assert place(world, ask(1)) is None
    assert place(world, ask(0.1)) is None


@BOTH_RULES
def test_who_names_the_flavor_gets_a_slice_or_a_share_of_one(rule: PlacementRule) -> None:
    world = world_of(mixed(), rule=rule)
    assert place(world, ask(1, flavors=(SLICE,))) == ["node1/0"]
    assert place(world, ask(2, flavors=(SLICE,))) == ["node1/0", "node1/1"]
    assert place(world, ask(3, flavors=(SLICE, "h100"))) == ["node1/0", "node1/1", "node1/2"]
    world.runs("a", (Share("node1", "node1/1", 500, 5000),), request=ask(0.5))
    assert place(world, ask(0.5, flavors=(SLICE,))) == ["node1/1"]
    assert place(world, ask(0.6, flavors=(SLICE,))) == ["node1/0"]
    assert place(world, ask(2, flavors=(SLICE,))) is None


@BOTH_RULES
def test_gpu_memory_comes_from_either(rule: PlacementRule) -> None:
    world = world_of(mixed(), rule=rule)
    world.runs("a", on("node1/2"))
    assert place(world, Request(memory_mib=8000)) == ["node1/0"]
    assert place(world, Request(memory_mib=20_000)) is None
    assert place(world, Request(gpus=1, memory_mib=8000)) is None
    world.runs("b", (Share("node1", "node1/0", 300, 3000),), request=Request(memory_mib=3000))
    assert place(world, Request(memory_mib=7000)) == ["node1/0"]
    assert place(world, Request(memory_mib=7001)) == ["node1/1"]


def test_slices_are_lost_to_who_wants_gpus() -> None:
    world = world_of(mixed("node1", gpus=1, slices=3), node("node2", 2))
    world.policy = policy(placement=PlacementRule.FRAGMENTATION)
    for name in "abcd":
        world.waits(name, ask(1, flavors=("h100",)))
    assert place(world, ask(1, flavors=(SLICE, "h100"))) == ["node1/0"]


def test_why_counts_no_slice_as_a_gpu_that_is_free() -> None:
    world = world_of(mixed())
    world.runs("a", on("node1/2"))
    world.waits("x", ask(1))
    why = world.plan().why["x"]
    assert why.text == "needs 1 GPU; 0 of 1 GPU is free, held by a (1)"
    assert (why.code, why.waits_for) == (Blocked.CAPACITY, ("a",))


def test_gpus_and_slices_are_reserved_beside_each_other() -> None:
    world = world_of(mixed())
    world.runs("a", on("node1/2"))
    world.runs("b", on("node1/0", "node1/1"))
    world.waits("x", ask(1))
    world.waits("y", ask(2, flavors=(SLICE,)))
    assert sorted(id_ for id_, _ in world.plan().reserve) == ["x", "y"]


def test_a_slice_that_is_held_back_serves_nobody() -> None:
    world = world_of(mixed())
    world.quarantine((Share("node1", "node1/0", 1000, 10_000),))
    assert place(world, ask(1, flavors=(SLICE,))) == ["node1/1"]
    assert place(world, ask(2, flavors=(SLICE,))) is None


def test_where_there_are_slices_alone_their_flavors_are_told() -> None:
    world = world_of(mixed(gpus=0))
    batch = world.policy.classes["batch"]
    for request in (ask(1), ask(0.5)):
        with pytest.raises(Refusal) as refused:
            possible(request, world.nodes.values(), batch)
        assert refused.value.message == "there are MIG slices alone, no whole GPU"
        assert refused.value.remedy == f"ask for one of their flavors: {SLICE}"
    possible(Request(memory_mib=10_000), world.nodes.values(), batch)
    with pytest.raises(Refusal, match="no node has 2 GPUs"):
        possible(ask(2), world_of(mixed()).nodes.values(), batch)


def test_room_for_sessions_is_not_in_slices() -> None:
    world = replace(world_of(mixed(gpus=2)), reserve=(Request(gpus=1),))
    world.waits("x", ask(2))
    world.waits("y", ask(2, flavors=(SLICE,)))
    world.add(node("node2", 1))
    assert sorted(dict(world.plan().place)) == ["x", "y"]
    world.remove("x")
    world.runs("a", on("node2/0"))
    world.waits("x", ask(2))
    plan = world.plan()
    assert list(dict(plan.place)) == ["y"]
    assert plan.why["x"].code is Blocked.RESERVE
