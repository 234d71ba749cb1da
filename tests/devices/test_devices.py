# SPDX-License-Identifier: BSD-3-Clause
"""What holds for all devices, and how they are chosen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_gpubroker.core.model import Kept, Rung, Share
from jupyter_gpubroker.devices import DeviceError, Devices
from jupyter_gpubroker.devices.choose import open_devices
from jupyter_gpubroker.devices.nvml import NvmlDevices
from jupyter_gpubroker.devices.simulated import SimulatedDevices, Spec

KINDS: dict[str, Callable[[Path], Devices]] = {
    "nvml": lambda root: NvmlDevices(),
    "simulated": lambda root: SimulatedDevices.create(root, "2x4"),
}


@pytest.fixture(params=KINDS)
def devices(request: pytest.FixtureRequest, tmp_path: Path) -> Devices:
    """Each kind in turn."""
    return KINDS[request.param](tmp_path / "world")


def test_the_inventory_has_a_stable_order(devices: Devices) -> None:
    nodes = devices.inventory()
    assert nodes == devices.inventory()
    assert all(node.boot for node in nodes)
    uuids = [device.uuid for node in nodes for device in node.devices]
    assert len(uuids) == len(set(uuids))


def test_no_shares_are_an_explicit_empty_set(devices: Devices) -> None:
    assert devices.environment(())["CUDA_VISIBLE_DEVICES"] == ""


def test_a_process_cannot_use_devices_of_two_nodes(devices: Devices) -> None:
    shares = (Share("node1", "GPU-a", 1000), Share("node2", "GPU-b", 1000))
    with pytest.raises(DeviceError, match="node1, node2"):
        devices.environment(shares)


def test_nothing_is_parked_at_first(devices: Devices) -> None:
    assert not devices.parked()
    assert not devices.usage()
    devices.restore((), ())


def test_nothing_happens_while_nothing_is_done(devices: Devices) -> None:
    assert not devices.events(0.0)
    devices.inventory()
    devices.usage()
    devices.revoke("nobody/")
    assert not devices.events(0.1)


def test_revoking_and_dropping_what_is_not_there_does_nothing(devices: Devices) -> None:
    devices.revoke("nobody/")
    devices.drop(Kept(kernel="k-1", attempt=1, rung=Rung.GPU_STATE))
    assert not devices.parked()


def test_devices_say_what_they_guarantee(devices: Devices) -> None:
    assert devices.caps.memory in {"hardware", "driver", "cooperative", "none"}
    assert devices.caps.sentence.endswith(".")


def test_uuids_are_the_same_when_a_world_is_opened_again(tmp_path: Path) -> None:
    first = SimulatedDevices.create(tmp_path / "a", "2x4:24GiB:sim-a100").inventory()
    assert SimulatedDevices.create(tmp_path / "a", "2x4:24GiB:sim-a100").inventory() == first
    assert SimulatedDevices(tmp_path / "a").inventory() == first
    (tmp_path / "a").rename(tmp_path / "b")
    assert SimulatedDevices(tmp_path / "b").inventory() == first


def test_two_worlds_have_different_uuids(tmp_path: Path) -> None:
    worlds = [SimulatedDevices.create(tmp_path / name, "1x2").inventory() for name in "ab"]
    uuids = {device.uuid for (node,) in worlds for device in node.devices}
    assert len(uuids) == 4


def test_a_world_has_the_shape_that_was_asked_for(tmp_path: Path) -> None:
    nodes = SimulatedDevices.create(tmp_path, "2x4:24GiB:sim-a100").inventory()
    assert [node.name for node in nodes] == ["node1", "node2"]
    for node in nodes:
        assert [device.index for device in node.devices] == [0, 1, 2, 3]
        assert {(d.flavor, d.memory_mib, d.usable) for d in node.devices} == {
            ("sim-a100", 24 * 1024, True)
        }


def test_a_world_of_another_shape_is_not_opened(tmp_path: Path) -> None:
    SimulatedDevices.create(tmp_path, "2x4")
    with pytest.raises(DeviceError, match="asked for 1x4"):
        SimulatedDevices.create(tmp_path, "1x4")
    assert len(SimulatedDevices(tmp_path).inventory()) == 2


def test_a_folder_without_a_world_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="no simulated world"):
        SimulatedDevices(tmp_path)


def test_a_device_of_another_world_cannot_be_granted(tmp_path: Path) -> None:
    devices = SimulatedDevices.create(tmp_path, "1x1")
    with pytest.raises(DeviceError, match="no device GPU-x"):
        devices.grant("nb1/", [Share("node1", "GPU-x", 1000)])


@pytest.mark.parametrize(
    "text",
    ["", "4", "2x", "x4", "0x4", "2x0", "65x1", "1x17", "-1x2", "2x4:0GiB", "2x4:24", "2x4:24GB",
     "2x4:24GiB:", "2x4:24GiB:a/b", " 2x4", "2x4\n", "two x four", "٢x٤"],
)  # fmt: skip
def test_a_wrong_shape_is_refused(text: str) -> None:
    with pytest.raises(DeviceError, match="simulated devices"):
        Spec.parse(text)


def test_a_shape_says_itself() -> None:
    spec = Spec.parse("3x2:512MiB:tiny")
    assert spec == Spec(3, 2, 512, "tiny")
    assert Spec.parse(str(spec)) == spec


def test_auto_is_what_the_environment_simulates_else_the_real_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(open_devices("auto", tmp_path), NvmlDevices)
    assert isinstance(open_devices("nvml", tmp_path), NvmlDevices)
    monkeypatch.setenv("GPUBROKER_SIMULATE", "1x2")
    assert len(open_devices("auto", tmp_path).inventory()[0].devices) == 2
    assert len(open_devices("simulated:1x2", tmp_path).inventory()) == 1


@pytest.mark.parametrize("kind", ["", "cuda", "simulated", "simulated:"])
def test_an_unknown_kind_is_refused(kind: str, tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match="devices"):
        open_devices(kind, tmp_path)
