# SPDX-License-Identifier: BSD-3-Clause
"""A kernel and what a frontend would show of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import KernelManager

from ..until import until

TIMEOUT = 120.0


@dataclass
class Cell:
    """One execution: what its output area shows now."""

    id: str
    status: str = ""
    """ok, error or aborted; empty while it runs."""
    error: str = ""
    shown: dict[str, str] = field(default_factory=dict)
    """Plain text by display id (or by number), in order."""
    html: dict[str, str] = field(default_factory=dict)
    stream: str = ""
    help: str = ""

    @property
    def text(self) -> str:
        """All of it as plain text."""
        return "\n".join([*self.shown.values(), self.stream, self.error])


class Notebook:
    """Runs cells in a kernel with the magics on its command line."""

    def __init__(self, python: str, env: Mapping[str, str], cwd: str) -> None:
        manager = KernelManager()
        manager._kernel_spec = KernelSpec(
            argv=[
                python,
                "-m",
                "ipykernel_launcher",
                "-f",
                "{connection_file}",
                "--IPKernelApp.extra_extensions=gpubroker",
            ],
            language="python",
            display_name="test",
        )
        manager.start_kernel(env={**os.environ, **env}, cwd=cwd)
        self.manager = manager
        self.client: BlockingKernelClient = manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=TIMEOUT)
        self._cells: dict[str, Cell] = {}

    def start(self, code: str, **options: Any) -> Cell:
        """Send a cell and do not wait for it."""
        cell = Cell(self.client.execute(code, **options))
        self._cells[cell.id] = cell
        return cell

    def run(self, code: str, **options: Any) -> Cell:
        """Run a cell to its end."""
        return self.end(self.start(code, **options))

    def end(self, cell: Cell) -> Cell:
        """Wait until this cell is over."""
        until(lambda: self.look() or cell.status, timeout=TIMEOUT, what=f"the end of {cell}")
        self.look()
        return cell

    def wait_for(self, cell: Cell, text: str) -> Cell:
        """Wait until the output of this cell holds ``text``."""
        until(lambda: self.look() or text in cell.text, timeout=TIMEOUT, what=f"{text!r} in {cell}")
        return cell

    def look(self) -> None:
        """Take in what has arrived."""
        while self.client.iopub_channel.msg_ready():
            self._show(self.client.get_iopub_msg(timeout=1))
        while self.client.shell_channel.msg_ready():
            self._reply(self.client.get_shell_msg(timeout=1))

    def ask(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Send the server's word over the control channel; the kernel's reply."""
        message = self.client.session.msg("gpubroker_lease", dict(content))
        self.client.control_channel.send(message)
        while True:
            reply = self.client.get_control_msg(timeout=TIMEOUT)
            if reply["header"]["msg_type"] == "gpubroker_lease_reply":
                found: dict[str, Any] = reply["content"]
                return found

    def interrupt(self) -> None:
        """As the stop button does."""
        self.manager.interrupt_kernel()

    def value(self, expression: str) -> str:
        """``repr`` of an expression in the kernel."""
        return self.run(f"print(repr({expression}))").stream.strip()

    def complete(self, code: str) -> list[str]:
        """What Tab offers at the end of ``code``."""
        request = self.client.complete(code)
        while True:
            reply = self.client.get_shell_msg(timeout=TIMEOUT)
            if reply["parent_header"].get("msg_id") == request:
                matches: list[str] = reply["content"]["matches"]
                return matches
            self._reply(reply)

    def close(self) -> None:
        """End the kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def _show(self, message: Mapping[str, Any]) -> None:
        kind, content = message["header"]["msg_type"], message["content"]
        cell = self._cells.get(message["parent_header"].get("msg_id", ""))
        if kind == "update_display_data":
            name = content["transient"]["display_id"]
            for shown in self._cells.values():
                if name in shown.shown:
                    shown.shown[name] = content["data"].get("text/plain", "")
                    shown.html[name] = content["data"].get("text/html", "")
        elif cell is None:
            return
        elif kind in ("display_data", "execute_result"):
            name = content.get("transient", {}).get("display_id") or str(len(cell.shown))
            cell.shown[name] = content["data"].get("text/plain", "")
            cell.html[name] = content["data"].get("text/html", "")
        elif kind == "stream":
            cell.stream += content["text"]
        elif kind == "error":
            cell.error = "\n".join(content["traceback"])

    def _reply(self, message: Mapping[str, Any]) -> None:
        cell = self._cells.get(message["parent_header"].get("msg_id", ""))
        if cell is not None and message["header"]["msg_type"] == "execute_reply":
            cell.status = message["content"]["status"]
            for page in message["content"].get("payload") or ():
                cell.help += page.get("data", {}).get("text/plain", "")
