"""Runs as rows, and back; their entries are rows of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from reid_dist.errors import DamagedStoreError
from reid_dist.history.facts import as_json, digest_of, insert_facts, read_fact, stored_text
from reid_dist.history.schema import now
from reid_dist.history.values import Run

__all__ = ["insert_run", "read_runs"]

_COLUMNS: Final = (
    *("number", "suite", "suite_digest", "started", "finished", "exit_code", "host", "pid", "version", "folder"),
    "seen",
)
_SELECT: Final = """
    SELECT number, suite, suite_digest, started, finished, exit_code, host, pid, version, folder, seen, planned, content
    FROM runs LEFT JOIN facts ON facts.digest = runs.planned
"""
# AUTOINCREMENT takes the number that it is given, and goes on from there.
_INSERT: Final = """
    INSERT INTO runs (number, suite, suite_digest, started, pid, host, version, folder, seen, planned)
    SELECT 1 + max(?, coalesce(max(seq), 0)), ?, ?, ?, ?, ?, ?, ?, ?, ? FROM sqlite_sequence WHERE name = 'runs'
    RETURNING number
"""


def insert_run(connection: sqlite3.Connection, run: Run, *, above: int) -> int:
    """Write a run that begins, which is seen now, and return its number.

    Parameters
    ----------
    connection
        In a transaction.
    run
        The run; its own number is not looked at.
    above
        The number is larger than this one, and than all that were given before.
    """
    planned = None
    if run.planned is not None:
        content = as_json([stored_text(name) for name in run.planned])
        insert_facts(connection, [content])
        planned = digest_of(content)
    texts = [stored_text(text) for text in (run.host, run.version, run.folder)]
    row = connection.execute(
        _INSERT,
        (above, stored_text(run.suite), run.suite_digest, run.started, run.pid, *texts, now(), planned),
    ).fetchone()
    return int(row[0])


def read_runs(connection: sqlite3.Connection, where: str, parameters: Sequence[object], *, file: object) -> list[Run]:
    """Return runs without their entries.

    Parameters
    ----------
    connection
        In a transaction.
    where
        The end of the query, from ``WHERE`` on.
    parameters
        Of the query.
    file
        What an error calls the history.

    Raises
    ------
    DamagedStoreError
        If a run is not as it was written.
    """
    runs = []
    for *row, planned, content in connection.execute(f"{_SELECT} {where}", parameters):
        values = dict(zip(_COLUMNS, row, strict=True))
        try:
            names = None if planned is None else tuple(read_fact(planned, content))
        except (ValueError, TypeError, AttributeError) as error:
            raise DamagedStoreError(
                f"history {file} is damaged: run {values['number']} is not as it was written ({error}); "
                "put back a copy of it"
            ) from error
        runs.append(Run(**values, planned=names))
    return runs
