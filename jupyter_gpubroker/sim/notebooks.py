# SPDX-License-Identifier: BSD-3-Clause
"""Notebook users of a workload: they open a session, run cells, think, and leave.

A closed loop: a cell that is delayed shifts all that follows, and the time that its user
thinks after it stays as it was.

Per cell: each cell asks for the session with the GPUs that the cell needs; when none has run
for a while the session parks itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..broker import inputs as i
from ..core import events as e
from ..core.model import GPU_MILLI, LEASED, Job, Reason, Refusal, Request, Seconds, State
from .agenda import Action
from .servers import Server
from .stage import Stage
from .workload import CellRow, Hold, Options, SessionRow

AGAIN_S = 60.0
"""A user whose wish was refused asks again after so long."""


@dataclass(slots=True)
class Cell:
    """One cell, from when its user ran it."""

    row: CellRow
    arrived: Seconds
    assigned: Seconds | None = None
    """When its session had, or got, its GPUs."""
    began: Seconds | None = None
    """Since when it runs; ``None`` while it waits for GPUs."""
    left: Seconds = 0.0
    """How long it still has to run."""
    interruptions: int = 0

    @property
    def wait(self) -> Seconds | None:
        """Until it had GPUs; ``None`` if it never had."""
        return None if self.assigned is None else self.assigned - self.arrived


class Notebook:
    """One session of the workload with its user."""

    def __init__(
        self,
        stage: Stage,
        row: SessionRow,
        options: Options,
        changed: Callable[[int], None],
        over: Action,
    ) -> None:
        """``changed`` hears how much more, or less, of the GPUs is really in use; ``over`` is
        called when its user has left."""
        self.stage, self.row, self._changed, self._over = stage, row, changed, over
        self._per_cell, self._linger = options.hold is Hold.CELL, options.attach_s
        self.done: list[Cell] = []
        self.cell: Cell | None = None
        """The one that runs or waits."""
        self.refused = ""
        """Why a wish was refused last."""
        self._server = Server(stage, row.user, row.name, talks=not self._per_cell)
        self._next = 0
        self._ends = 0
        self._closed = False
        stage.follow(row.user, self._look)

    @property
    def cells(self) -> list[Cell]:
        """All that were run."""
        return self.done if self.cell is None else [*self.done, self.cell]

    def open(self) -> None:
        """The server starts, and asks for its GPUs if it is to have them all the time."""
        self._server.start()
        if not self._per_cell:
            self._ask(self.row.request)
        self._plan_next(self.row.open)

    def _ask(self, request: Request) -> None:
        wish = i.OpenSession(
            "hub", self.row.user, self._server.key, request, self._server.incarnation,
            queue=self.row.queue,
        )  # fmt: skip
        self.stage.send(wish, self._answered)

    def _wanted(self, cell: Cell) -> Request:
        """What the session has to have for a cell."""
        whole = self.row.request
        by_cell = self._per_cell and whole.gpus
        return replace(whole, gpus=max(1, cell.row.milli // GPU_MILLI)) if by_cell else whole

    def _answered(self, answer: i.Answer) -> None:
        error = answer.error
        if error is None:
            return
        self.refused = str(error)
        if isinstance(error, Refusal) and error.field != "class":
            self._close()  # it can never be had
        elif self.cell is not None:
            self.stage.agenda.after(AGAIN_S, self._look)

    # --- cells ----------------------------------------------------------------------------

    def _plan_next(self, ended: Seconds) -> None:
        """The user thinks as long as in the trace, then runs the next cell, or closes."""
        cells, now = self.row.cells, self.stage.agenda.now
        if self._next == len(cells):
            close = max(0.0, self.row.close - ended)
            self.stage.agenda.at(now + close, self._close)
            return
        row = cells[self._next]
        self._next += 1
        self.stage.agenda.at(now + max(0.0, row.start - ended), lambda: self._arrive(row))

    def _arrive(self, row: CellRow) -> None:
        if self._closed:
            return
        now = self.stage.agenda.now
        self.cell = Cell(row, now, left=row.duration)
        self._server.run_cell()
        self._look()

    def _look(self) -> None:
        """What the session's state means for the cell."""
        cell = self.cell
        if cell is None:
            return
        session = self._server.session()
        if cell.began is not None:
            if session is None or session.state not in LEASED:
                self._interrupt(cell)
                self._look()
        elif session is None or not self._serves(session, cell):
            self._ask(self._wanted(cell))
        elif session.state is State.PARKED:
            # A running cell does not resume what its time limit has parked: its user asks.
            asks = session.parked_for is Reason.TIME
            self._resume(session, person=asks)
        elif session.state in LEASED and session.state is not State.STOPPING:
            if cell.assigned is None:
                cell.assigned = self.stage.agenda.now
            if session.state is not State.STARTING:
                self._begin(cell)

    def _serves(self, session: Job, cell: Cell) -> bool:
        """False where the cell needs another number of GPUs than the session's last one."""
        return not self._per_cell or session.request.gpus == self._wanted(cell).gpus

    def _resume(self, session: Job, *, person: bool) -> None:
        asked = i.Ask(f"user:{self.row.user}", session.id, e.Resume(person=person))
        self.stage.send(asked)

    def _begin(self, cell: Cell) -> None:
        cell.began = self.stage.agenda.now
        self._ends += 1
        mark = self._ends
        self._changed(cell.row.milli)
        self.stage.agenda.after(cell.left, lambda: self._end(cell, mark))

    def _interrupt(self, cell: Cell) -> None:
        """Its GPUs are gone before it was over; it goes on where it was."""
        assert cell.began is not None
        cell.left -= self.stage.agenda.now - cell.began
        cell.began = None
        cell.interruptions += 1
        self._ends += 1
        self._changed(-cell.row.milli)

    def _end(self, cell: Cell, mark: int) -> None:
        if mark != self._ends:
            return
        self._changed(-cell.row.milli)
        self.cell = None
        self.done.append(cell)
        self._server.end_cell()
        self._plan_next(cell.row.start + cell.row.duration)
        if self._per_cell:
            self.stage.agenda.after(self._linger, lambda: self._park(mark))

    def _park(self, mark: int) -> None:
        """No cell has run since: the GPUs go back."""
        session = self._server.session()
        if mark != self._ends or self.cell is not None or session is None:
            return
        if session.state in (State.RUNNING, State.DRAINING):
            asked = i.Ask(f"user:{self.row.user}", session.id, e.Park(Reason.CELL))
            self.stage.send(asked)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed, self.cell = True, None
        self._server.end()
        gone = i.ServerGone("hub", self._server.key, self._server.incarnation, i.HowGone.STOPPED)
        self.stage.send(gone, lambda _: self._over())
