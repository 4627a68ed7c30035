"""Checksums of rows: SQLite detects a damaged page structure, not a changed value.

Each row has a checksum over its table and its values.  A flipped bit anywhere in a history changes a checksum, a value
under one, the structure that SQLite checks, a statement of the schema, or an unused part of the file.
"""

from __future__ import annotations

import functools
import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, TypeAlias

from reid_dist.nightly.history.schema import CHECKED, CHECKSUM_MASK, LARGE, make_tables, schema_texts

# A value per question mark of a statement, or, where it names one several times, a value per name.
Parameters: TypeAlias = Sequence[object] | Mapping[str, object]


class ChangedRowError(ValueError):
    """Content of a history that differs from what was written."""


def checksum_of(table: str, values: Sequence[Any]) -> int:
    """Return the checksum of a row, given its columns of `CHECKED` as SQLite returns them."""
    # ascii() distinguishes numbers, texts and None, is exact for floats, and is the same in every version.
    digest = hashlib.blake2b(ascii((table, *values)).encode("ascii"), digest_size=8).digest()
    return int.from_bytes(digest, "little") & CHECKSUM_MASK


def blob_digest(content: bytes) -> str:
    """Return the digest of a large value, which the checksum of its row covers in its place."""
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def insert_rows(
    connection: sqlite3.Connection,
    table: str,
    rows: Sequence[Sequence[Any]],
    *,
    more: str = "",
    blobs: Sequence[tuple[str, bytes]] = (),
) -> None:
    """Insert rows of the columns of `CHECKED` with their checksums, in a transaction.

    `more` ends the statement, as ``ON CONFLICT DO NOTHING``; `blobs` has column and large value of each row.
    """
    columns = [*CHECKED[table], "checksum", *(name for name, _ in blobs[:1])]
    places = ", ".join("?" * len(columns))
    contents: Sequence[tuple[bytes, ...]] = [(content,) for _, content in blobs] or [()] * len(rows)
    connection.executemany(
        " ".join(("INSERT INTO", table, "(", ", ".join(columns), ") VALUES (", places, ")", more)),
        [(*row, checksum_of(table, row), *content) for row, content in zip(rows, contents, strict=True)],
    )


def checked_rows(
    connection: sqlite3.Connection, table: str, where: str = "", parameters: Parameters = ()
) -> Iterator[dict[str, Any]]:
    """Yield rows by column, compared with their checksums; `where` follows the name of the table."""
    for values, _ in _verified(connection, table, where, parameters):
        yield dict(zip(CHECKED[table], values, strict=True))


def update_row(connection: sqlite3.Connection, table: str, key: int, **changes: Any) -> None:
    """Change columns of the row with this key (first of `CHECKED`), in a transaction; a missing row is left out."""
    where = f"WHERE {CHECKED[table][0]} = ?"
    # Compares the old checksum: a new one would hide a difference.
    for row in list(checked_rows(connection, table, where, (key,))):
        setting = ", ".join(f"{name} = ?" for name in (*changes, "checksum"))
        checksum = checksum_of(table, [*(row | changes).values()])
        connection.execute(" ".join(("UPDATE", table, "SET", setting, where)), (*changes.values(), checksum, key))


def check_everything(connection: sqlite3.Connection, *, large: bool) -> None:
    """Compare everything with its checksums, in a transaction; large values only with `large`, else when they are read.

    ChangedRowError for the first difference; sqlite3.Error or UnicodeError if it cannot be read.
    """
    # Beyond quick_check: indexes, by which rows are found, agree with their tables.
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise ChangedRowError(str(problem))
    if schema_texts(connection) != _expected_schema():
        raise ChangedRowError("its tables are not those that were made")
    totals = {name: rest for name, *rest in connection.execute("SELECT name, n_rows, checksums FROM totals")}
    if totals.keys() != CHECKED.keys():
        raise ChangedRowError("its table of totals is not what was written")
    for table in CHECKED:
        count = total = 0
        for _, checksum in _verified(connection, table):
            count, total = count + 1, (total + checksum) & CHECKSUM_MASK
        if [count, total] != totals[table]:
            raise ChangedRowError(f"{table} has {count} rows, and not those that were written")
    for table, column in LARGE.items() if large else ():
        columns = ", ".join((CHECKED[table][0], "digest", column))
        for key, digest, content in connection.execute(" ".join(("SELECT", columns, "FROM", table))):
            if blob_digest(content) != digest:
                raise ChangedRowError(f"{column} of row {key} of {table} is not what was written")


def _verified(
    connection: sqlite3.Connection, table: str, where: str = "", parameters: Parameters = ()
) -> Iterator[tuple[list[Any], int]]:
    """Yield the values of rows and their checksums; ChangedRowError for a row that differs."""
    columns = ", ".join(f"{table}.{name}" for name in (*CHECKED[table], "checksum"))
    for *values, checksum in connection.execute(" ".join(("SELECT", columns, "FROM", table, where)), parameters):
        if checksum_of(table, values) != checksum:
            raise ChangedRowError(f"row {values[0]} of {table} is not what was written")
        yield values, checksum


@functools.cache
def _expected_schema() -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        make_tables(connection, 0, "")
        return schema_texts(connection)
