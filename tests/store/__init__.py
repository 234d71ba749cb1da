# SPDX-License-Identifier: BSD-3-Clause
"""The store on every ground: memory, SQLite, and a PostgreSQL started here."""
