# SPDX-License-Identifier: BSD-3-Clause
"""REST and the event stream: tornado handlers in front of the broker's desk."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Protocol

from ..broker.inputs import Question, Submit
from ..broker.world import World
from ..core.model import Job, Key
from ..engines import LogChunk
from ..store import Entry, PolicyRow


class Desk(Protocol):
    """What the service may ask of the broker's shell."""

    @property
    def world(self) -> World:
        """Committed state, to read only; it changes between two awaits."""
        ...

    async def opened(self) -> None:
        """Return once the committed state is loaded; Degraded where it cannot be."""
        ...

    async def ask(self, question: Question) -> Job | None:
        """Decide, commit, then answer. Refusal, Conflict, Unknown or Degraded are raised."""
        ...

    async def submit(self, asked: Sequence[Submit]) -> Sequence[Job]:
        """Batch Jobs, all of them or none; raises as ``ask`` does."""
        ...

    def entries(self, after: int) -> AsyncIterator[Sequence[Entry]]:
        """Batches of journal entries with seq > ``after``, waiting for new ones."""
        ...

    async def story(self, job: str, limit: int) -> Sequence[Entry]:
        """The last entries about one Job, oldest first."""
        ...

    async def find(self, job: str) -> Job | None:
        """A Job, also one that is no longer in memory."""
        ...

    async def logs(self, key: Key, rank: int, offset: int, limit: int) -> LogChunk:
        """Part of a rank's log; FileNotFoundError if there is none."""
        ...

    async def ranks(self, key: Key) -> Sequence[int]:
        """Ranks that have a log."""
        ...

    def environment(self, job: Job | None) -> dict[str, str]:
        """What binds a process to the Job's lease; no Job, or no lease = to no GPU."""
        ...

    def guarantees(self, job: Job) -> dict[str, object]:
        """What the Job's lease guarantees: memory, fault, parkable, sentence."""
        ...

    def policy(self) -> tuple[PolicyRow, str]:
        """The current policy and how policy.yaml differs from it (empty = not)."""
        ...


class Degraded(Exception):
    """The broker is up but cannot do this now; the message says what is missing."""
