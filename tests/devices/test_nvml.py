# SPDX-License-Identifier: BSD-3-Clause
"""The real pynvml path on a stub of the driver's library."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpubroker.core.model import Share
from jupyter_gpubroker.devices import DeviceError, processes
from jupyter_gpubroker.devices.nvml import NvmlDevices, flavor_of

from ..until import until
from .machine import Machine
from .talk import Talk

H200 = "gpu 0 GPU-a NVIDIA_H200 144000 400"
GPU_IS_LOST, MISMATCH, UNKNOWN = 15, 18, 999
DOUBLE_BIT_ECC, XID, MIG_CONFIG = 2, 8, 256
FELL_OFF, OF_A_PROGRAM = 79, 13


def _only_node(seer: Talk) -> Any:
    (node,) = seer.ask("nodes")
    return node


def _devices(seer: Talk) -> dict[str, Any]:
    return {device["uuid"]: device for device in _only_node(seer)["devices"]}


def test_a_machine_without_the_library_has_no_gpu_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library")
    with Talk("seer.py", {"LD_LIBRARY_PATH": str(tmp_path)}) as seer:
        assert "no NVIDIA driver" in seer.ask("reason")
        assert _only_node(seer)["devices"] == []
        assert seer.ask("usage") == []


def test_a_driver_that_is_loaded_later_is_seen(machine: Machine) -> None:
    seer = machine.seer()
    assert seer.ask("reason") == "the NVIDIA driver is not loaded"
    assert seer.ask("usage") == []
    machine.says(H200)
    assert [*_devices(seer)] == ["GPU-a"]
    assert seer.ask("reason") == ""


def test_a_driver_without_a_gpu_says_so(machine: Machine) -> None:
    machine.says("")
    seer = machine.seer()
    assert _only_node(seer)["devices"] == []
    assert seer.ask("reason") == "the NVIDIA driver finds no GPU"


def test_the_node_is_this_host_with_its_gpus(machine: Machine) -> None:
    machine.says(H200, "gpu 1 GPU-b NVIDIA_A100-SXM4-40GB 40960 0")
    node = _only_node(machine.seer())
    assert node["name"] == os.uname().nodename
    assert node["boot"] == processes.boot_id()
    facts = ("uuid", "flavor", "memory_mib", "index", "usable")
    assert [tuple(device[name] for name in facts) for device in node["devices"]] == [
        ("GPU-a", "h200", 144000 - 400, 0, True),
        ("GPU-b", "a100-sxm4-40gb", 40960, 1, True),
    ]


def test_where_mig_is_on_its_slices_are_the_devices(machine: Machine) -> None:
    machine.says(
        H200,
        "gpu 1 GPU-b NVIDIA_H200 144000 400",
        "mig 0 1",
        "mig 1 0",
        "slice 0 1 MIG-x NVIDIA_H200_MIG_1g.18gb 16384",
        "slice 0 4 MIG-y NVIDIA_H200_MIG_2g.35gb 33000",
    )
    found = _devices(machine.seer())
    assert [*found] == ["MIG-x", "MIG-y", "GPU-b"]
    assert found["MIG-x"]["flavor"] == "h200-mig-1g.18gb"
    assert found["MIG-y"]["memory_mib"] == 33000
    assert found["MIG-y"]["index"] == 0
    assert [device["mig"] for device in found.values()] == [True, True, False]


def _islands(machine: Machine) -> list[int]:
    return [device["island"] for device in _devices(machine.seer()).values()]


def test_gpus_that_nvlink_joins_are_an_island(machine: Machine) -> None:
    machine.says(*(f"gpu {n} GPU-{n} NVIDIA_H200 144000 400" for n in range(5)))
    machine.says("nvlink 0 3", "nvlink 3 4", "nvlink 1 2", *(f"numa {n} 0" for n in range(5)))
    assert _islands(machine) == [0, 1, 1, 0, 0]
    seer = machine.seer()
    machine.says("lost 3 1")
    assert [device["island"] for device in _devices(seer).values()] == [0, 1, 1, 0, 4]


def test_without_nvlink_gpus_of_a_numa_node_are_an_island(machine: Machine) -> None:
    machine.says(*(f"gpu {n} GPU-{n} NVIDIA_H200 144000 400" for n in range(4)))
    assert _islands(machine) == [0, 0, 0, 0]
    machine.says("numa 0 0", "numa 1 1", "numa 2 0", "numa 3 1")
    assert _islands(machine) == [0, 1, 0, 1]


def test_slices_lie_in_the_island_of_their_gpu(machine: Machine) -> None:
    machine.says(*(f"gpu {n} GPU-{n} NVIDIA_H200 144000 400" for n in range(4)))
    machine.says("nvlink 0 1", "nvlink 2 3", "mig 2 1")
    machine.says("slice 2 1 MIG-x NVIDIA_H200_MIG_1g.18gb 16384")
    assert _islands(machine) == [0, 0, 2, 2]


def test_a_process_of_ours_is_told_with_its_owner(machine: Machine) -> None:
    kernel, rank = machine.child(GPUBROKER_SESSION="nb1/"), machine.child(GPUBROKER_JOB="b-7")
    machine.says(H200, f"proc GPU-a {kernel} 2048", f"proc GPU-a {rank} 512")
    seer = machine.seer()
    uses = seer.ask("usage")
    assert {(use["owner"], use["memory_mib"], use["device"]) for use in uses} == {
        ("nb1/", 2048, "GPU-a"),
        ("b-7", 512, "GPU-a"),
    }
    assert [use["process"] for use in uses] == [
        list(processes.process_of(pid) or ()) for pid in (kernel, rank)
    ]
    assert _devices(seer)["GPU-a"]["usable"]
    machine.says(f"proc GPU-a {kernel} gone")
    machine.ends(rank)
    assert seer.ask("usage") == []


def test_a_foreign_process_makes_only_its_device_busy(machine: Machine) -> None:
    machine.says(H200, "gpu 1 GPU-b NVIDIA_H200 144000 400")
    stranger = machine.child()
    machine.says(f"proc GPU-b {stranger} 300")
    found = _devices(machine.seer())
    assert found["GPU-a"]["usable"]
    assert not found["GPU-b"]["usable"]
    assert f"pid {stranger}" in found["GPU-b"]["note"]


def test_a_process_that_cannot_be_seen_still_uses_the_device(machine: Machine) -> None:
    hidden = 2**30
    machine.says(H200, f"ghost GPU-a {hidden} 300")
    seer = machine.seer()
    assert not _devices(seer)["GPU-a"]["usable"]
    (use,) = seer.ask("usage")
    assert (use["process"], use["owner"]) == ([hidden, 0], "")


def test_a_gpu_that_is_lost_stays_in_the_inventory_unusable(machine: Machine) -> None:
    machine.says(H200, "gpu 1 GPU-b NVIDIA_H200 144000 400")
    ours = machine.child(GPUBROKER_JOB="b-7")
    machine.says(f"proc GPU-b {ours} 300")
    seer = machine.seer()
    machine.says("lost 0 1")
    found = _devices(seer)
    assert [*found] == ["GPU-a", "GPU-b"]
    assert not found["GPU-a"]["usable"]
    assert "GPU is lost" in found["GPU-a"]["note"]
    assert found["GPU-b"]["usable"]
    assert [use["device"] for use in seer.ask("usage")] == ["GPU-b"]
    machine.says("lost 0 0")
    assert _devices(seer)["GPU-a"]["usable"]


def test_a_driver_that_stops_answering_proves_nothing_free(machine: Machine) -> None:
    machine.says(H200)
    seer = machine.seer()
    machine.says(f"fail nvmlDeviceGetCount_v2 * {UNKNOWN}")
    assert not _devices(seer)["GPU-a"]["usable"]
    assert "Unknown Error" in seer.ask("usage")["DeviceError"]


@pytest.mark.parametrize(
    "call", ["nvmlDeviceGetUUID", "nvmlDeviceGetComputeRunningProcesses_v3"], ids=["uuid", "list"]
)
def test_a_gpu_that_does_not_answer_proves_nothing_free(machine: Machine, call: str) -> None:
    machine.says(H200)
    seer = machine.seer()
    machine.says(f"fail {call} 0 {UNKNOWN}")
    assert not _devices(seer)["GPU-a"]["usable"]
    assert "Unknown Error" in seer.ask("usage")["DeviceError"]


def test_a_library_of_another_version_is_told_and_proves_nothing_free(machine: Machine) -> None:
    machine.says(H200, f"fail nvmlInitWithFlags * {MISMATCH}")
    seer = machine.seer()
    assert _only_node(seer)["devices"] == []
    assert "version mismatch" in seer.ask("reason")
    assert "version mismatch" in seer.ask("usage")["DeviceError"]


def _told(seer: Talk) -> list[tuple[str, str, str]]:
    """The next events."""
    found = until(lambda: seer.ask("events"), what="an event")
    return [(event["device"], event["kind"], event["text"]) for event in found]


def _listening(machine: Machine) -> Talk:
    """A process that has begun to wait for events: earlier ones are lost."""
    seer = machine.seer()
    assert seer.ask("events") == []
    return seer


def test_a_gpu_with_a_critical_error_is_told_and_not_usable_any_more(machine: Machine) -> None:
    machine.says(H200, "gpu 1 GPU-b NVIDIA_H200 144000 400")
    seer = _listening(machine)
    machine.says(f"event 1 {XID} {FELL_OFF}")
    assert _told(seer) == [("GPU-b", "fault", "Xid 79")]
    found = _devices(seer)
    assert found["GPU-a"]["usable"]
    assert (found["GPU-b"]["usable"], found["GPU-b"]["note"]) == (False, "it has failed: Xid 79")
    assert seer.ask("events") == [], "told once"
    assert not _devices(seer)["GPU-b"]["usable"], "this driver does not say that it is healthy"


def test_a_gpu_is_usable_again_when_the_driver_wants_nothing_done(machine: Machine) -> None:
    machine.says(H200, "recovery 0 0")
    seer = _listening(machine)
    machine.says("recovery 0 1", f"event 0 {DOUBLE_BIT_ECC} 0")
    assert _told(seer) == [("GPU-a", "fault", "an uncorrectable memory error")]
    note = _devices(seer)["GPU-a"]["note"]
    assert "memory error" in note
    assert "asks for a reset of the GPU" in note
    machine.says("recovery 0 0")
    assert _devices(seer)["GPU-a"]["usable"]


def test_a_gpu_that_is_to_be_reset_is_not_usable_whatever_was_told(machine: Machine) -> None:
    machine.says(H200, "recovery 0 2")
    found = _devices(machine.seer())["GPU-a"]
    assert (found["usable"], found["note"]) == (
        False,
        "the driver asks for a restart of the machine",
    )


def test_the_errors_of_programs_are_none_of_the_gpu(machine: Machine) -> None:
    machine.says(H200)
    seer = _listening(machine)
    machine.says(f"event 0 {XID} {OF_A_PROGRAM}", f"event 0 {MIG_CONFIG} 0")
    assert _told(seer) == [("GPU-a", "changed", "")]
    assert _devices(seer)["GPU-a"]["usable"]


def test_an_error_of_a_gpu_is_one_of_all_its_slices(machine: Machine) -> None:
    machine.says(
        H200,
        "gpu 1 GPU-b NVIDIA_H200 144000 400",
        "mig 0 1",
        "slice 0 1 MIG-x NVIDIA_H200_MIG_1g.18gb 16384",
        "slice 0 4 MIG-y NVIDIA_H200_MIG_2g.35gb 33000",
    )
    seer = _listening(machine)
    machine.says(f"event 0 {XID} 95")
    assert _told(seer) == [("GPU-a", "fault", "Xid 95")]
    usable = {uuid: device["usable"] for uuid, device in _devices(seer).items()}
    assert usable == {"MIG-x": False, "MIG-y": False, "GPU-b": True}


def test_an_error_of_no_gpu_may_be_one_of_any(machine: Machine) -> None:
    machine.says(H200, "gpu 1 GPU-b NVIDIA_H200 144000 400")
    seer = _listening(machine)
    machine.says(f"event -1 {XID} {FELL_OFF}")
    assert _told(seer) == [("", "fault", "Xid 79")]
    assert [device["usable"] for device in _devices(seer).values()] == [False, False]


def test_a_wait_that_fails_is_told_once_and_tried_again(machine: Machine) -> None:
    machine.says(H200)
    seer = _listening(machine)
    machine.says(f"fail nvmlEventSetWait_v2 * {GPU_IS_LOST}")
    assert _told(seer) == [("", "lost", "the NVIDIA driver says: GPU is lost")]
    assert seer.ask("events") == []
    machine.says("fail nvmlEventSetWait_v2 * 0")
    assert seer.ask("events") == []
    machine.says(f"event 0 {XID} {FELL_OFF}")
    assert _told(seer) == [("GPU-a", "fault", "Xid 79")]


def test_without_a_driver_nothing_happens(machine: Machine) -> None:
    seer = machine.seer()
    assert seer.ask("events") == []
    machine.says("")
    assert seer.ask("events") == [], "a driver without a GPU"
    machine.says(H200)
    assert seer.ask("events") == []
    machine.says(f"event 0 {XID} {FELL_OFF}")
    assert _told(seer) == [("GPU-a", "fault", "Xid 79")]


@pytest.mark.parametrize(
    ("name", "flavor"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-40GB MIG 1g.5gb", "a100-sxm4-40gb-mig-1g.5gb"),
        ("NVIDIA GeForce RTX 4090", "geforce-rtx-4090"),
        ("Tesla T4", "tesla-t4"),
    ],
)
def test_a_flavor_is_a_product_name_that_fits_in_a_command(name: str, flavor: str) -> None:
    assert flavor_of(name) == flavor


def test_parking_is_refused_with_a_sentence() -> None:
    devices = NvmlDevices()
    assert not devices.caps.parks
    with pytest.raises(DeviceError, match="cannot be parked"):
        devices.park("nb1/")
    assert not devices.parked()


def test_the_environment_names_uuids_in_bus_order() -> None:
    shares = (Share("host", "GPU-b", 1000), Share("host", "GPU-a", 1000))
    assert NvmlDevices().environment(shares) == {
        "CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    }
