# SPDX-License-Identifier: BSD-3-Clause
"""The cell gate: a cell run while the session is parked waits until its GPU is back."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Optional

from IPython.core.error import InputRejected

from .control import Binding
from .http import BrokerError, Client
from .ipython import show

PAUSE = 1.0
"""Seconds between two looks at the queue; the server's word ends a pause at once."""

_OURS = re.compile(r"\s*(#.*)?$|\s*\??(\w+\s*=\s*)?%gpu_\w+.*$")


class CellNotRun(InputRejected):
    """The cell waited for a GPU and was not run."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


class Waiting:
    """What the waiting cell shows; it is displayed once and then updated."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._handle = show(self)

    def say(self, text: str) -> None:
        """Show another text, if it is another."""
        if text != self.text:
            self.text = text
            if self._handle is not None:
                self._handle.update(self)

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        style = "color: var(--jp-ui-font-color2, #616161); font-family: var(--jp-ui-font-family)"
        return f'<div style="{style}">{escape(self.text)}</div>'


class Gate:
    """Holds cells back while the session is parked; see ``install``.

    IPython runs a cell even after an error or an interrupt in ``pre_run_cell``, so a cell
    that must not run is marked here and then rejected by an AST transformer."""

    def __init__(self, shell: Any, binding: Binding) -> None:
        self._shell = shell
        self._binding = binding
        self._rejected = ""

    def install(self) -> None:
        """From now on every cell passes through."""
        self._shell.events.register("pre_execute", self.forget)
        self._shell.events.register("pre_run_cell", self.before_cell)
        self._shell.events.register("post_run_cell", self.after_cell)
        self._shell.ast_transformers.append(self)

    def forget(self) -> None:
        """A rejected cell with no code in it never met ``visit``; the next one is not it."""
        self._rejected = ""

    def before_cell(self, info: Any) -> None:
        """Wait if the session is parked. Silent executions and our own magics never do."""
        if info.silent or only_ours(info.raw_cell):
            return
        if self._binding.told.state == "parked":
            self._rejected = self._wait()
        self._binding.running = not self._rejected

    def after_cell(self, _result: Any) -> None:
        """The cell is over, or was not run."""
        self._binding.running = False

    def _wait(self) -> str:
        """Empty once the GPU is back; else why the cell will not run."""
        wait = _Wait(self._binding)
        try:
            with _interruptible():
                return wait.until_back()
        except KeyboardInterrupt:
            wait.leave_parked()
            return "The cell was not run: interrupted while it waited for the GPU."

    def visit(self, node: Any) -> Any:
        """As AST transformer: reject the cell that must not run."""
        if self._rejected:
            raise CellNotRun(self._rejected)
        return node


class _Wait:
    """One cell's wait."""

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
        self._since = time.monotonic()
        self._asked = False
        self._queued = False
        self._shown = Waiting(
            "This session is parked: its GPU memory is kept in host memory. Asking for the GPU …"
        )

    def until_back(self) -> str:
        """Empty once the GPU is back; else why the cell will not run."""
        while True:
            told = self._binding.told
            if told.state == "leased":
                self._shown.say(f"GPU back after {time.monotonic() - self._since:.0f} s.")
                return ""
            if told.state == "none":
                return "The cell was not run: the session ended while it was parked. " + told.text
            refusal = self._look()
            if refusal:
                self._shown.say("This session stays parked.")
                return refusal
            self._binding.wait(PAUSE)

    def _look(self) -> str:
        """Ask for the GPU once, show the place in the queue; why not, if never."""
        try:
            session = _session(Client.from_environment())
            if session is None:
                return ""  # the server will say so in a moment
            return self._step(session)
        except BrokerError as error:
            if 400 <= error.status < 500:
                return f"The cell was not run: {error}"
            self._shown.say(f"Waiting for the GPU. {error}")
            return ""

    def _step(self, session: dict[str, Any]) -> str:
        state = session["state"]
        if state == "parked":
            if session.get("parked_for") == "time":
                return (
                    "The cell was not run: this session's GPU time is over, its state is kept."
                    " Ask again with %gpu_session resume, or Resume in the GPU sidebar."
                )
            if self._queued:
                return "The cell was not run: the session was parked again while it waited."
            Client.from_environment().post(f"/sessions/{session['id']}/resume", {"person": False})
            self._asked = self._queued = True
        elif state in ("queued", "starting"):
            self._queued = True
        self._shown.say(_position(session))
        return ""

    def leave_parked(self) -> None:
        """Take back what this cell asked for."""
        try:
            client = Client.from_environment()
            session = _session(client)
            if self._asked and session and session["state"] in ("queued", "starting"):
                client.post(f"/sessions/{session['id']}/park")
            self._shown.say("Interrupted: this session stays parked.")
        except (BrokerError, KeyboardInterrupt) as error:
            self._shown.say(f"Interrupted. {error}")


def only_ours(cell: str) -> bool:
    """True for a cell of nothing but ``%gpu_*`` magics, which must work while parked."""
    if cell.lstrip().startswith("%%gpu_"):
        return True
    return all(_OURS.match(line) for line in cell.splitlines())


@contextmanager
def _interruptible() -> Iterator[None]:
    """For a cell with ``await`` ipykernel turns an interrupt into the cancellation of a
    future, which nobody would look at while we wait."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.default_int_handler)


def _session(client: Client) -> Optional[dict[str, Any]]:
    server = os.environ.get("GPUBROKER_SESSION", "").partition("/")[2]
    found: Optional[dict[str, Any]] = client.get("/servers/state", server=server)["session"]
    return found


def _position(session: dict[str, Any]) -> str:
    end = " Interrupt the kernel to leave it parked; the cell is not run then."
    state, why = session["state"], session.get("why")
    if state == "stopping":
        return "This session is being parked. The cell waits and then asks for the GPU." + end
    if state == "starting":
        return "A GPU is free: this session's GPU memory is being brought back."
    if state == "queued" and why:
        return f"Waiting for the GPU: position {why['position']} in the queue. {why['text']}{end}"
    if state == "queued":
        return "Waiting for the GPU." + end
    return "The GPU is back; waiting for this server to say so."
