"""Where a run or an entry stands in a history, or what is there instead."""

from __future__ import annotations

import sqlite3

from reid_dist.errors import StoreNotFoundError

__all__ = ["entry_row", "require_entry_row", "require_run"]


def require_run(connection: sqlite3.Connection, number: int, *, file: object) -> None:
    """Refuse the number of a run that is not there.

    Raises
    ------
    StoreNotFoundError
        If it is none; `file` is what the error calls the history.
    """
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
    """Return the row of an entry.

    Raises
    ------
    StoreNotFoundError
        If there is no such run or entry; `file` is what the error calls the history.
    """
    require_run(connection, run_number, file=file)
    row = entry_row(connection, run_number, name)
    if row is None:
        names = connection.execute("SELECT name FROM entries WHERE run = ? ORDER BY id", (run_number,)).fetchall()
        known = ", ".join(name for (name,) in names) or "none"
        raise StoreNotFoundError(f"run {run_number} of history {file} has no entry {name!r}; it has {known}")
    return row
