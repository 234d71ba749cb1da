# SPDX-License-Identifier: BSD-3-Clause
"""A store that lives as long as its process: the in-memory twin of ``sql``."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from ..core.model import TERMINAL, Job, JobId, Quarantined, Seconds
from . import (
    DAY_S,
    Entry,
    LaunchRow,
    Loaded,
    PolicyRow,
    Spent,
    StaleEpoch,
    StoreError,
    Usage,
    Writes,
)
from .codec import CodecError, plain
from .rules import follow, oldest


@dataclass(slots=True)
class Data:
    """What the stores that share it have stored: the disk."""

    broker_id: str = field(default_factory=lambda: secrets.token_hex(8))
    epoch: int = 0
    jobs: dict[JobId, Job] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    usage: dict[tuple[str, str], Usage] = field(default_factory=dict)
    spent: dict[tuple[str, str, int], Spent] = field(default_factory=dict)
    launches: dict[JobId, LaunchRow] = field(default_factory=dict)
    quarantined: tuple[Quarantined, ...] = ()
    policies: dict[int, PolicyRow] = field(default_factory=dict)
    submits: dict[tuple[str, str], JobId] = field(default_factory=dict)
    servers: dict[str, int] = field(default_factory=dict)
    drained: dict[str, str] = field(default_factory=dict)

    @property
    def seq(self) -> int:
        """Of the last entry; 0 = none."""
        return self.entries[-1].seq if self.entries else 0


class MemoryStore:
    """The ``Store`` Protocol without a disk. Give another store's ``data`` to share it, as
    two processes share a database."""

    def __init__(self, data: Data | None = None) -> None:
        self.data = data or Data()
        self._epoch: int | None = None

    def open(self) -> Loaded:
        """See ``Store.open``."""
        data = self.data
        data.epoch += 1
        self._epoch = data.epoch
        jobs = {job.id: job for job in data.jobs.values() if self._wanted(job)}
        return Loaded(
            jobs=tuple(sorted(jobs.values(), key=lambda job: (job.submitted, job.id))),
            seq=data.seq,
            usage=tuple(data.usage[key] for key in sorted(data.usage)),
            quarantined=data.quarantined,
            policy=data.policies[max(data.policies)] if data.policies else None,
            submits={key: job for key, job in data.submits.items() if job in jobs},
            servers=dict(data.servers),
            drained=dict(data.drained),
            broker_id=data.broker_id,
            spent=tuple(data.spent[key] for key in sorted(data.spent)),
        )

    def commit(self, writes: Writes) -> None:
        """See ``Store.commit``."""
        data = self._opened()
        if self._epoch != data.epoch:
            raise StaleEpoch("another broker has opened this store since")
        entries = self._checked(writes)
        # Nothing below can fail: that is what makes the commit all or nothing.
        data.jobs.update((job.id, job) for job in writes.jobs)
        data.entries.extend(entries)
        data.usage.update(((row.queue, row.user), row) for row in writes.usage)
        data.spent.update(((row.queue, row.user, row.day), row) for row in writes.spent)
        data.launches.update(writes.launches)
        for job in writes.drop_launches:
            data.launches.pop(job, None)
        if writes.quarantined is not None:
            data.quarantined = tuple(writes.quarantined)
        if writes.policy:
            data.policies[writes.policy.revision] = writes.policy
        data.submits.update(writes.submits)
        data.servers.update(writes.servers)
        data.drained.update(writes.nodes)
        for node in [node for node, note in writes.nodes.items() if not note]:
            del data.drained[node]
        if writes.forget_before is not None:
            self._forget(writes.forget_before)

    def launch(self, job: JobId) -> LaunchRow | None:
        """See ``Store.launch``."""
        return self._opened().launches.get(job)

    def launches(self, jobs: Sequence[JobId]) -> Mapping[JobId, LaunchRow]:
        """See ``Store.launches``."""
        known = self._opened().launches
        return {job: known[job] for job in jobs if job in known}

    def entries(self, after: int, limit: int = 500) -> Sequence[Entry]:
        """See ``Store.entries``."""
        entries = self._opened().entries
        forgotten = entries[0].seq - 1 if entries else 0
        first = max(after - forgotten, 0)
        return tuple(entries[first : first + max(limit, 0)])

    def story(self, job: JobId, limit: int = 200) -> Sequence[Entry]:
        """See ``Store.story``."""
        found = (entry for entry in reversed(self._opened().entries) if entry.job == job)
        return tuple(islice(found, max(limit, 0)))[::-1]

    def job(self, job: JobId) -> Job | None:
        """See ``Store.job``."""
        return self._opened().jobs.get(job)

    def close(self) -> None:
        """See ``Store.close``."""
        self._epoch = None

    def _opened(self) -> Data:
        if self._epoch is None:
            raise StoreError("the store is not open")
        return self.data

    def _wanted(self, job: Job) -> bool:
        last = self.data.entries[-1] if self.data.entries else None
        return job.state not in TERMINAL or job.since >= oldest(last)

    def _forget(self, before: Seconds) -> None:
        data = self.data
        for job in [job for job in data.jobs.values() if job.state in TERMINAL]:
            if job.since < before:
                del data.jobs[job.id]
                data.launches.pop(job.id, None)
        data.submits = {key: job for key, job in data.submits.items() if job in data.jobs}
        data.spent = {key: row for key, row in data.spent.items() if row.day >= before // DAY_S}
        young = (n for n, entry in enumerate(data.entries) if entry.time >= before)
        del data.entries[: next(young, len(data.entries) - 1)]

    def _checked(self, writes: Writes) -> list[Entry]:
        """The entries as they would be read back; StoreError for what SQL would refuse."""
        data = self.data
        follow(data.seq, writes.entries)
        if writes.launches or writes.submits:
            new = {job.id for job in writes.jobs}
            for job in (*writes.launches, *writes.submits.values()):
                if job not in new and job not in data.jobs:
                    raise StoreError(f"{job}: there is no such job to launch or submit")
        if writes.policy and writes.policy.revision in data.policies:
            raise StoreError(f"policy revision {writes.policy.revision} exists already")
        try:
            return [replace(entry, facts=plain(entry.facts)) for entry in writes.entries]
        except CodecError as error:
            raise StoreError(f"a journal entry cannot be written: facts: {error}") from error
