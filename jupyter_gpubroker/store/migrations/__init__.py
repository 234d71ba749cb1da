# SPDX-License-Identifier: BSD-3-Clause
"""Bring a database to the schema of this code.

A new schema is a new file in versions/ (copy the last one) and the same change in
``tables``; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

from .. import StoreError

VERSION_TABLE = "gpubroker_schema"
"""Says that a database is ours: JupyterHub's own also has an ``alembic_version``."""


def migrate(connection: sa.Connection) -> None:
    """Make or update the tables, inside the connection's transaction.

    StoreError if the database belongs to something else or is newer than this code."""
    config = Config()
    folder = str(Path(__file__).parent)
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes.update(connection=connection, version_table=VERSION_TABLE)
    _refuse_what_is_not_ours(connection, ScriptDirectory(folder))
    command.upgrade(config, "head")


def _refuse_what_is_not_ours(connection: sa.Connection, ours: ScriptDirectory) -> None:
    tables = sa.inspect(connection).get_table_names()
    if tables and VERSION_TABLE not in tables:
        raise StoreError(
            f"holds tables of another program ({', '.join(sorted(tables)[:3])}); "
            "give the broker a database of its own"
        )
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    known = {revision.revision for revision in ours.walk_revisions()}
    for revision in context.get_current_heads():
        if revision not in known:
            raise StoreError(
                f"has schema {revision}, which is newer than this jupyter-gpubroker; "
                "install the version that wrote it, or a later one"
            )
