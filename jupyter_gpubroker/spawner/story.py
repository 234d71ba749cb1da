# SPDX-License-Identifier: BSD-3-Clause
"""What a start has to tell: the newest line, for any number of readers at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any


class Story:
    """One start of a server. A reader that is slow misses lines, never the last one."""

    def __init__(self) -> None:
        self._line: dict[str, Any] = {}
        self._lines = 0
        self._ended = False
        self.failed = False
        """Ended early: no server follows."""
        self._news = asyncio.Event()

    def say(self, progress: int, message: str) -> None:
        """The newest line; ``progress`` of 100. Said again, it is no news."""
        line = {"progress": progress, "message": message}
        if line != self._line:
            self._line = line
            self._lines += 1
            self._wake()

    def end(self, *, failed: bool = False) -> None:
        """Nothing more will be said; what ended first holds."""
        if self._ended:
            return
        self._ended, self.failed = True, failed
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def follow(self) -> AsyncIterator[dict[str, Any]]:
        """Lines, from the newest on, until the end."""
        told = 0
        while True:
            news = self._news
            if told < self._lines:
                told = self._lines
                yield dict(self._line)
            elif self._ended:
                return
            else:
                await news.wait()
