"""Tables of a history.

``descriptions`` (JSON texts that repeat night after night, by their SHA-256) and ``arrays`` (values per query, by the
``result_digest``) hold each value once.  Every row has a checksum, see :mod:`reid_dist.nightly.history.checksums`;
``totals`` holds the number of rows and the sum of the checksums of each table, kept by triggers, so that a missing row
is detected too.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Final

from reid_dist._version import __version__

APPLICATION_ID: Final = 0x52454944
"""``REID``, in the header of the file: distinguishes a history from other SQLite files."""

SCHEMA: Final = 5
"""The schema that this version writes and reads."""

CHECKSUM_MASK: Final = (1 << 62) - 1
"""Checksums and their sums are modulo 2**62: the sum of two of them fits an integer of SQLite."""

_TABLES: Final = (
    # One row: version that made the file, and the number of the newest run, never used again.
    """
    CREATE TABLE made (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        version TEXT NOT NULL,
        at TEXT NOT NULL,
        last_run INTEGER NOT NULL,
        checksum INTEGER NOT NULL
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
        planned TEXT NOT NULL REFERENCES descriptions (digest),
        checksum INTEGER NOT NULL
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
        -- Of the entry with its metrics and descriptions.
        whole_checksum TEXT NOT NULL,
        checksum INTEGER NOT NULL,
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
        checksum INTEGER NOT NULL,
        PRIMARY KEY (entry, position)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE descriptions (
        digest TEXT PRIMARY KEY,
        content TEXT NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE entry_descriptions (
        entry INTEGER NOT NULL REFERENCES entries (id) ON DELETE CASCADE,
        field TEXT NOT NULL,
        digest TEXT NOT NULL REFERENCES descriptions (digest),
        checksum INTEGER NOT NULL,
        PRIMARY KEY (entry, field)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX entry_descriptions_of_digest ON entry_descriptions (digest)",
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
        checksum INTEGER NOT NULL,
        PRIMARY KEY (entry, position)
    ) STRICT, WITHOUT ROWID
    """,
    """
    CREATE TABLE accepted (
        entry INTEGER PRIMARY KEY REFERENCES entries (id) ON DELETE CASCADE,
        why TEXT NOT NULL,
        at TEXT NOT NULL,
        checksum INTEGER NOT NULL
    ) STRICT
    """,
    # The checksum covers the digest of a large value, which is compared when it is read.
    """
    CREATE TABLE arrays (
        result_digest TEXT PRIMARY KEY,
        digest TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        per_query BLOB NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE reports (
        entry INTEGER PRIMARY KEY REFERENCES entries (id) ON DELETE CASCADE,
        result_digest TEXT NOT NULL REFERENCES arrays (result_digest),
        digest TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        document BLOB NOT NULL
    ) STRICT
    """,
    "CREATE INDEX reports_of_digest ON reports (result_digest)",
    """
    CREATE TABLE totals (
        name TEXT PRIMARY KEY,
        n_rows INTEGER NOT NULL,
        checksums INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID
    """,
)

CHECKED: Final = {
    found[1]: tuple(
        name for name in re.findall(r"^ +(\w+) (?:INTEGER|TEXT|REAL)\b", text, re.MULTILINE) if name != "checksum"
    )
    for text in _TABLES
    if (found := re.search(r"CREATE TABLE (\w+)", text)) and found[1] != "totals"
}
"""Columns under the checksum of a row, by table: all but the checksum and large values."""

LARGE: Final = {"arrays": "per_query", "reports": "document"}
"""Tables with a large value per row, and its column; the checksum covers its ``digest``."""

_TRIGGERS: Final = """
    CREATE TRIGGER {table}_added AFTER INSERT ON {table} BEGIN
        UPDATE totals SET n_rows = n_rows + 1, checksums = (checksums + NEW.checksum) & {mask} WHERE name = '{table}';
    END;
    CREATE TRIGGER {table}_changed AFTER UPDATE ON {table} BEGIN
        UPDATE totals SET checksums = (checksums - OLD.checksum + NEW.checksum) & {mask} WHERE name = '{table}';
    END;
    CREATE TRIGGER {table}_removed AFTER DELETE ON {table} BEGIN
        UPDATE totals SET n_rows = n_rows - 1, checksums = (checksums - OLD.checksum) & {mask} WHERE name = '{table}';
    END;
"""


def make_tables(connection: sqlite3.Connection, first_checksum: int, at: str) -> None:
    """Make the tables of an empty database, in a transaction, unless another process has made them.

    `first_checksum` and `at` are those of the row of ``made``.
    """
    if int(connection.execute("PRAGMA user_version").fetchone()[0]) == SCHEMA:
        return
    for statement in _statements():
        connection.execute(statement)
    connection.executemany("INSERT INTO totals VALUES (?, 0, 0)", [(table,) for table in CHECKED])
    connection.execute("INSERT INTO made VALUES (1, ?, ?, 0, ?)", (__version__, at, first_checksum))
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")


def _statements() -> list[str]:
    triggers = [
        f"{text}END"
        for table in CHECKED
        for text in _TRIGGERS.format(table=table, mask=CHECKSUM_MASK).split("END;")
        if text.strip()
    ]
    return [*_TABLES, *triggers]


def schema_texts(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    """Return the kinds, names and statements of everything in a database."""
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
