# SPDX-License-Identifier: BSD-3-Clause
"""The tornado application: routes under a prefix, and nothing else."""

from __future__ import annotations

import functools
import logging
import re
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version

from tornado.log import access_log
from tornado.web import Application, HTTPError, RequestHandler, url

from ..core.model import Seconds
from ..wire.endpoints import HEALTH, OPENAPI
from . import Desk, openapi
from .auth import Auth
from .base import HEARTBEAT_S, ApiHandler, Route, Service
from .routes import ROUTES

BODY_MAX = 16 * 2**20
"""Bytes of one request; give it to the HTTPServer as ``max_body_size``."""


def make_app(
    desk: Desk,
    auth: Auth,
    prefix: str = "/",
    *,
    clock: Callable[[], Seconds] = time.time,
    heartbeat: Seconds = HEARTBEAT_S,
) -> Application:
    """The broker's REST API below ``prefix`` (the Hub's JUPYTERHUB_SERVICE_PREFIX)."""
    number = _version()
    service = Service(
        desk=desk,
        auth=auth,
        version=number,
        document=functools.partial(openapi.document, ROUTES, number),
        clock=clock,
        heartbeat=heartbeat,
    )
    base = re.escape(prefix.rstrip("/"))
    handlers = [
        url(f"{base}{pattern}$", ApiHandler, {"service": service, "routes": routes})
        for pattern, routes in _by_pattern().items()
    ]
    root = url(f"{base}/?$", _Root, {"prefix": prefix.rstrip("/")})
    return Application(
        [*handlers, root],
        default_handler_class=_Nowhere,
        default_handler_args={"service": service, "routes": {}},
        log_function=_log,
    )


def _log(handler: RequestHandler) -> None:
    """One line per request, without its query: people put tokens there."""
    status, request = handler.get_status(), handler.request
    level = logging.INFO if status < 400 else logging.WARNING if status < 500 else logging.ERROR
    took = 1000 * request.request_time()
    access_log.log(level, "%d %s %s %.1fms", status, request.method, request.path, took)


def _version() -> str:
    try:
        return version("jupyter-gpubroker")
    except PackageNotFoundError:  # run from a checkout
        return "unknown"


def _by_pattern() -> dict[str, dict[str, Route]]:
    paths: dict[str, dict[str, Route]] = {}
    for route in ROUTES:
        paths.setdefault(route.endpoint.pattern, {})[route.endpoint.method] = route
    return paths


class _Root(RequestHandler):
    """Where a person lands who opens the service: where to look. No data, no token."""

    def initialize(self, prefix: str) -> None:
        self._prefix = prefix

    def get(self) -> None:
        self.finish(
            {
                "service": "jupyter-gpubroker",
                "health": self._prefix + HEALTH.path,
                "openapi": self._prefix + OPENAPI.path,
                "use": "the GPU sidebar of JupyterLab, %gpu_queue in a notebook, "
                "or `jupyter gpubroker` in a terminal",
            }
        )


class _Nowhere(ApiHandler):
    """Any other path."""

    def prepare(self) -> None:
        self._fail(HTTPError(404, reason="there is nothing here"))
