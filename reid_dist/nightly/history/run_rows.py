"""Runs as rows, and back; their entries are rows of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from reid_dist.errors import DamagedStoreError
from reid_dist.nightly.history.facts import as_json, digest_of, insert_facts, read_fact, stored_text
from reid_dist.nightly.history.schema import SEALED, now
from reid_dist.nightly.history.seals import insert_rows, seal_of, update_row
from reid_dist.nightly.history.values import Run

__all__ = ["insert_run", "read_runs"]

_COLUMNS: Final = SEALED["runs"]
_SELECT: Final = """
    SELECT number, suite, suite_digest, started, finished, exit_code, host, pid, version, folder, seen, hours,
        planned, runs.seal, content
    FROM runs LEFT JOIN facts ON facts.digest = runs.planned
"""
_TEXTS: Final = ("suite", "suite_digest", "started", "host", "version", "folder")


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
    content = as_json([stored_text(name) for name in run.planned])
    insert_facts(connection, [content])
    (last,) = connection.execute("SELECT last_run FROM made").fetchone()
    number = 1 + max(above, int(last))
    values: dict[str, Any] = {
        "number": number,
        **{name: stored_text(getattr(run, name)) for name in _TEXTS},
        "pid": int(run.pid),
        "seen": now(),
        "hours": None if run.hours is None else float(run.hours),
        "planned": digest_of(content),
    }
    insert_rows(connection, "runs", [[values.get(name) for name in _COLUMNS]])
    update_row(connection, "made", 1, last_run=number)
    return number


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
    for *row, seal, content in connection.execute(f"{_SELECT} {where}", parameters):
        values = dict(zip(_COLUMNS, row, strict=True))
        planned = values.pop("planned")
        try:
            if seal_of("runs", row) != seal:
                raise ValueError("its seal is another")
            names = tuple(read_fact(planned, content))
        except (ValueError, TypeError, AttributeError) as error:
            raise DamagedStoreError(
                f"history {file} is damaged: run {values['number']} is not as it was written ({error}); "
                "put back a copy of it"
            ) from error
        runs.append(Run(**values, planned=names))
    return runs
