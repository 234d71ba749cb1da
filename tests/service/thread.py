# SPDX-License-Identifier: BSD-3-Clause
"""A house in a thread of its own, for callers that block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from .conftest import House
from .desk import Desk
from .hub import Hub

T = TypeVar("T")


class Thread:
    """Runs the loop that serves; everything in the house happens there."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.house = self.do(self._make())

    async def _make(self) -> House:
        house = House(Desk(), Hub())
        house.url = house.listen(house.hub_auth())
        return house

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(120)

    def call(self, work: Callable[[], T]) -> T:
        """Call a function there."""

        async def called() -> T:
            return work()

        return self.do(called())

    def close(self) -> None:
        """End it."""
        self.do(self.house.close())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()
