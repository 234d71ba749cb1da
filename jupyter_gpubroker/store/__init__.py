# SPDX-License-Identifier: BSD-3-Clause
"""The store seam: one transaction per batch of decisions, and the journal.

``load`` + ``commit`` + ``entries`` is all the broker needs; ``memory`` is a real
implementation that the simulator and tests use, ``sql`` is SQLite and PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ..core.model import Job, JobId, Quarantined, Seconds

DAY_S: Seconds = 86400.0
KEPT_S: Seconds = 30 * DAY_S
"""So long are ended Jobs, their folders and the journal kept."""


class StoreError(Exception):
    """The store could not do it; nothing was written."""


class StaleEpoch(StoreError):
    """Another broker has opened this store since: this one must stop at once."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal: the audit log and the event stream are the same."""

    seq: int
    """Grows by one with each entry, without holes; old ones are forgotten from the front."""
    time: Seconds
    actor: str
    """Who: ``user:ana``, ``hub``, ``broker``, ``engine:local``, ``admin:eve``."""
    event: str
    """``job.placed``, ``job.noticed``, ``policy.applied`` …"""
    job: JobId = ""
    user: str = ""
    """The job's owner; empty = not about one person's work."""
    state: str = ""
    """The Job's state afterwards."""
    facts: Mapping[str, object] = field(default_factory=dict)
    """JSON values: what the decision rested on. Never a secret, never an environment."""


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """What a batch Job runs. Kept apart from the Job: the environment is never shown,
    journaled or logged, and the row is deleted when the Job has ended."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str
    python: str
    torchrun: bool
    account: str = ""
    """Runs as this; empty = the broker's own. Filled in by the shell."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Submitted code: name -> content, written to the job's ``code`` folder."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """One revision of the policy document."""

    revision: int
    document: str
    """YAML text as it was applied."""
    author: str
    time: Seconds


@dataclass(frozen=True, slots=True)
class Usage:
    """Decayed milli-GPU-seconds of one user in one queue, exact at ``time``."""

    queue: str
    user: str
    milli_seconds: float
    time: Seconds


@dataclass(frozen=True, slots=True)
class Spent:
    """Milli-GPU-seconds of one user in one queue, of ended Leases that were granted on one day
    (UTC, since the epoch)."""

    queue: str
    user: str
    day: int
    milli_seconds: float


@dataclass(frozen=True, slots=True)
class Writes:
    """Everything one turn of the broker changes: committed as one transaction."""

    jobs: Sequence[Job] = ()
    entries: Sequence[Entry] = ()
    usage: Sequence[Usage] = ()
    spent: Sequence[Spent] = ()
    launches: Mapping[JobId, LaunchRow] = field(default_factory=dict)
    drop_launches: Sequence[JobId] = ()
    quarantined: Sequence[Quarantined] | None = None
    """The whole list where it changed."""
    policy: PolicyRow | None = None
    submits: Mapping[tuple[str, str], JobId] = field(default_factory=dict)
    """(user, idempotency key) -> Job."""
    servers: Mapping[str, int] = field(default_factory=dict)
    """Session key -> its newest incarnation."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Node name -> admin note of a drain; empty = not drained any more."""
    forget_before: Seconds | None = None
    """Forget Jobs that ended before this time, with their idempotency keys, what was spent on
    days before it, and the Entries that are older, up to the first that is not; the last Entry
    stays."""

    def __bool__(self) -> bool:
        return bool(
            self.jobs
            or self.entries
            or self.usage
            or self.spent
            or self.launches
            or self.drop_launches
            or self.quarantined is not None
            or self.policy
            or self.submits
            or self.servers
            or self.nodes
            or self.forget_before is not None
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a broker starts from."""

    jobs: Sequence[Job]
    """Every Job that is not terminal, and terminal ones of the last 30 days (``KEPT_S``)."""
    seq: int
    """Seq of the last entry; 0 = none."""
    usage: Sequence[Usage]
    quarantined: Sequence[Quarantined]
    policy: PolicyRow | None
    submits: Mapping[tuple[str, str], JobId]
    servers: Mapping[str, int]
    drained: Mapping[str, str]
    broker_id: str
    """Drawn once per store; marks what engines run for this broker."""
    spent: Sequence[Spent] = ()


class Store(Protocol):
    """Where the broker's state lives. Calls are synchronous; the shell uses a thread."""

    def open(self) -> Loaded:
        """Migrate, take the next epoch, load. After this any older opener gets StaleEpoch.

        StoreError with a sentence for people if the database cannot be used."""
        ...

    def commit(self, writes: Writes) -> None:
        """All of it or nothing, durable when it returns."""
        ...

    def launch(self, job: JobId) -> LaunchRow | None:
        """The launch of a batch Job; ``None`` if it was dropped."""
        ...

    def launches(self, jobs: Sequence[JobId]) -> Mapping[JobId, LaunchRow]:
        """Those of several batch Jobs in one look; dropped ones are not in it."""
        ...

    def entries(self, after: int, limit: int = 500) -> Sequence[Entry]:
        """Journal entries with seq > ``after``, in order; those that are not forgotten."""
        ...

    def story(self, job: JobId, limit: int = 200) -> Sequence[Entry]:
        """The last ``limit`` entries about one Job, oldest first."""
        ...

    def job(self, job: JobId) -> Job | None:
        """A Job that is no longer in memory; ``None`` also for one that was forgotten."""
        ...

    def close(self) -> None:
        """Give the connection back; the store may be opened again."""
        ...
