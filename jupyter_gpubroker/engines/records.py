# SPDX-License-Identifier: BSD-3-Clause
"""What an engine remembers on disk: the only state it has.

::

    runs/<job>.<attempt>/record.json    what was asked to start; there before anything starts
    runs/<job>.<attempt>/stop.json      the strongest stop that was asked
    runs/<job>.<attempt>/end.json       the last Report: proven gone, will not change any more
    runs/<job>.<attempt>/<node rank>/   hosted: what the shim writes (``shim``)
    ended/<job>.<attempt>.json          the record of a forgotten key: where its logs are, and
                                        that it must not be started once more

Only root (or the broker's own account) can read or write it: what is believed about
processes never comes from a folder of the job's user.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core.model import (
    Binding,
    Kept,
    Key,
    Mode,
    Placement,
    Process,
    Rung,
    Seconds,
    Share,
    nodes_of,
)
from . import Phase, Report, Stop
from .shim import put

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\.\d+", re.ASCII)
_HALF_DONE: Seconds = 86400.0
"""Longer than it takes to write a record or to remove a folder."""
_STRENGTH = tuple(Stop)


@dataclass(frozen=True, slots=True)
class Record:
    """What is needed to find, stop and describe an attempt without its Launch."""

    key: Key
    broker: str
    mode: Mode
    owner: str
    """Who holds the devices: the Job, or held: the session key."""
    placement: Placement
    folder: str = ""
    uid: int = 0
    """Owner of the folder and of the processes."""
    torchrun: bool = False
    port: int = 0
    """Rendezvous of a torchrun launch."""
    binding: Binding = Binding.KERNEL
    """Held: the server too was launched with the devices, or only its kernels are."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """One part runs on each, in rank order."""
        return nodes_of(self.placement)


class Records:
    """The folder of one engine. Not found is ``None``; OSError if the disk cannot."""

    def __init__(self, state: Path, broker: str) -> None:
        self._state, self._runs, self._ended = state, state / "runs", state / "ended"
        self.broker = broker
        self._known: dict[Key, Record] = {}
        self._reports: dict[Key, Report] = {}

    def path(self, key: Key) -> Path:
        """The folder of a key that is not forgotten; FileNotFoundError if it can be none."""
        if not _KEY.fullmatch(str(key)):
            raise FileNotFoundError(f"{key!s} is not the key of an attempt")
        return self._runs / str(key)

    def part(self, key: Key, rank: int) -> Path:
        """The folder of the part on the node of that rank."""
        return self.path(key) / str(rank)

    def save(self, record: Record) -> Record:
        """Remember a key durably, before anything of it is started."""
        self._state.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in (self._runs, self._ended, self.path(record.key)):
            folder.mkdir(mode=0o700, exist_ok=True)
        for rank in range(len(record.nodes) if record.mode is Mode.HOSTED else 0):
            self.part(record.key, rank).mkdir(mode=0o700, exist_ok=True)
        put(str(self.path(record.key) / "record.json"), asdict(record))
        _sync(self._runs)
        self._known[record.key] = record
        return record

    def present(self) -> Iterator[Key]:
        """Every key that is not forgotten."""
        with suppress(FileNotFoundError):
            for name in sorted(filter(_KEY.fullmatch, os.listdir(self._runs))):
                job, _, attempt = name.rpartition(".")
                yield Key(job, int(attempt))

    def get(self, key: Key) -> Record | None:
        """The record of a key that is not forgotten; another broker's are not ours."""
        if key not in self._known:
            facts = _read(self.path(key) / "record.json")
            if facts is None or facts["broker"] != self.broker:
                return None
            self._known[key] = _record(facts)
        return self._known[key]

    def forgotten(self, key: Key) -> Record | None:
        """The record of a key that ended and was forgotten."""
        facts = _read(self._ended / f"{self.path(key).name}.json")
        return _record(facts) if facts else None

    def ask(self, key: Key, how: Stop) -> None:
        """Remember durably that the key was asked to leave."""
        asked = self.asked(key)
        if asked is None or _STRENGTH.index(asked) < _STRENGTH.index(how):
            put(str(self.path(key) / "stop.json"), {"how": how, "time": time.time()})

    def asked(self, key: Key) -> Stop | None:
        """How the key was asked to leave, if it was."""
        facts = _read(self.path(key) / "stop.json")
        return Stop(facts["how"]) if facts else None

    def end(self, report: Report) -> Report:
        """Remember durably that all is proven gone."""
        put(str(self.path(report.key) / "end.json"), asdict(report))
        self._reports[report.key] = report
        return report

    def ended(self, key: Key) -> Report | None:
        """The last Report of a key that is proven gone."""
        if key not in self._reports:
            facts = _read(self.path(key) / "end.json")
            if facts is None:
                return None
            self._reports[key] = _report(facts)
        return self._reports[key]

    def discard(self, key: Key) -> None:
        """Nothing of this key ever ran: as if it had not been asked for."""
        self._known.pop(key, None)
        shutil.rmtree(self.path(key), ignore_errors=True)

    def forget(self, key: Key) -> None:
        """Of a key that ended, keep only the record."""
        if self.ended(key) is None:
            return
        with suppress(FileNotFoundError):
            (self.path(key) / "record.json").replace(self._ended / f"{key}.json")
            _sync(self._ended)
        self._reports.pop(key, None)
        self.discard(key)

    def old(self, before: Seconds) -> list[Record]:
        """What was forgotten before that time."""
        found = []
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._ended):
                if entry.stat().st_ctime < before and (facts := _read(Path(entry.path))):
                    found.append(_record(facts))
        return found

    def drop(self, key: Key) -> None:
        """Of a key that was forgotten keep nothing: it might be started once more."""
        (self._ended / f"{self.path(key).name}.json").unlink(missing_ok=True)

    def sweep(self, now: Seconds) -> None:
        """Drop what a crash has left of a folder: without its record nothing was started, or
        it was being forgotten."""
        with suppress(FileNotFoundError):
            for entry in os.scandir(self._runs):
                old = entry.stat().st_ctime < now - _HALF_DONE
                if old and not os.path.exists(f"{entry.path}/record.json"):
                    shutil.rmtree(entry.path, ignore_errors=True)


def _read(path: Path) -> dict[str, Any] | None:
    try:
        facts: dict[str, Any] = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return facts


def _sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _record(facts: dict[str, Any]) -> Record:
    placement = tuple(Share(**share) for share in facts["placement"])
    known = {
        "key": Key(*facts["key"]),
        "mode": Mode(facts["mode"]),
        "placement": placement,
        "binding": Binding(facts.get("binding", Binding.KERNEL)),
    }
    return Record(**{**facts, **known})


def _report(facts: dict[str, Any]) -> Report:
    known = {
        "key": Key(*facts["key"]),
        "phase": Phase(facts["phase"]),
        "mode": Mode(facts["mode"]),
        "codes": tuple(facts["codes"]),
        "processes": tuple(Process(*process) for process in facts["processes"]),
        "kept": tuple(_kept(kept) for kept in facts["kept"]),
    }
    return Report(**{**facts, **known})


def _kept(facts: dict[str, Any]) -> Kept:
    known = {
        "rung": Rung(facts["rung"]),
        "devices": tuple(facts["devices"]),
        "processes": tuple(Process(*process) for process in facts["processes"]),
    }
    return Kept(**{**facts, **known})
