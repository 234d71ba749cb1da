# SPDX-License-Identifier: BSD-3-Clause
"""Which devices: packing, gangs, flavors, affinity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpubroker.core.ledger import BOTH, Ledger, View
from jupyter_gpubroker.core.model import Device, Job, PlacementRule, Request, Rung, Share
from jupyter_gpubroker.core.placement import Packing, fit

from .worlds import MEMORY, World, ask, kept, node, on, policy


def devices(world: World, job: Job, view: View = BOTH) -> list[str] | None:
    """Where the Job fits."""
    snapshot = world.snapshot()
    found = fit(Ledger(snapshot), job, view, Packing.of(snapshot, world.policy))
    return None if found is None else [share.device for share in found]


def place(world: World, request: Request) -> list[str] | None:
    return devices(world, world.waits("x", request))


@pytest.mark.parametrize("rule", list(PlacementRule))
def test_a_share_goes_to_the_fullest_device_that_takes_it(rule: PlacementRule) -> None:
    world = World(policy=policy(placement=rule)).add(node("node1"), node("node2"))
    world.runs("a", on("node1/1", milli=300))
    world.runs("b", on("node2/2", milli=500))
    world.runs("c", on("node2/3", milli=800))
    assert place(world, ask(0.5)) == ["node2/2"]
    assert place(world, ask(0.6)) == ["node1/1"]
    assert place(world, ask(0.2)) == ["node2/3"]


def test_a_share_opens_a_fresh_gpu_on_the_fullest_node() -> None:
    world = World().add(node("node1"), node("node2"))
    world.runs("a", on("node2/0", "node2/1"))
    assert place(world, ask(0.5)) == ["node2/2"]


def test_whole_gpus_go_to_the_node_with_the_fewest_free_ones_that_fit() -> None:
    world = World().add(node("node1"), node("node2"), node("node3"))
    world.runs("a", on("node2/0", "node2/1"))
    world.runs("b", on("node3/0", "node3/1", "node3/2"))
    assert place(world, ask(2)) == ["node2/2", "node2/3"]
    assert place(world, ask(1)) == ["node3/3"]
    assert place(world, ask(3)) == ["node1/0", "node1/1", "node1/2"]
    assert place(world, ask(5)) is None


def test_ties_go_to_the_first_node_and_the_first_device() -> None:
    world = World().add(node("node2"), node("node1"))
    assert place(world, ask(1)) == ["node1/0"]
    assert place(world, ask(0.5)) == ["node1/0"]


def test_whole_gpus_and_a_share_come_from_one_node_and_distinct_devices() -> None:
    world = World().add(node("node1", 2), node("node2", 3))
    world.runs("a", on("node1/0", milli=600))
    assert place(world, ask(1.5)) == ["node2/0", "node2/1"]
    world.runs("b", on("node2/2", milli=100))
    assert place(world, ask(2.5)) == ["node2/2", "node2/0", "node2/1"]


def test_a_gang_gets_whole_gpus_on_distinct_nodes_in_their_order_or_nothing() -> None:
    world = World().add(node("node1"), node("node2"), node("node3"))
    world.runs("a", on("node1/0"))
    world.runs("b", on("node2/0", "node2/1"))
    assert place(world, ask(2, nodes=2)) == ["node1/1", "node1/2", "node2/2", "node2/3"]
    six = [f"node1/{index}" for index in (1, 2, 3)] + [f"node3/{index}" for index in (0, 1, 2)]
    assert place(world, ask(3, nodes=2)) == six
    assert place(world, ask(4, nodes=2)) is None


def test_a_gang_stays_within_one_engine() -> None:
    world = World().add(node("a1", engine="slurm"), node("b1"), node("c1", engine="slurm"))
    assert place(world, ask(4, nodes=2)) == [f"{n}/{i}" for n in ("a1", "c1") for i in range(4)]
    assert place(world, ask(4, nodes=3)) is None


def test_a_share_by_memory_is_rounded_up_per_device() -> None:
    world = World().add(
        node("node1", 1, memory_mib=16 * 1024), node("node2", 1, memory_mib=24 * 1024)
    )
    snapshot = world.snapshot()
    job = world.waits("x", Request(memory_mib=10_001))
    found = fit(Ledger(snapshot), job, BOTH, Packing.of(snapshot, world.policy))
    assert found == (Share("node1", "node1/0", 611, 10_001),)
    assert place(world, Request(memory_mib=20 * 1024)) == ["node2/0"]
    assert place(world, Request(memory_mib=25 * 1024)) is None


def test_two_memory_shares_never_exceed_the_memory_of_a_device() -> None:
    world = World().add(node("node1", 1))
    world.runs("a", (Share("node1", "node1/0", 500, MEMORY // 2),), request=ask(0.5))
    assert place(world, Request(memory_mib=MEMORY // 2)) == ["node1/0"]
    assert place(world, Request(memory_mib=MEMORY // 2 + 1)) is None


def test_memory_that_is_booked_beyond_a_share_is_not_given_twice() -> None:
    world = World().add(node("node1", 1))
    world.runs("a", (Share("node1", "node1/0", 500, MEMORY - 1000),), request=ask(0.5))
    assert place(world, Request(memory_mib=1000)) == ["node1/0"]
    assert place(world, Request(memory_mib=1001)) is None
    assert place(world, ask(0.5)) is None


def test_a_share_carries_its_part_of_the_memory() -> None:
    world = World().add(node("node1", 2))
    snapshot = world.snapshot()
    job = world.waits("x", ask(1.25))
    found = fit(Ledger(snapshot), job, BOTH, Packing.of(snapshot, world.policy))
    assert found == (
        Share("node1", "node1/0", 250, MEMORY // 4),
        Share("node1", "node1/1", 1000, MEMORY),
    )


def test_only_devices_of_a_wanted_flavor_serve() -> None:
    world = World().add(node("node1", flavor="a100"), node("node2", flavor="h100"))
    assert place(world, ask(1, flavors=("h100",))) == ["node2/0"]
    assert place(world, ask(1, flavors=("l4", "a100"))) == ["node1/0"]
    assert place(world, ask(0.5, flavors=("l4",))) is None
    mixed = (Device("node3/0", "mig", 1, 0), Device("node3/1", "l4", 1, 1))
    world.add(node("node3", devices=mixed))
    assert place(world, ask(1, flavors=("l4",))) == ["node3/1"]


def test_a_node_without_the_cpus_or_the_memory_is_passed_over() -> None:
    world = World().add(
        node("node1", cpu_milli=4000, host_memory_mib=9000), node("node2", cpu_milli=9000)
    )
    assert place(world, ask(1, cpu_milli=4001)) == ["node2/0"]
    assert place(world, ask(1, host_memory_mib=9001)) == ["node2/0"]
    assert place(world, ask(1, cpu_milli=4000, host_memory_mib=9000)) == ["node1/0"]
    assert place(world, ask(1, cpu_milli=9001)) is None


def test_a_node_that_refused_a_start_is_avoided_until_its_time() -> None:
    world = World().add(node("node1"), node("node2"))
    job = world.waits("x", ask(1), avoid=(("node1", world.now + 1),))
    assert devices(world, job) == ["node2/0"]
    job = world.waits("x", ask(1), avoid=(("node1", world.now),))
    assert devices(world, job) == ["node1/0"]


def test_parked_gpu_memory_comes_back_to_its_own_devices_only() -> None:
    world = World().add(node("node1"), node("node2"))
    job = world.session("s", ask(2), kept=(kept("node2", "node2/3", "node2/1"),))
    assert devices(world, job) == ["node2/1", "node2/3"]
    world.runs("a", on("node2/1", milli=1))
    assert devices(world, job) is None


def test_parked_gpu_memory_of_a_share_waits_for_its_own_device() -> None:
    world = World().add(node("node1"), node("node2"))
    job = world.session("s", ask(0.5), kept=(kept("node2", "node2/1"),))
    assert devices(world, job) == ["node2/1"]
    world.runs("a", on("node2/1", milli=501))
    assert devices(world, job) is None


def test_devices_without_parked_memory_are_free_to_choose_on_that_node() -> None:
    world = World().add(node("node1"), node("node2"))
    job = world.session("s", ask(2), kept=(kept("node2", "node2/3"),))
    assert devices(world, job) == ["node2/3", "node2/0"]


def test_parked_gpu_memory_is_gone_after_a_reboot_and_variables_go_anywhere() -> None:
    world = World().add(node("node1"), node("node2", boot="boot-2"))
    job = world.session("s", ask(1), kept=(kept("node2", "node2/1"),))
    assert devices(world, job) is None
    saved = kept("node2", "node2/1", rung=Rung.VARIABLES)
    assert devices(world, replace(job, kept=(saved,))) == ["node1/0"]


def test_a_promised_place_is_kept_while_it_is_free() -> None:
    world = World().add(node("node1"), node("node2"), node("node3"))
    gang = on("node2/1", "node2/3", "node3/0", "node3/2")
    job = world.waits("x", ask(2, nodes=2))
    assert devices(world, job) == ["node1/0", "node1/1", "node2/0", "node2/1"]
    world.reserves("x", gang)
    job = world.jobs["x"]
    assert devices(world, job) == ["node2/1", "node2/3", "node3/0", "node3/2"]
    world.runs("a", on("node3/0", "node3/1", "node3/2"))
    assert devices(world, job) == ["node1/0", "node1/1", "node2/1", "node2/3"]


def test_a_promise_for_another_shape_decides_nothing() -> None:
    world = World().add(node("node1"), node("node2"))
    world.waits("x", ask(2, nodes=2))
    world.reserves("x", on("node2/3"))
    found = devices(world, world.jobs["x"])
    assert found == ["node1/0", "node1/1", "node2/3", "node2/0"]


def test_fragmentation_keeps_whole_nodes_for_gangs_that_wait() -> None:
    world = World(policy=policy(placement=PlacementRule.FRAGMENTATION))
    world.add(node("node1", 4), node("node2", 3))
    world.waits("gang", ask(3, nodes=2))
    assert place(world, ask(1)) == ["node1/0"]
    world.policy = policy(placement=PlacementRule.BEST_FIT)
    assert place(world, ask(1)) == ["node2/0"]


def test_fragmentation_gives_a_share_to_the_device_whose_rest_others_can_use() -> None:
    world = World(policy=policy(placement=PlacementRule.FRAGMENTATION))
    world.add(node("node1", 1), node("node2", 1))
    world.runs("a", on("node1/0", milli=300))  # 700 free: 0.3 would leave 400 that nobody wants
    world.runs("b", on("node2/0", milli=200))  # 800 free: 0.3 leaves 500
    for name in ("p", "q", "r"):
        world.waits(name, ask(0.5))
    assert place(world, ask(0.3)) == ["node2/0"]
    world.policy = policy(placement=PlacementRule.BEST_FIT)
    assert place(world, ask(0.3)) == ["node1/0"]


def test_the_order_of_the_input_changes_nothing() -> None:
    forwards = World().add(*(node(f"node{i}") for i in range(4)))
    backwards = World().add(*(node(f"node{i}") for i in reversed(range(4))))
    for request in (ask(0.5), ask(2), ask(3, nodes=3), ask(1.5)):
        assert place(forwards, request) == place(backwards, request)
