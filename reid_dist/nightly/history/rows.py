"""Runs, entries, findings and reports as rows; equal descriptions and equal results are kept once.

All functions run in a transaction.  Beside the checksum of its row, an entry has one over its values, metrics and
descriptions, so that a missing row of these is detected while a history is open as well.  ChangedRowError if a row is
not what was written.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from reid_dist.core.formatting import utc_now
from reid_dist.errors import DamagedStoreError, InputError, StoreNotFoundError
from reid_dist.nightly.history.checksums import (
    ChangedRowError,
    Parameters,
    blob_digest,
    checked_rows,
    insert_rows,
    update_row,
)
from reid_dist.nightly.history.packing import PackedReport, unpack
from reid_dist.nightly.history.schema import CHECKED
from reid_dist.nightly.history.values import (
    DONE,
    FAILED,
    SKIPPED,
    VERDICTS,
    Change,
    Entry,
    Estimate,
    Finding,
    Past,
    Run,
)
from reid_dist.reports import Report
from reid_dist.reports.comparison import ChangedQuery
from reid_dist.reports.documents import plain

_DESCRIPTIONS: Final = ("labels", "machine", "counts", "conventions", "inputs", "environment")
_STATES: Final = (DONE, FAILED, SKIPPED)
# Without the row and the run, which are not known before.
_OF_ENTRY: Final = tuple(name for name in CHECKED["entries"] if name not in ("id", "run", "whole_checksum"))

_COMPARABLE: Final = "WHERE runs.suite = ? AND entries.name = ? AND job_digest = ? AND state = ? AND runs.number < ?"
_ACCEPTED: Final = f"JOIN accepted ON accepted.entry = entries.id {_COMPARABLE} ORDER BY runs.number DESC"
_OLDEST: Final = f"{_COMPARABLE} ORDER BY runs.number"


def insert_run(connection: sqlite3.Connection, run: Run, *, above: int) -> int:
    """Write a run that begins now; return its number, larger than `above` and all earlier ones (not `run.number`)."""
    (planned,) = _insert_descriptions(connection, [[stored_text(name) for name in run.planned]])
    (last,) = connection.execute("SELECT last_run FROM made").fetchone()
    number = 1 + max(above, int(last))
    values = {name: getattr(run, name) for name in CHECKED["runs"]}
    values |= {"number": number, "seen": utc_now(), "hours": _number(run.hours), "planned": planned}
    row = [stored_text(value) if isinstance(value, str) else value for value in values.values()]
    insert_rows(connection, "runs", [row])
    update_row(connection, "made", 1, last_run=number)
    return number


def read_runs(connection: sqlite3.Connection, where: str, parameters: Parameters = ()) -> list[Run]:
    """Return runs without entries; `where` ends the query."""
    known: dict[str, Any] = {}
    return [
        Run(**row | {"planned": tuple(_description(connection, row["planned"], known))})
        for row in checked_rows(connection, "runs", where, parameters)
    ]


def require_run(connection: sqlite3.Connection, number: int, *, file: object) -> None:
    """Raise StoreNotFoundError if there is no run of that number."""
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
    """Return the row of an entry; raise StoreNotFoundError if there is no such run or entry."""
    require_run(connection, run_number, file=file)
    row = entry_row(connection, run_number, name)
    if row is None:
        names = connection.execute("SELECT name FROM entries WHERE run = ? ORDER BY id", (run_number,)).fetchall()
        known = ", ".join(name for (name,) in names) or "none"
        raise StoreNotFoundError(f"run {run_number} of history {file} has no entry {name!r}; it has {known}")
    return row


def insert_entry(connection: sqlite3.Connection, run: int, entry: Entry) -> int:
    """Write an entry without its findings; return its row.  InputError for an invalid name or state."""
    for part in (entry.model, entry.dataset, entry.job):
        if not part or "/" in part:
            raise InputError(f"an entry is called model/dataset/job, found {entry.name!r}")
    if entry.state not in _STATES:
        raise InputError(f"the state of {entry.name} must be one of {', '.join(_STATES)}, found {entry.state!r}")
    texts = {name: stored_text(getattr(entry, name)) for name in _OF_ENTRY if isinstance(getattr(entry, name), str)}
    values = texts | {
        "seconds": _number(entry.seconds),
        "timing": _as_json(plain(entry.timing)),
        "peak_bytes": None if entry.peak_bytes is None else int(entry.peak_bytes),
        "reused": _as_json(list(entry.reused)),
    }
    row = [values[name] for name in _OF_ENTRY]
    metrics = [
        [stored_text(name), _number(estimate.value), _number(estimate.low), _number(estimate.high)]
        for name, estimate in entry.metrics.items()
    ]
    contents = [plain(getattr(entry, name)) for name in _DESCRIPTIONS]
    digests = dict(zip(_DESCRIPTIONS, _insert_descriptions(connection, contents), strict=True))
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM entries").fetchone()
    number = int(last) + 1
    insert_rows(connection, "entries", [(number, run, *row, _whole_checksum(row, metrics, digests))])
    insert_rows(connection, "metrics", [(number, position, *metric) for position, metric in enumerate(metrics)])
    insert_rows(connection, "entry_descriptions", [(number, name, digest) for name, digest in digests.items()])
    return number


def insert_findings(connection: sqlite3.Connection, entry: int, findings: Sequence[Finding]) -> None:
    """Write the findings of a new entry."""
    rows = []
    for position, finding in enumerate(findings):
        if finding.verdict not in VERDICTS:
            raise InputError(f"a verdict is one of {', '.join(VERDICTS)}, found {finding.verdict!r}")
        texts = [stored_text(text) for text in (finding.gate, finding.verdict, finding.reason, finding.alarm)]
        baseline = None if finding.baseline is None else int(finding.baseline)
        changes = _as_json([plain(asdict(change)) for change in finding.changes])
        rows.append((entry, position, *texts, baseline, changes))
    insert_rows(connection, "findings", rows)


def accept_entry(connection: sqlite3.Connection, entry: int, why: str) -> None:
    """Write or replace the acceptance of an entry."""
    connection.execute("DELETE FROM accepted WHERE entry = ?", (entry,))
    insert_rows(connection, "accepted", [(entry, stored_text(why), utc_now())])


def read_entries(connection: sqlite3.Connection, where: str, parameters: Parameters) -> Iterator[Past]:
    """Yield entries with their runs; `where` ends the query over ``entries`` and ``runs``."""
    known: dict[str, Any] = {}
    for row in checked_rows(connection, "entries", f"JOIN runs ON runs.number = entries.run {where}", parameters):
        yield Past(int(row["run"]), _entry(connection, row, known))


def reference_entry(connection: sqlite3.Connection, suite: str, entry: Entry, *, before: int) -> Past | None:
    """Return the newest accepted comparable entry of the same name, or else the first good one."""
    parameters = (suite, entry.name, entry.job_digest, DONE, before)
    for where in (_ACCEPTED, _OLDEST):
        for past in read_entries(connection, where, parameters):
            if past.entry.is_good and past.entry.comparison_key == entry.comparison_key:
                return past
    return None


def insert_report(connection: sqlite3.Connection, entry: int, packed: PackedReport, result_digest: str) -> None:
    """Write the report of the entry of this row."""
    arrays, document = packed.per_query, packed.document
    row = (result_digest, blob_digest(arrays))
    insert_rows(connection, "arrays", [row], more="ON CONFLICT DO NOTHING", blobs=[("per_query", arrays)])
    insert_rows(connection, "reports", [(entry, result_digest, blob_digest(document))], blobs=[("document", document)])


def read_report(connection: sqlite3.Connection, entry: int, where: str) -> Report:
    """Return the verified report of the entry of this row, called `where` in errors.

    StoreNotFoundError if it had none, or it was pruned; DamagedStoreError if a digest is wrong.
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
        why = (
            "it was pruned, or the job has means over splits"
            if state == DONE
            else f"the job {'failed' if state == FAILED else 'was skipped'}"
        )
        raise StoreNotFoundError(f"there is no {where}: {why}; choose another run")
    packed = PackedReport(*found[:2])
    if (blob_digest(packed.document), blob_digest(packed.per_query)) != found[2:]:
        raise DamagedStoreError(f"{where} is not what was written: its bytes have another digest; put back a copy")
    report = unpack(packed, where)
    if report.result_digest != result_digest:
        raise DamagedStoreError(f"{where} has result digest {report.result_digest}, recorded is {result_digest}")
    return report


