# SPDX-License-Identifier: BSD-3-Clause
"""What the demo leaves to whoever logs in: a furnished home, and notebooks with their outputs."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nbformat
import pytest
from jupyterlab_server.workspaces_handler import WorkspacesManager
from traitlets.config.loader import PyFileConfigLoader

from tests import needs
from tests.conftest import ROOT

DEMO = ROOT / "hub_config/demo"

sys.path.insert(0, str(DEMO))
from notebooks import Cell, Notebook, Person  # noqa: E402 - the demo's folder is no package


def test_a_new_home_opens_on_a_notebook_with_the_sidebar_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs.proxy()
    monkeypatch.setenv("DEMO_ROOT", str(tmp_path))
    monkeypatch.setenv("DEMO_PASSWORD", "secret")
    monkeypatch.setenv("DEMO_DEVICES", "simulated:2x4")
    for number, name in enumerate(("PORT", "HUB_PORT", "PROXY_PORT", "BROKER_PORT"), 9000):
        monkeypatch.setenv(f"DEMO_{name}", str(number))
    c = PyFileConfigLoader("jupyterhub_config.py", str(DEMO)).load_config()
    spawner = SimpleNamespace(home_dir=str(tmp_path / "homes/lena"))
    c.Spawner.pre_spawn_hook(spawner)
    home = tmp_path / "homes/lena"
    desk = WorkspacesManager(str(home / ".jupyter/lab/workspaces")).load("default")["data"]
    sidebar = desk["layout-restorer:data"]["left"]["current"]
    assert f"restorer?.add(panels, '{sidebar}')" in (ROOT / "labextension/src/index.ts").read_text()
    (open_one,) = desk["layout-restorer:data"]["main"]["dock"]["widgets"]
    notebook = home / desk[open_one]["data"]["path"]
    nbformat.validate(json.loads(notebook.read_text()))
    notebook.write_text("mine")
    c.Spawner.pre_spawn_hook(spawner)
    assert notebook.read_text() == "mine"


def message(kind: str, parent: str, **content: Any) -> str:
    """What a kernel sends about a cell."""
    return json.dumps({"msg_type": kind, "parent_header": {"msg_id": parent}, "content": content})


class Desk(Person):
    """Somebody whose notebook is saved where the test sees it."""

    saved: dict[str, Any]

    async def save(self, path: str, cells: list[dict[str, Any]]) -> None:
        """Keep it."""
        self.saved = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


class Kernel:
    """A kernel's websocket: answers the first cell, then is silent."""

    def __init__(self) -> None:
        self.sent: asyncio.Queue[str | None] = asyncio.Queue()

    async def write_message(self, text: str) -> None:
        """Run a cell."""
        cell = json.loads(text)["header"]["msg_id"]
        rich = {"data": {"text/plain": "queued", "text/html": "<b>queued</b>"}, "metadata": {}}
        later = {"data": {"text/plain": "done", "text/html": "<b>done</b>"}, "metadata": {}}
        name = {"transient": {"display_id": "x"}}
        for answer in (
            message("execute_input", cell, execution_count=3),
            message("stream", cell, name="stdout", text="one\n"),
            message("stream", cell, name="stdout", text="two\n"),
            message("stream", cell, name="stderr", text="careful\n"),
            message("display_data", cell, **rich, **name),
            message("error", cell, ename="E", evalue="v", traceback=["\x1b[31mE: v"]),
            message("status", cell, execution_state="idle"),
            message("update_display_data", "another", **later, **name),
            None,
        ):
            self.sent.put_nowait(answer)

    async def read_message(self) -> str | None:
        """The next message; None = closed."""
        return await self.sent.get()

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.asyncio
async def test_a_saved_notebook_holds_what_a_reader_of_it_saw() -> None:
    person = Desk("nb1", "http://127.0.0.1:1", "")
    notebook = Notebook(person, "demo.ipynb", "kernel", Kernel())
    cell = await notebook.start("\nprint(1)\n")
    await cell.done.wait()
    await notebook._reader
    await notebook.save("print(2)")
    await person.web.aclose()
    nbformat.validate(person.saved)
    ran, more = person.saved["cells"]
    assert (ran["source"], ran["execution_count"]) == ("print(1)", 3)
    assert [output["output_type"] for output in ran["outputs"]] == [
        "stream",
        "stream",
        "display_data",
        "error",
    ]
    assert ran["outputs"][0]["text"] == "one\ntwo\n"
    assert ran["outputs"][2]["data"]["text/html"] == "<b>done</b>"
    assert cell.shown == "one\ntwo\ncareful\ndone"
    assert cell.errors == ["E: v"]
    assert more == Cell("print(2)").saved(2)
    assert more["outputs"] == []
