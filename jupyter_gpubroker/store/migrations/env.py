# SPDX-License-Identifier: BSD-3-Clause
"""Run by alembic, inside the transaction of the connection that it is given."""

from __future__ import annotations

from alembic import context

given = context.config.attributes
context.configure(connection=given["connection"], version_table=given["version_table"])
with context.begin_transaction():
    context.run_migrations()
