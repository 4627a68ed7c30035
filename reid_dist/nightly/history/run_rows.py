"""Runs as rows, without their entries."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from reid_dist.core.formatting import utc_now
from reid_dist.errors import DamagedStoreError, StoreNotFoundError
from reid_dist.nightly.history.checksums import (
    as_json,
    checksum_of,
    insert_descriptions,
    insert_rows,
    read_description,
    stored_text,
    text_digest,
    update_row,
)
from reid_dist.nightly.history.schema import CHECKED
from reid_dist.nightly.history.values import Run

_COLUMNS: Final = CHECKED["runs"]
_SELECT: Final = """
    SELECT number, suite, suite_digest, started, finished, exit_code, host, pid, version, folder, seen, hours,
        planned, runs.checksum, content
    FROM runs LEFT JOIN descriptions ON descriptions.digest = runs.planned
"""
_TEXTS: Final = ("suite", "suite_digest", "started", "host", "version", "folder")


def insert_run(connection: sqlite3.Connection, run: Run, *, above: int) -> int:
    """Write a run that begins now, in a transaction, and return its number.

    The number (`run.number` is ignored) is larger than `above` and than all earlier ones.
    """
    content = as_json([stored_text(name) for name in run.planned])
    insert_descriptions(connection, [content])
    (last,) = connection.execute("SELECT last_run FROM made").fetchone()
    number = 1 + max(above, int(last))
    values: dict[str, Any] = {
        "number": number,
        **{name: stored_text(getattr(run, name)) for name in _TEXTS},
        "pid": int(run.pid),
        "seen": utc_now(),
        "hours": None if run.hours is None else float(run.hours),
        "planned": text_digest(content),
    }
    insert_rows(connection, "runs", [[values.get(name) for name in _COLUMNS]])
    update_row(connection, "made", 1, last_run=number)
    return number


def read_runs(connection: sqlite3.Connection, where: str, parameters: Sequence[object], *, file: object) -> list[Run]:
    """Return runs without entries, in a transaction.

    Parameters
    ----------
    connection
        Connection.
    where, parameters
        End of the query, from ``WHERE`` on, and its parameters.
    file
        Name of the history in errors.

    Raises
    ------
    DamagedStoreError
        If a run has a wrong checksum.
    """
    runs = []
    for *row, checksum, content in connection.execute(f"{_SELECT} {where}", parameters):
        values = dict(zip(_COLUMNS, row, strict=True))
        planned = values.pop("planned")
        try:
            if checksum_of("runs", row) != checksum:
                raise ValueError("its checksum is another")
            names = tuple(read_description(planned, content))
        except (ValueError, TypeError, AttributeError) as error:
            raise DamagedStoreError(
                f"history {file} is damaged: run {values['number']} is not as it was written ({error}); "
                "put back a copy of it"
            ) from error
        runs.append(Run(**values, planned=names))
    return runs


def require_run(connection: sqlite3.Connection, number: int, *, file: object) -> None:
    """Raise StoreNotFoundError if there is no run of that number."""
    if connection.execute("SELECT 1 FROM runs WHERE number = ?", (number,)).fetchone() is not None:
        return
    first, last = connection.execute("SELECT min(number), max(number) FROM runs").fetchone()
    known = "it is empty" if first is None else f"it has runs {first} to {last}"
    raise StoreNotFoundError(f"there is no run {number} in history {file}: {known}, less those that were pruned")


def entry_row(connection: sqlite3.Connection, run_number: int, name: str) -> int | None:
    """Return the row of an entry; None where there is none."""
    row = connection.execute("SELECT id FROM entries WHERE run = ? AND name = ?", (run_number, name)).fetchone()
    return None if row is None else int(row[0])


def require_entry_row(connection: sqlite3.Connection, run_number: int, name: str, *, file: object) -> int:
    """Return the row of an entry; raise StoreNotFoundError if there is no such run or entry."""
    require_run(connection, run_number, file=file)
    row = entry_row(connection, run_number, name)
    if row is None:
        names = connection.execute("SELECT name FROM entries WHERE run = ? ORDER BY id", (run_number,)).fetchall()
        known = ", ".join(name for (name,) in names) or "none"
        raise StoreNotFoundError(f"run {run_number} of history {file} has no entry {name!r}; it has {known}")
    return row
