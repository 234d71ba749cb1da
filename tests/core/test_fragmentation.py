# SPDX-License-Identifier: BSD-3-Clause
"""What is lost when a part of a node is used: prices of shares, CPUs, flavors."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpubroker.core.feasible import possible
from jupyter_gpubroker.core.fragmentation import (
    STEPS,
    Market,
    Shape,
    market,
    mix,
    prices,
)
from jupyter_gpubroker.core.ledger import BOTH, Ledger
from jupyter_gpubroker.core.model import Brand, PlacementRule, Refusal, Request, Share
from jupyter_gpubroker.core.placement import Packing, fit

from .test_placement import place
from .worlds import MEMORY, World, ask, node, on, policy

H100, A100 = Brand("h100", MEMORY), Brand("a100", MEMORY)
FRAGMENTATION = policy(placement=PlacementRule.FRAGMENTATION)


def shape(milli: int, cpus: float = 0, *flavors: str) -> Shape:
    return Shape(milli // 1000, milli % 1000, 0, round(1000 * cpus), flavors)


# --- prices -------------------------------------------------------------------------------


def test_shares_are_priced_by_the_gpus_that_they_need() -> None:
    worth = prices({50: 10})
    assert worth[50] == worth[99] == pytest.approx(0.5)
    assert worth[49] == 0


def test_a_share_that_fits_beside_a_large_one_is_worth_nothing_while_there_are_few() -> None:
    few, many = prices({70: 10, 30: 5}), prices({70: 5, 30: 100})
    assert few[30] == pytest.approx(0)
    assert many[30] == pytest.approx(1 / 3)
    assert many[70] == pytest.approx(2 / 3)


def test_without_shares_all_rests_are_worth_the_same() -> None:
    assert set(prices({})) == {0.0}


demands = st.dictionaries(st.integers(1, STEPS), st.integers(1, 500), max_size=10)


def first_fit(demand: dict[int, int]) -> int:
    """GPUs that surely suffice."""
    rests: list[int] = []
    for size in sorted(demand, reverse=True):
        for _ in range(demand[size]):
            index = next((i for i, rest in enumerate(rests) if rest >= size), len(rests))
            rests[index:] = [(rests[index:] or [STEPS])[0] - size, *rests[index + 1 :]]
    return len(rests)


@given(st.dictionaries(st.integers(1, STEPS), st.integers(1, 12), min_size=1, max_size=6))
def test_prices_lie_between_what_is_asked_for_and_what_would_do(demand: dict[int, int]) -> None:
    worth = prices(demand)
    priced = sum(count * worth[size] for size, count in demand.items())
    volume = sum(count * size for size, count in demand.items()) / STEPS
    assert volume - 1e-6 <= priced <= first_fit(demand) + 1e-6


@given(demands)
def test_no_way_to_cut_a_gpu_is_worth_more_than_a_gpu(demand: dict[int, int]) -> None:
    worth = prices(demand)
    assert worth[STEPS] <= 1 + 1e-6
    assert all(less <= more for less, more in pairwise(worth))
    for first in range(0, STEPS + 1, 7):
        for second in range(0, STEPS + 1 - first, 5):
            assert worth[first] + worth[second] <= worth[first + second] + 1e-9


# --- the mix ------------------------------------------------------------------------------


def test_the_mix_is_what_most_jobs_want_in_round_numbers() -> None:
    counts = {shape(500): 70, shape(1000): 26, shape(2000): 4}
    assert mix(counts) == ((shape(500), 64), (shape(1000), 24))
    assert mix({**counts, shape(500): 79}) == mix(counts)
    assert mix({shape(500): 7, shape(1000): 6}) == ((shape(500), 7), (shape(1000), 6))


def test_jobs_without_gpus_lose_none() -> None:
    assert mix({Shape(0, 0, 0, 4000, ()): 50, shape(1000): 50}) == ((shape(1000), 48),)


def test_a_gang_counts_for_each_of_its_nodes() -> None:
    world = World(policy=FRAGMENTATION).add(node("node1"))
    world.waits("a", ask(4, nodes=8))
    world.runs("b", on("node1/0"))
    known = Packing.of(world.snapshot(), world.policy).mix
    assert known == ((shape(4000), 8), (shape(1000), 1))


def test_a_mix_makes_one_market() -> None:
    assert market(((shape(500), 1),)) is market(((shape(500), 1),))


# --- what is lost -------------------------------------------------------------------------


def lost(known: Market, cpus: float | None, *millis: int, brand: Brand = H100) -> int:
    cpu = None if cpus is None else round(1000 * cpus)
    return known.lost(cpu, (((brand, tuple(sorted(millis))),),))


def test_lost_is_what_a_node_full_of_one_shape_leaves() -> None:
    known = Market(((shape(300), 1),))
    assert lost(known, None, 1000, 500, 200) == 100 + 200 + 200
    pairs = Market(((shape(2000), 1),))
    assert lost(pairs, None, 1000, 1000, 1000, 500) == 1500
    assert lost(Market(((shape(1500), 1),)), None, 1000, 1000, 1000, 500) == 1500


def test_gpus_without_the_cpus_beside_them_are_lost() -> None:
    known = Market(((shape(1000, cpus=4), 1),))
    assert lost(known, 16, *[1000] * 4) == 0
    assert lost(known, 14, *[1000] * 4) == 500
    assert lost(known, 3.9, *[1000] * 4) == 4000
    assert lost(known, None, *[1000] * 4) == 0


def test_gpus_of_a_flavor_that_is_not_wanted_are_lost_to_that_shape() -> None:
    known = Market(((shape(1000, 0, "h100"), 2), (shape(500), 1)))
    assert lost(known, None, 1000, 600) == 2 * 600 + 100
    assert lost(known, None, 1000, 600, brand=A100) == 2 * 1600 + 100


def test_a_share_by_memory_is_judged_on_each_kind_of_device() -> None:
    known = Market(((Shape(0, 0, MEMORY // 2, 0, ()), 1),))
    assert lost(known, None, 999) == 499
    assert lost(known, None, 999, brand=Brand("h100", MEMORY // 2)) == 999
    assert known.worthless(H100, 1000, 100) == 51
    assert known.worthless(H100, 600, 100) == 0
    assert known.worthless(H100, 599, 100) == 50


# --- where Jobs go ------------------------------------------------------------------------


def test_a_job_that_needs_many_cpus_leaves_those_beside_the_last_gpus_alone() -> None:
    world = World(policy=FRAGMENTATION)
    world.add(node("node1", 2, cpu_milli=16_000), node("node2", 4, cpu_milli=64_000))
    for name in "abcdefgh":
        world.waits(name, ask(1, cpu_milli=6000))
    assert place(world, ask(1, cpu_milli=14_000)) == ["node2/0"]
    world.policy = policy(placement=PlacementRule.BEST_FIT)
    assert place(world, ask(1, cpu_milli=14_000)) == ["node1/0"]


def test_a_job_without_a_wish_leaves_alone_what_others_wish_for() -> None:
    world = World(policy=FRAGMENTATION)
    world.add(node("node1", 2, flavor="h100"), node("node2", 4, flavor="a100"))
    for name in "abcdefgh":
        world.waits(name, ask(1, flavors=("h100",)))
    assert place(world, ask(1)) == ["node2/0"]
    world.policy = policy(placement=PlacementRule.BEST_FIT)
    assert place(world, ask(1)) == ["node1/0"]


def test_a_share_that_costs_nothing_beside_others_opens_no_gpu() -> None:
    world = World(policy=FRAGMENTATION).add(node("node1", 2), node("node2", 2))
    world.runs("a", on("node2/0", milli=700))
    for name in "bcdefgh":
        world.waits(name, ask(0.7))
    assert place(world, ask(0.3)) == ["node2/0"]


def test_of_nodes_that_lose_the_same_the_fullest_is_used() -> None:
    world = World(policy=FRAGMENTATION).add(node("node1"), node("node2"))
    world.runs("a", on("node2/0"))
    world.waits("b", ask(1))
    assert place(world, ask(1)) == ["node2/1"]


def test_a_request_for_cpus_alone_is_placed_but_not_accepted_from_people() -> None:
    world = World(policy=FRAGMENTATION)
    world.add(node("node1", 1, cpu_milli=4000), node("node2", 1, cpu_milli=9000))
    job = world.waits("x", Request(cpu_milli=5000))
    snapshot = world.snapshot()
    ledger = Ledger(snapshot)
    found = fit(ledger, job, BOTH, Packing.of(snapshot, world.policy))
    assert found == (Share("node2", "", 0),)
    ledger.take(found, job.request)
    assert fit(ledger, job, BOTH, Packing.of(snapshot, world.policy)) is None
    with pytest.raises(Refusal, match="at least 1"):
        possible(job.request, world.nodes.values(), world.policy.classes["batch"])
