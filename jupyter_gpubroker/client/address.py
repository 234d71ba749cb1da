# SPDX-License-Identifier: BSD-3-Clause
"""Where the broker is: given by the Hub, shared by a workstation, or one's own."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ..core.model import Refusal
from .errors import Unavailable

URL = "GPUBROKER_URL"
TOKEN = "JUPYTERHUB_API_TOKEN"  # noqa: S105 - the name of a variable
SHARED_SOCKET = Path("/run/jupyter-gpubroker/socket")
"""Of a broker that serves all users of one workstation."""
SOCKET_PATH_MAX = 107
"""Bytes of a unix socket's path on Linux."""


@dataclass(frozen=True, slots=True)
class Address:
    """A broker and how to speak to it."""

    url: str
    """As people write it: ``http://host/services/gpubroker`` or ``unix:/path``."""
    base: str
    """What paths of the API are appended to."""
    socket: str = ""
    """Path of the unix socket; empty = TCP."""
    token: str = field(default="", repr=False)

    @classmethod
    def parse(cls, url: str, token: str = "", field: str = URL) -> Address:
        """Refusal naming ``field``, where it was given, if it is neither http(s) nor unix. A
        unix socket is sent no token."""
        parts = urlsplit(url)
        if parts.scheme == "unix" and parts.path.startswith("/"):
            return cls(url, "http://localhost", parts.path)
        if parts.scheme in ("http", "https") and parts.netloc:
            return cls(url, url.rstrip("/"), "", token)
        raise Refusal(field, f"{url!r} is not the address of a broker", "http://… or unix:/path")

    @classmethod
    def find(cls, environ: Mapping[str, str] | None = None) -> Address:
        """The broker of this process; Unavailable if none is to be found."""
        environ = os.environ if environ is None else environ
        if environ.get(URL):
            return cls.parse(environ[URL], environ.get(TOKEN, ""))
        for socket in (SHARED_SOCKET, solo_socket_path(environ)):
            if socket.exists():
                return cls.parse(f"unix:{socket}")
        raise Unavailable(
            "no GPU broker is running for you: "
            "start JupyterLab, or `jupyter gpubroker serve --solo`"
        )


def solo_socket_path(environ: Mapping[str, str] | None = None) -> Path:
    """Where the socket of a user's own broker is, or will be, in a folder of mode 0700.

    Refusal if that folder is not the user's alone: somebody else may have made it."""
    environ = os.environ if environ is None else environ
    folder = _runtime_folder(environ)
    path = folder / "socket"
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        raise Refusal("TMPDIR", f"{path} is too long for a unix socket", "use a shorter folder")
    _check_private(folder)
    return path


def _runtime_folder(environ: Mapping[str, str]) -> Path:
    runtime = environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(runtime) / "jupyter-gpubroker"
    short = len(os.fsencode(folder / "socket")) <= SOCKET_PATH_MAX
    if runtime and short and os.path.isdir(runtime) and os.stat(runtime).st_uid == os.geteuid():
        return folder
    return Path(tempfile.gettempdir()) / f"jupyter-gpubroker-{os.geteuid()}"


def _check_private(folder: Path) -> None:
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not private or found.st_uid != os.geteuid():
        raise Refusal(
            "socket",
            f"{folder} is not a folder of yours alone (0700)",
            "look who made it, then remove it",
        )
