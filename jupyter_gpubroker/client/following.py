# SPDX-License-Identifier: BSD-3-Clause
"""Following the event stream over broken connections, without I/O of its own."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from pydantic import ValidationError

from ..wire import EventOut
from .errors import Limited, Unavailable

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
SILENCE_MAX_S = 50.0
"""The broker speaks every 15 s; a stream silent for longer is dead."""


@dataclass(slots=True)
class Following:
    """Where one reader of the stream is, and how long it waits before it tries again."""

    after: int | None
    """Seq of the last event seen."""
    patience: float | None = None
    """Seconds of pauses in a row until Unavailable is raised; None = for ever."""
    _pause: float = FIRST_PAUSE_S
    _waited: float = 0.0
    _data: list[str] = field(default_factory=list)

    @property
    def headers(self) -> dict[str, str]:
        """What a request sends to go on where the last one ended."""
        resume = {} if self.after is None else {"Last-Event-ID": str(self.after)}
        return {"Accept": "text/event-stream", **resume}

    def begin(self) -> None:
        """A new connection: half an event of the old one is forgotten."""
        self._data.clear()

    def line(self, line: str) -> EventOut | None:
        """Take one line in; the event that it ends, if it ends one."""
        if line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
        if line or not self._data:
            return None
        text = "\n".join(self._data)
        self._data.clear()
        try:
            event = EventOut.model_validate_json(text)
        except ValidationError:
            raise Unavailable("this is not the event stream of a GPU broker") from None
        self.after = event.seq
        self._pause, self._waited = FIRST_PAUSE_S, 0.0
        return event

    def pause(self, error: Exception | None) -> float:
        """Seconds until the next try after the stream ended or failed; an error that will
        not go away is raised again."""
        if error is not None and not isinstance(error, Unavailable | Limited):
            raise error
        if self.patience is not None and self._waited >= self.patience:
            raise error or Unavailable("the event stream of the GPU broker ends again and again")
        # All readers lose a broker that restarts at the same moment; they come back apart.
        wait = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret
        self._pause = min(self._pause * 2, LONGEST_PAUSE_S)
        self._waited += wait
        return wait
