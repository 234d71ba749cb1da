# SPDX-License-Identifier: BSD-3-Clause
"""Real GPUs, as NVIDIA's management library tells them."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from ..core.model import Device, Kept, Node, Placement, Process, Seconds, Share
from . import DeviceCaps, DeviceError, DeviceEvent, EventKind, Use, health, processes
from .islands import islands

_MIB = 2**20
_NO_PARKING = "GPU memory cannot be parked on these devices"
_NO_GPUS: Mapping[int, str] = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "there is no NVIDIA driver here (no libnvidia-ml.so.1)",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is not loaded",
}
"""Failures that prove that no process uses a GPU; all others prove nothing."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A device and the library's handle of it."""

    device: Device
    handle: Any

    def at(self, island: int) -> _Found:
        """The same in that island."""
        return replace(self, device=replace(self.device, island=island))

    def noted(self, note: str) -> _Found:
        """The same, not usable for that reason."""
        return replace(self, device=replace(self.device, usable=False, note=note))


class NvmlDevices:
    """The GPUs of this host; where MIG is on, their slices.

    A slice has the index of its GPU."""

    caps = DeviceCaps(
        parks=False,
        moves=False,
        memory="none",
        fault=False,
        sentence=(
            "Shares are promises: CUDA_VISIBLE_DEVICES shows a program its GPUs and nothing"
            " enforces its part of their memory; a session cannot be parked on the GPU."
        ),
    )

    def __init__(self) -> None:
        """Never fails: without a driver there are no devices and ``reason`` says why."""
        self.reason = ""
        """Why there are no GPUs, or what is wrong with one; empty while all answer."""
        self._initialised = False
        self._known: dict[str, tuple[Device, ...]] = {}
        """GPU -> its devices, as they were when it answered last."""
        self._faults: dict[str, str] = {}
        """GPU -> what the driver told of it; until the driver says that it is healthy."""
        self._alarm: health.Alarm | None = None
        self._deaf = ""
        """Why the last wait for events failed; empty = it did not."""
        self.inventory()

    def inventory(self) -> Sequence[Node]:
        """This host as one node, looked at anew.

        A device that stopped answering stays, unusable; so does one with a fault or a foreign
        process."""
        try:
            found, errors = self._look()
        except pynvml.NVMLError as error:
            found, errors = [], [error]
        self.reason = "; ".join(_sentence(error) for error in errors)
        if not (found or errors):
            self.reason = "the NVIDIA driver finds no GPU"
        devices = [item.device if item.device.note else _judged(item) for item in found]
        answering = {device.uuid for device in devices}
        lost = [
            replace(device, usable=False, note=self.reason or "it is not there any more")
            for device in (device for known in self._known.values() for device in known)
            if device.uuid not in answering
        ]
        return [_host(sorted(devices + lost, key=lambda device: device.index))]

    def usage(self) -> Sequence[Use]:
        """Every compute process of every device.

        DeviceError where a device is there but does not answer."""
        try:
            found, errors = self._look()
            uses = [use for item in found for use in _uses(item)]
        except pynvml.NVMLError as error:
            if error.value in _NO_GPUS:
                return []
            raise DeviceError(_sentence(error)) from error
        # A GPU that fell off the bus runs nothing; nothing is placed there until it is back.
        for failed in errors:
            if failed.value != pynvml.NVML_ERROR_GPU_IS_LOST:
                raise DeviceError(_sentence(failed)) from failed
        return uses

    def events(self, timeout: Seconds) -> Sequence[DeviceEvent]:
        """What the driver tells of its GPUs. It says nothing of processes that come and go."""
        try:
            if self._alarm is None:
                self._alarm = health.Alarm.of(self._gpus())
            if not self._alarm.gpus:
                return self._pause(timeout)
            event = self._alarm.wait(timeout)
        except pynvml.NVMLError as error:
            return self._unheard(error, timeout)
        self._deaf = ""
        if event is None:
            return ()
        if event.kind is EventKind.FAULT:
            # One that names no GPU may be any.
            self._faults |= dict.fromkeys(
                [event.device] if event.device else self._known, event.text
            )
        return (event,)

    def environment(self, placement: Placement) -> Mapping[str, str]:
        """The UUIDs; DeviceError for Shares of several nodes."""
        return processes.visible_devices(placement)

    def grant(self, owner: str, shares: Sequence[Share]) -> None:
        """Nothing to do: nothing but the environment keeps a process on its devices."""

    def revoke(self, owner: str) -> None:
        """Nothing to do, as for ``grant``."""

    def park(self, owner: str) -> tuple[Kept, ...]:
        """DeviceError: a session leaves these devices by another rung."""
        raise DeviceError(_NO_PARKING)

    def restore(self, kept: Sequence[Kept], shares: Sequence[Share]) -> None:
        """DeviceError if there is anything to restore: nothing is ever parked here."""
        if kept:
            raise DeviceError(_NO_PARKING)

    def drop(self, kept: Kept) -> None:
        """Nothing to do: nothing is ever parked here."""

    def parked(self) -> Sequence[Kept]:
        """Nothing."""
        return ()

    def _pause(self, timeout: Seconds) -> Sequence[DeviceEvent]:
        """Nothing to hear: try anew after a while."""
        alarm, self._alarm = self._alarm, None
        if alarm is not None:
            with suppress(pynvml.NVMLError):
                alarm.close()
        threading.Event().wait(timeout)
        return ()

    def _unheard(self, error: pynvml.NVMLError, timeout: Seconds) -> Sequence[DeviceEvent]:
        """Waiting failed, as it does when a GPU is lost: told once, and then tried again."""
        told, self._deaf = self._deaf, str(error)
        if error.value in _NO_GPUS or told == self._deaf:
            return self._pause(timeout)
        self._pause(0)
        return (DeviceEvent("", EventKind.LOST, _sentence(error)),)

    def _open(self) -> int:
        """The number of GPUs."""
        if not self._initialised:
            pynvml.nvmlInit()
            self._initialised = True
        return int(pynvml.nvmlDeviceGetCount())

    def _gpus(self) -> list[Any]:
        """The library's handles of the GPUs that answer."""
        found = []
        for index in range(self._open()):
            with suppress(pynvml.NVMLError):
                found.append(pynvml.nvmlDeviceGetHandleByIndex(index))
        return found

    def _note(self, gpu: Any, uuid: str) -> str:
        """Why a GPU that answers must not be used; empty = it may be."""
        wish = health.wish(gpu)
        if wish == "":
            self._faults.pop(uuid, None)
        fault = self._faults.get(uuid, "")
        wants = f"the driver asks for {wish}" if wish else ""
        return "; ".join(filter(None, (fault and f"it has failed: {fault}", wants)))

    def _look(self) -> tuple[list[_Found], list[pynvml.NVMLError]]:
        """The devices that answer, and the errors of GPUs that do not."""
        count = self._open()
        gpus: dict[int, Any] = {}
        answers: list[tuple[str, str, list[_Found]]] = []
        errors: list[pynvml.NVMLError] = []
        for index in range(count):
            try:
                gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
                uuid = pynvml.nvmlDeviceGetUUID(gpu)
                items = [_found(handle, index, handle is not gpu) for handle in _slices(gpu)]
                answers.append((uuid, self._note(gpu, uuid), items))
                gpus[index] = gpu
            except pynvml.NVMLError as error:
                errors.append(error)
        numbers = islands(gpus)
        found: list[_Found] = []
        for uuid, note, items in answers:
            there = [item.at(numbers[item.device.index]) for item in items]
            self._known[uuid] = tuple(item.device for item in there)
            found += [item.noted(note) if note else item for item in there]
        return found, errors


