# SPDX-License-Identifier: BSD-3-Clause
"""A laptop as a reader of the docs has it: terminals, JupyterLabs, notebooks, no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import httpx
import psutil
from websocket import WebSocketException, create_connection

from ..until import until

PATIENCE_S = 240.0
BROKER = "broker"
"""Name of a server that is no JupyterLab but the broker itself."""
JOB = "b-…"
"""In a command or a cell: the reader's newest job."""


@dataclass
class Cell:
    """One execution, and what its output area shows now."""

    shown: dict[str, str] = field(default_factory=dict)
    """Text by display id, or by number."""
    done: bool = False

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(text.rstrip() for text in self.shown.values())


class Notebook:
    """A notebook that is open in one of the JupyterLabs, on its kernel's websocket."""

    def __init__(self, server: Mapping[str, Any]) -> None:
        """Open a new one. ``server``: as Jupyter describes a running server in its file."""
        headers = {"Authorization": f"token {server['token']}"}
        wish = {"path": "x.ipynb", "type": "notebook", "name": "x", "kernel": {"name": "python3"}}
        answer = httpx.post(
            f"{server['url']}api/sessions", json=wish, headers=headers, timeout=PATIENCE_S
        )
        answer.raise_for_status()
        url = str(server["url"]).replace("http", "ws", 1)
        self._socket = create_connection(
            f"{url}api/kernels/{answer.json()['kernel']['id']}/channels",
            header=headers,
            timeout=PATIENCE_S,
        )
        self._came: SimpleQueue[str | bytes] = SimpleQueue()
        self._cells: dict[str, Cell] = {}
        threading.Thread(target=self._read, daemon=True).start()

    def run(self, code: str) -> Cell:
        """Run a cell to its end; it may go on changing what it shows."""
        request = uuid.uuid4().hex
        cell = self._cells[request] = Cell()
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        header = {"msg_id": request, "msg_type": "execute_request", "session": "reader"}
        message = {
            "channel": "shell",
            "header": {**header, "username": "reader", "version": "5.3"},
            "parent_header": {},
            "metadata": {},
            "content": content,
        }
        self._socket.send(json.dumps(message))
        until(lambda: self._done(cell), timeout=PATIENCE_S, what=f"the end of\n{code}")
        return cell

    def _done(self, cell: Cell) -> bool:
        self.look()
        return cell.done

    def look(self) -> None:
        """Take in what has arrived."""
        with suppress(Empty):
            while True:
                message = json.loads(self._came.get_nowait())
                request = message["parent_header"].get("msg_id", "")
                cell = self._cells.get(request, Cell())
                self._take(cell, message["header"]["msg_type"], message["content"])

    def _read(self) -> None:
        with suppress(WebSocketException, OSError):
            while True:
                self._came.put(self._socket.recv())

    def _take(self, cell: Cell, kind: str, content: Mapping[str, Any]) -> None:
        name = str(content.get("transient", {}).get("display_id") or len(cell.shown))
        text = content.get("data", {}).get("text/plain", "")
        match kind:
            case "display_data" | "execute_result":
                cell.shown[name] = text
            case "update_display_data":
                for shown in (cell.shown for cell in self._cells.values() if name in cell.shown):
                    shown[name] = text
            case "stream":
                cell.shown["stream"] = cell.shown.get("stream", "") + content["text"]
            case "error":
                cell.shown[name] = "\n".join(content["traceback"])
            case "status" if content["execution_state"] == "idle":
                cell.done = True

    def close(self) -> None:
        """Close the page; its kernel lives on."""
        self._socket.close()


class Laptop:
    """Everything that a reader starts lies under ``folder`` and is ended by ``close``."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / "home"
        self._runtime = folder / "run"
        for path in (self._home, self._runtime, self._home / ".jupyter"):
            path.mkdir(mode=0o700)
        # What a reader does with the mouse or would be asked: no browser, any port, root.
        config = {
            "ServerApp": {"open_browser": False, "port": 0, "ip": "127.0.0.1", "allow_root": True}
        }
        (self._home / ".jupyter/jupyter_server_config.json").write_text(json.dumps(config))
        self._notebooks: dict[str, Notebook] = {}

    @property
    def environment(self) -> dict[str, str]:
        """Of every terminal."""
        return {
            "HOME": str(self._home),
            "LANG": "C.UTF-8",
            "OMP_NUM_THREADS": "1",
            "PATH": os.environ["PATH"],
            "XDG_RUNTIME_DIR": str(self._runtime),
        }

    # --- terminals ------------------------------------------------------------------------

    def run(self, script: str) -> str:
        """Commands in a terminal, to their end; what is printed. AssertionError if one fails."""
        done = self._terminal(self._named(script))
        assert done.returncode == 0, f"{script}\n{done.stdout}"
        return done.stdout

    def serve(self, name: str, script: str) -> None:
        """Commands that do not end: a JupyterLab in the folder ``name``, or a ``broker``."""
        log = self._home / f"{name}.log"
        with log.open("w") as output:
            subprocess.Popen(
                ["bash", "-ec", script],
                cwd=self._home,
                env=self.environment,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            until(lambda: self._is_up(name), timeout=PATIENCE_S)
        except AssertionError:
            raise AssertionError(f"{name} does not come up:\n{log.read_text()}") from None

    def _is_up(self, name: str) -> bool:
        up = name == BROKER or self._server(name) is not None
        return up and self._terminal("jupyter gpubroker queue").returncode == 0

    def _terminal(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-ec", script],
            cwd=self._home,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

    def _named(self, script: str) -> str:
        """With the newest job's id in place of ``JOB``."""
        if JOB not in script:
            return script
        jobs = json.loads(self.run("jupyter gpubroker jobs --json --kind batch"))
        return script.replace(JOB, jobs[0]["id"])

    # --- notebooks --------------------------------------------------------------------------

    def cell(self, name: str, code: str) -> Cell:
        """Run a cell in the notebook of the JupyterLab in the folder ``name``."""
        if name not in self._notebooks:
            server = self._server(name)
            assert server is not None, f"no JupyterLab runs in {name}"
            self._notebooks[name] = Notebook(server)
        return self._notebooks[name].run(self._named(code))

    def look(self) -> None:
        """Take in what the notebooks were sent."""
        for notebook in self._notebooks.values():
            notebook.look()

    def _server(self, name: str) -> dict[str, Any] | None:
        runtime = self._home / ".local/share/jupyter/runtime"
        for path in runtime.glob("jpserver-*.json"):
            found: dict[str, Any] = json.loads(path.read_text() or "{}")
            if found.get("root_dir") == str(self._home / name):
                return found
        return None

    # --- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        """End everything that runs with this home."""
        for notebook in self._notebooks.values():
            notebook.close()
        for process in psutil.process_iter():
            try:
                ours = process.environ().get("HOME") == str(self._home)
                if ours and process.pid != os.getpid():
                    process.kill()
            except psutil.Error:
                continue
