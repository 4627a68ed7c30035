"""Entries and findings as rows, and back.

Every row of an entry carries a checksum over its values, its metrics and its facts: with a row of them missing, it is
not the entry that was written.
"""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from reid_dist.errors import DamagedStoreError, InputError
from reid_dist.nightly.history.facts import as_json, digest_of, insert_facts, read_fact, stored_text
from reid_dist.nightly.history.seals import insert_rows, seal_of
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
)
from reid_dist.reports.plain import plain

__all__ = ["insert_entry", "insert_findings", "read_entries"]

_COLUMNS: Final = (
    *("name", "model", "dataset", "job", "state", "reason", "started", "seconds", "timing", "peak_bytes", "reused"),
    *("input_digest", "job_digest", "result_digest", "folder"),
)
_SELECT: Final = """
    SELECT entries.id, run, checksum,
        name, model, dataset, job, state, reason, entries.started, seconds, timing, peak_bytes, reused,
        input_digest, job_digest, result_digest, entries.folder
    FROM entries JOIN runs ON runs.number = entries.run
"""
_FACTS: Final = ("labels", "machine", "counts", "conventions", "inputs", "environment")
_STATES: Final = (DONE, FAILED, SKIPPED)


def insert_entry(connection: sqlite3.Connection, run: int, entry: Entry) -> int:
    """Write an entry, without its findings; return its row.

    Raises
    ------
    InputError
        If its name or state cannot be.
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
    facts = {name: as_json(plain(getattr(entry, name))) for name in _FACTS}
    digests = {name: digest_of(content) for name, content in facts.items()}
    (last,) = connection.execute("SELECT coalesce(max(id), 0) FROM entries").fetchone()
    number = int(last) + 1
    insert_rows(connection, "entries", [(number, run, *row, _checksum(row, metrics, digests))])
    insert_rows(connection, "metrics", [(number, position, *metric) for position, metric in enumerate(metrics)])
    insert_facts(connection, facts.values())
    insert_rows(connection, "entry_facts", [(number, name, digest) for name, digest in digests.items()])
    return number


def insert_findings(connection: sqlite3.Connection, entry: int, findings: Sequence[Finding]) -> None:
    """Write what the gates found of an entry, in place of what they found before."""
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
    """Yield entries with the numbers of their runs.

    Parameters
    ----------
    connection
        In a transaction.
    where
        The end of the query, from ``WHERE`` on; ``entries`` are joined with ``runs``.
    parameters
        Of the query.
    file
        What an error calls the history.

    Raises
    ------
    DamagedStoreError
        If an entry is not as it was written.
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


def _entry(connection: sqlite3.Connection, number: int, checksum: str, row: list[Any], known: dict[str, Any]) -> Entry:
    metrics = [
        list(metric)
        for metric in connection.execute(
            "SELECT name, value, low, high FROM metrics WHERE entry = ? ORDER BY position", (number,)
        )
    ]
    digests = dict(connection.execute("SELECT field, digest FROM entry_facts WHERE entry = ?", (number,)).fetchall())
    if _checksum(row, metrics, {name: digests[name] for name in _FACTS}) != checksum:
        raise ValueError("its checksum is another")
    for digest in digests.values():
        if digest not in known:
            (content,) = connection.execute("SELECT content FROM facts WHERE digest = ?", (digest,)).fetchone()
            known[digest] = read_fact(digest, content)
    values = dict(zip(_COLUMNS, row, strict=True))
    accepted = connection.execute("SELECT entry, why, at, seal FROM accepted WHERE entry = ?", (number,)).fetchone()
    if accepted is not None and seal_of("accepted", accepted[:-1]) != accepted[-1]:
        raise ValueError("the seal of its acceptance is another")
    return Entry(
        **{name: values[name] for name in _COLUMNS if name not in ("name", "timing", "reused")},
        timing=json.loads(values["timing"]),
        reused=tuple(json.loads(values["reused"])),
        metrics={name: Estimate(value, low, high) for name, value, low, high in metrics},
        **{name: known[digests[name]] for name in _FACTS},
        findings=tuple(_findings(connection, number)),
        accepted=accepted[1] if accepted else "",
    )


def _findings(connection: sqlite3.Connection, entry: int) -> Iterator[Finding]:
    for *row, seal in connection.execute(
        "SELECT entry, position, gate, verdict, reason, alarm, baseline, changes, seal FROM findings WHERE entry = ? "
        "ORDER BY position",
        (entry,),
    ):
        if seal_of("findings", row) != seal:
            raise ValueError("the seal of a finding is another")
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


def _checksum(*values: object) -> str:
    # 128 bits are enough against accidents, and this is no defence against anything else.
    return digest_of(json.dumps(values))[:32]
