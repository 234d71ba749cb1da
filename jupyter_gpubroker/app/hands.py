# SPDX-License-Identifier: BSD-3-Clause
"""The shell's hands: perform duties on engines, and look at engines again and again."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from ..broker import inputs as i
from ..broker.world import World
from ..core.model import Binding, Holder, Job, JobId, Mode, Process, Share, State
from ..devices import DeviceError, DeviceEvent, EventKind, processes
from ..engines import (
    Engine,
    EngineError,
    Launch,
    RestoreRefused,
    StartRefused,
    Stop,
    Watchable,
)
from ..store import KEPT_S, LaunchRow, StoreError
from .setup import Setup

log = logging.getLogger(__name__)

NODES_EVERY_S = 5.0
NODES_PATIENCE_S = 20.0
POLL_BUSY_S = 0.1
"""Between looks while something starts or leaves."""
POLL_CALM_S = 0.5
STIRRED_S = 2.0
"""So long after an event of a device something is about to end, or to begin."""
EVENTS_S = 0.5
"""One wait for events of devices; the broker's end waits for it."""
EVENTS_APART_S = 0.1
"""A burst of events is one look."""
TIDY_EVERY_S = 86400.0

WHOLE = (
    "The server was started with its GPUs: nothing of it can be parked, and when they are taken"
    " it is stopped. Only samples of its GPUs could tell that it is idle, and none are taken"
    " here: it is never judged idle."
)
"""What a lease that is bound to its server guarantees, and does not."""

Put = Callable[[i.Fact], None]
LaunchRows = Callable[[JobId], Awaitable[LaunchRow | None]]

_STOPS = {i.Act.PARK: Stop.PARK, i.Act.TERM: Stop.TERM, i.Act.KILL: Stop.KILL}


