# SPDX-License-Identifier: BSD-3-Clause
"""The kernels of this server: what binds them, whether a cell runs, and how to reach them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.session import Session

from ..provisioner import GPUBrokerProvisioner
from ..wire import JobOut, KernelIn, ProcessIn
from . import control
from .processes import start_time
from .reconcile import KernelView, Plan, Tell, Word

ANSWER_S = 2.0
"""A kernel that runs our code answers within this time, also while a cell runs."""
LOOK_S = 0.2
"""Between two looks for a kernel that was launched and is not listed yet."""
BOOT_S = 60.0
"""The same for a kernel that was not heard of yet."""

_NEVER_CULLED_S = 10 * 365 * 86400

log = logging.getLogger(__name__)


@dataclass
class _Kernel:
    """What is known of one kernel."""

    id: str
    managed: bool = False
    bound: str = ""
    told: Word | None = None
    caught: bool = False
    pid: int | None = None
    heard: bool = False
    """Something came from it since it was started."""
    cells: set[str] = field(default_factory=set)
    """Ids of the execute requests it works on."""
    quiet_since: float = field(default_factory=time.monotonic)
    stream: Any = None
    ports: tuple[int, ...] = ()
    telling: bool = False
    magics_due: bool = False
    restarting: bool = False
    cull_timeout: Any = None
    """(what its spec said before it was protected,) while it is protected."""

    def view(self) -> KernelView:
        return KernelView(self.id, self.managed, self.bound, self.told, self.caught)


class Kernels:
    """Follows the kernels of a MappingKernelManager; the provisioner's Binder."""

    def __init__(self, manager: Any, changed: Callable[[], None]) -> None:
        """``changed`` is called, on the loop, whenever a report would be another."""
        self._manager = manager
        self._changed = changed
        self._kernels: dict[str, _Kernel] = {}
        self._ours: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._env: Mapping[str, str] = {"CUDA_VISIBLE_DEVICES": ""}
        self._lease = ""
        self._looking = False
        tracked = manager.untracked_message_types
        manager.untracked_message_types = [*tracked, *control.TYPES]

    # --- the provisioner's side --------------------------------------------------------

    def environment(self, kernel: str) -> Mapping[str, str]:
        """What binds a kernel that is launched now."""
        known = self._kernels.setdefault(kernel, _Kernel(kernel))
        known.managed, known.bound, known.told, known.caught = True, self._lease, None, False
        known.heard, known.magics_due = False, True
        known.cells, known.quiet_since = set(), time.monotonic()
        return self._env

    def launched(self, kernel: str, pid: int) -> None:
        """Its process runs."""
        self._kernels[kernel].pid = pid
        self.look()
        self._changed()

    def ended(self, kernel: str) -> None:
        """It is gone."""
        self._forget(kernel)
        self._changed()

    # --- what the broker is told -------------------------------------------------------

    def views(self) -> list[KernelView]:
        """The kernels as ``reconcile`` sees them."""
        return [kernel.view() for kernel in self._kernels.values()]

    def report(self) -> tuple[KernelIn, ...]:
        """The kernels for an activity report."""
        now = time.monotonic()
        return tuple(
            KernelIn(
                id=kernel.id,
                name=getattr(self._manager_of(kernel.id), "kernel_name", "") or "",
                busy=bool(kernel.cells),
                idle_for=0.0 if kernel.cells else now - kernel.quiet_since,
                process=_process(kernel.pid),
                managed=kernel.managed,
            )
            for kernel in self._kernels.values()
        )

    def pids(self) -> dict[int, str]:
        """Living kernels: pid -> the connection file, which its command line names."""
        return {
            kernel.pid: str(getattr(self._manager_of(kernel.id), "connection_file", ""))
            for kernel in self._kernels.values()
            if kernel.pid is not None
        }

    # --- following ---------------------------------------------------------------------

    def look(self) -> None:
        """See which kernels there are; again soon while one is on its way."""
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)

    def _look(self) -> None:
        self._looking = not self._see()
        if self._looking:
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _see(self) -> bool:
        """True if every kernel that was launched is in sight."""
        there = set(self._manager.list_kernel_ids())
        for kernel in there:
            self._watch(self._kernels.setdefault(kernel, _Kernel(kernel)))
        for kernel in [known for known in self._kernels if known not in there]:
            if not self._kernels[kernel].managed:
                self._forget(kernel)
        return not any(k.managed and k.stream is None for k in self._kernels.values())

    def _watch(self, kernel: _Kernel) -> None:
        manager = self._manager_of(kernel.id)
        ports = tuple(getattr(manager, "ports", ()) or ())
        if manager is None or not ports or not all(ports):
            return
        if kernel.stream is not None and ports == kernel.ports:
            return
        self._close(kernel)
        session = Session(config=manager.session.config, key=manager.session.key)
        provisioner = getattr(manager, "provisioner", None)
        kernel.managed = isinstance(provisioner, GPUBrokerProvisioner)
        kernel.pid = kernel.pid or getattr(provisioner, "pid", None)
        kernel.ports, kernel.stream = ports, manager.connect_iopub()
        kernel.stream.on_recv(lambda parts: self._heard(kernel, session, parts))
        if kernel.managed and kernel.magics_due:
            kernel.magics_due = False
            self._load_magics(kernel, manager)
        self._changed()

    def _heard(self, kernel: _Kernel, session: Session, parts: list[bytes]) -> None:
        kernel.heard = True
        message = session.deserialize(session.feed_identities(parts)[1])
        parent = message["parent_header"]
        if message["header"]["msg_type"] != "status":
            return
        state = message["content"]["execution_state"]
        if state == "starting":
            self._set_cells(kernel, set())
        elif (
            parent.get("msg_type") == "execute_request" and parent.get("session") not in self._ours
        ):
            cell = {str(parent.get("msg_id"))}
            self._set_cells(kernel, kernel.cells | cell if state == "busy" else kernel.cells - cell)

    def _set_cells(self, kernel: _Kernel, cells: set[str]) -> None:
        was, kernel.cells = bool(kernel.cells), cells
        if was and not cells:
            kernel.quiet_since = time.monotonic()
        if was != bool(cells):
            self._changed()

    def _load_magics(self, kernel: _Kernel, manager: Any) -> None:
        spec = manager.kernel_spec
        if manager.provisioner.injected or getattr(spec, "language", "") != "python":
            return
        session = control.own_session(manager)
        self._ours.add(session.session)
        self._start(control.load_magics(manager, session, 2 * BOOT_S))

    # --- acting ------------------------------------------------------------------------

    def follow(self, plan: Plan, session: JobOut | None) -> None:
        """Carry out what concerns kernels; what takes time goes on in the background."""
        self._env, self._lease = plan.env, plan.lease
        for tell in plan.tell:
            kernel = self._kernels[tell.kernel]
            if kernel.stream is not None and not kernel.restarting and not kernel.telling:
                kernel.telling = True
                self._start(self._tell(kernel, tell, session))
        for name in plan.restart:
            kernel = self._kernels[name]
            if not kernel.restarting:
                kernel.restarting = True
                self._start(self._restart(kernel))
        for kernel in self._kernels.values():
            self._protect(kernel, kernel.id in plan.kept)

    async def _tell(self, kernel: _Kernel, tell: Tell, session: JobOut | None) -> None:
        try:
            manager, pid = self._manager_of(kernel.id), kernel.pid
            if manager is None:
                return
            content = _content(tell, session)
            reply = await control.ask(manager, content, ANSWER_S if kernel.heard else BOOT_S)
            if kernel.pid == pid:  # else it was restarted meanwhile and is told anew
                self._take(kernel, tell, reply)
        finally:
            kernel.telling = False
            self._changed()

    def _take(self, kernel: _Kernel, tell: Tell, reply: Mapping[str, Any] | None) -> None:
        kernel.told = tell.word
        kernel.caught = tell.word.state == "parked" and bool(reply and reply.get("running"))
        if reply is None:
            log.info("kernel %s does not answer: it follows its lease by restarts", kernel.id)
        elif not reply.get("applied"):
            log.info("kernel %s cannot follow its lease: %s", kernel.id, reply.get("reason"))
        elif tell.word.state != "parked":
            kernel.bound = tell.word.lease

    async def _restart(self, kernel: _Kernel) -> None:
        log.warning("kernel %s is restarted: the GPUs of its lease have to go", kernel.id)
        try:
            await self._manager.restart_kernel(kernel.id)
        except Exception:
            log.exception("kernel %s could not be restarted", kernel.id)
        finally:
            kernel.restarting = False
            self._changed()

    def _protect(self, kernel: _Kernel, kept: bool) -> None:
        """While it is parked the server's culler must leave it alone."""
        manager = self._manager_of(kernel.id)
        if manager is None or kept == (kernel.cull_timeout is not None):
            return
        metadata = manager.kernel_spec.metadata
        if kept:
            kernel.cull_timeout = (metadata.get("cull_idle_timeout"),)
            metadata["cull_idle_timeout"] = _NEVER_CULLED_S
            return
        (before,) = kernel.cull_timeout
        kernel.cull_timeout = None
        # The time it was parked is no time in which its user did nothing.
        manager.last_activity = self._manager.last_kernel_activity
        if before is None:
            del metadata["cull_idle_timeout"]
        else:
            metadata["cull_idle_timeout"] = before

    def close(self) -> None:
        """Stop following."""
        for task in self._tasks:
            task.cancel()
        for kernel in self._kernels.values():
            self._close(kernel)
        self._kernels.clear()

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _manager_of(self, kernel: str) -> Any:
        try:
            return self._manager.get_kernel(kernel) if kernel in self._manager else None
        except KeyError:
            return None

    def _forget(self, kernel: str) -> None:
        known = self._kernels.pop(kernel, None)
        if known is not None:
            self._close(known)

    def _close(self, kernel: _Kernel) -> None:
        if kernel.stream is not None:
            kernel.stream.close()
            kernel.stream = None


def _content(tell: Tell, session: JobOut | None) -> dict[str, Any]:
    return {
        "state": tell.word.state,
        "env": dict(tell.env),
        "session": None if session is None else session.id,
        "job_state": "" if session is None else str(session.state),
        "text": "" if session is None else session.outcome,
    }


def _process(pid: int | None) -> ProcessIn | None:
    start = None if pid is None else start_time(pid)
    return None if pid is None or start is None else ProcessIn(pid=pid, start=start)
