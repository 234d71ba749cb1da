# SPDX-License-Identifier: BSD-3-Clause
"""Ask the Hub, again and again, whether the users of living Jobs are still its users."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from urllib.parse import quote

import httpx

from ..broker import inputs as i
from ..broker.world import World
from ..hub import USERS_SCOPE

log = logging.getLogger(__name__)

EVERY_S = 60.0
FAILURES_TOLD = 3
"""One failure may be a restart of the Hub; so many in a row are told."""
SERVICE_USER = "service:"
"""Prefix of services in the place of a user: no user of the Hub."""


class People:
    """Tells the broker who is no user any more. If the Hub does not answer, nothing ends."""

    def __init__(
        self, world: Callable[[], World], put: Callable[[i.Fact], None], hub: httpx.AsyncClient
    ) -> None:
        """``hub``: the Hub's API with the token of the service."""
        self._world, self._put, self._hub = world, put, hub
        self._failures = 0

    async def run(self) -> None:
        """Look every minute, for ever."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.look()
            except httpx.HTTPError as error:
                self._failures += 1
                if self._failures == FAILURES_TOLD:
                    log.warning("the Hub cannot be asked who its users are: %r", error)
            except Exception:  # a bug here is no reason to end
                log.exception("looking for users who left the Hub")
            else:
                self._failures = 0

    async def look(self) -> None:
        """One look; httpx.HTTPError if the Hub cannot be asked, or does not say everything."""
        names = dict.fromkeys(
            job.user for job in self._world().living() if not job.user.startswith(SERVICE_USER)
        )
        if not names:
            return
        me = await self._hub.get("/user")
        # To a token that may not see a user, that user is not there either.
        if USERS_SCOPE not in me.raise_for_status().json()["scopes"]:
            raise httpx.HTTPError(f"the broker's token lacks {USERS_SCOPE}: call configure again")
        gone = [name for name in names if await self._is_gone(name)]
        if gone:
            log.warning("not users of the Hub any more: %s", ", ".join(gone))
            self._put(i.UsersGone(tuple(gone)))

    async def _is_gone(self, name: str) -> bool:
        answer = await self._hub.get(f"/users/{quote(name, safe='')}")
        if answer.status_code == httpx.codes.NOT_FOUND:
            return True
        answer.raise_for_status()
        return False
