# SPDX-License-Identifier: BSD-3-Clause
"""The files of a simulated world.

::

    world.json             its id and its shape; never changes
    lock                   flocked for every look and every change
    grants/<digest>.json   who may use which devices (what a device cgroup filter would say)
    devices/<uuid>/<name>  one allocation of one process on that device
    parked/<uuid>/<name>   the same file while that memory is in host RAM
    faults/<uuid>          there while that device is broken; its text says how

An allocation's file never changes: where it lies is its state, so parking is a rename.
It is true only while its process lives *and* the file is flocked: the lock dies with the
process and survives a rename, the process id tells apart a forked child that inherited it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ...core.model import GPU_MILLI, Device, Node, Process, Share
from .. import DeviceError, processes
from .spec import Spec

ON_DEVICE, PARKED, FAULTS = "devices", "parked", "faults"
_LINE, _LINE_MAX = [int, int, int, str, str], 65536
"""pid, start, MiB, owner, kernel."""
_NOTE_MAX = 200
_ANYBODY = 0o1777
"""Holders may be other accounts than the broker; sticky: each removes only its own files."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One allocation of one living process on one device."""

    name: str
    device: str
    parked: bool
    process: Process
    memory_mib: int
    owner: str
    kernel: str


class World:
    """A simulated world that exists. Looks and changes need ``with world.locked():``."""

    def __init__(self, root: Path) -> None:
        """DeviceError if ``root`` holds no simulated world."""
        self.root = root.absolute()
        try:
            facts = json.loads((self.root / "world.json").read_text())
            self.spec = Spec.parse(facts["spec"])
            world_id = uuid.UUID(facts["id"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DeviceError(f"{root} holds no simulated world: {error}") from error
        self.nodes: tuple[Node, ...] = self.spec.build(world_id, processes.boot_id())
        self.devices: Mapping[str, Device] = {
            device.uuid: device for node in self.nodes for device in node.devices
        }
        self.node_of: Mapping[str, str] = {
            device.uuid: node.name for node in self.nodes for device in node.devices
        }

    @classmethod
    def create(cls, root: Path, spec: Spec) -> Self:
        """Make a world of that shape, or open the one that is there; DeviceError if it
        has another shape."""
        root.mkdir(parents=True, exist_ok=True)
        (root / "lock").touch(mode=0o644)
        with _flocked(root / "lock"):
            if not (root / "world.json").exists():
                facts = {"id": str(uuid.uuid4()), "spec": str(spec)}
                _make(root, spec.build(uuid.UUID(facts["id"]), ""))
                _write(root / "world.json", facts)
        world = cls(root)
        if world.spec != spec:
            raise DeviceError(
                f"{root} holds a simulated world {world.spec}, asked for {spec}"
                " (remove that folder when nothing uses it, or ask for the same shape)"
            )
        return world

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else looks or changes anything meanwhile."""
        with _flocked(self.root / "lock"):
            yield

    def entries(self) -> list[Entry]:
        """Every allocation of a living process; the files of dead ones are removed."""
        return [
            entry
            for state in (ON_DEVICE, PARKED)
            for device in self.devices
            for entry in self._entries(state, device)
        ]

    def add(self, entry: Entry) -> int:
        """Write an allocation; returns the descriptor whose closing ends it."""
        path = self.path(entry)
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        fcntl.flock(fd, fcntl.LOCK_EX)
        facts = [*entry.process, entry.memory_mib, entry.owner, entry.kernel]
        os.write(fd, json.dumps(facts).encode())
        return fd

    def move(self, entries: Sequence[Entry], targets: Sequence[tuple[str, bool]]) -> None:
        """Give each entry a new (device, parked): all of them, or DeviceError and none."""
        done: list[tuple[Path, Path]] = []
        try:
            for entry, (device, parked) in zip(entries, targets, strict=True):
                old, new = self.path(entry), self._path(device, parked, entry.name)
                old.rename(new)
                done.append((old, new))
        except OSError as error:
            for old, new in reversed(done):
                new.rename(old)
            raise DeviceError(f"simulated memory cannot be moved: {error}") from error

    def remove(self, entry: Entry) -> None:
        """The memory of this entry is free from now on."""
        self.path(entry).unlink(missing_ok=True)

    def grant(self, owner: str, shares: Sequence[Share]) -> None:
        """Set what ``owner`` may use; DeviceError for a device that is not in this world."""
        for share in shares:
            if share.device not in self.devices:
                raise DeviceError(f"there is no device {share.device} in {self.root}")
        rows = [[share.node, share.device, share.milli, share.memory_mib] for share in shares]
        _write(self._grant_path(owner), {"owner": owner, "shares": rows})

    def revoke(self, owner: str) -> None:
        """``owner`` may use nothing any more."""
        self._grant_path(owner).unlink(missing_ok=True)

    def granted(self, owner: str) -> Mapping[str, Share]:
        """What ``owner`` may use, by device."""
        try:
            rows = json.loads(self._grant_path(owner).read_text())["shares"]
        except FileNotFoundError:
            return {}
        return {row[1]: Share(*row) for row in rows}

    def limit_mib(self, share: Share) -> int:
        """How much memory a Share gives: its own figure, else its part of the device."""
        whole = self.devices[share.device].memory_mib
        if share.milli == GPU_MILLI:
            return whole
        return share.memory_mib or whole * share.milli // GPU_MILLI

    def fault(self, device: str) -> str | None:
        """What is wrong with a device; ``None`` if nothing is."""
        try:
            text = (self.root / FAULTS / device).read_text(errors="replace")
        except FileNotFoundError:
            return None
        return text[:_NOTE_MAX].strip() or "it is broken"

    def set_fault(self, device: str, text: str | None) -> None:
        """Break a device, or mend it with ``None``; DeviceError if there is no such device."""
        if device not in self.devices:
            raise DeviceError(f"there is no device {device} in {self.root}")
        folder = self.root / FAULTS
        folder.mkdir(exist_ok=True)
        if text is None:
            (folder / device).unlink(missing_ok=True)
            return
        draft = self.root / f"{device}.new"
        draft.write_text(text)
        draft.replace(folder / device)

    def watched(self) -> Sequence[Path]:
        """The folders in which a change is news."""
        (self.root / FAULTS).mkdir(exist_ok=True)  # a world may be older than faults
        places = (ON_DEVICE, PARKED)
        return [
            self.root / FAULTS,
            *(self.root / place / uuid for place in places for uuid in self.devices),
        ]

    def path(self, entry: Entry) -> Path:
        """Where the file of this entry lies."""
        return self._path(entry.device, entry.parked, entry.name)

    def _path(self, device: str, parked: bool, name: str) -> Path:
        return self.root / (PARKED if parked else ON_DEVICE) / device / name

    def _grant_path(self, owner: str) -> Path:
        return self.root / "grants" / f"{hashlib.sha256(owner.encode()).hexdigest()[:32]}.json"

    def _entries(self, state: str, device: str) -> Iterator[Entry]:
        for path in sorted((self.root / state / device).iterdir()):
            facts = _facts(path)
            if facts is None:
                with suppress(OSError):
                    path.unlink()
                continue
            pid, start, memory_mib, owner, kernel = facts
            process = Process(pid, start)
            yield Entry(path.name, device, state == PARKED, process, memory_mib, owner, kernel)


def _facts(path: Path) -> Any:
    """What a living allocation says; ``None`` if its process is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        facts = _read(fd)
        return facts if facts and processes.alive(Process(facts[0], facts[1])) else None
    else:
        return None
    finally:
        os.close(fd)


def _read(fd: int) -> Any:
    """The line of an allocation; ``None`` if it is something else: anybody may write here."""
    try:
        with open(fd, encoding="utf-8", closefd=False) as file:
            facts = json.loads(file.read(_LINE_MAX))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(facts, list) or [type(fact) for fact in facts] != _LINE:
        return None
    if min(facts[:3]) <= 0 or max(facts[:3]) >= 2**53:
        return None
    # From an environment of any bytes: what is not text cannot be stored or shown.
    return [*facts[:3], *(text.encode(errors="replace").decode() for text in facts[3:])]


@contextmanager
def _flocked(path: Path) -> Iterator[None]:
    fd = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        # Closing is not enough: a child forked meanwhile shares the lock.
        fcntl.flock(fd, fcntl.LOCK_UN)
        os.close(fd)


def _make(root: Path, nodes: Sequence[Node]) -> None:
    (root / "grants").mkdir(exist_ok=True)
    for state in (ON_DEVICE, PARKED):
        (root / state).mkdir(exist_ok=True)
        for node in nodes:
            for device in node.devices:
                folder = root / state / device.uuid
                folder.mkdir(exist_ok=True)
                folder.chmod(_ANYBODY)


def _write(path: Path, facts: Mapping[str, Any]) -> None:
    """Whole or not at all, also when the writer is killed."""
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps(facts))
    draft.chmod(0o644)
    draft.replace(path)
