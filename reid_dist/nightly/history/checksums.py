"""Checksums of rows: SQLite detects a damaged page structure, not a changed value.

Each row has a checksum over its table and its values.  A flipped bit anywhere in a history changes a checksum, a value
under one, the structure that SQLite checks, a statement of the schema, or an unused part of the file.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Any

from reid_dist.nightly.history.schema import CHECKED, CHECKSUM_MASK, LARGE, make_tables, schema_texts


class ChangedRowError(ValueError):
    """A row with a wrong checksum."""


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
    """Insert rows with their checksums, in a transaction.

    Parameters
    ----------
    connection, table
        Where.
    rows
        Columns of `CHECKED` of each row, as SQLite returns them.
    more
        End of the statement, such as ``ON CONFLICT DO NOTHING``.
    blobs
        Column and large value of each row; empty where the table has none.
    """
    columns = [*CHECKED[table], "checksum", *(name for name, _ in blobs[:1])]
    places = ", ".join("?" * len(columns))
    contents: Sequence[tuple[bytes, ...]] = [(content,) for _, content in blobs] or [()] * len(rows)
    connection.executemany(
        " ".join(("INSERT INTO", table, "(", ", ".join(columns), ") VALUES (", places, ")", more)),
        [(*row, checksum_of(table, row), *content) for row, content in zip(rows, contents, strict=True)],
    )


def update_row(connection: sqlite3.Connection, table: str, key: int, **changes: Any) -> None:
    """Change columns of the row with this key (first of `CHECKED`), in a transaction; a missing row is left out.

    Raises
    ------
    ChangedRowError
        If the old checksum is wrong: a new one would hide that.
    """
    columns = CHECKED[table]
    found = connection.execute(f"{_select(table)} WHERE {columns[0]} = ?", (key,)).fetchone()
    if found is None:
        return
    *values, checksum = found
    if checksum_of(table, values) != checksum:
        raise ChangedRowError(f"row {key} of {table} is not what was written")
    row = [changes.get(name, value) for name, value in zip(columns, values, strict=True)]
    setting = ", ".join(f"{name} = ?" for name in (*changes, "checksum"))
    connection.execute(
        " ".join(("UPDATE", table, "SET", setting, "WHERE", columns[0], "= ?")),
        (*changes.values(), checksum_of(table, row), key),
    )


def first_damage(connection: sqlite3.Connection, *, large: bool) -> str:
    """Compare everything with its checksums, in a transaction; return the first difference, empty for none.

    Parameters
    ----------
    connection
        Connection.
    large
        Compare large values too; otherwise they are compared when they are read.

    Raises
    ------
    sqlite3.Error, UnicodeError
        If it cannot be read.
    """
    # Beyond quick_check: indexes, by which rows are found, agree with their tables.
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        return str(problem)
    if schema_texts(connection) != _expected_schema():
        return "its tables are not those that were made"
    totals = {name: rest for name, *rest in connection.execute("SELECT name, n_rows, checksums FROM totals")}
    if totals.keys() != CHECKED.keys():
        return "its table of totals is not what was written"
    for table in CHECKED:
        count = total = 0
        for *values, checksum in connection.execute(_select(table)):
            if checksum_of(table, values) != checksum:
                return f"row {values[0]} of {table} is not what was written"
            count, total = count + 1, (total + checksum) & CHECKSUM_MASK
        if [count, total] != totals[table]:
            return f"{table} has {count} rows, and not those that were written"
    for table, column in LARGE.items() if large else ():
        columns = ", ".join((CHECKED[table][0], "digest", column))
        for key, digest, content in connection.execute(" ".join(("SELECT", columns, "FROM", table))):
            if blob_digest(content) != digest:
                return f"{column} of row {key} of {table} is not what was written"
    return ""


def as_json(value: object) -> str:
    """Return plain values as compact JSON."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def text_digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def stored_text(text: str) -> str:
    """Return a text as SQLite stores it, with escapes for bytes of file names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def insert_descriptions(connection: sqlite3.Connection, contents: Iterable[str]) -> None:
    """Write JSON texts, each of which the history keeps once."""
    rows = [(text_digest(each), each) for each in contents]
    insert_rows(connection, "descriptions", rows, more="ON CONFLICT DO NOTHING")


def read_description(digest: str, content: str) -> Any:
    """Return the value of a JSON text; ValueError if its digest is wrong."""
    if text_digest(content) != digest:
        raise ValueError("the checksum of a description is another")
    return json.loads(content)


def _select(table: str) -> str:
    return " ".join(("SELECT", ", ".join((*CHECKED[table], "checksum")), "FROM", table))


@functools.cache
def _expected_schema() -> list[tuple[str, ...]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        make_tables(connection, 0, "")
        return schema_texts(connection)
