# SPDX-License-Identifier: BSD-3-Clause
"""The tables as they are after all migrations.

A Job is its ``body`` (JSON, ``codec``); the columns beside it are for queries and people,
and nothing reads them back into a Job. Environments are in ``launches.env`` only.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
)

metadata = MetaData()

meta = Table(
    "meta",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="one_row"), primary_key=True),
    Column("broker_id", Text, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("commits", BigInteger, nullable=False),
)
"""``epoch`` counts openings: whoever opened last may write. ``commits`` counts commits: it
tells whether one landed whose answer was lost."""

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("submitted", Double, nullable=False),
    Column("terminal_at", Double, index=True),
    Column("body", Text, nullable=False),
)

entries = Table(
    "entries",
    metadata,
    # In SQLite only an INTEGER key is the order in which rows lie.
    Column(
        "seq",
        BigInteger().with_variant(Integer, "sqlite"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("time", Double, nullable=False),
    Column("actor", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("facts", Text, nullable=False),
    Index("ix_entries_job_seq", "job", "seq"),
)

launches = Table(
    "launches",
    metadata,
    Column("job", Text, ForeignKey("jobs.id"), primary_key=True),
    Column("env", Text, nullable=False),
    Column("body", Text, nullable=False),
)

usage = Table(
    "usage",
    metadata,
    Column("queue", Text, primary_key=True),
    Column("user", Text, primary_key=True),
    Column("milli_seconds", Double, nullable=False),
    Column("time", Double, nullable=False),
)

spent = Table(
    "spent",
    metadata,
    Column("queue", Text, primary_key=True),
    Column("user", Text, primary_key=True),
    Column("day", Integer, primary_key=True, autoincrement=False),
    Column("milli_seconds", Double, nullable=False),
)

quarantine = Table(
    "quarantine",
    metadata,
    Column("position", Integer, primary_key=True, autoincrement=False),
    Column("body", Text, nullable=False),
)

policies = Table(
    "policies",
    metadata,
    Column("revision", BigInteger, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
    Column("author", Text, nullable=False),
    Column("time", Double, nullable=False),
)

submits = Table(
    "submits",
    metadata,
    Column("user", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("job", Text, ForeignKey("jobs.id"), nullable=False, index=True),
)

servers = Table(
    "servers",
    metadata,
    Column("key", Text, primary_key=True),
    Column("incarnation", BigInteger, nullable=False),
)

drained = Table(
    "drained",
    metadata,
    Column("node", Text, primary_key=True),
    Column("note", Text, nullable=False),
)
