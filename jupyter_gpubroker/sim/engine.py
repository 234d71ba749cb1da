# SPDX-License-Identifier: BSD-3-Clause
"""Machines and their engine in virtual time. What is true of them, and what is reported, are
two things: a machine may be cut off, an end may go unrecorded.

It keeps the promises of the seam (``jupyter_gpubroker.engines``): a key starts at most once,
all its parts or none, also when the call comes late or after its end; it says that a key has
ended only when nothing of it is left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf

from ..broker import inputs as i
from ..core.model import (
    Device,
    JobId,
    Kept,
    Key,
    Mode,
    Node,
    Placement,
    Process,
    Rung,
    Seconds,
    StageName,
    nodes_of,
)
from ..engines import Phase, Poll, Report, RestoreRefused, StartRefused
from .agenda import Agenda


@dataclass(frozen=True, slots=True)
class Work:
    """What the program of a batch Job does."""

    seconds: Seconds = inf
    """From when all its parts run to its end; infinite = it never ends by itself."""
    code: int = 0
    pending: Seconds = 0.0
    """From its start to when all parts run."""
    stubborn: bool = False
    """It ignores SIGTERM."""


@dataclass(slots=True)
class Run:
    """One key that was started."""

    key: Key
    mode: Mode
    placement: Placement
    server: str
    parts: dict[str, str]
    """Hosted: node -> boot, of the parts that live."""
    running: bool = True
    ended: bool = False
    recorded: bool = True
    """False: its end was not recorded, and nobody will ever know."""
    told: bool = False
    """Its end was reported, and is from now on."""
    code: int = 0
    asked: bool = False
    """It was asked to leave: nothing new is opened."""
    step: int | None = None
    """The last step it said it saved."""


@dataclass(slots=True)
class Use:
    """A process with memory on GPUs: one kernel of a session, on them or parked."""

    process: Process
    kernel: str
    server: str
    key: Key
    """The lease that it is, or was, on the GPUs with."""
    placement: Placement
    boots: tuple[str, ...]
    parked: bool = False


@dataclass(slots=True)
class Engine:
    """One engine with all its machines."""

    agenda: Agenda
    machines: dict[str, Node]
    """As they are, whether it sees them or not."""
    changed: Callable[[], None] = lambda: None
    """Called when there is something new to see."""
    name: str = "sim"
    ladder: tuple[StageName, ...] = (StageName.PARK, StageName.RESTART)
    settle: Seconds = 5.0
    usual: Work = Work()
    """Of Jobs that are not among ``works``."""
    works: dict[JobId, Work] = field(default_factory=dict)
    any_node: bool = False
    """What is parked can be restored everywhere, as if it lay on a shared disk."""
    stubborn: dict[str, bool] = field(default_factory=dict)
    """Servers whose kernels can be neither parked nor restarted."""
    runs: dict[Key, Run] = field(default_factory=dict)
    ends: dict[JobId, int] = field(default_factory=dict)
    """How often the work of a Job was done to its end."""
    uses: dict[Process, Use] = field(default_factory=dict)
    hidden: dict[str, str] = field(default_factory=dict)
    """Machines that are down or cut off -> the sentence about it."""
    _news: dict[Key, None] = field(default_factory=dict)
    """Runs that changed since ``watch`` was asked."""
    _forgotten: dict[Key, bool] = field(default_factory=dict)
    _pids: int = 100

    # --- the verbs of the seam ------------------------------------------------------------

    def nodes(self) -> list[Node]:
        """The machines as the engine sees them."""
        return [
            replace(node, usable=False, note=self.hidden[name]) if name in self.hidden else node
            for name, node in self.machines.items()
        ]

    def start(self, key: Key, duty: i.Duty) -> None:
        """Start all parts, or grant and restore; StartRefused, RestoreRefused."""
        if key in self._forgotten:
            return
        if key not in self.runs:
            self._begin(key, duty)
        run = self.runs[key]
        if run.mode is Mode.HELD and not run.ended and not run.asked:
            self._restore(run, duty.kept)
        self._changed(key)

    def refuse(self, key: Key) -> bool:
        """Decline a start, for good; False where it has started already."""
        if key not in self.runs:
            self._forgotten[key] = True
        return key not in self.runs

    def stop(self, key: Key, act: i.Act) -> None:
        """Ask it to leave, or make it; what is cut off does not hear it."""
        run = self.runs.get(key)
        if run is None or run.ended:
            return
        run.asked = True
        if run.mode is Mode.HOSTED:
            self._signal(run, act)
        else:
            self._take(run, act)
        self._changed(key)

    def forget(self, key: Key) -> None:
        """The end of this key has been recorded."""
        run = self.runs.get(key)
        if run is not None and run.ended:
            self._forgotten[key] = True
            del self.runs[key]

    def drop(self, kept: Kept) -> None:
        """A parked image is not wanted any more; its process ends."""
        for process in kept.processes:
            use = self.uses.get(process)
            if use is not None and use.parked:
                del self.uses[process]
        self.changed()

    def poll(self, began: Seconds) -> Poll:
        """Everything that can be seen now."""
        reports = {key: self._report(run) for key, run in self.runs.items() if run.recorded}
        parked = (use for use in self.uses.values() if use.parked)
        return Poll(began, reports, self.settle, tuple(self._image(use) for use in parked))

    def watch(self) -> list[Report]:
        """Of those that changed since it was asked last: what ``poll`` would hold too."""
        runs = [self.runs[key] for key in self._news if key in self.runs]
        self._news.clear()
        return [self._report(run) for run in runs if run.recorded]

    # --- what happens to machines ---------------------------------------------------------

    def hide(self, node: str, why: str) -> None:
        """The machine is cut off: what it runs goes on, unseen."""
        self.hidden[node] = why
        self.changed()

    def die(self, node: str) -> None:
        """The machine is off, and everything on it gone."""
        machine = self.machines[node]
        self.machines[node] = replace(machine, boot=f"b{int(machine.boot[1:]) + 1}")
        self.hide(node, "it does not answer")
        for run in self.runs.values():
            if run.mode is Mode.HOSTED:
                run.parts.pop(node, None)
        self.uses = {
            process: use
            for process, use in self.uses.items()
            if node not in nodes_of(use.placement)
        }

    def show(self, node: str) -> None:
        """The machine answers again."""
        self.hidden.pop(node, None)
        for run in list(self.runs.values()):
            if run.mode is Mode.HOSTED and node in nodes_of(run.placement) and not run.ended:
                self._take_down_broken(run)
        self.changed()

    def lose_end(self, key: Key) -> None:
        """The run is over and its record is lost."""
        run = self.runs[key]
        run.parts.clear()
        run.ended, run.recorded = True, False
        self.changed()

    def leave(self, key: Key, code: int, step: int | None = None) -> None:
        """The program of a run ends, having said what it saved."""
        self.runs[key].step = step
        self._end(self.runs[key], code)

    # --- what kernels do ------------------------------------------------------------------

    def bind(self, key: Key, kernel: str) -> bool:
        """A kernel of the server takes its GPUs, if the lease is granted and not taken back."""
        run = self.runs.get(key)
        if run is None or run.asked or run.ended:
            return False
        theirs = (use for use in self.uses.values() if use.server == run.server)
        if not any(use.kernel == kernel and not use.parked for use in theirs):
            boots = tuple(self.machines[node].boot for node in nodes_of(run.placement))
            self._pids += 1
            process = Process(self._pids, int(self.agenda.now))
            self.uses[process] = Use(process, kernel, run.server, key, run.placement, boots)
            self._changed(key)
        return True

    def unbind(self, server: str) -> None:
        """The server's kernels are restarted without GPUs, or end."""
        theirs = [process for process, use in self.uses.items() if use.server == server]
        for process in theirs:
            self._changed(self.uses.pop(process).key)

    # --- the truth ------------------------------------------------------------------------

    def alive(self) -> list[Run]:
        """Runs of which something lives, whatever is known of them."""
        return [
            run
            for run in self.runs.values()
            if (run.parts if run.mode is Mode.HOSTED else self._on_gpus(run))
        ]

    def occupied(self, run: Run) -> Placement:
        """The Shares that are really in use."""
        if run.mode is Mode.HELD:
            return run.placement if self._on_gpus(run) else ()
        return tuple(share for share in run.placement if share.node in run.parts)

    # --- how it works ---------------------------------------------------------------------

    def _begin(self, key: Key, duty: i.Duty) -> None:
        for name in nodes_of(duty.placement):
            if name in self.hidden:
                self.refuse(key)
                raise StartRefused(f"{name}: {self.hidden[name]}", name)
        hosted = duty.mode is Mode.HOSTED
        boots = {name: self.machines[name].boot for name in nodes_of(duty.placement)}
        run = Run(key, duty.mode, duty.placement, duty.server, boots if hosted else {})
        self.runs[key] = run
        if hosted:
            work = self.works.get(key.job, self.usual)
            run.running = not work.pending
            if work.pending:
                self.agenda.after(work.pending, lambda: self._up(run))
            self.agenda.after(work.pending + work.seconds, lambda: self._done(run, work.code))

    def _changed(self, key: Key) -> None:
        self._news[key] = None
        self.changed()

    def _up(self, run: Run) -> None:
        run.running = True
        self._changed(run.key)

    def _done(self, run: Run, code: int) -> None:
        if not run.ended and len(run.parts) == len(nodes_of(run.placement)):
            self.ends[run.key.job] = self.ends.get(run.key.job, 0) + (code == 0)
            self._end(run, code)

    def _end(self, run: Run, code: int) -> None:
        run.parts.clear()
        run.ended, run.running, run.code = True, True, code
        self._changed(run.key)

    def _signal(self, run: Run, act: i.Act) -> None:
        work = self.works.get(run.key.job, self.usual)
        if act is not i.Act.KILL and work.stubborn:
            return
        for node in [node for node in run.parts if node not in self.hidden]:
            del run.parts[node]
        if not run.parts and not self._is_hidden(run):
            self._end(run, -9 if act is i.Act.KILL else -15)

    def _take_down_broken(self, run: Run) -> None:
        """A part is lost: the others that can be reached go with it."""
        nodes = nodes_of(run.placement)
        if len(run.parts) < len(nodes):
            for node in [node for node in run.parts if node not in self.hidden]:
                del run.parts[node]
            if not self._is_hidden(run):
                self._end(run, -9)

    def _restore(self, run: Run, kept: Iterable[Kept]) -> None:
        images = [item for item in kept if item.rung is Rung.GPU_STATE]
        wanted = [process for item in images for process in item.processes]
        if any(process not in self.uses for process in wanted):
            raise RestoreRefused("what was parked is not there any more")
        for process in wanted:
            use = self.uses[process]
            use.parked, use.key, use.placement = False, run.key, run.placement

    def _take(self, run: Run, act: i.Act) -> None:
        """Park, or kill; a restart is for the server to do."""
        if self._is_hidden(run) or (self.stubborn.get(run.server) and act is not i.Act.KILL):
            return
        for use in self._on_gpus(run):
            if act is i.Act.PARK:
                use.parked = True
            elif act is i.Act.KILL:
                del self.uses[use.process]

    def _on_gpus(self, run: Run) -> list[Use]:
        return [use for use in self.uses.values() if use.key == run.key and not use.parked]

    def _is_hidden(self, run: Run) -> bool:
        return bool(self.hidden) and any(node in self.hidden for node in nodes_of(run.placement))

    def _report(self, run: Run) -> Report:
        if self._is_hidden(run) and not run.told:
            return Report(run.key, Phase.RUNNING, run.mode, lost="its machine does not answer")
        report = self._held(run) if run.mode is Mode.HELD else self._hosted(run)
        run.told = report.phase is Phase.EXITED
        return report

    def _hosted(self, run: Run) -> Report:
        phase = Phase.EXITED if run.ended else Phase.RUNNING if run.running else Phase.PENDING
        code = run.code if run.ended else None
        codes = (code,) * len(nodes_of(run.placement))
        return Report(run.key, phase, run.mode, codes, code, checkpoint=run.step)

    def _held(self, run: Run) -> Report:
        active = self._on_gpus(run)
        run.ended = run.ended or (run.asked and not active)
        return Report(
            run.key,
            Phase.EXITED if run.ended else Phase.RUNNING,
            run.mode,
            processes=tuple(use.process for use in active),
            memory_mib=sum(share.memory_mib for share in run.placement) if active else 0,
            kept=tuple(
                replace(self._image(use), attempt=run.key.attempt)
                for use in self.uses.values()
                if use.server == run.server and use.parked
            ),
        )

    def _image(self, use: Use) -> Kept:
        bound = not self.any_node
        return Kept(
            kernel=use.kernel,
            attempt=0,
            rung=Rung.GPU_STATE,
            server=use.server,
            node=use.placement[0].node if bound else "",
            boot=use.boots[0] if bound else "",
            devices=tuple(share.device for share in use.placement) if bound else (),
            memory_mib=sum(share.memory_mib for share in use.placement),
            processes=(use.process,),
        )


def cluster(
    count: int, gpus: int, memory_mib: int = 1000, host_memory_mib: int = 0
) -> dict[str, Node]:
    """Machines ``node1`` … with so many GPUs of so much memory each."""
    return {
        f"node{n}": Node(
            name=f"node{n}",
            engine="sim",
            boot="b1",
            devices=tuple(Device(f"GPU-{n}-{g}", "sim", memory_mib, g) for g in range(gpus)),
            host_memory_mib=host_memory_mib,
        )
        for n in range(1, count + 1)
    }
