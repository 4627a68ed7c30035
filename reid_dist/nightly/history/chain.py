"""Tables of a history: runs, entries and results as documents, with digests in a chain.

``runs`` and ``entries`` hold one document of JSON a row, ``results`` the large values (reports, and values per query,
which reports of one result share) by the digest of their content.  The digest of an entry covers its document, which
names its results; that of a run covers its document, the digests of its entries and the digest of the run before; and
run `HEAD` ends the chain with the digest of the last run.  So whatever is changed, removed, added or moved changes a
digest above it.  SQLite itself detects a damaged page structure, not a changed value.

All functions run in a transaction.  ChangedRowError if a row is not what was written.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from reid_dist._version import __version__
from reid_dist.core.formatting import utc_now

APPLICATION_ID: Final = 0x52454944
"""``REID``, in the header of the file: distinguishes a history from other SQLite files."""

SCHEMA: Final = 6
"""The schema that this version writes and reads."""

HEAD: Final = 0
"""Number of the row that ends the chain; its document holds the number of the newest run, never used again."""

_TABLES: Final = (
    """
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY,
        suite TEXT NOT NULL,
        document TEXT NOT NULL,
        digest TEXT NOT NULL
    ) STRICT
    """,
    """
    CREATE TABLE entries (
        id INTEGER PRIMARY KEY,
        run INTEGER NOT NULL REFERENCES runs (number) ON DELETE CASCADE,
        name TEXT NOT NULL,
        document TEXT NOT NULL,
        digest TEXT NOT NULL,
        UNIQUE (run, name)
    ) STRICT
    """,
    "CREATE INDEX entries_of_name ON entries (name, run)",
    "CREATE TABLE results (digest TEXT PRIMARY KEY, content BLOB NOT NULL) STRICT",
)

# A value per question mark of a statement, or, where it names one several times, a value per name.
Parameters: TypeAlias = Sequence[object] | Mapping[str, object]
Document: TypeAlias = dict[str, Any]


class ChangedRowError(ValueError):
    """Content of a history that differs from what was written."""


def make_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty database, unless another process has made them."""
    if int(connection.execute("PRAGMA user_version").fetchone()[0]) == SCHEMA:
        return
    for statement in _TABLES:
        connection.execute(statement)
    head = _as_json({"last_run": 0, "version": __version__, "at": utc_now()})
    connection.execute("INSERT INTO runs VALUES (?, '', ?, '')", (HEAD, head))
    _seal(connection, HEAD)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA}")


