# SPDX-License-Identifier: BSD-3-Clause
"""Wait for what has no event: a condition with a deadline."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar, overload

T = TypeVar("T")


def until(condition: Callable[[], T], *, timeout: float = 60.0, what: str = "") -> T:
    """Call ``condition`` until it returns something true, and return that.

    AssertionError after ``timeout`` seconds, with ``what`` and the last value."""
    end = time.monotonic() + timeout
    pause = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {timeout:g} s: {what or condition} ({value!r})"
        pause.wait(0.02)
    return value


@overload
async def until_async(
    condition: Callable[[], Awaitable[T]], *, timeout: float = 60.0, what: str = ""
) -> T: ...


@overload
async def until_async(
    condition: Callable[[], T], *, timeout: float = 60.0, what: str = ""
) -> T: ...


async def until_async(
    condition: Callable[[], Any], *, timeout: float = 60.0, what: str = ""
) -> Any:
    """``until`` for coroutines; the condition may be async."""
    loop = asyncio.get_running_loop()
    end = loop.time() + timeout
    while True:
        value = condition()
        if isinstance(value, Awaitable):
            value = await value
        if value:
            return value
        assert loop.time() < end, f"not within {timeout:g} s: {what or condition} ({value!r})"
        waiter = loop.create_future()
        handle = loop.call_later(0.02, waiter.set_result, None)
        try:
            await waiter
        finally:
            handle.cancel()
