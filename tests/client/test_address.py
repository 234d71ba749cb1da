# SPDX-License-Identifier: BSD-3-Clause
"""Where the broker is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpubroker.client import Address, Client, Refusal, Unavailable, solo_socket_path
from tests.conftest import ROOT


def test_a_url_is_http_or_a_unix_socket() -> None:
    tcp = Address.parse("http://host:8000/services/gpubroker/", "t")
    assert (tcp.base, tcp.socket, tcp.token) == ("http://host:8000/services/gpubroker", "", "t")
    unix = Address.parse("unix:/run/x/socket", "t")
    assert (unix.base, unix.socket, unix.token) == ("http://localhost", "/run/x/socket", "")
    assert "secret" not in repr(Address.parse("http://host", "secret"))


@pytest.mark.parametrize("url", ["", "ftp://x", "host:8000", "unix:", "unix:x", "http://", "//x"])
def test_anything_else_is_refused(url: str) -> None:
    with pytest.raises(Refusal) as caught:
        Client(url)
    assert caught.value.field == "GPUBROKER_URL"
    assert caught.value.remedy


def test_the_hubs_broker_comes_before_the_own_one(short_tmp: Path) -> None:
    (short_tmp / "jupyter-gpubroker").mkdir(mode=0o700)
    own = short_tmp / "jupyter-gpubroker" / "socket"
    own.touch()
    environ = {"XDG_RUNTIME_DIR": str(short_tmp)}
    assert Address.find(environ).url == f"unix:{own}"
    given = {"GPUBROKER_URL": "http://h/x", "JUPYTERHUB_API_TOKEN": "t"}
    assert Address.find(environ | given) == Address.parse("http://h/x", "t")
    own.unlink()
    with pytest.raises(Unavailable, match="serve --solo"):
        Address.find(environ)


def test_the_own_socket_lies_in_the_runtime_folder(short_tmp: Path) -> None:
    path = solo_socket_path({"XDG_RUNTIME_DIR": str(short_tmp)})
    assert path == short_tmp / "jupyter-gpubroker" / "socket"


def path_elsewhere(**environ: str) -> Path:
    """The path in a process of its own: a process looks up its temporary folder once."""
    code = "from jupyter_gpubroker.client import solo_socket_path as p; print(p())"
    env = {"PATH": os.defpath, "PYTHONPATH": str(ROOT), **environ}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True
    )
    return Path(done.stdout.strip())


@pytest.mark.parametrize("runtime", ["", "/nowhere/at/all", "/tmp/" + "x" * 100])
def test_without_a_runtime_folder_it_lies_in_a_private_one(runtime: str, short_tmp: Path) -> None:
    expected = short_tmp / f"jupyter-gpubroker-{os.geteuid()}" / "socket"
    assert path_elsewhere(XDG_RUNTIME_DIR=runtime, TMPDIR=str(short_tmp)) == expected


def test_a_folder_too_long_for_a_socket_is_refused_with_the_setting(short_tmp: Path) -> None:
    long = short_tmp / ("x" * 100)
    long.mkdir()
    with pytest.raises(subprocess.CalledProcessError) as caught:
        path_elsewhere(TMPDIR=str(long))
    assert "TMPDIR" in caught.value.stderr


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_may_enter_is_refused(short_tmp: Path, mode: int) -> None:
    folder = short_tmp / "jupyter-gpubroker"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(Refusal, match="yours alone"):
        solo_socket_path({"XDG_RUNTIME_DIR": str(short_tmp)})
    folder.chmod(0o700)
    assert solo_socket_path({"XDG_RUNTIME_DIR": str(short_tmp)})


def test_a_link_in_place_of_the_folder_is_refused(short_tmp: Path) -> None:
    (short_tmp / "real").mkdir(mode=0o700)
    (short_tmp / "jupyter-gpubroker").symlink_to(short_tmp / "real")
    with pytest.raises(Refusal, match="yours alone"):
        solo_socket_path({"XDG_RUNTIME_DIR": str(short_tmp)})
