"""The tables of a history and how an older file becomes one of today.

A new file is made by the same steps that bring an old one up to date, so every step runs whenever a history is made.
All steps that are missing run in one transaction: a process that is killed half-way leaves the file as it was, and
of two processes the second finds the work done.

What is stored once and referred to: ``facts`` (long descriptions that are the same night after night, by the SHA-256
of their text) and ``arrays`` (values per query, by the ``result_digest`` of the answer).
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Final

from reid_dist._version import __version__

__all__ = ["APPLICATION_ID", "MIGRATIONS", "SCHEMA", "migrate", "now"]

APPLICATION_ID: Final = 0x52454944
"""``REID``; stands in the header of the file and tells a history from other SQLite files."""

_FIRST = (
    # Who brought the file to which schema: a version that is too old then says which one reads it.
    """
    CREATE TABLE migrations (
        schema INTEGER PRIMARY KEY,
        version TEXT NOT NULL,
        at TEXT NOT NULL
    ) STRICT
    """,
    # AUTOINCREMENT: the number of a run is never used again, even when the run was removed.
    """
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        suite TEXT NOT NULL,
        suite_digest TEXT NOT NULL,
        started TEXT NOT NULL,
        finished TEXT,
        exit_code INTEGER,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        version TEXT NOT NULL,
        folder TEXT NOT NULL
    ) STRICT
    """,
    "CREATE INDEX runs_of_suite ON runs (suite, number)",
    """
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
        name TEXT NOT NULL,
        model TEXT NOT NULL,
        dataset TEXT NOT NULL,
        job TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('done', 'failed', 'skipped')),
        reason TEXT NOT NULL,
        started TEXT NOT NULL,
        seconds REAL,
        timing TEXT NOT NULL,
        peak_bytes INTEGER,
        reused TEXT NOT NULL,
        input_digest TEXT NOT NULL,
        job_digest TEXT NOT NULL,
        result_digest TEXT NOT NULL,
        folder TEXT NOT NULL,
        checksum TEXT NOT NULL,
        UNIQUE (run, name)
    ) STRICT
    """,
    "CREATE INDEX entries_of_name ON entries (name, run)",
    """
    CREATE TABLE metrics (
        entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        name TEXT NOT NULL,
        value REAL,
        low REAL,
        high REAL,
        PRIMARY KEY (entry, position)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE facts (
        digest TEXT PRIMARY KEY,
        content TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE entry_facts (
        entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        field TEXT NOT NULL,
        digest TEXT NOT NULL REFERENCES facts (digest),
        PRIMARY KEY (entry, field)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX entry_facts_of_digest ON entry_facts (digest)",
    """
    CREATE TABLE findings (
        entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        gate TEXT NOT NULL,
        verdict TEXT NOT NULL CHECK (verdict IN ('better', 'same', 'worse', 'incomparable')),
        reason TEXT NOT NULL,
        alarm TEXT NOT NULL,
        baseline INTEGER,
        changes TEXT NOT NULL,
        checksum TEXT NOT NULL,
        PRIMARY KEY (entry, position)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE arrays (
        result_digest TEXT PRIMARY KEY,
        per_query BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE reports (
        entry INTEGER PRIMARY KEY REFERENCES entries (id) ON DELETE CASCADE,
        document BLOB NOT NULL,
        result_digest TEXT NOT NULL REFERENCES arrays (result_digest)
    ) STRICT
    """,
    "CREATE INDEX reports_of_digest ON reports (result_digest)",
    f"PRAGMA application_id = {APPLICATION_ID}",
)

_ACCEPTED = (
    """
    CREATE TABLE accepted (
        entry INTEGER PRIMARY KEY REFERENCES entries (id) ON DELETE CASCADE,
        why TEXT NOT NULL,
        at TEXT NOT NULL
    ) STRICT
    """,
)

_ALIVE_AND_PLANNED = (
    # Both are NULL for runs that were begun before: of those, nothing is known.
    "ALTER TABLE runs ADD COLUMN seen TEXT",
    # The names of all jobs of the suite that night, as a list in JSON.
    "ALTER TABLE runs ADD COLUMN planned TEXT REFERENCES facts (digest)",
    "CREATE INDEX runs_of_planned ON runs (planned)",
)

MIGRATIONS: Final = (_FIRST, _ACCEPTED, _ALIVE_AND_PLANNED)
"""Statements by step; the first ``n`` steps make schema ``n``.  A step that was released is never changed."""

SCHEMA: Final = len(MIGRATIONS)
"""The schema that this version writes."""


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a database to today's schema, in one transaction.

    Parameters
    ----------
    connection
        Without a transaction, and in autocommit mode; the database is empty or an older history.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Read again now that nobody else can write: another process may have done it.
        found = int(connection.execute("PRAGMA user_version").fetchone()[0])
        for schema in range(found + 1, SCHEMA + 1):
            for statement in MIGRATIONS[schema - 1]:
                connection.execute(statement)
            connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (schema, __version__, now()))
            connection.execute(f"PRAGMA user_version = {schema}")
        connection.execute("COMMIT")
    except BaseException:
        connection.rollback()
        raise


def now() -> str:
    """Return the time: UTC, ISO 8601 with seconds and ``Z``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
