# SPDX-License-Identifier: BSD-3-Clause
"""What a simulated world tells by itself: faults, and memory that comes and goes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from jupyter_gpubroker.devices import DeviceError, DeviceEvent, EventKind
from jupyter_gpubroker.devices.simulated import SimulatedDevices

from ..until import until
from .conftest import GIB, Lab


@pytest.fixture
def listening(lab: Lab) -> Iterator[Lab]:
    """A world that has begun to tell."""
    assert not lab.devices.events(0.0)
    return lab


def told(lab: Lab) -> set[DeviceEvent]:
    """The next events."""
    return set(until(lambda: lab.devices.events(1.0), what="an event"))


def test_a_device_that_breaks_is_told_and_unusable_until_it_is_mended(listening: Lab) -> None:
    lab, gpu = listening, listening.share(1).device
    outside = SimulatedDevices(lab.root)
    outside.break_device(gpu, "Xid 79: it has fallen off the bus\n")
    text = "Xid 79: it has fallen off the bus"
    assert told(lab) == {DeviceEvent(gpu, EventKind.FAULT, text)}
    devices = {device.uuid: device for node in lab.devices.inventory() for device in node.devices}
    assert (devices[gpu].usable, devices[gpu].note) == (False, text)
    assert [device.usable for device in devices.values()].count(False) == 1

    outside.mend_device(gpu)
    assert told(lab) == {DeviceEvent(gpu, EventKind.CHANGED)}
    assert all(device.usable for node in lab.devices.inventory() for device in node.devices)
    outside.mend_device(gpu)
    assert not lab.devices.events(0.1)


def test_what_holds_memory_on_a_broken_device_goes_on(listening: Lab) -> None:
    share = listening.share()
    holder = listening.holder("nb1/", share)
    holder.ask("hold", GIB)
    listening.devices.break_device(share.device, "")
    assert listening.used() == [(share.device, GIB, False)]
    assert listening.devices.inventory()[0].devices[0].note == "it is broken"
    assert holder.ask("touch", 0)[0] == "ok"


def test_a_device_that_is_not_there_cannot_break(lab: Lab) -> None:
    with pytest.raises(DeviceError, match="there is no device GPU-x"):
        lab.devices.break_device("GPU-x", "a fault")
    with pytest.raises(DeviceError, match="there is no device GPU-x"):
        lab.devices.mend_device("GPU-x")


def test_memory_that_is_taken_and_left_is_told(listening: Lab) -> None:
    share = listening.share(2)
    holder = listening.holder("nb1/", share)
    holder.ask("hold", GIB)
    assert told(listening) == {DeviceEvent(share.device, EventKind.CHANGED)}
    holder.ask("release", 0)
    assert told(listening) == {DeviceEvent(share.device, EventKind.CHANGED)}
    assert not listening.used()


def test_a_process_that_is_killed_is_told(listening: Lab) -> None:
    share = listening.share(3)
    holder = listening.holder("nb1/", share)
    holder.ask("hold", GIB)
    told(listening)
    holder.kill()
    assert told(listening) == {DeviceEvent(share.device, EventKind.CHANGED)}
    until(lambda: not listening.used(), what="its memory to be free")


def test_memory_that_is_parked_is_told(listening: Lab) -> None:
    share = listening.share()
    listening.holder("nb1/", share).ask("hold", GIB)
    told(listening)
    SimulatedDevices(listening.root).park("nb1/")
    assert told(listening) == {DeviceEvent(share.device, EventKind.CHANGED)}


def test_a_world_that_cannot_be_watched_says_so(lab: Lab) -> None:
    shutil.rmtree(lab.root / "parked")
    with pytest.raises(DeviceError, match="cannot be watched: No such file"):
        lab.devices.events(0.0)
    assert len(lab.devices.inventory()) == 2