class Hands:
    """Everything that touches engines and devices; reports back with facts."""

    def __init__(self, setup: Setup, put: Put, launch_row: LaunchRows) -> None:
        self._setup = setup
        self._put = put
        self._launch_row = launch_row
        self._watching: list[asyncio.Task[None]] = []
        self._look = asyncio.Event()
        self._stirred = 0.0
        """When a device told something last, on the loop's clock."""
        self._ears = ThreadPoolExecutor(1, thread_name_prefix="device-ear")

    def engine_of(self, job: Job | None) -> Engine:
        """The engine that runs, or ran, a Job; FileNotFoundError for an unknown one."""
        engines = self._setup.engines
        if job is None:
            raise FileNotFoundError("no such job")
        if job.lease is not None and job.lease.engine in engines:
            return engines[job.lease.engine]
        return next(iter(engines.values()))

    def environment(self, job: Job | None) -> dict[str, str]:
        """What binds a process to a held lease; no lease = to no GPU. The processes of a
        hosted lease are bound by their engine alone."""
        shares: tuple[Share, ...] = ()
        lease = None if job is None or job.state is State.STOPPING else job.lease
        if lease is not None and lease.mode is Mode.HELD:
            shares = lease.placement
        return dict(self._setup.devices.environment(shares))

    def guarantees(self, job: Job) -> dict[str, object]:
        """What the Job's lease guarantees."""
        caps = self._setup.devices.caps
        whole = WHOLE if job.binding is Binding.SERVER else ""
        return {
            "memory": caps.memory,
            "fault": caps.fault,
            "parkable": bool(job.terms.park) and caps.parks,
            "sentence": " ".join(filter(None, (caps.sentence, whole, self._setup.isolation))),
        }

    # --- duties -------------------------------------------------------------------------

    async def perform(self, duty: i.Duty) -> None:
        """Do it, and say how it ended."""
        did, text, node = i.Did.DONE, "", ""
        try:
            await self._do(duty, self._setup.engines[duty.engine])
        except StartRefused as refused:
            did, text, node = i.Did.REFUSED, refused.text, refused.node
        except RestoreRefused as refused:
            did, text = i.Did.RESTORE_REFUSED, str(refused)
        except (EngineError, OSError, StoreError) as error:
            did, text = i.Did.FAILED, str(error)
            log.warning("%s %s: %s", duty.act, duty.key, error)
        except Exception as error:  # a bug must not keep the Job from being stopped
            did, text = i.Did.FAILED, f"an error in the broker: {error!r}"
            log.exception("%s %s", duty.act, duty.key)
        self._put(i.DutyDone(duty, did, text, node))
        if not isinstance(self._setup.engines.get(duty.engine), Watchable):
            self._look.set()

    async def _do(self, duty: i.Duty, engine: Engine) -> None:
        match duty.act:
            case i.Act.START:
                await engine.start(duty.key, await self._launch(duty))
            case i.Act.FORGET:
                await engine.forget(duty.key)
            case i.Act.DROP:
                for kept in duty.kept:
                    await engine.drop(kept)
            case _:
                await engine.stop(duty.key, _STOPS[duty.act])

    async def _launch(self, duty: i.Duty) -> Launch:
        if duty.mode is Mode.HELD:
            return Launch(
                mode=Mode.HELD,
                placement=duty.placement,
                time_limit=duty.time_limit,
                server=duty.server,
                kept=duty.kept,
                binding=duty.binding,
            )
        row = await self._launch_row(duty.key.job)
        if row is None:
            raise StartRefused("what it runs is not stored any more")
        try:
            folder = self._setup.jobs_folder(row.account) / duty.key.job / str(duty.key.attempt)
        except KeyError:
            text = f"this machine has no account {row.account!r} any more"
            raise StartRefused(text) from None
        return Launch(
            mode=Mode.HOSTED,
            placement=duty.placement,
            argv=row.argv,
            env=row.env,
            cwd=row.cwd,
            user=row.account,
            torchrun=row.torchrun,
            python=row.python,
            folder=str(folder),
            files=row.files,
            time_limit=duty.time_limit,
        )

    # --- looking ------------------------------------------------------------------------

    def watch(self, world: Callable[[], World]) -> None:
        """Look at every engine from now on; called once."""
        if self._watching:
            return
        loops: list[Coroutine[Any, Any, None]] = []
        for engine in self._setup.engines.values():
            loops += [self._watch_nodes(engine), self._watch_reports(engine, world)]
            if isinstance(engine, Watchable):
                loops.append(self._follow(engine))
        loops += [self.listen(), self._tidy(world)]
        self._watching = [asyncio.create_task(loop) for loop in loops]

    async def close(self) -> None:
        """Stop looking; returns when the last look is over."""
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        self._ears.shutdown(wait=False)

    async def listen(self) -> None:
        """Look at once whenever a device tells something. Looking now and then goes on, so
        that devices that tell nothing cost time and nothing else."""
        while True:
            try:
                events = await asyncio.get_running_loop().run_in_executor(
                    self._ears, self._setup.devices.events, EVENTS_S
                )
            except DeviceError as error:
                log.warning("devices are only looked at now and then: %s", error)
                return
            except Exception:  # a bug there must not end looking here
                log.exception("events of devices")
                return
            if events:
                _log(events)
                self._stirred = asyncio.get_running_loop().time()
                self._look.set()
                await self.look_at_nodes()
                await asyncio.sleep(EVENTS_APART_S)

    async def _tidy(self, world: Callable[[], World]) -> None:
        """Forget what is old, now and once a day."""
        while True:
            self._put(i.Tidy())
            before = self._setup.clock() - KEPT_S
            for engine in self._setup.engines.values():
                try:
                    await engine.prune(before, [*world().alive])
                except (EngineError, OSError) as error:
                    log.warning("tomorrow again: %s", error)
                except Exception:  # a bug there must not end looking here
                    log.exception("removing what is old of engine %s", engine.name)
            await asyncio.sleep(TIDY_EVERY_S)

    async def look_at_nodes(self) -> None:
        """One look at the machines of every engine."""
        await asyncio.gather(*map(self._look_at_nodes, self._setup.engines.values()))

    async def _look_at_nodes(self, engine: Engine) -> None:
        try:
            async with asyncio.timeout(NODES_PATIENCE_S):
                self._put(i.NodesSeen(engine.name, await engine.nodes()))
        except Exception as error:  # whatever it is, look again
            self._down(engine, error)

    async def _watch_nodes(self, engine: Engine) -> None:
        while True:
            await asyncio.sleep(NODES_EVERY_S)
            await self._look_at_nodes(engine)

    async def _watch_reports(self, engine: Engine, world: Callable[[], World]) -> None:
        while True:
            self._look.clear()
            try:
                self._put(await self._poll(engine, world()))
            except Exception as error:  # whatever it is, look again
                self._down(engine, error)
            with suppress(TimeoutError):
                busy = not isinstance(engine, Watchable) and self._moving(world())
                pause = POLL_BUSY_S if busy else POLL_CALM_S
                async with asyncio.timeout(pause):
                    await self._look.wait()
            await asyncio.sleep(0.02)  # a burst of finished duties is one look

    async def _follow(self, engine: Engine) -> None:
        """What an engine tells of its own accord; it is looked at now and then all the same."""
        assert isinstance(engine, Watchable)
        while True:
            try:
                async for reports in engine.watch():
                    self._put(i.ReportsSeen(engine.name, reports))
            except EngineError as error:
                log.warning("engine %s is only looked at now and then: %s", engine.name, error)
            except Exception:  # a bug there must not end looking
                log.exception("watching engine %s", engine.name)
            await asyncio.sleep(NODES_EVERY_S)

    def _moving(self, world: World) -> bool:
        """Whether something starts, leaves, or was told by a device a moment ago."""
        if asyncio.get_running_loop().time() - self._stirred < STIRRED_S:
            return True
        return any(job.state is not State.RUNNING for job in world.leases.values())

    def _down(self, engine: Engine, error: Exception) -> None:
        """An engine does not answer; a bug is no reason to look never again."""
        text = str(error) or "it does not answer in time"
        if not isinstance(error, EngineError | OSError):
            text = f"an error in the broker: {error!r}"
            log.error("looking at engine %s", engine.name, exc_info=error)
        self._put(i.EngineDown(engine.name, text))

    async def _poll(self, engine: Engine, world: World) -> i.PollSeen:
        poll = await engine.poll()
        holders = [job.holder for job in world.sessions.values() if job.holder is not None]
        dead = await asyncio.to_thread(_dead, holders) if holders else ()
        return i.PollSeen(engine.name, poll, dead)


def _log(events: Sequence[DeviceEvent]) -> None:
    for event in events:
        if event.kind is not EventKind.CHANGED:
            log.warning("device %s: %s: %s", event.device or "?", event.kind, event.text)


def _dead(holders: Sequence[Holder]) -> tuple[Holder, ...]:
    """Of these, the ones proven gone: on this host, and no such process or another boot."""
    here = os.uname().nodename
    boot = processes.boot_id()
    return tuple(
        holder
        for holder in dict.fromkeys(holders)
        if holder.host == here
        and (holder.boot != boot or not processes.alive(Process(holder.pid, holder.start)))
    )
