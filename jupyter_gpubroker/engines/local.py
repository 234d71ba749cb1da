# SPDX-License-Identifier: BSD-3-Clause
"""The local engine: this machine's GPUs, processes under shims, leases of its servers.

It owns no process and keeps no state but files (``records``): a broker that was killed is
replaced by one that calls ``poll()``.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar
from weakref import WeakValueDictionary

from ..core.model import JobId, Kept, Key, Mode, Node, Rung, Seconds, StageName
from ..devices import DeviceError, Devices
from . import Caps, EngineError, Launch, LogChunk, Poll, Report, Stop, broom
from .folder import Folder, rank_log
from .held import Held, Sight
from .hosted import Hosted
from .records import Record, Records

P = ParamSpec("P")
T = TypeVar("T")

_HANDS = 8
"""Own threads, so that a folder on a dead file server holds up nothing else, and one more
for looking, so that slow starts do not blind the broker."""
_SETTLE: Seconds = 1.0
_PARKS, _RESTARTS = (StageName.PARK, StageName.RESTART), (StageName.RESTART,)


class LocalEngine:
    """Engine of the machine that the broker runs on (``engines.Engine``)."""

    name = "local"

    def __init__(
        self,
        devices: Devices,
        state: Path,
        broker_id: str,
        run_as: Literal["user", "self"],
        clock: Callable[[], Seconds],
    ) -> None:
        """``state`` is made when it is needed, and is the engine's alone.

        ValueError for ``run_as="user"`` without the rights for it."""
        if run_as == "user" and os.geteuid() != 0:
            raise ValueError("run_as: 'user' needs a broker that runs as root (or set 'self')")
        self.caps = Caps(_PARKS if devices.caps.parks else _RESTARTS)
        self._devices = devices
        self._clock = clock
        self._records = Records(state, broker_id)
        self._hosted = Hosted(self._records, devices, accounts=run_as == "user")
        self._held = Held(self._records, devices)
        self._hands = ThreadPoolExecutor(_HANDS, thread_name_prefix="local-hand")
        self._eyes = ThreadPoolExecutor(1, thread_name_prefix="local-eye")
        self._busy: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def nodes(self) -> Sequence[Node]:
        """The nodes of the devices, with this machine's processors and memory."""
        return await self._call(self._eyes, self._nodes)

    async def start(self, key: Key, launch: Launch) -> None:
        """Start all parts or none; held: grant and restore."""
        async with self._lock(key):
            await self._call(self._hands, self._start, key, launch)

    async def signal(self, key: Key, signum: int) -> None:
        """Send a signal to the main process group of every part."""
        async with self._lock(key):
            await self._call(self._hands, self._signal, key, signum)

    async def stop(self, key: Key, how: Stop) -> None:
        """Ask every part to leave, or make it."""
        async with self._lock(key):
            await self._call(self._hands, self._stop, key, how)

    async def poll(self) -> Poll:
        """Every key that is not forgotten."""
        return await self._call(self._eyes, self._poll)

    async def logs(self, key: Key, rank: int, offset: int, limit: int) -> LogChunk:
        """Bytes of a rank's log, also of keys that were forgotten."""
        return await self._thread(self._hands, self._logs, key, rank, offset, limit)

    async def ranks(self, key: Key) -> Sequence[int]:
        """Ranks that have a log, also of keys that were forgotten."""
        return await self._thread(self._hands, self._ranks, key)

    async def drop(self, kept: Kept) -> None:
        """Forget a parked image."""
        if kept.rung is Rung.GPU_STATE:
            await self._call(self._hands, self._devices.drop, kept)

    async def forget(self, key: Key) -> None:
        """Do not report this key any more; its folder stays."""
        async with self._lock(key):
            await self._call(self._hands, self._forget, key)

    async def prune(self, before: Seconds, living: Collection[JobId]) -> None:
        """Remove old folders and their records."""
        await self._call(self._hands, self._prune, before, frozenset(living))

    # -- everything below runs in a thread

    def _nodes(self) -> Sequence[Node]:
        memory_mib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
        cpu_milli = len(os.sched_getaffinity(0)) * 1000
        return [
            replace(
                node,
                engine=self.name,
                cpu_milli=node.cpu_milli or cpu_milli,
                host_memory_mib=node.host_memory_mib or memory_mib,
            )
            for node in self._devices.inventory()
        ]

    def _start(self, key: Key, launch: Launch) -> None:
        if self._records.ended(key) or self._records.forgotten(key):
            return  # late: it ran, and it is over
        if self._records.asked(key):
            raise EngineError(f"{key!s} was asked to leave")
        side = self._held if launch.mode is Mode.HELD else self._hosted
        side.start(key, launch)

    def _signal(self, key: Key, signum: int) -> None:
        record = self._living(key)
        if record and record.mode is Mode.HOSTED:
            self._hosted.signal(record, signum)

    def _stop(self, key: Key, how: Stop) -> None:
        record = self._living(key)
        if record:
            side = self._held if record.mode is Mode.HELD else self._hosted
            side.stop(record, how)

    def _poll(self) -> Poll:
        began = self._clock()
        sight = self._sight()
        reports = {}
        for key in self._records.present():
            if report := self._records.ended(key) or self._report(key, sight):
                reports[key] = report
        return Poll(began, reports, _SETTLE, sight.owned())

    def _sight(self) -> Sight:
        try:
            return Sight(self._devices.usage(), self._devices.parked())
        except DeviceError:
            return Sight(None)

    def _report(self, key: Key, sight: Sight) -> Report | None:
        record = self._records.get(key)
        if record is None:
            return None
        if record.mode is Mode.HELD:
            return self._held.look(record, sight)
        return self._hosted.look(record)

    def _logs(self, key: Key, rank: int, offset: int, limit: int) -> LogChunk:
        return self._folder(key).read(rank_log(rank), offset, limit)

    def _ranks(self, key: Key) -> Sequence[int]:
        try:
            return self._folder(key).ranks()
        except FileNotFoundError:
            return []

    def _forget(self, key: Key) -> None:
        if self._records.ended(key):
            self._hosted.forget(key)
            self._records.forget(key)

    def _prune(self, before: Seconds, living: Collection[JobId]) -> None:
        self._records.sweep(self._clock())
        folders: dict[int, dict[str, Key]] = {}
        for record in self._records.old(before):
            if record.key.job in living:
                continue
            if record.folder:
                folders.setdefault(record.uid, {})[record.folder] = record.key
            else:
                self._records.drop(record.key)
        failed: OSError | None = None
        for uid, keys in folders.items():
            try:
                for folder in broom.sweep(uid, list(keys)):
                    self._records.drop(keys[folder])
            except OSError as error:
                failed = error
        if failed is not None:
            raise failed

    def _living(self, key: Key) -> Record | None:
        return None if self._records.ended(key) else self._records.get(key)

    def _folder(self, key: Key) -> Folder:
        record = self._records.get(key) or self._records.forgotten(key)
        if record is None or record.mode is Mode.HELD:
            raise FileNotFoundError(f"there are no logs of {key!s}")
        return Folder(record.folder, record.uid)

    # -- threads

    def _lock(self, key: Key) -> asyncio.Lock:
        return self._busy.setdefault(key, asyncio.Lock())

    async def _call(
        self, pool: ThreadPoolExecutor, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run it in a thread; what the disk or the devices cannot do is an EngineError."""
        try:
            return await self._thread(pool, verb, *args, **kwargs)
        except (OSError, DeviceError) as error:
            raise EngineError(str(error)) from error

    async def _thread(
        self, pool: ThreadPoolExecutor, verb: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            pool, partial(verb, *args, **kwargs)
        )
