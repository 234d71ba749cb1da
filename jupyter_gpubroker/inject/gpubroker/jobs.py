# SPDX-License-Identifier: BSD-3-Clause
"""What the magics return: a Job or a Session that can be asked, waited for and shown."""

from __future__ import annotations

import threading
import time
from typing import Any, Optional

from .http import BrokerError, Client, quoted
from .ipython import cell_number, show
from .live import Picture
from .story import story
from .views import OVER, Text, describe, html_lines, html_log

_TAIL = 4096
"""Bytes of each log that are read at first."""
_LINES = 8
"""Last lines of each log that are shown."""
_RANKS = 8
"""Logs that are shown at once."""


class Job:
    """A Job of yours as the broker saw it last."""

    def __init__(self, client: Client, answer: dict[str, Any]) -> None:
        """``answer`` is a JobOut."""
        self._client = client
        self._answer = answer
        self.problem = ""
        """Why the last look failed; empty if it did not."""
        self.shown_in = 0
        """The cell that shows it live; 0 = none."""

    @property
    def id(self) -> str:
        """For example b-k3x7q2."""
        return str(self._answer["id"])

    @property
    def state(self) -> str:
        """queued, starting, running, … as of the last look."""
        return str(self._answer["state"])

    @property
    def data(self) -> dict[str, Any]:
        """The whole answer of the broker."""
        return self._answer

    def refresh(self) -> bool:
        """Look again; False when nothing will change any more."""
        try:
            self._answer = self._client.get(f"/jobs/{self.id}")
            self.problem = ""
        except BrokerError as error:
            self.problem = str(error)
            return error.status in (0, 503)
        return self.state not in OVER

    def wait(self, timeout: Optional[float] = None) -> Job:
        """Wait until it is over; interruptible, and the job goes on then.

        TimeoutError after ``timeout`` seconds, BrokerError if it is not there any more."""
        end = None if timeout is None else time.monotonic() + timeout
        pause = threading.Event()
        while self.refresh():
            if end is not None and time.monotonic() > end:
                raise TimeoutError(f"{self.id} is still {self.state}")
            pause.wait(0.5)
        if self.problem:
            raise BrokerError(404, self.problem)
        return self

    def logs(self, rank: int = 0, attempt: Optional[int] = None) -> str:
        """The whole log of one rank; empty if there is none yet."""
        text, offset = "", 0
        while True:
            part = read_log(self._client, self.id, rank, offset, attempt)
            text += str(part["text"])
            if part["next_offset"] <= offset or part["next_offset"] >= part["size"]:
                return text
            offset = part["next_offset"]

    def cancel(self) -> Job:
        """Stop it."""
        self._answer = self._client.post(f"/jobs/{self.id}/cancel")
        return self

    def explain(self) -> Text:
        """Why it waits, and what happened to it."""
        return Text(story(self._client.get(f"/jobs/{self.id}/explain")))

    def lines(self) -> list[str]:
        """It in a few lines."""
        return describe(self._answer) + (
            [f"not up to date: {self.problem}"] if self.problem else []
        )

    def html(self) -> str:
        """The same as HTML."""
        return html_lines(self.lines(), self.state)

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _ipython_display_(self) -> None:
        if self.shown_in != cell_number():
            show(Picture(self))


class Batch(Job):
    """A batch Job with the ends of its logs: what is shown live under a submit."""

    def __init__(self, client: Client, answer: dict[str, Any]) -> None:
        super().__init__(client, answer)
        self._tails: dict[int, str] = {}
        self._offsets: dict[int, int] = {}
        self._attempt = 0

    def refresh(self) -> bool:
        """Look again, at the logs too; False when nothing will change any more."""
        goes_on = super().refresh()
        if self._attempt != self._answer["attempt"]:
            self._attempt = self._answer["attempt"]
            self._tails, self._offsets = {}, {}
        try:
            if self._attempt:
                self._read_tails()
        except BrokerError as error:
            self.problem = self.problem or str(error)
        return goes_on

    def _read_tails(self) -> None:
        ranks = self._tail(0) if 0 in self._offsets else self._first(0)
        for rank in ranks[:_RANKS]:
            if rank:
                _ = self._tail(rank) if rank in self._offsets else self._first(rank)

    def _first(self, rank: int) -> list[int]:
        size = read_log(self._client, self.id, rank, 0, self._attempt, limit=16)["size"]
        self._offsets[rank] = max(0, size - _TAIL)
        return self._tail(rank)

    def _tail(self, rank: int) -> list[int]:
        part = read_log(self._client, self.id, rank, self._offsets[rank], self._attempt)
        self._offsets[rank] = part["next_offset"]
        lines = (self._tails.get(rank, "") + part["text"]).splitlines(keepends=True)
        self._tails[rank] = "".join(lines[-_LINES:])
        return list(part["ranks"])

    def __repr__(self) -> str:
        tails = [
            f"[rank {rank}] {line}"
            for rank, tail in sorted(self._tails.items())
            for line in tail.splitlines()
        ]
        return "\n".join([*self.lines(), *tails])

    def html(self) -> str:
        """The same as HTML."""
        tails = [html_log(f"rank {n}", tail) for n, tail in sorted(self._tails.items()) if tail]
        return super().html() + "".join(tails)


class Session(Job):
    """The GPU session of this server."""

    def refresh(self) -> bool:
        """Look again; False while nothing is under way."""
        return super().refresh() and self.state not in ("running", "parked")


def read_log(
    client: Client, job: str, rank: int, offset: int, attempt: Optional[int], limit: int = 65536
) -> dict[str, Any]:
    """Part of one rank's log (LogOut); an empty one where there is no log yet."""
    path = f"/jobs/{quoted(job)}/logs"
    try:
        answer: dict[str, Any] = client.get(
            path, rank=rank, offset=offset, limit=limit, attempt=attempt
        )
    except BrokerError as error:
        if error.status != 404:
            raise
        client.get(f"/jobs/{quoted(job)}")  # an unknown job is an error, a missing log is not
        answer = {"text": "", "next_offset": offset, "size": 0, "ranks": [], "ended": False}
    return answer