def stored_text(text: str) -> str:
    """Return a text as a history stores it, with escapes for bytes of file names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


# ------------------------------------------------------------------------------------------------------------- writing


@contextlib.contextmanager
def changing(connection: sqlite3.Connection, since: int) -> Iterator[None]:
    """Allow changes of a run and of later ones, and write their digests.

    They are compared before: new digests would hide a difference.
    """
    _check_chain(connection, since)
    yield
    _seal(connection, since)


def insert_run(connection: sqlite3.Connection, number: int, suite: str, document: Document) -> None:
    """Add a run after all others."""
    with changing(connection, number):
        values = (number, stored_text(suite), _as_json(document), "")
        connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?)", values)
        _replace_run(connection, HEAD, {"last_run": number})


def update_run(connection: sqlite3.Connection, number: int, **changes: Any) -> None:
    """Change values of the document of a run."""
    with changing(connection, number):
        _replace_run(connection, number, changes)


def insert_entry(connection: sqlite3.Connection, run: int, name: str, document: Document) -> None:
    """Add an entry to a run, inside of :func:`changing`."""
    name, text = stored_text(name), _as_json(document)
    values = (run, name, text, _digest("entry", run, name, text))
    connection.execute("INSERT INTO entries (run, name, document, digest) VALUES (?, ?, ?, ?)", values)


def update_entry(connection: sqlite3.Connection, run: int, name: str, **changes: Any) -> None:
    """Change values of the document of an entry, inside of :func:`changing`."""
    ((_, _, document),) = entry_rows(connection, "WHERE run = ? AND name = ?", (run, name))
    text = _as_json(document | changes)
    digest = _digest("entry", run, name, text)
    connection.execute(
        "UPDATE entries SET document = ?, digest = ? WHERE run = ? AND name = ?", (text, digest, run, name)
    )


def insert_result(connection: sqlite3.Connection, content: bytes) -> str:
    """Add a large value, which is kept once, and return its digest."""
    digest = content_digest(content)
    connection.execute("INSERT INTO results VALUES (?, ?) ON CONFLICT DO NOTHING", (digest, content))
    return digest


def remove_unused_results(connection: sqlite3.Connection) -> None:
    """Remove the large values that no entry names."""
    unused = {digest for (digest,) in connection.execute("SELECT digest FROM results")} - _named_results(
        connection, HEAD
    )
    connection.executemany("DELETE FROM results WHERE digest = ?", [(digest,) for digest in unused])


# ------------------------------------------------------------------------------------------------------------- reading


def last_run(connection: sqlite3.Connection) -> int:
    """Return the number of the newest run that there was; 0 for none."""
    ((_, _, head),) = run_rows(connection, "WHERE number = ?", (HEAD,))
    return int(head["last_run"])


def run_rows(
    connection: sqlite3.Connection, where: str, parameters: Parameters = ()
) -> Iterator[tuple[int, str, Document]]:
    """Yield number, suite and document of runs, compared with their digests; `where` follows the table."""
    query = " ".join(("SELECT number, suite, document, digest FROM runs", where))
    for number, suite, text, digest in connection.execute(query, parameters).fetchall():
        if digest != _run_digest(connection, number, suite, text):
            raise ChangedRowError(f"run {number} is not what was written")
        yield number, suite, json.loads(text)


def entry_rows(
    connection: sqlite3.Connection, where: str, parameters: Parameters = ()
) -> Iterator[tuple[int, str, Document]]:
    """Yield run, name and document of entries, compared with their digests; `where` follows the table."""
    query = " ".join(("SELECT entries.run, entries.name, entries.document, entries.digest FROM entries", where))
    for run, name, text, digest in connection.execute(query, parameters):
        if digest != _digest("entry", run, name, text):
            raise ChangedRowError(f"{name} of run {run} is not what was written")
        yield run, name, json.loads(text)


def check_everything(connection: sqlite3.Connection, *, large: bool) -> None:
    """Compare everything with its digests; large values only with `large`, else when they are read.

    ChangedRowError for the first difference; sqlite3.Error or UnicodeError if it cannot be read.
    """
    # Beyond quick_check: indexes, by which rows are found, agree with their tables.
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise ChangedRowError(str(problem))
    if _schema_texts(connection) != _expected_schema():
        raise ChangedRowError("its tables are not those that were made")
    used = _check_chain(connection, HEAD)
    if connection.execute("SELECT 1 FROM entries WHERE run NOT IN (SELECT number FROM runs)").fetchone() is not None:
        raise ChangedRowError("entries belong to no run")
    if {digest for (digest,) in connection.execute("SELECT digest FROM results")} != used:
        raise ChangedRowError("its reports are not those that were written")
    for digest, content in connection.execute("SELECT digest, content FROM results") if large else ():
        if content_digest(content) != digest:
            raise ChangedRowError(f"result {digest} is not what was written")


def content_digest(content: bytes) -> str:
    """Return the digest of a large value."""
    # 128 bits are enough against accidents, and this is no defence against anything else.
    return hashlib.blake2b(content, digest_size=16).hexdigest()


# --------------------------------------------------------------------------------------------------------------- chain


def _check_chain(connection: sqlite3.Connection, since: int) -> set[str]:
    """Compare a run, later ones and the end of the chain with their digests; return the results that they name."""
    heads = [number for number, *_ in run_rows(connection, "WHERE number >= ? OR number = ?", (since, HEAD))]
    if HEAD not in heads:
        raise ChangedRowError("the end of its chain is missing")
    return _named_results(connection, since)


def _seal(connection: sqlite3.Connection, since: int) -> None:
    """Write the digests of a run, of later ones, and of the end of the chain."""
    query = "SELECT number, suite, document FROM runs WHERE number >= ? OR number = ? ORDER BY number = ?, number"
    for number, suite, text in connection.execute(query, (since, HEAD, HEAD)).fetchall():
        digest = _run_digest(connection, number, suite, text)
        connection.execute("UPDATE runs SET digest = ? WHERE number = ?", (digest, number))


def _run_digest(connection: sqlite3.Connection, number: int, suite: str, text: str) -> str:
    before = connection.execute(
        "SELECT digest FROM runs WHERE number > ? AND (number < ? OR ? = ?) ORDER BY number DESC LIMIT 1",
        (HEAD, number, number, HEAD),
    ).fetchone()
    entries = connection.execute("SELECT digest FROM entries WHERE run = ? ORDER BY id", (number,)).fetchall()
    return _digest("run", number, suite, text, before, entries)


def _named_results(connection: sqlite3.Connection, since: int) -> set[str]:
    found = entry_rows(connection, "WHERE run >= ?", (since,))
    return {digest for _, _, document in found for digest in document["results"]}


def _replace_run(connection: sqlite3.Connection, number: int, changes: Document) -> None:
    ((text,),) = connection.execute("SELECT document FROM runs WHERE number = ?", (number,))
    connection.execute("UPDATE runs SET document = ? WHERE number = ?", (_as_json(json.loads(text) | changes), number))


def _digest(*values: object) -> str:
    return content_digest(json.dumps(values).encode())


def _as_json(document: Document) -> str:
    return json.dumps(_storable(document), separators=(",", ":"), allow_nan=False)


def _storable(value: Any) -> Any:
    match value:
        case str():
            return stored_text(value)
        case dict():
            return {stored_text(name): _storable(each) for name, each in value.items()}
        case list() | tuple():
            return [_storable(each) for each in value]
        case _:
            return value


def _schema_texts(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    return connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()


@functools.cache
def _expected_schema() -> list[tuple[str, ...]]:
    with contextlib.closing(sqlite3.connect(":memory:", isolation_level=None)) as connection:
        make_tables(connection)
        return _schema_texts(connection)
