# SPDX-License-Identifier: BSD-3-Clause
"""Where the broker is found, and a user's own that is started when there is none."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

from jupyter_gpubroker.client import Refusal, Unavailable
from jupyter_gpubroker.extension import GPUBrokerExtension
from jupyter_gpubroker.extension.app import identity_of
from jupyter_gpubroker.extension.finding import Finder

from ..conftest import ROOT
from ..until import until, until_async
from .shell import Shell


def test_what_the_hub_said_comes_first() -> None:
    environ = {"GPUBROKER_URL": "http://hub/services/gpubroker", "JUPYTERHUB_API_TOKEN": "t"}
    address = asyncio.run(Finder("", environ).find())
    assert (address.url, address.token) == ("http://hub/services/gpubroker", "t")
    address = asyncio.run(Finder("unix:/elsewhere", environ).find())
    assert (address.url, address.token) == ("unix:/elsewhere", "")


def test_a_broker_that_may_not_be_started_is_missing_with_its_remedy(short_tmp: Path) -> None:
    finder = Finder("", {"XDG_RUNTIME_DIR": str(short_tmp)}, may_start=False)
    with pytest.raises(Unavailable, match="Start one with `jupyter gpubroker serve --solo`"):
        asyncio.run(finder.find())
    assert finder.expected() == f"unix:{short_tmp}/jupyter-gpubroker/socket"


def test_a_folder_that_others_may_enter_is_refused(short_tmp: Path) -> None:
    (short_tmp / "jupyter-gpubroker").mkdir(mode=0o755)
    finder = Finder("", {"XDG_RUNTIME_DIR": str(short_tmp)})
    with pytest.raises(Refusal, match="not a folder of yours alone"):
        asyncio.run(finder.find())
    assert finder.expected() == ""


def test_a_broker_that_cannot_start_is_quoted(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(short_tmp / "data"))
    environ = {
        "XDG_RUNTIME_DIR": str(short_tmp),
        "PYTHONPATH": str(ROOT),
        "JUPYTER_DATA_DIR": str(short_tmp / "data"),
        "PATH": os.environ["PATH"],
    }
    (short_tmp / "data/gpubroker").mkdir(parents=True)
    (short_tmp / "jupyter-gpubroker").mkdir(mode=0o700)
    # Its socket's place is taken by something that cannot be replaced.
    (short_tmp / "jupyter-gpubroker/socket").mkdir()
    with pytest.raises(Unavailable, match=r"did not start: .*broker\.log"):
        asyncio.run(Finder("", environ).find())


def test_a_key_is_drawn_unless_the_hub_gave_one() -> None:
    given = {"GPUBROKER_SESSION": "ana/two", "GPUBROKER_INCARNATION": "3"}
    hub = identity_of({**given, "JUPYTERHUB_API_TOKEN": "t"})
    assert (hub.key, hub.incarnation, hub.server, hub.drawn) == ("ana/two", 3, "two", False)
    nested = identity_of(given)
    assert nested.drawn
    assert nested.key != "ana/two"
    assert identity_of({}).key != identity_of({}).key


def peer_of(path: Path) -> int:
    """The process that listens on a unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.connect(str(path))
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, _, _ = struct.unpack("3i", credentials)
    assert isinstance(pid, int)
    return pid


class TestOwnBroker:
    """JupyterLab alone, on a machine with simulated GPUs."""

    @pytest.fixture
    def under_a_hub(self, short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Not: nothing is known but where the user's own socket would be."""
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(short_tmp))
        monkeypatch.setenv("GPUBROKER_SIMULATE", "1x1")
        monkeypatch.setenv("PYTHONPATH", str(ROOT))
        yield
        path = short_tmp / "jupyter-gpubroker/socket"
        pid = peer_of(path)
        os.kill(pid, signal.SIGTERM)
        until(lambda: not _listens(path), what="the end of the broker")

    async def test_it_is_started_and_joined_and_found_again(
        self,
        extension: GPUBrokerExtension,
        server: ServerApp,
        state: Callable[[], Awaitable[Any]],
        start_kernel: Callable[..., Awaitable[str]],
        short_tmp: Path,
    ) -> None:
        async def well() -> Any:
            found = await state()
            return found if found["broker"]["ok"] else None

        found = await until_async(well, timeout=120, what="the broker")
        assert len(found["nodes"]) == 1
        path = short_tmp / "jupyter-gpubroker/socket"
        first = peer_of(path)
        environ = {**os.environ, "GPUBROKER_URL": ""}
        addresses = await asyncio.gather(*(Finder("", environ).find() for _ in range(3)))
        assert {address.url for address in addresses} == {f"unix:{path}"}
        assert peer_of(path) == first, "others join it"

        shell = Shell(server, await start_kernel())
        assert "No GPU" in await shell.run("%gpu_session")
        shell.close()

        os.kill(first, signal.SIGKILL)
        await until_async(
            lambda: _listens(path) and peer_of(path) != first, timeout=120, what="another broker"
        )
        await until_async(well, timeout=120, what="the broker again")


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0
