# SPDX-License-Identifier: BSD-3-Clause
"""The one place where exceptions become HTTP statuses."""

from __future__ import annotations

import logging

from tornado.web import HTTPError

from ..broker.inputs import Unknown
from ..core.model import Conflict, Refusal
from ..wire import ErrorOut
from ..wire.asked import FIELDS
from . import Degraded
from .auth import Forbidden, HubUnreachable, Unauthenticated

log = logging.getLogger(__name__)


class Limited(Exception):
    """Too many at once; the message says of what."""


_STATUS: dict[type[Exception], tuple[int, str]] = {
    Unauthenticated: (401, "unauthenticated"),
    Forbidden: (403, "forbidden"),
    Unknown: (404, "not-found"),
    Conflict: (409, "conflict"),
    Limited: (429, "limit"),
    Degraded: (503, "degraded"),
    HubUnreachable: (503, "hub-unreachable"),
}
_TORNADO = {404: "not-found", 405: "method-not-allowed"}


def translate(error: BaseException) -> tuple[int, ErrorOut]:
    """The status and the answer of an error; an unexpected one is logged and says nothing."""
    if isinstance(error, Refusal):
        return 400, refused(error)
    for kind, (status, word) in _STATUS.items():
        if isinstance(error, kind):
            return status, ErrorOut(error=word, message=str(error.args[0] if error.args else word))
    if isinstance(error, HTTPError) and error.status_code < 500:
        word = _TORNADO.get(error.status_code, "refused")
        return error.status_code, ErrorOut(error=word, message=error.reason or word)
    log.error("unexpected error", exc_info=error)
    message = "an error in the broker; its log says more"
    return 500, ErrorOut(error="internal", message=message)


def refused(refusal: Refusal) -> ErrorOut:
    """The answer of a Refusal; it names the field as it was asked for."""
    where, dot, last = refusal.field.rpartition(".")
    field = where + dot + FIELDS.get(last, last)
    return ErrorOut(error="refused", field=field, message=refusal.message, remedy=refusal.remedy)
