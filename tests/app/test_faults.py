# SPDX-License-Identifier: BSD-3-Clause
"""A device that breaks: seen at once, granted to nobody, until it is mended."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from jupyter_gpubroker.app.hands import Hands
from jupyter_gpubroker.broker import inputs as i
from jupyter_gpubroker.client import Client
from jupyter_gpubroker.core.model import Seconds
from jupyter_gpubroker.devices import DeviceError, DeviceEvent, Devices
from jupyter_gpubroker.devices.simulated import SimulatedDevices
from jupyter_gpubroker.store import LaunchRow
from jupyter_gpubroker.wire import DeviceOut
from tests.until import until, until_async

from .brokers import SoloBroker, ended, reached
from .setups import setup_in

WAITING = """
import pathlib, threading
while not pathlib.Path("go").exists():
    threading.Event().wait(0.05)
"""


def devices(client: Client) -> list[DeviceOut]:
    """All of them."""
    return [device for node in client.nodes() for device in node.devices]


def test_a_broken_device_is_granted_to_nobody_until_it_is_mended(broker: SoloBroker) -> None:
    broker.devices = "simulated:1x2"
    client = broker.start().client()
    world = SimulatedDevices(broker.folder / "state" / "simulated")
    running = reached(client, broker.submit(client, WAITING, gpus=1).id, "running")
    assert running.lease is not None
    (broken,) = (share.device for share in running.lease.shares)
    world.break_device(broken, "Xid 79")
    until(lambda: not all(device.usable for device in devices(client)), what="the fault to be seen")
    assert {device.uuid: device.note for device in devices(client) if not device.usable} == {
        broken: "Xid 79"
    }

    other = broker.submit(client, "pass", gpus=1)
    assert ended(client, other.id).state == "completed"
    wide = broker.submit(client, "pass", gpus=2)
    (broker.folder / "go").touch()
    assert ended(client, running.id).state == "completed", "what ran there goes on"
    left = client.show(wide.id)
    assert left.state == "queued"
    assert left.why is not None
    assert "not usable now" in left.why.text

    world.mend_device(broken)
    assert ended(client, wide.id).state == "completed"


async def no_row(_job: str) -> LaunchRow | None:
    """Nothing is to be launched."""
    return None


@pytest.mark.asyncio
async def test_whatever_a_device_tells_is_looked_at(tmp_path: Path) -> None:
    """Nobody looks here for any other reason."""
    setup = setup_in(tmp_path)
    facts: list[i.Fact] = []
    listening = asyncio.create_task(Hands(setup, facts.append, no_row).listen())
    world = SimulatedDevices(tmp_path / "world")
    (gpu,) = world.inventory()[0].devices

    async def seen(*, usable: bool) -> None:
        def told() -> bool:
            # Again and again: what happens before it listens is not told.
            (world.mend_device(gpu.uuid) if usable else world.break_device(gpu.uuid, "Xid 79"))
            newest = facts[-1] if facts else None
            return isinstance(newest, i.NodesSeen) and newest.nodes[0].devices[0].usable is usable

        await until_async(told, what=f"usable: {usable}")

    await seen(usable=False)
    world.mend_device(gpu.uuid)
    await seen(usable=True)
    listening.cancel()
    await asyncio.wait([listening])


class Mute:
    """Devices that cannot be watched."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def events(self, timeout: Seconds) -> Sequence[DeviceEvent]:
        """Never any."""
        raise self.error


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [DeviceError("no inotify"), ValueError("a bug")])
async def test_devices_that_tell_nothing_are_looked_at_all_the_same(
    tmp_path: Path, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    mute: Devices = Mute(error)  # type: ignore[assignment]  # nothing else is asked of it
    hands = Hands(replace(setup_in(tmp_path), devices=mute), lambda _fact: None, no_row)
    await asyncio.wait_for(hands.listen(), 60)
    assert str(error) in caplog.text
