"""Reports as rows: the document of each entry, and its values per query, which equal results share."""

from __future__ import annotations

import sqlite3

from reid_dist.errors import DamagedStoreError, StoreNotFoundError
from reid_dist.nightly.history.checksums import blob_digest, insert_rows
from reid_dist.nightly.history.values import DONE, FAILED
from reid_dist.reports import Report
from reid_dist.reports.packing import PackedReport, unpack


def insert_report(connection: sqlite3.Connection, entry: int, packed: PackedReport, result_digest: str) -> None:
    """Write the report of the entry of this row, in a transaction."""
    arrays, document = packed.per_query, packed.document
    row = (result_digest, blob_digest(arrays))
    insert_rows(connection, "arrays", [row], more="ON CONFLICT DO NOTHING", blobs=[("per_query", arrays)])
    insert_rows(connection, "reports", [(entry, result_digest, blob_digest(document))], blobs=[("document", document)])


def read_report(connection: sqlite3.Connection, entry: int, where: str) -> Report:
    """Return the verified report of the entry of this row, in a transaction.

    Parameters
    ----------
    connection, entry
        Connection and row.
    where
        Name of the report in errors.

    Raises
    ------
    StoreNotFoundError
        If the entry had no report, or it was pruned.
    DamagedStoreError
        If a digest is wrong.
    """
    state, result_digest = connection.execute(
        "SELECT state, result_digest FROM entries WHERE id = ?", (entry,)
    ).fetchone()
    found = connection.execute(
        "SELECT document, per_query, reports.digest, arrays.digest FROM reports JOIN arrays USING (result_digest) "
        "WHERE entry = ?",
        (entry,),
    ).fetchone()
    if found is None:
        why = "it was pruned" if state == DONE else f"the job {'failed' if state == FAILED else 'was skipped'}"
        raise StoreNotFoundError(f"there is no {where}: {why}; choose another run")
    packed = PackedReport(*found[:2])
    if (blob_digest(packed.document), blob_digest(packed.per_query)) != found[2:]:
        raise DamagedStoreError(f"{where} is not what was written: its bytes have another digest; put back a copy")
    report = unpack(packed, where)
    if report.result_digest != result_digest:
        raise DamagedStoreError(f"{where} has result digest {report.result_digest}, recorded is {result_digest}")
    return report
