# SPDX-License-Identifier: BSD-3-Clause
"""A small client of the broker's REST API over http, https and unix sockets."""

from __future__ import annotations

import http.client
import json
import os
import socket
from collections.abc import Mapping
from typing import Any, Optional
from urllib.parse import quote, urlencode, urlsplit

API = "/api/v1"
TIMEOUT = 20.0
"""Seconds to wait for an answer."""


class BrokerError(Exception):
    """The broker refused (``status`` >= 400) or could not be reached (0)."""

    def __init__(self, status: int, message: str, field: str = "", remedy: str = "") -> None:
        super().__init__((f"{field}: " if field else "") + message)
        self.status = status
        self.message = message
        self.field = field
        self.remedy = remedy

    def __str__(self) -> str:
        return super().__str__() + (f" ({self.remedy})" if self.remedy else "")

    def _render_traceback_(self) -> list[str]:
        """One line in a notebook: the trace of this client tells a user nothing."""
        return [str(self)]


class Client:
    """One broker, one user. Every call opens a connection of its own."""

    def __init__(self, url: str, token: str = "") -> None:
        """``url`` is http(s)://host/prefix or unix:/path. BrokerError for anything else."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https", "unix"):
            raise BrokerError(
                0, f"{url!r} is not a broker's address", "GPUBROKER_URL", "http://… or unix:/path"
            )
        self.url = url
        self._parts = parts
        self._token = token

    @classmethod
    def from_environment(cls, environ: Optional[Mapping[str, str]] = None) -> Client:
        """The broker that this process was given. BrokerError if it was given none."""
        environ = os.environ if environ is None else environ
        url = environ.get("GPUBROKER_URL", "")
        if not url:
            raise BrokerError(
                0,
                "this process knows no GPU broker: GPUBROKER_URL is not set",
                remedy="start the kernel from a Jupyter server that has jupyter-gpubroker",
            )
        return cls(url, environ.get("JUPYTERHUB_API_TOKEN", ""))

    def get(self, path: str, **query: Any) -> Any:
        """The decoded answer; ``None`` values are left out of the query."""
        query = {name: value for name, value in query.items() if value is not None}
        return self._call("GET", path + ("?" + urlencode(query) if query else ""))

    def post(
        self, path: str, body: Optional[object] = None, headers: Optional[dict[str, str]] = None
    ) -> Any:
        """The decoded answer."""
        return self._call("POST", path, {} if body is None else body, headers)

    def _call(
        self,
        method: str,
        path: str,
        body: Optional[object] = None,
        headers: Optional[dict[str, str]] = None,
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        every = {"Accept": "application/json", **(headers or {})}
        if data is not None:
            every["Content-Type"] = "application/json"
        if self._token:
            every["Authorization"] = f"token {self._token}"
        prefix = "" if self._parts.scheme == "unix" else self._parts.path.rstrip("/")
        connection = self._connect()
        try:
            connection.request(method, prefix + API + path, data, every)
            answer = connection.getresponse()
            return _decode(self.url, answer.status, answer.read())
        except (OSError, http.client.HTTPException) as error:
            raise BrokerError(
                0,
                f"the GPU broker at {self.url} does not answer ({error or type(error).__name__})",
                remedy="is it running? ask your administrator, or see the GPU sidebar",
            ) from None
        finally:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        if self._parts.scheme == "unix":
            return _Unix(self._parts.path)
        kind: type[http.client.HTTPConnection] = http.client.HTTPConnection
        if self._parts.scheme == "https":
            kind = http.client.HTTPSConnection
        return kind(self._parts.hostname or "", self._parts.port, timeout=TIMEOUT)


class _Unix(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=TIMEOUT)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def quoted(part: str) -> str:
    """A part of a path: an id or a name that a person typed."""
    return quote(part, safe="")


def _decode(url: str, status: int, data: bytes) -> Any:
    try:
        answer = json.loads(data) if data else None
    except ValueError:
        raise BrokerError(
            status, f"{url} answered {status} and no JSON: this is not a GPU broker"
        ) from None
    if status < 400:
        return answer
    answer = answer if isinstance(answer, dict) else {}
    raise BrokerError(
        status,
        str(answer.get("message") or f"the broker answered {status}"),
        str(answer.get("field") or ""),
        str(answer.get("remedy") or ""),
    )