def stored_text(text: str) -> str:
    """Return a text as SQLite stores it, with escapes for bytes of file names that are not UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _entry(connection: sqlite3.Connection, row: dict[str, Any], known: dict[str, Any]) -> Entry:
    number = row["id"]
    query = "SELECT name, value, low, high FROM metrics WHERE entry = ? ORDER BY position"
    metrics = [list(metric) for metric in connection.execute(query, (number,))]
    query = "SELECT field, digest FROM entry_descriptions WHERE entry = ?"
    found = dict(connection.execute(query, (number,)).fetchall())
    digests = {name: found.get(name) for name in _DESCRIPTIONS}
    if _whole_checksum([row[name] for name in _OF_ENTRY], metrics, digests) != row["whole_checksum"]:
        raise ChangedRowError(f"{row['name']} of run {row['run']} is not what was written")
    accepted = list(checked_rows(connection, "accepted", "WHERE entry = ?", (number,)))
    return Entry(
        **{name: row[name] for name in _OF_ENTRY if name not in ("name", "timing", "reused")},
        timing=json.loads(row["timing"]),
        reused=tuple(json.loads(row["reused"])),
        metrics={name: Estimate(value, low, high) for name, value, low, high in metrics},
        **{name: _description(connection, found[name], known) for name in _DESCRIPTIONS},
        findings=tuple(_findings(connection, number)),
        accepted=accepted[0]["why"] if accepted else "",
    )


def _findings(connection: sqlite3.Connection, entry: int) -> Iterator[Finding]:
    for row in checked_rows(connection, "findings", "WHERE entry = ? ORDER BY position", (entry,)):
        del row["entry"], row["position"]
        yield Finding(**row | {"changes": tuple(_change(change) for change in json.loads(row["changes"]))})


def _change(values: Mapping[str, Any]) -> Change:
    lost = tuple(
        ChangedQuery(**moved | {side: math.nan for side in ("baseline", "candidate") if moved[side] is None})
        for moved in values["lost"]
    )
    return Change(**{**values, "lost": lost})


def _insert_descriptions(connection: sqlite3.Connection, values: Iterable[object]) -> list[str]:
    """Write plain values as JSON, each of which the history keeps once; return their digests."""
    contents = [_as_json(value) for value in values]
    digests = [_text_digest(content) for content in contents]
    rows = list(zip(digests, contents, strict=True))
    insert_rows(connection, "descriptions", rows, more="ON CONFLICT DO NOTHING")
    return digests


def _description(connection: sqlite3.Connection, digest: str, known: dict[str, Any]) -> Any:
    """Return the value of a description; `known` has those that were read before."""
    if digest not in known:
        for row in checked_rows(connection, "descriptions", "WHERE digest = ?", (digest,)):
            known[digest] = json.loads(row["content"])
    if digest not in known:
        raise ChangedRowError(f"description {digest} is missing")
    return known[digest]


def _as_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _text_digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _number(value: float | None) -> float | None:
    # SQLite keeps whole numbers as integers, which have no -0.0; adding zero makes it 0.0.
    return None if value is None or math.isnan(value) else float(value) + 0.0


def _whole_checksum(*values: object) -> str:
    # 128 bits are enough against accidents, and this is no defence against anything else.
    return _text_digest(json.dumps(values))[:32]