def _slices(gpu: Any) -> Iterator[Any]:
    """The GPU itself, or its MIG slices where MIG is on."""
    try:
        on, _ = pynvml.nvmlDeviceGetMigMode(gpu)
    except pynvml.NVMLError_NotSupported:
        on = pynvml.NVML_DEVICE_MIG_DISABLE
    if on == pynvml.NVML_DEVICE_MIG_DISABLE:
        yield gpu
        return
    for slot in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slot)
        except pynvml.NVMLError_NotFound:
            continue  # slots may have holes


def _found(handle: Any, index: int, mig: bool) -> _Found:
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
    device = Device(
        uuid=pynvml.nvmlDeviceGetUUID(handle),
        flavor=flavor_of(pynvml.nvmlDeviceGetName(handle)),
        memory_mib=(memory.total - memory.reserved) // _MIB,
        index=index,
        mig=mig,
    )
    return _Found(device, handle)


def flavor_of(name: str) -> str:
    """The flavor of a product name: ``NVIDIA A100-SXM4-40GB`` is ``a100-sxm4-40gb``."""
    words = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")
    return words.removeprefix("nvidia-")


def _uses(item: _Found) -> list[Use]:
    uses = []
    for entry in pynvml.nvmlDeviceGetComputeRunningProcesses(item.handle):
        # A process of another container is not in our /proc, but its memory is in use.
        process = processes.process_of(entry.pid) or Process(entry.pid, 0)
        owner = processes.owner_of(processes.environ_of(entry.pid))
        uses.append(Use(item.device.uuid, process, (entry.usedGpuMemory or 0) // _MIB, owner))
    return uses


def _judged(item: _Found) -> Device:
    try:
        foreign = [use.process.pid for use in _uses(item) if not use.owner]
    except pynvml.NVMLError as error:
        note = f"its processes cannot be read: {_sentence(error)}"
        return replace(item.device, usable=False, note=note)
    if not foreign:
        return item.device
    pids = ", ".join(str(pid) for pid in foreign)
    note = f"used by processes that were not started by the broker (pid {pids})"
    return replace(item.device, usable=False, note=note)


def _host(devices: Sequence[Device]) -> Node:
    return Node(
        name=socket.gethostname(),
        engine="local",
        boot=processes.boot_id(),
        devices=tuple(devices),
    )


def _sentence(error: pynvml.NVMLError) -> str:
    return _NO_GPUS.get(error.value) or f"the NVIDIA driver says: {error}"
