"""The tables of a history.

What is stored once and referred to: ``facts`` (long descriptions that are the same night after night, by the SHA-256
of their text) and ``arrays`` (values per query, by the ``result_digest`` of the answer).

Every row carries a seal over its values, see :mod:`reid_dist.nightly.history.seals`, and ``totals`` holds the number of
rows and the sum of the seals of each table, which triggers keep: a changed row, and one that is gone, are both found.
"""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import Final

from reid_dist._version import __version__

__all__ = ["APPLICATION_ID", "LARGE", "SCHEMA", "SEALED", "SEAL_MASK", "make_tables", "now", "schema_texts"]

APPLICATION_ID: Final = 0x52454944
"""``REID``; stands in the header of the file and tells a history from other SQLite files."""

SCHEMA: Final = 5
"""The schema that this version writes and reads."""

SEAL_MASK: Final = (1 << 62) - 1
"""Seals and their sums are kept modulo 2**62: the sum of two of them is an integer of SQLite still."""

_TABLES: Final = (
    # One row: who made the file, and the number of the newest run, which is never given again.
    """
    CREATE TABLE made (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        version TEXT NOT NULL,
        at TEXT NOT NULL,
        last_run INTEGER NOT NULL,
        seal INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY,
        suite TEXT NOT NULL,
        suite_digest TEXT NOT NULL,
        started TEXT NOT NULL,
        finished TEXT,
        exit_code INTEGER,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        version TEXT NOT NULL,
        folder TEXT NOT NULL,
        seen TEXT NOT NULL,
        hours REAL,
        -- The names of all jobs of the suite that night, as a list in JSON.
        planned TEXT NOT NULL REFERENCES facts (digest),
        seal INTEGER NOT NULL
    ) STRICT
    """,
    "CREATE INDEX runs_of_suite ON runs (suite, number)",
    "CREATE INDEX runs_of_planned ON runs (planned)",
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
        -- Over the entry with its metrics and facts.
        checksum TEXT NOT NULL,
        seal INTEGER NOT NULL,
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
        seal INTEGER NOT NULL,
        PRIMARY KEY (entry, position)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE facts (
        digest TEXT PRIMARY KEY,
        content TEXT NOT NULL,
        seal INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE entry_facts (
        entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        field TEXT NOT NULL,
        digest TEXT NOT NULL REFERENCES facts (digest),
        seal INTEGER NOT NULL,
        PRIMARY KEY (entry, field)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX entry_facts_of_digest ON entry_facts (digest)",
    """
    CREATE TABLE findings (
        entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        gate TEXT NOT NULL,
        verdict TEXT NOT NULL CHECK (verdict IN ('better', 'same', 'worse', 'undecided', 'incomparable')),
        reason TEXT NOT NULL,
        alarm TEXT NOT NULL,
        baseline INTEGER,
        changes TEXT NOT NULL,
        seal INTEGER NOT NULL,
        PRIMARY KEY (entry, position)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE accepted (
        entry INTEGER PRIMARY KEY REFERENCES entries (id) ON DELETE CASCADE,
        why TEXT NOT NULL,
        at TEXT NOT NULL,
        seal INTEGER NOT NULL
    ) STRICT
    """,
    # Of large values the seal is over their digest, which is compared when they are read.
    """
    CREATE TABLE arrays (
        result_digest TEXT PRIMARY KEY,
        digest TEXT NOT NULL,
        seal INTEGER NOT NULL,
        per_query BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE reports (
        entry INTEGER PRIMARY KEY REFERENCES entries (id) ON DELETE CASCADE,
        result_digest TEXT NOT NULL REFERENCES arrays (result_digest),
        digest TEXT NOT NULL,
        seal INTEGER NOT NULL,
        document BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX reports_of_digest ON reports (result_digest)",
    """
    CREATE TABLE totals (
        name TEXT PRIMARY KEY,
        n_rows INTEGER NOT NULL,
        seals INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)

SEALED: Final = {
    "made": ("id", "version", "at", "last_run"),
    "runs": (
        *("number", "suite", "suite_digest", "started", "finished", "exit_code", "host", "pid", "version", "folder"),
        *("seen", "hours", "planned"),
    ),
    "entries": (
        *("id", "run", "name", "model", "dataset", "job", "state", "reason", "started", "seconds", "timing"),
        *("peak_bytes", "reused", "input_digest", "job_digest", "result_digest", "folder", "checksum"),
    ),
    "metrics": ("entry", "position", "name", "value", "low", "high"),
    "facts": ("digest", "content"),
    "entry_facts": ("entry", "field", "digest"),
    "findings": ("entry", "position", "gate", "verdict", "reason", "alarm", "baseline", "changes"),
    "accepted": ("entry", "why", "at"),
    "arrays": ("result_digest", "digest"),
    "reports": ("entry", "result_digest", "digest"),
}
"""Tables by name, and the columns that the seal of a row is over."""

LARGE: Final = {"arrays": "per_query", "reports": "document"}
"""Tables whose rows have a large value, and its column; ``digest`` stands for it in the seal."""

_TRIGGERS: Final = """
    CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN
        UPDATE totals SET n_rows = n_rows + 1, seals = (seals + NEW.seal) & {mask} WHERE name = '{table}';
    END;
    CREATE TRIGGER {table}_changed AFTER UPDATE ON {table} BEGIN
        UPDATE totals SET seals = (seals - OLD.seal + NEW.seal) & {mask} WHERE name = '{table}';
    END;
    CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN
        UPDATE totals SET n_rows = n_rows - 1, seals = (seals - OLD.seal) & {mask} WHERE name = '{table}';
    END;
"""


def make_tables(connection: sqlite3.Connection, first_seal: int, at: str) -> None:
    """Make the tables of an empty database; those that another process made meanwhile stay.

    Parameters
    ----------
    connection
        In a transaction.
    first_seal
        The seal of the row of ``made``.
    at
        Its time.
    """
    if int(connection.execute("PRAGMA user_version").fetchone()[0]) == SCHEMA:
        return
    for statement in _statements():
        connection.execute(statement)
    connection.executemany("INSERT INTO totals VALUES (?, 0, 0)", [(table,) for table in SEALED])
    connection.execute("INSERT INTO made VALUES (1, ?, ?, 0, ?)", (__version__, at, first_seal))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")


def _statements() -> list[str]:
    triggers = [
        f"{text}END"
        for table in SEALED
        for text in _TRIGGERS.format(table=table, mask=SEAL_MASK).split("END;")
        if text.strip()
    ]
    return [*_TABLES, *triggers]


def schema_texts(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Return the kinds, names and statements of everything in a database."""
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()


def now() -> str:
    """Return the time: UTC, ISO 8601 with seconds and ``Z``."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
