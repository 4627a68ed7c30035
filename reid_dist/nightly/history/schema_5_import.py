"""Import of histories of the schema before this one: eleven tables with checksums instead of documents in a chain."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Mapping
from typing import Any, Final

from reid_dist.nightly.history import chain
from reid_dist.nightly.history.history_values import Code, json_number

IMPORTED: Final = 5
"""The schema that is imported."""

_LARGE: Final = {"arrays": "per_query", "reports": "document"}
_MASK: Final = (1 << 62) - 1
_OWN: Final = ("started", "finished", "exit_code", "host", "pid", "version", "folder", "seen", "hours")
_OF_ENTRY: Final = (
    *("model", "dataset", "job", "state", "reason", "started", "seconds", "peak_bytes"),
    *("input_digest", "job_digest", "result_digest", "folder"),
)


def import_tables(connection: sqlite3.Connection) -> int:
    """Replace the tables of `IMPORTED` by those of this version, in a transaction; return the number of runs.

    ChangedRowError if anything is not what was written.
    """
    (problem,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    if problem != "ok":
        raise chain.ChangedRowError(str(problem))
    totals = connection.execute("SELECT name, n_rows, checksums FROM totals").fetchall()
    tables = {name: _rows(connection, name, n_rows, checksums) for name, n_rows, checksums in totals}
    large = {
        table: dict(connection.execute(" ".join(("SELECT digest,", name, "FROM", table))).fetchall())
        for table, name in _LARGE.items()
    }
    for contents in large.values():
        if any(chain.content_digest(content) != digest for digest, content in contents.items()):
            raise chain.ChangedRowError("a report is not what was written")
    for table in (*tables, "totals"):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("PRAGMA user_version = 0")
    chain.make_tables(connection)
    described = {row["digest"]: json.loads(row["content"]) for row in tables["descriptions"]}
    entries = sorted(tables["entries"], key=lambda row: row["id"])
    for run in sorted(tables["runs"], key=lambda row: row["number"]):
        number = run["number"]
        own = {name: run[name] for name in _OWN} | {"planned": described[run["planned"]]}
        chain.insert_run(connection, number, run["suite"], own | {"suite_digest": run["suite_digest"]})
        with chain.changing(connection, number):
            for entry in entries:
                if entry["run"] == number:
                    results = [chain.insert_result(connection, each) for each in _results(entry, tables, large)]
                    document = _document(entry, tables, described)
                    chain.insert_entry(connection, number, entry["name"], document | {"results": results})
    ((last,),) = connection.execute("SELECT max(number) FROM runs")
    chain.update_run(connection, chain.HEAD, last_run=max(int(last), *(row["last_run"] for row in tables["made"])))
    return len(tables["runs"])


def _rows(connection: sqlite3.Connection, table: str, n_rows: int, checksums: int) -> list[dict[str, Any]]:
    """Return the rows of a table without large values, compared with their checksums and the total of these."""
    names = [name for _, name, *_ in connection.execute(f"PRAGMA table_info({table})") if name != _LARGE.get(table)]
    query = " ".join(("SELECT", ", ".join(names), "FROM", table))
    rows = [dict(zip(names, row, strict=True)) for row in connection.execute(query)]
    found = [row.pop("checksum") for row in rows]
    for row, checksum in zip(rows, found, strict=True):
        digest = hashlib.blake2b(ascii((table, *row.values())).encode("ascii"), digest_size=8).digest()
        if int.from_bytes(digest, "little") & _MASK != checksum:
            raise chain.ChangedRowError(f"row {next(iter(row.values()))} of {table} is not what was written")
    if (len(rows), sum(found) & _MASK) != (n_rows, checksums):
        raise chain.ChangedRowError(f"{table} has {len(rows)} rows, and not those that were written")
    return rows


def _of(entry: Mapping[str, Any], rows: list[dict[str, Any]], order: str) -> list[dict[str, Any]]:
    return sorted((row for row in rows if row["entry"] == entry["id"]), key=lambda row: row[order])


def _results(
    entry: Mapping[str, Any], tables: Mapping[str, list[dict[str, Any]]], large: Mapping[str, Mapping[str, bytes]]
) -> list[bytes]:
    arrays = {row["result_digest"]: row["digest"] for row in tables["arrays"]}
    return [
        content
        for row in _of(entry, tables["reports"], "entry")
        for content in (large["reports"][row["digest"]], large["arrays"][arrays[row["result_digest"]]])
    ]


def _document(
    entry: Mapping[str, Any], tables: Mapping[str, list[dict[str, Any]]], described: Mapping[str, Any]
) -> dict[str, Any]:
    findings = [
        {name: row[name] for name in ("gate", "verdict", "alarm", "baseline")}
        | {"code": Code.RECORDED, "facts": {"text": row["reason"]}, "changes": json.loads(row["changes"])}
        for row in _of(entry, tables["findings"], "position")
    ]
    return {
        **{name: entry[name] for name in _OF_ENTRY},
        **{row["field"]: described[row["digest"]] for row in _of(entry, tables["entry_descriptions"], "field")},
        "timing": json.loads(entry["timing"]),
        "reused": json.loads(entry["reused"]),
        "metrics": {
            row["name"]: [json_number(row[name]) for name in ("value", "low", "high")]
            for row in _of(entry, tables["metrics"], "position")
        },
        "findings": findings,
        "accepted": "".join(row["why"] for row in _of(entry, tables["accepted"], "entry")),
    }
