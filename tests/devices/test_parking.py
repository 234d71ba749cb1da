# SPDX-License-Identifier: BSD-3-Clause
"""Parking from outside while the holder lives, and all the ways back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpubroker.core.model import Rung
from jupyter_gpubroker.devices import DeviceError, processes
from jupyter_gpubroker.devices.simulated import SimulatedDevices

from .. import needs
from ..until import until
from .conftest import GIB, MEMORY, Lab


def test_parking_frees_the_devices_of_all_processes_of_the_owner(lab: Lab) -> None:
    one, two = lab.share(0), lab.share(1)
    first = lab.holder("nb1/", one, two, kernel="k-1")
    second = lab.holder("nb1/", one, two, kernel="k-2")
    other = lab.holder("nb2/", two)
    first.ask("hold", GIB)
    first.ask("hold", GIB)
    second.ask("hold", 100, two.device)
    other.ask("hold", 10)
    kept = lab.devices.park("nb1/")
    by_kernel = {item.kernel: item for item in kept}
    node = lab.devices.inventory()[0]
    assert by_kernel.keys() == {"k-1", "k-2"}
    assert by_kernel["k-1"].devices == (one.device, two.device)
    assert by_kernel["k-1"].memory_mib == 4 * GIB
    assert by_kernel["k-2"].devices == (two.device,)
    assert by_kernel["k-2"].processes == (processes.process_of(second.pid),)
    assert {(item.rung, item.node, item.boot) for item in kept} == {
        (Rung.GPU_STATE, node.name, node.boot)
    }
    assert [use for use in lab.used() if not use[2]] == [(two.device, 10, False)]
    assert first.ask("parked", 0) == ["ok", True]


def test_parking_twice_gives_the_same(lab: Lab) -> None:
    lab.holder("nb1/", lab.share()).ask("hold", GIB)
    kept = lab.devices.park("nb1/")
    assert kept
    assert lab.devices.park("nb1/") == kept
    assert tuple(lab.devices.parked()) == kept


def test_an_owner_that_holds_nothing_keeps_nothing(lab: Lab) -> None:
    lab.holder("nb1/", lab.share()).ask("hold", GIB)
    assert lab.devices.park("nb2/") == ()
    assert len(lab.used()) == 1


def test_what_parks_frees_memory_for_others_and_comes_back_when_there_is_room(lab: Lab) -> None:
    share = lab.share()
    holder, other = lab.holder("nb1/", share), lab.holder("nb2/", share)
    holder.ask("hold", MEMORY)
    kept = lab.devices.park("nb1/")
    assert other.ask("hold", 1)[0] == "ok"
    with pytest.raises(DeviceError, match="do not fit"):
        lab.devices.restore(kept, [share])
    assert tuple(lab.devices.parked()) == kept
    other.ask("release", 0)
    lab.devices.restore(kept, [share])
    assert not lab.devices.parked()
    assert lab.used() == [(share.device, MEMORY, False)]
    lab.devices.restore(kept, [share])
    assert lab.used() == [(share.device, MEMORY, False)]


@pytest.mark.parametrize("words", [("touch", 0), ("release", 0), ("hold", 1)], ids=lambda w: w[0])
def test_using_parked_memory_waits_until_it_is_back(lab: Lab, words: tuple[object, ...]) -> None:
    share = lab.share()
    holder = lab.holder("nb1/", share)
    holder.ask("hold", GIB)
    kept = lab.devices.park("nb1/")
    holder.tell(*words)
    assert holder.waits()
    assert holder.interrupt()[0] == "KeyboardInterrupt"
    assert tuple(lab.devices.parked()) == kept, "an interrupt leaves it parked"
    holder.tell(*words)
    assert holder.waits()
    lab.devices.restore(kept, [share])
    assert holder.answer()[0] == "ok"


def test_memory_can_come_back_on_other_devices_in_order(lab: Lab) -> None:
    old = [lab.share(0), lab.share(1)]
    new = [lab.share(3), lab.share(2)]
    holder = lab.holder("nb1/", *old)
    holder.ask("hold", 100, old[0].device)
    holder.ask("hold", 20, old[1].device)
    kept = lab.devices.park("nb1/")
    lab.devices.restore(kept, new)
    assert holder.ask("touch", 0) == ["ok", [new[0].device]]
    assert holder.ask("touch", 1) == ["ok", [new[1].device]]


def test_memory_stays_on_its_device_where_the_new_lease_has_it(lab: Lab) -> None:
    one, two = lab.share(0), lab.share(1)
    holder = lab.holder("nb1/", one, two)
    holder.ask("hold", GIB, two.device)
    lab.devices.restore(lab.devices.park("nb1/"), [one, two])
    assert holder.ask("touch", 0) == ["ok", [two.device]]


def test_memory_comes_back_neither_on_another_node_nor_on_too_few_devices(lab: Lab) -> None:
    shares = [lab.share(0), lab.share(1)]
    lab.holder("nb1/", *shares).ask("hold", GIB)
    kept = lab.devices.park("nb1/")
    with pytest.raises(DeviceError, match="needs 2 devices, got 1"):
        lab.devices.restore(kept, shares[:1])
    with pytest.raises(DeviceError, match="cannot come back"):
        lab.devices.restore(kept, [lab.share(0, node=1), lab.share(1, node=1)])
    assert tuple(lab.devices.parked()) == kept


def test_memory_does_not_come_back_onto_a_smaller_share(lab: Lab) -> None:
    lab.holder("nb1/", lab.share()).ask("hold", 13 * GIB)
    kept = lab.devices.park("nb1/")
    with pytest.raises(DeviceError, match="the share gives 12288 MiB"):
        lab.devices.restore(kept, [lab.share(milli=500)])
    assert tuple(lab.devices.parked()) == kept


def test_what_was_parked_goes_with_its_process(lab: Lab) -> None:
    share = lab.share()
    holder = lab.holder("nb1/", share)
    holder.ask("hold", GIB)
    kept = lab.devices.park("nb1/")
    holder.kill()
    until(lambda: processes.process_of(holder.pid) is None, what="the end of the process")
    with pytest.raises(DeviceError, match=f"process {holder.pid} is gone"):
        lab.devices.restore(kept, [share])


def test_one_process_that_is_gone_leaves_the_others_parked(lab: Lab) -> None:
    share = lab.share()
    lives, dies = lab.holder("nb1/", share), lab.holder("nb1/", share)
    lives.ask("hold", GIB)
    dies.ask("hold", GIB)
    kept = lab.devices.park("nb1/")
    dies.kill()
    until(lambda: processes.process_of(dies.pid) is None, what="the end of the process")
    with pytest.raises(DeviceError, match="is gone"):
        lab.devices.restore(kept, [share])
    assert lives.ask("parked", 0) == ["ok", True]
    lab.devices.restore(lab.devices.parked(), [share])
    assert lives.ask("parked", 0) == ["ok", False]


def test_a_dropped_image_is_lost_to_its_process_and_cannot_come_back(lab: Lab) -> None:
    share = lab.share()
    holder = lab.holder("nb1/", share)
    holder.ask("hold", GIB)
    kept = lab.devices.park("nb1/")
    holder.tell("touch", 0)
    for item in kept:
        lab.devices.drop(item)
        lab.devices.drop(item)
    word, text = holder.answer()
    assert word == "HoldLost"
    assert "dropped" in text
    assert holder.ask("release", 0) == ["ok", None]
    with pytest.raises(DeviceError, match="is parked any more"):
        lab.devices.restore(kept, [share])
    assert holder.ask("hold", 1)[0] == "ok", "the process itself goes on"


def test_dropping_does_not_touch_what_is_on_a_device(lab: Lab) -> None:
    share = lab.share()
    lab.holder("nb1/", share).ask("hold", GIB)
    kept = lab.devices.park("nb1/")
    lab.devices.restore(kept, [share])
    lab.devices.drop(kept[0])
    assert lab.used() == [(share.device, GIB, False)]


def test_a_holder_of_another_account_is_parked_and_restored_by_root(lab: Lab) -> None:
    needs.root()
    share = lab.share()
    holder, other = lab.holder("nb1/", share), lab.holder("nb2/", share)
    holder.ask("become", 65533)
    other.ask("become", 65534)
    assert holder.ask("hold", GIB) == ["ok", [share.device]]
    assert other.ask("hold", MEMORY)[0] == "HoldRefused"
    lab.devices.restore(lab.devices.park("nb1/"), [share])
    assert holder.ask("touch", 0) == ["ok", [share.device]]
    assert holder.ask("release", 0) == ["ok", None]
    assert not lab.used()


def test_a_second_world_view_sees_what_the_first_parked(lab: Lab) -> None:
    share = lab.share()
    holder = lab.holder("nb1/", share)
    holder.ask("hold", GIB)
    kept = lab.devices.park("nb1/")
    restarted = SimulatedDevices(lab.root)
    assert tuple(restarted.parked()) == kept
    restarted.restore(restarted.parked(), [share])
    assert holder.ask("touch", 0)[0] == "ok"


def test_a_park_that_fails_half_way_is_rolled_back(lab: Lab) -> None:
    one, two = lab.share(0), lab.share(1)
    holder = lab.holder("nb1/", one, two)
    holder.ask("hold", GIB)
    (entry,) = (lab.root / "devices" / two.device).iterdir()
    in_the_way = lab.root / "parked" / two.device / entry.name
    in_the_way.mkdir()
    with pytest.raises(DeviceError, match="cannot be moved"):
        lab.devices.park("nb1/")
    in_the_way.rmdir()
    assert sorted(lab.used()) == sorted((s.device, GIB, False) for s in (one, two))
    assert holder.ask("touch", 0)[0] == "ok"


def test_host_memory_bounds_what_is_parked_on_each_node(lab: Lab) -> None:
    devices = SimulatedDevices(lab.root, park_limit_mib=3 * GIB)
    here, there = lab.share(0), lab.share(0, node=1)
    for owner, share in (("nb1/", here), ("nb2/", here), ("nb3/", there)):
        lab.holder(owner, share).ask("hold", 2 * GIB)
    (kept,) = devices.park("nb1/")
    with pytest.raises(DeviceError, match="node1 has no host memory to park 2048 MiB"):
        devices.park("nb2/")
    assert devices.park("nb1/") == (kept,)
    assert len(devices.park("nb3/")) == 1
    devices.restore([kept], [here])
    assert len(devices.park("nb2/")) == 1


def test_every_gpu_of_a_node_can_be_parked_by_default(lab: Lab) -> None:
    shares = [lab.share(index) for index in range(4)]
    lab.holder("nb1/", *shares).ask("hold", MEMORY)
    (kept,) = lab.devices.park("nb1/")
    assert kept.memory_mib == 4 * MEMORY


def test_an_item_without_processes_restores_nothing(lab: Lab) -> None:
    share = lab.share()
    lab.holder("nb1/", share).ask("hold", GIB)
    kept = lab.devices.park("nb1/")
    lab.devices.restore([replace(item, processes=()) for item in kept], [share])
    assert tuple(lab.devices.parked()) == kept
