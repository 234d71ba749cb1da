# SPDX-License-Identifier: BSD-3-Clause
"""What a person with a browser does, over HTTP: log in, start a server, run cells."""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
from tornado.httpclient import HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

PATIENCE_S = 120.0


async def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE_S) -> Any:
    """Ask until the answer is true; the answer may be awaitable. TimeoutError names ``what``."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return value
        if loop.time() > end:
            raise TimeoutError(f"not within {patience:.0f} s: {what}")
        await asyncio.sleep(0.2)


class Person:
    """One account: a browser's cookies at the Hub, and a token for server and broker."""

    def __init__(self, name: str, hub: str, password: str) -> None:
        self.name = name
        self.hub = hub
        self.password = password
        self.token = ""
        self.web = httpx.AsyncClient(
            base_url=hub, follow_redirects=True, timeout=60.0, trust_env=False
        )

    async def log_in(self) -> None:
        """The Hub's login form, then a token for what comes later."""
        await self.web.get("/hub/login")
        form = {"username": self.name, "password": self.password, "_xsrf": self._xsrf("/hub/")}
        answer = await self.web.post("/hub/login", data=form)
        answer.raise_for_status()
        scopes = [f"access:servers!user={self.name}", "access:services!service=gpubroker"]
        made = await self._api("POST", f"users/{self.name}/tokens", {"scopes": scopes})
        self.token = made["token"]

    async def spawn(self, **choices: str) -> None:
        """Fill in the spawn form and press Start; returns when the server answers."""
        page = await self.web.get(f"/hub/spawn/{self.name}")
        page.raise_for_status()
        for name, value in choices.items():
            if f'name="{name}"' not in page.text:
                raise LookupError(f"the spawn form has no field {name} (wanted {value})")
        form = {**choices, "_xsrf": self._xsrf("/hub/")}
        (await self.web.post(f"/hub/spawn/{self.name}", data=form)).raise_for_status()
        await until(self._answers, f"the server of {self.name}", 180.0)

    async def _answers(self) -> bool:
        model = await self._api("GET", f"users/{self.name}")
        server = model["servers"].get("", {})
        if not server.get("ready"):
            if not server and not model.get("pending"):
                page = await self.web.get(f"/hub/spawn-pending/{self.name}")
                found = re.search(r"Spawn failed[^<]*", page.text)
                if found:
                    raise RuntimeError(found.group())
            return False
        return (await self.server("GET", "api/status")).is_success

    async def server(self, method: str, path: str, body: object = None) -> httpx.Response:
        """The Jupyter Server API of this person's server."""
        headers = {"Authorization": f"token {self.token}"}
        url = f"/user/{self.name}/{path}"
        return await self.web.request(method, url, json=body, headers=headers)

    async def save(self, path: str, cells: list[dict[str, Any]]) -> None:
        """Save a notebook, as JupyterLab does."""
        kernelspec = {"name": "python3", "display_name": "Python 3", "language": "python"}
        content = {
            "cells": cells,
            "metadata": {"kernelspec": kernelspec},
            "nbformat": 4,
            "nbformat_minor": 5,
        }
        model = {"type": "notebook", "format": "json", "content": content}
        (await self.server("PUT", f"api/contents/{path}", model)).raise_for_status()

    async def notebook(self, path: str = "demo.ipynb") -> Notebook:
        """Open a new notebook with a Python kernel."""
        await self.save(path, [])
        wish = {"path": path, "type": "notebook", "name": path, "kernel": {"name": "python3"}}
        answer = await self.server("POST", "api/sessions", wish)
        answer.raise_for_status()
        kernel = answer.json()["kernel"]["id"]
        url = f"{self.hub.replace('http', 'ws', 1)}/user/{self.name}/api/kernels/{kernel}/channels"
        headers = {"Authorization": f"token {self.token}"}
        socket = await websocket_connect(HTTPRequest(url, headers=headers))
        return Notebook(self, path, kernel, socket)

    async def _api(self, method: str, path: str, body: object = None) -> Any:
        headers = {"X-XSRFToken": self._xsrf("/hub/"), "Referer": f"{self.hub}/hub/home"}
        answer = await self.web.request(method, f"/hub/api/{path}", json=body, headers=headers)
        answer.raise_for_status()
        return answer.json() if answer.content else {}

    def _xsrf(self, path: str) -> str:
        return next(
            cookie.value or ""
            for cookie in self.web.cookies.jar
            if cookie.name == "_xsrf" and cookie.path == path
        )


