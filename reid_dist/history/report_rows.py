"""Reports as rows, and back: the document of each entry, and its values per query, which equal answers share."""

from __future__ import annotations

import sqlite3

from reid_dist.errors import DamagedStoreError, StoreNotFoundError
from reid_dist.history.values import DONE, FAILED
from reid_dist.reports import Report
from reid_dist.reports.packing import PackedReport, unpack

__all__ = ["insert_report", "read_report"]


def insert_report(connection: sqlite3.Connection, entry: int, packed: PackedReport, result_digest: str) -> None:
    """Write the report of an entry, which is given by its row."""
    connection.execute("INSERT INTO arrays VALUES (?, ?) ON CONFLICT DO NOTHING", (result_digest, packed.per_query))
    connection.execute("INSERT INTO reports VALUES (?, ?, ?)", (entry, packed.document, result_digest))


def read_report(connection: sqlite3.Connection, entry: int, where: str) -> Report:
    """Return the report of an entry, which is given by its row, verified.

    Parameters
    ----------
    connection
        In a transaction.
    entry
        The row.
    where
        What errors call the report.

    Raises
    ------
    StoreNotFoundError
        If the entry had no report, or it was pruned.
    DamagedStoreError
        If it is not as it was written.
    """
    state, result_digest = connection.execute(
        "SELECT state, result_digest FROM entries WHERE id = ?", (entry,)
    ).fetchone()
    packed = connection.execute(
        "SELECT document, per_query FROM reports JOIN arrays USING (result_digest) WHERE entry = ?", (entry,)
    ).fetchone()
    if packed is None:
        why = "it was pruned" if state == DONE else f"the job {'failed' if state == FAILED else 'was skipped'}"
        raise StoreNotFoundError(f"there is no {where}: {why}; choose another run")
    report = unpack(PackedReport(*packed), where)
    if report.result_digest != result_digest:
        raise DamagedStoreError(f"{where} has result digest {report.result_digest}, recorded is {result_digest}")
    return report
