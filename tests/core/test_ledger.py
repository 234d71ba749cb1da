# SPDX-License-Identifier: BSD-3-Clause
"""The working copy of one cycle: two columns, checked moves, trials."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpubroker.core.ledger import BOTH, NOW, SOON, Amount, Ledger, NodeRoom, View
from jupyter_gpubroker.core.model import Kind, State

from .worlds import World, ask, node, on


def free(ledger: Ledger, column: View) -> list[int]:
    """Free milli of each device, by node and index."""
    return [device.milli.free(column) for room in ledger.rooms for device in room.devices]


def columns(ledger: Ledger) -> list[list[int]]:
    return [free(ledger, column) for column in (NOW, SOON, BOTH)]


def test_a_lease_is_free_neither_now_nor_soon() -> None:
    world = World().add(node("node1", 2))
    world.runs("a", on("node1/0", milli=300))
    assert columns(Ledger(world.snapshot())) == [[700, 1000]] * 3


def test_what_leaves_is_free_soon_and_not_now() -> None:
    world = World().add(node("node1", 1))
    ledger = Ledger(world.snapshot())
    job = world.runs("a", on("node1/0"))
    ledger = Ledger(world.snapshot())
    ledger.leave(job)
    assert columns(ledger) == [[0], [1000], [0]]


def test_a_promise_takes_from_soon_and_a_start_from_both() -> None:
    ledger = Ledger(World().add(node("node1", 2)).snapshot())
    ledger.promise(on("node1/0", milli=400), ask(0.4))
    ledger.take(on("node1/1", milli=100), ask(0.1))
    assert columns(ledger) == [[1000, 900], [600, 900], [600, 900]]


def test_quarantined_shares_are_in_neither_column() -> None:
    world = World().add(node("node1", 2))
    world.quarantine(on("node1/0", milli=500))
    assert columns(Ledger(world.snapshot())) == [[500, 1000]] * 3


def test_unusable_devices_and_nodes_have_no_room_even_when_their_jobs_leave() -> None:
    world = World().add(node("node1", 1, usable=False), node("node2", 2))
    first = world.nodes["node2"].devices[0]
    world.add(node("node2", devices=(type(first)("node2/0", "h100", 1, 0, usable=False),)))
    lost = world.runs("a", on("node1/0"))
    dead = world.runs("b", on("node2/0"))
    ledger = Ledger(world.snapshot())
    ledger.leave(lost)
    ledger.leave(dead)
    assert columns(ledger) == [[]] * 3


def test_devices_come_by_index_and_nodes_by_name() -> None:
    world = World().add(node("node2", 1), node("node1", 3))
    backwards = world.nodes["node1"].devices[::-1]
    world.add(node("node1", devices=backwards))
    uuids = [d.device.uuid for room in Ledger(world.snapshot()).rooms for d in room.devices]
    assert uuids == ["node1/0", "node1/1", "node1/2", "node2/0"]


def test_cpu_and_memory_count_once_per_node_where_the_node_reports_them() -> None:
    world = World().add(node("node1", 2, cpu_milli=8000), node("node2", 2))
    request = ask(1, nodes=2, cpu_milli=6000, host_memory_mib=100)
    ledger = Ledger(world.snapshot())
    ledger.take(on("node1/0", "node2/0"), request)
    first, second = ledger.rooms
    assert first.cpu is not None
    assert first.cpu.now == 2000
    assert (first.memory, second.cpu) == (None, None)
    assert not first.hosts(request, BOTH)
    assert second.hosts(request, BOTH)


def test_a_node_that_reports_less_than_it_granted_is_full_until_that_has_left() -> None:
    world = World().add(node("node1", 2, cpu_milli=4000))
    job = world.runs("a", on("node1/0"), request=ask(1, cpu_milli=6000))
    ledger = Ledger(world.snapshot())
    cpu = ledger.rooms[0].cpu
    assert cpu is not None
    assert (cpu.now, cpu.soon) == (0, 0)
    ledger.leave(job)
    assert (cpu.now, cpu.soon) == (0, 6000)


def test_two_leases_of_the_same_device_are_a_bug_that_stops_the_cycle() -> None:
    world = World().add(node("node1", 1))
    world.runs("a", on("node1/0", milli=600))
    world.runs("b", on("node1/0", milli=600))
    with pytest.raises(AssertionError, match="node1/0 is leased twice"):
        Ledger(world.snapshot())


def test_no_move_takes_more_than_there_is_or_gives_back_more_than_was_taken() -> None:
    world = World().add(node("node1", 1))
    ledger = Ledger(world.snapshot())
    ledger.take(on("node1/0", milli=600), ask(0.6))
    with pytest.raises(AssertionError):
        ledger.take(on("node1/0", milli=500), ask(0.5))
    ledger = Ledger(world.snapshot())
    with pytest.raises(AssertionError):
        ledger.shift(on("node1/0", milli=1), ask(0.001), now=0, soon=1)
    ledger.promise(on("node1/0"), ask(1))
    with pytest.raises(AssertionError):
        ledger.take(on("node1/0"), ask(1))


def test_a_trial_is_undone_unless_it_is_committed() -> None:
    world = World().add(node("node1", 2))
    job = world.runs("a", on("node1/0"))
    ledger = Ledger(world.snapshot())
    before = columns(ledger)
    with ledger.trial():
        ledger.leave(job)
        with ledger.trial() as inner:
            ledger.take(on("node1/1"), ask(1))
            inner.commit()
        assert columns(ledger) == [[0, 0], [1000, 0], [0, 0]]
    assert columns(ledger) == before
    with ledger.trial() as trial:
        ledger.leave(job)
        trial.commit()
    assert free(ledger, SOON) == [1000, 1000]


def test_a_trial_is_undone_when_it_fails() -> None:
    world = World().add(node("node1", 1))
    ledger = Ledger(world.snapshot())

    def fail() -> None:
        with ledger.trial():
            ledger.promise(on("node1/0"), ask(1))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    assert free(ledger, SOON) == [1000]


def test_holds_says_whether_all_of_a_placement_is_free() -> None:
    world = World().add(node("node1", 2, host_memory_mib=1000))
    ledger = Ledger(world.snapshot())
    both = on("node1/0", "node1/1")
    assert ledger.holds(both, ask(2, host_memory_mib=1000), BOTH)
    assert not ledger.holds(both, ask(2, host_memory_mib=1001), BOTH)
    ledger.promise(on("node1/1", milli=1), ask(0.001))
    assert ledger.holds(both, ask(2), NOW)
    assert not ledger.holds(both, ask(2), SOON)


def test_every_state_that_has_a_lease_is_booked() -> None:
    world = World().add(node("node1", 4))
    world.runs("running", on("node1/0"), kind=Kind.BATCH)
    world.drains("draining", on("node1/1"), for_job=None)
    world.stops("stopping", on("node1/2"))
    assert {job.state for job in world.jobs.values()} > {State.DRAINING, State.STOPPING}
    assert free(Ledger(world.snapshot()), NOW) == [0, 0, 0, 1000]


moves = st.lists(
    st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(1, 1000)), min_size=1, max_size=30
)


@given(moves)
def test_a_table_says_what_the_rooms_would_say(steps: list[tuple[str, bool, int]]) -> None:
    world = World().add(*(node(name, 1) for name in "abc"))
    ledger = Ledger(world.snapshot())
    asked: list[str] = []

    def table() -> list[int]:
        def answer(room: NodeRoom) -> int:
            asked.append(room.node.name)
            return room.milli(SOON)

        return list(ledger.table("free soon", answer))

    def truth() -> list[int]:
        return [room.milli(SOON) for room in ledger.rooms]

    assert table() == truth()
    for name, undone, milli in steps:
        asked.clear()
        placement = on(f"{name}/0", milli=min(milli, ledger.room(name).milli(SOON)) or 1)
        with ledger.trial() as trial:
            if ledger.holds(placement, None, SOON):
                ledger.promise(placement, ask(1))
                assert table() == truth()
            if not undone:
                trial.commit()
        assert table() == truth()
        assert set(asked) <= {name}


def test_an_amount_shows_the_smaller_column_to_those_who_start() -> None:
    amount = Amount(10)
    amount.now, amount.soon = 3, 7
    assert [amount.free(column) for column in (NOW, SOON, BOTH)] == [3, 7, 3]
    amount.now, amount.soon = 7, 3
    assert amount.free(BOTH) == 3
