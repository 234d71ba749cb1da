# SPDX-License-Identifier: BSD-3-Clause
"""What budgets look at."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table of what was used, by day."""
    op.create_table(
        "spent",
        sa.Column("queue", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, primary_key=True),
        sa.Column("day", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("milli_seconds", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Drop it."""
    op.drop_table("spent")
