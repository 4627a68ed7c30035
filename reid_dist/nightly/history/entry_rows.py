"""Entries, findings and reports as rows; equal results share their values per query.

Beside the checksum of its row, an entry has one over its values, metrics and descriptions, so that a missing row of
these is detected as well.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from reid_dist.errors import DamagedStoreError, InputError, StoreNotFoundError
from reid_dist.nightly.history.checksums import (
    as_json,
    blob_digest,
    checksum_of,
    insert_descriptions,
    insert_rows,
    read_description,
    stored_text,
    text_digest,
)
from reid_dist.nightly.history.values import (
    DONE,
    FAILED,
    SKIPPED,
    VERDICTS,
    Change,
    Entry,
    Estimate,
    Finding,
    Moved,
    Past,
)
from reid_dist.reports import Report
from reid_dist.reports.documents import plain
from reid_dist.reports.packing import PackedReport, unpack

_COLUMNS: Final = (
    *("name", "model", "dataset", "job", "state", "reason", "started", "seconds", "timing", "peak_bytes", "reused"),
    *("input_digest", "job_digest", "result_digest", "folder"),
)
_SELECT: Final = """
    SELECT entries.id, run, whole_checksum,
        name, model, dataset, job, state, reason, entries.started, seconds, timing, peak_bytes, reused,
        input_digest, job_digest, result_digest, entries.folder
    FROM entries JOIN runs ON runs.number = entries.run
"""
_DESCRIPTIONS: Final = ("labels", "machine", "counts", "conventions", "inputs", "environment")
_STATES: Final = (DONE, FAILED, SKIPPED)

_ACCEPTED: Final = """
    WHERE runs.suite = ? AND entries.name = ? AND entries.job_digest = ? AND entries.state = ? AND number < ?
    AND entries.id IN (SELECT entry FROM accepted) ORDER BY number DESC
"""
_OLDEST: Final = """
    WHERE runs.suite = ? AND entries.name = ? AND entries.job_digest = ? AND entries.state = ? AND number < ?
    ORDER BY number
