# SPDX-License-Identifier: BSD-3-Clause
"""The store in SQLite or PostgreSQL.

Reads may come from any thread at any time; commits come one after the other."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

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
    tables,
)
from .codec import decode, dumps, encode
from .database import explained, make_engine, prepare_file, sqlite_path
from .migrations import migrate
from .rules import follow, oldest

Row = dict[str, Any]

READ_MAX = 500
"""Rows asked for by name in one statement: databases limit its parameters."""


class SqlStore:
    """The ``Store`` Protocol on SQLAlchemy; ``url`` comes from ``database.parse``."""

    def __init__(self, url: sa.URL) -> None:
        self._url = url
        self._engine: sa.Engine | None = None
        self._epoch = 0
        self._commits = 0
        self._seq = 0

    def open(self) -> Loaded:
        """See ``Store.open``."""
        self.close()
        with explained(self._url):
            if path := sqlite_path(self._url):
                prepare_file(path)
            engine = make_engine(self._url)
            try:
                with engine.execution_options(write=True).begin() as connection:
                    migrate(connection)
                    meta = _take_epoch(connection)
                    loaded = _load(connection, meta.broker_id)
            except BaseException:
                engine.dispose()
                raise
        self._epoch, self._commits, self._seq = meta.epoch, meta.commits, loaded.seq
        self._engine = engine
        return loaded

    def commit(self, writes: Writes) -> None:
        """See ``Store.commit``."""
        with explained(self._url), self._opened().connect() as connection:
            # Leaving this block without a commit rolls back.
            transaction = connection.execution_options(write=True).begin()
            self._prove_epoch(connection)
            seq = follow(self._seq, writes.entries)
            _write(connection, writes)
            try:
                transaction.commit()
            except sa.exc.DBAPIError:
                if not self._landed():
                    raise
        self._commits += 1
        self._seq = seq

    def launch(self, job: JobId) -> LaunchRow | None:
        """See ``Store.launch``."""
        return self.launches([job]).get(job)

    def launches(self, jobs: Sequence[JobId]) -> Mapping[JobId, LaunchRow]:
        """See ``Store.launches``."""
        table = tables.launches
        found: dict[JobId, LaunchRow] = {}
        with self._reading() as connection:
            for first in range(0, len(jobs), READ_MAX):
                some = jobs[first : first + READ_MAX]
                for row in connection.execute(sa.select(table).where(table.c.job.in_(some))):
                    body = {**json.loads(row.body), "env": json.loads(row.env)}
                    found[row.job] = decode(LaunchRow, body)
        return found

    def entries(self, after: int, limit: int = 500) -> Sequence[Entry]:
        """See ``Store.entries``."""
        table = tables.entries
        select = sa.select(table).where(table.c.seq > after).order_by(table.c.seq)
        with self._reading() as connection:
            return [_entry(row) for row in connection.execute(select.limit(max(limit, 0)))]

    def story(self, job: JobId, limit: int = 200) -> Sequence[Entry]:
        """See ``Store.story``."""
        table = tables.entries
        select = sa.select(table).where(table.c.job == job).order_by(table.c.seq.desc())
        with self._reading() as connection:
            rows = connection.execute(select.limit(max(limit, 0))).all()
            return [_entry(row) for row in reversed(rows)]

    def job(self, job: JobId) -> Job | None:
        """See ``Store.job``."""
        table = tables.jobs
        with self._reading() as connection:
            body = connection.scalar(sa.select(table.c.body).where(table.c.id == job))
            return None if body is None else decode(Job, json.loads(body))

    def close(self) -> None:
        """See ``Store.close``."""
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def _opened(self) -> sa.Engine:
        if self._engine is None:
            raise StoreError("the store is not open")
        return self._engine

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with explained(self._url), self._opened().connect() as connection:
            yield connection

    def _prove_epoch(self, connection: sa.Connection) -> None:
        """StaleEpoch if another broker has opened the store. Holds off one that is about
        to: it waits for this row."""
        mine = sa.update(tables.meta).where(tables.meta.c.epoch == self._epoch)
        if not connection.execute(mine.values(commits=self._commits + 1)).rowcount:
            raise StaleEpoch("another broker has opened this store since")

    def _landed(self) -> bool:
        """True if a commit happened although its answer was an error.

        Where even that cannot be learned the store closes: going on could write on top
        of what the broker believes is not there."""
        try:
            with self._opened().connect() as connection:
                meta = connection.execute(sa.select(tables.meta)).one()
        except sa.exc.DBAPIError as error:
            self.close()
            raise StoreError("nobody can say if the last commit landed; open again") from error
        if meta.epoch != self._epoch:
            raise StaleEpoch("another broker has opened this store since")
        return bool(meta.commits == self._commits + 1)


def _take_epoch(connection: sa.Connection) -> sa.Row[Any]:
    table = tables.meta
    if not connection.execute(sa.update(table).values(epoch=table.c.epoch + 1)).rowcount:
        first = {"id": 1, "broker_id": secrets.token_hex(8), "epoch": 1, "commits": 0}
        connection.execute(sa.insert(table), first)
    return connection.execute(sa.select(table)).one()


def _load(connection: sa.Connection, broker_id: str) -> Loaded:
    jobs, submits, policies = tables.jobs, tables.submits, tables.policies
    last = connection.execute(
        sa.select(tables.entries).order_by(tables.entries.c.seq.desc()).limit(1)
    ).one_or_none()
    since = oldest(_entry(last) if last else None)
    wanted = sa.or_(jobs.c.terminal_at.is_(None), jobs.c.terminal_at >= since)
    policy = connection.execute(
        sa.select(policies).order_by(policies.c.revision.desc()).limit(1)
    ).one_or_none()

    def rows(select: sa.Select[Any]) -> sa.CursorResult[Any]:
        return connection.execute(select)

    return Loaded(
        jobs=[
            decode(Job, json.loads(row.body))
            for row in rows(sa.select(jobs).where(wanted).order_by(jobs.c.submitted, jobs.c.id))
        ],
        seq=last.seq if last else 0,
        usage=[
            Usage(**row._mapping)
            for row in rows(sa.select(tables.usage).order_by(tables.usage.c.queue))
        ],
        quarantined=[
            decode(Quarantined, json.loads(row.body))
            for row in rows(sa.select(tables.quarantine).order_by(tables.quarantine.c.position))
        ],
        policy=PolicyRow(**policy._mapping) if policy else None,
        submits={
            (row.user, row.key): row.job
            for row in rows(sa.select(submits).join(jobs).where(wanted))
        },
        servers={row.key: row.incarnation for row in rows(sa.select(tables.servers))},
        drained={row.node: row.note for row in rows(sa.select(tables.drained))},
        broker_id=broker_id,
        spent=[
            Spent(**row._mapping)
            for row in rows(sa.select(tables.spent).order_by(*tables.spent.primary_key))
        ],
    )


def _write(connection: sa.Connection, writes: Writes) -> None:
    """One statement per table, whatever the number of rows."""
    _upsert(connection, tables.jobs, [_job_row(job) for job in writes.jobs])
    _insert(connection, tables.entries, [_entry_row(entry) for entry in writes.entries])
    _upsert(connection, tables.usage, [encode(usage) for usage in writes.usage])
    _upsert(connection, tables.spent, [encode(spent) for spent in writes.spent])
    _upsert(connection, tables.launches, [_launch_row(*item) for item in writes.launches.items()])
    _delete(connection, tables.launches.c.job, writes.drop_launches)
    if writes.quarantined is not None:
        connection.execute(sa.delete(tables.quarantine))
        bodies = [_dumps(encode(item)) for item in writes.quarantined]
        rows = [{"position": n, "body": body} for n, body in enumerate(bodies)]
        _insert(connection, tables.quarantine, rows)
    if writes.policy:
        _insert(connection, tables.policies, [encode(writes.policy)])
    _upsert(
        connection,
        tables.submits,
        [{"user": user, "key": key, "job": job} for (user, key), job in writes.submits.items()],
    )
    _upsert(connection, tables.servers, _pairs("key", "incarnation", writes.servers))
    notes = {node: note for node, note in writes.nodes.items() if note}
    _upsert(connection, tables.drained, _pairs("node", "note", notes))
    _delete(connection, tables.drained.c.node, [node for node in writes.nodes if node not in notes])
    if writes.forget_before is not None:
        _forget(connection, writes.forget_before)


def _forget(connection: sa.Connection, before: Seconds) -> None:
    """See ``Writes.forget_before``."""
    jobs, entries = tables.jobs, tables.entries
    old = sa.select(jobs.c.id).where(jobs.c.terminal_at < before)
    for table in (tables.submits, tables.launches):
        connection.execute(sa.delete(table).where(table.c.job.in_(old)))
    connection.execute(sa.delete(jobs).where(jobs.c.terminal_at < before))
    connection.execute(sa.delete(tables.spent).where(tables.spent.c.day < before // DAY_S))
    young = sa.select(entries.c.seq).where(entries.c.time >= before).order_by(entries.c.seq)
    first = connection.scalar(young.limit(1))
    if first is None:
        first = connection.scalar(sa.select(sa.func.max(entries.c.seq)))
    if first is not None:
        connection.execute(sa.delete(entries).where(entries.c.seq < first))


def _insert(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    if rows:
        connection.execute(sa.insert(table), rows)


def _upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[Row]) -> None:
    if not rows:
        return
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    insert = dialect.insert(table)
    update = {column.name: insert.excluded[column.name] for column in table.c}
    keys = list(table.primary_key)
    connection.execute(insert.on_conflict_do_update(index_elements=keys, set_=update), rows)


def _delete(connection: sa.Connection, column: sa.Column[Any], values: Sequence[str]) -> None:
    if values:
        delete = sa.delete(column.table).where(column == sa.bindparam("value"))
        connection.execute(delete, [{"value": value} for value in values])


def _pairs(key: str, value: str, items: Mapping[str, object]) -> list[Row]:
    return [{key: left, value: right} for left, right in items.items()]


_dumps = json.JSONEncoder(separators=(",", ":")).encode


def _job_row(job: Job) -> Row:
    return {
        "id": job.id,
        "kind": job.kind.value,
        "user": job.user,
        "queue": job.queue,
        "state": job.state.value,
        "submitted": job.submitted,
        "terminal_at": job.since if job.state in TERMINAL else None,
        "body": dumps(job),
    }


def _entry_row(entry: Entry) -> Row:
    row = encode(entry)
    return {**row, "facts": _dumps(row["facts"])}


def _entry(row: sa.Row[Any]) -> Entry:
    return Entry(**{**row._mapping, "facts": json.loads(row.facts)})


def _launch_row(job: JobId, launch: LaunchRow) -> Row:
    body = encode(launch)
    env = body.pop("env")
    return {"job": job, "env": _dumps(env), "body": _dumps(body)}
