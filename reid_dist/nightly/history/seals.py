"""Seals of rows: SQLite finds a page that is not as it should be, not a value in it that is another one.

A seal is a number over the table, the columns and the values of a row.  A flipped bit anywhere in a history changes a
seal, a value that a seal is over, the structure that SQLite checks, the statements of the schema, or a part of the file
that holds nothing.
"""

from __future__ import annotations

import functools
import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

from reid_dist.nightly.history.schema import LARGE, SEAL_MASK, SEALED, make_tables, schema_texts

__all__ = ["ChangedRowError", "blob_digest", "insert_rows", "seal_of", "update_row", "what_is_damaged"]


class ChangedRowError(ValueError):
    """A row that is not what was written."""


def seal_of(table: str, values: Sequence[Any]) -> int:
    """Return the seal of a row of a table, given the values of its sealed columns as SQLite returns them."""
    # ascii() tells numbers, texts and None apart, gives floats to the last bit, and is the same in every version.
    digest = hashlib.blake2b(ascii((table, *values)).encode("ascii"), digest_size=8).digest()
    return int.from_bytes(digest, "little") & SEAL_MASK


def blob_digest(content: bytes) -> str:
    """Return the digest that stands for a large value in the seal of its row."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def insert_rows(
    connection: sqlite3.Connection,
    table: str,
    rows: Sequence[Sequence[Any]],
    *,
    more: str = "",
    blobs: Sequence[tuple[str, bytes]] = (),
) -> None:
    """Insert rows with their seals.

    Parameters
    ----------
    connection
        In a transaction.
    table
        Its name.
    rows
        The values of the sealed columns of each row, as SQLite returns them.
    more
        The end of the statement, such as ``ON CONFLICT DO NOTHING``.
    blobs
        Name and value of a column that is not sealed, for each row; none where there is no such column.
    """
    columns = [*SEALED[table], "seal", *(name for name, _ in blobs[:1])]
    places = ", ".join("?" * len(columns))
    contents: Sequence[tuple[bytes, ...]] = [(content,) for _, content in blobs] or [()] * len(rows)
    connection.executemany(
        " ".join(("INSERT INTO", table, "(", ", ".join(columns), ") VALUES (", places, ")", more)),
        [(*row, seal_of(table, row), *content) for row, content in zip(rows, contents, strict=True)],
    )


def update_row(connection: sqlite3.Connection, table: str, key: int, **changes: Any) -> None:
    """Change a row whose first sealed column is its key; nothing is done where there is none.

    Parameters
    ----------
    connection
        In a transaction.
    table, key
        Which row.
    changes
        Values by column.

    Raises
    ------
    ChangedRowError
        If the row is not what was written: a new seal would hide that.
    """
    columns = SEALED[table]
    found = connection.execute(f"{_select(table)} WHERE {columns[0]} = ?", (key,)).fetchone()
    if found is None:
        return
    *values, seal = found
    if seal_of(table, values) != seal:
        raise ChangedRowError(f"row {key} of {table} is not what was written")
    row = [changes.get(name, value) for name, value in zip(columns, values, strict=True)]
    setting = ", ".join(f"{name} = ?" for name in (*changes, "seal"))
    connection.execute(
        " ".join(("UPDATE", table, "SET", setting, "WHERE", columns[0], "= ?")),
        (*changes.values(), seal_of(table, row), key),
    )


def what_is_damaged(connection: sqlite3.Connection, *, large: bool) -> str:
    """Compare everything with its seals, and return the first thing that is not what was written; empty for nothing.

    Parameters
    ----------
    connection
        In a transaction.
    large
        Compare large values as well; in any case they are compared when they are read.

    Raises
    ------
    sqlite3.Error, UnicodeError
        If it cannot be read.
    """
    # Beyond what quick_check finds: that indexes hold the rows of their tables, by which rows are looked up.
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        return str(problem)
    if schema_texts(connection) != _expected_schema():
        return "its tables are not those that were made"
    totals = {name: rest for name, *rest in connection.execute("SELECT name, n_rows, seals FROM totals")}
    if totals.keys() != SEALED.keys():
        return "its table of totals is not what was written"
    for table in SEALED:
        count = total = 0
        for *values, seal in connection.execute(_select(table)):
            if seal_of(table, values) != seal:
                return f"row {values[0]} of {table} is not what was written"
            count, total = count + 1, (total + seal) & SEAL_MASK
        if [count, total] != totals[table]:
            return f"{table} has {count} rows, and not those that were written"
    for table, column in LARGE.items() if large else ():
        columns = ", ".join((SEALED[table][0], "digest", column))
        for key, digest, content in connection.execute(" ".join(("SELECT", columns, "FROM", table))):
            if blob_digest(content) != digest:
                return f"{column} of row {key} of {table} is not what was written"
    return ""


def _select(table: str) -> str:
    return " ".join(("SELECT", ", ".join((*SEALED[table], "seal")), "FROM", table))


@functools.cache
def _expected_schema() -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        make_tables(connection, 0, "")
        return schema_texts(connection)
