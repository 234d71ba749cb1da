# SPDX-License-Identifier: BSD-3-Clause
"""What a call can raise: the core's ``Refusal`` and ``Conflict``, and these."""

from __future__ import annotations

from typing import NoReturn

import httpx
from pydantic import ValidationError

from ..core.model import Conflict, Refusal
from ..wire import ErrorOut


class BrokerError(Exception):
    """A call that did not succeed; the message is a sentence for people."""


class Unavailable(BrokerError):
    """The broker cannot be reached, or cannot do it now: try again later."""


class Unauthenticated(BrokerError):
    """No token, or one that is not known (any more)."""


class Forbidden(BrokerError):
    """Known, and not allowed."""


class Unknown(BrokerError):
    """There is no such job for you."""


class Limited(BrokerError):
    """Too many at once."""


_KINDS: dict[int, type[Exception]] = {
    401: Unauthenticated,
    403: Forbidden,
    404: Unknown,
    409: Conflict,
    429: Limited,
}


def raise_for(status: int, body: bytes, url: str) -> NoReturn:
    """Raise what an answer other than 2xx means."""
    try:
        told = ErrorOut.model_validate_json(body)
    except ValidationError:
        # A proxy, a login page, something else: not the broker's own words.
        raise Unavailable(
            f"{url} answered {status} and no word of a GPU broker: is it running?"
        ) from None
    if status == 400:
        raise Refusal(told.field, told.message, told.remedy)
    raise _KINDS.get(status, Unavailable)(told.message)


def unreachable(error: httpx.HTTPError, url: str) -> Unavailable:
    """The connection failed, or broke."""
    why = str(error) or type(error).__name__
    return Unavailable(f"the GPU broker at {url} does not answer ({why})")
