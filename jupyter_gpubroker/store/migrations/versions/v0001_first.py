# SPDX-License-Identifier: BSD-3-Clause
"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables."""
    _make_what_a_job_leaves()
    _make_the_rest()


def _make_what_a_job_leaves() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("queue", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("submitted", sa.Double, nullable=False),
        sa.Column("terminal_at", sa.Double, index=True),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "entries",
        sa.Column(
            "seq",
            sa.BigInteger().with_variant(sa.Integer, "sqlite"),
            primary_key=True,
            autoincrement=False,
        ),
        sa.Column("time", sa.Double, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("job", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
    )
    op.create_index("ix_entries_job_seq", "entries", ["job", "seq"])
    op.create_table(
        "launches",
        sa.Column("job", sa.Text, sa.ForeignKey("jobs.id"), primary_key=True),
        sa.Column("env", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "submits",
        sa.Column("user", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("job", sa.Text, sa.ForeignKey("jobs.id"), nullable=False, index=True),
    )


def _make_the_rest() -> None:
    op.create_table(
        "meta",
        sa.Column("id", sa.Integer, sa.CheckConstraint("id = 1", name="one_row"), primary_key=True),
        sa.Column("broker_id", sa.Text, nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("commits", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "usage",
        sa.Column("queue", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, primary_key=True),
        sa.Column("milli_seconds", sa.Double, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
    )
    op.create_table(
        "quarantine",
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("body", sa.Text, nullable=False),
    )
    op.create_table(
        "policies",
        sa.Column("revision", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("time", sa.Double, nullable=False),
    )
    op.create_table(
        "servers",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("incarnation", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "drained",
        sa.Column("node", sa.Text, primary_key=True),
        sa.Column("note", sa.Text, nullable=False),
    )


def downgrade() -> None:
    """Drop all tables."""
    for name in (
        "drained",
        "servers",
        "submits",
        "policies",
        "quarantine",
        "usage",
        "launches",
        "entries",
        "jobs",
        "meta",
    ):
        op.drop_table(name)