@dataclass
class Cell:
    """A cell that was run: its output so far, and how it ended."""

    code: str
    number: int | None = None
    """What stands in the brackets beside it."""
    outputs: list[dict[str, Any]] = field(default_factory=list)
    """In the form of a notebook file."""
    displays: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Display id -> the output that an update changes."""
    errors: list[str] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def text(self) -> str:
        """What was printed, and the result."""
        return "".join(map(_text, self._outputs(display_data=False)))

    @property
    def shown(self) -> str:
        """Everything a reader of the notebook sees."""
        return self.text + "".join(map(_text, self._outputs(display_data=True)))

    def _outputs(self, *, display_data: bool) -> list[dict[str, Any]]:
        return [o for o in self.outputs if (o["output_type"] == "display_data") is display_data]

    def saved(self, number: int) -> dict[str, Any]:
        """As the notebook's cell of this number; trusted, since whoever saves it ran it."""
        return {
            "cell_type": "code",
            "id": f"cell-{number}",
            "metadata": {"trusted": True},
            "source": self.code.strip(),
            "execution_count": self.number,
            "outputs": self.outputs,
        }


class Notebook:
    """A notebook's kernel over its websocket."""

    def __init__(
        self, owner: Person, path: str, kernel: str, socket: WebSocketClientConnection
    ) -> None:
        self.owner = owner
        self.path = path
        self.kernel = kernel
        self._socket = socket
        self._cells: dict[str, Cell] = {}
        self._reader = asyncio.create_task(self._read())

    async def start(self, code: str) -> Cell:
        """Run a cell and do not wait for it."""
        message = uuid.uuid4().hex
        cell = self._cells[message] = Cell(code)
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        await self._socket.write_message(
            json.dumps(
                {
                    "channel": "shell",
                    "header": {
                        "msg_id": message,
                        "msg_type": "execute_request",
                        "username": self.owner.name,
                        "session": "demo",
                        "version": "5.3",
                    },
                    "parent_header": {},
                    "metadata": {},
                    "content": content,
                }
            )
        )
        return cell

    async def run(self, code: str, patience: float = PATIENCE_S) -> str:
        """Run a cell to its end; its text. RuntimeError with its traceback if it failed."""
        cell = await self.start(code)
        try:
            await asyncio.wait_for(cell.done.wait(), patience)
        except TimeoutError:
            raise TimeoutError(f"a cell of {self.owner.name} hangs:\n{cell.shown}") from None
        if cell.errors:
            raise RuntimeError("\n".join(cell.errors))
        return cell.shown

    async def save(self, *more: str) -> None:
        """Save the cells that were run, with what stands below them, and more to be run."""
        cells = [*self._cells.values(), *map(Cell, more)]
        await self.owner.save(self.path, [c.saved(n) for n, c in enumerate(cells, 1)])

    def close(self) -> None:
        """Close the page; the kernel lives on."""
        self._reader.cancel()
        self._socket.close()

    async def _read(self) -> None:
        while (raw := await self._socket.read_message()) is not None:
            message = json.loads(raw)
            parent = message.get("parent_header", {}).get("msg_id")
            if message["msg_type"] == "update_display_data":
                self._update(message["content"])
            elif parent in self._cells:
                _take(self._cells[parent], message)

    def _update(self, content: dict[str, Any]) -> None:
        """A display is updated where it stands, whatever cell runs meanwhile."""
        name = content.get("transient", {}).get("display_id", "")
        for cell in self._cells.values():
            if name in cell.displays:
                cell.displays[name].update(data=content["data"], metadata=content["metadata"])


def _take(cell: Cell, message: dict[str, Any]) -> None:
    content, kind = message["content"], message["msg_type"]
    match kind:
        case "execute_input":
            cell.number = content["execution_count"]
        case "stream":
            _print(cell, content["name"], content["text"])
        case "execute_result" | "display_data":
            name = content.pop("transient", {}).get("display_id", "")
            cell.outputs.append({"output_type": kind, **content})
            cell.displays[name] = cell.outputs[-1]
        case "error":
            cell.outputs.append({"output_type": kind, **content})
            cell.errors.append(_plain("\n".join(content["traceback"])))
        case "status" if content["execution_state"] == "idle":
            cell.done.set()


def _print(cell: Cell, name: str, text: str) -> None:
    last = cell.outputs[-1] if cell.outputs else {}
    if last.get("name") == name:
        last["text"] += text
    else:
        cell.outputs.append({"output_type": "stream", "name": name, "text": text})


def _text(output: dict[str, Any]) -> str:
    return str(output.get("text") or output.get("data", {}).get("text/plain", ""))


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