"""


def insert_entry(connection: sqlite3.Connection, run: int, entry: Entry) -> int:
    """Write an entry without its findings, in a transaction; return its row.

    An invalid name or state is an InputError.
    """
    for part in (entry.model, entry.dataset, entry.job):
        if not part or "/" in part:
            raise InputError(f"an entry is called model/dataset/job, found {entry.name!r}")
    if entry.state not in _STATES:
        raise InputError(f"the state of {entry.name} must be one of {', '.join(_STATES)}, found {entry.state!r}")
    texts = {name: stored_text(getattr(entry, name)) for name in _COLUMNS if isinstance(getattr(entry, name), str)}
    values = texts | {
        "seconds": _number(entry.seconds),
        "timing": as_json(plain(entry.timing)),
        "peak_bytes": None if entry.peak_bytes is None else int(entry.peak_bytes),
        "reused": as_json(list(entry.reused)),
    }
    row = [values[name] for name in _COLUMNS]
    metrics = [
        [stored_text(name), _number(estimate.value), _number(estimate.low), _number(estimate.high)]
        for name, estimate in entry.metrics.items()
    ]
    descriptions = {name: as_json(plain(getattr(entry, name))) for name in _DESCRIPTIONS}
    digests = {name: text_digest(content) for name, content in descriptions.items()}
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM entries").fetchone()
    number = int(last) + 1
    insert_rows(connection, "entries", [(number, run, *row, _whole_checksum(row, metrics, digests))])
    insert_rows(connection, "metrics", [(number, position, *metric) for position, metric in enumerate(metrics)])
    insert_descriptions(connection, descriptions.values())
    insert_rows(connection, "entry_descriptions", [(number, name, digest) for name, digest in digests.items()])
    return number


def insert_findings(connection: sqlite3.Connection, entry: int, findings: Sequence[Finding]) -> None:
    """Replace the findings of an entry, in a transaction."""
    rows = []
    for position, finding in enumerate(findings):
        if finding.verdict not in VERDICTS:
            raise InputError(f"a verdict is one of {', '.join(VERDICTS)}, found {finding.verdict!r}")
        texts = [stored_text(text) for text in (finding.gate, finding.verdict, finding.reason, finding.alarm)]
        baseline = None if finding.baseline is None else int(finding.baseline)
        rows.append((entry, position, *texts, baseline, as_json([plain(asdict(change)) for change in finding.changes])))
    connection.execute("DELETE FROM findings WHERE entry = ?", (entry,))
    insert_rows(connection, "findings", rows)


def read_entries(
    connection: sqlite3.Connection, where: str, parameters: Sequence[object], *, file: object
) -> Iterator[tuple[int, Entry]]:
    """Yield entries with the numbers of their runs, in a transaction.

    Parameters
    ----------
    connection
        Connection.
    where, parameters
        End of the query over ``entries`` and ``runs``, from ``WHERE`` on, and its parameters.
    file
        Name of the history in errors.

    Raises
    ------
    DamagedStoreError
        If an entry has a wrong checksum.
    """
    known: dict[str, Any] = {}
    for number, run, checksum, *row in connection.execute(f"{_SELECT} {where}", parameters):
        try:
            yield int(run), _entry(connection, int(number), checksum, row, known)
        except (ValueError, LookupError, TypeError) as error:
            raise DamagedStoreError(
                f"history {file} is damaged: {row[0]} of run {run} is not as it was written ({error}); "
                "put back a copy of it"
            ) from error


def reference_entry(
    connection: sqlite3.Connection, suite: str, entry: Entry, *, before: int, file: object
) -> Past | None:
    """Return the newest accepted comparable entry of the same name, or else the first good one, in a transaction."""
    parameters = (suite, entry.name, entry.job_digest, DONE, before)
    for where in (_ACCEPTED, _OLDEST):
        for number, found in read_entries(connection, where, parameters, file=file):
            if found.is_good and found.comparison_key == entry.comparison_key:
                return Past(number, found)
    return None


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


def _entry(connection: sqlite3.Connection, number: int, checksum: str, row: list[Any], known: dict[str, Any]) -> Entry:
    metrics = [
        list(metric)
        for metric in connection.execute(
            "SELECT name, value, low, high FROM metrics WHERE entry = ? ORDER BY position", (number,)
        )
    ]
    query = "SELECT field, digest FROM entry_descriptions WHERE entry = ?"
    digests = dict(connection.execute(query, (number,)).fetchall())
    if _whole_checksum(row, metrics, {name: digests[name] for name in _DESCRIPTIONS}) != checksum:
        raise ValueError("its checksum is another")
    for digest in digests.values():
        if digest not in known:
            query = "SELECT content FROM descriptions WHERE digest = ?"
            (content,) = connection.execute(query, (digest,)).fetchone()
            known[digest] = read_description(digest, content)
    values = dict(zip(_COLUMNS, row, strict=True))
    accepted = connection.execute("SELECT entry, why, at, checksum FROM accepted WHERE entry = ?", (number,)).fetchone()
    if accepted is not None and checksum_of("accepted", accepted[:-1]) != accepted[-1]:
        raise ValueError("the checksum of its acceptance is another")
    return Entry(
        **{name: values[name] for name in _COLUMNS if name not in ("name", "timing", "reused")},
        timing=json.loads(values["timing"]),
        reused=tuple(json.loads(values["reused"])),
        metrics={name: Estimate(value, low, high) for name, value, low, high in metrics},
        **{name: known[digests[name]] for name in _DESCRIPTIONS},
        findings=tuple(_findings(connection, number)),
        accepted=accepted[1] if accepted else "",
    )


def _findings(connection: sqlite3.Connection, entry: int) -> Iterator[Finding]:
    for *row, checksum in connection.execute(
        "SELECT entry, position, gate, verdict, reason, alarm, baseline, changes, checksum FROM findings "
        "WHERE entry = ? ORDER BY position",
        (entry,),
    ):
        if checksum_of("findings", row) != checksum:
            raise ValueError("the checksum of a finding is another")
        _, _, gate, verdict, reason, alarm, baseline, changes = row
        yield Finding(
            gate=gate,
            verdict=verdict,
            reason=reason,
            alarm=alarm,
            baseline=baseline,
            changes=tuple(_change(change) for change in json.loads(changes)),
        )


def _change(values: Mapping[str, Any]) -> Change:
    lost = tuple(
        Moved(**moved | {side: math.nan for side in ("baseline", "candidate") if moved[side] is None})
        for moved in values["lost"]
    )
    return Change(**{**values, "lost": lost})


def _number(value: float | None) -> float | None:
    # SQLite keeps whole numbers as integers, which have no -0.0; adding zero makes it 0.0.
    return None if value is None or math.isnan(value) else float(value) + 0.0


def _whole_checksum(*values: object) -> str:
    # 128 bits are enough against accidents, and this is no defence against anything else.
    return text_digest(json.dumps(values))[:32]
