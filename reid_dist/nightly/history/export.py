"""Export of a history as a document or a table."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import IO, Any, Final

from reid_dist.core.optional_packages import import_extra
from reid_dist.nightly.history.chain import SCHEMA
from reid_dist.nightly.history.history_values import GATES, Entry, Finding, Run, run_state
from reid_dist.nightly.wording import finding_text
from reid_dist.reports.documents import plain
from reid_dist.reports.tabular.csv_text import write_csv_table

COLUMNS: Final = {
    "run": int, "suite": str, "suite_digest": str, "started": str, "finished": str, "run_state": str, "exit_code": int,
    "host": str, "version": str, "model": str, "dataset": str, "job": str, "entry_started": str, "state": str,
    "reason": str, "metric": str, "value": float, "low": float, "high": float, "input_digest": str, "job_digest": str,
    "result_digest": str, "seconds": float, "peak_bytes": int, "accuracy": str, "trend": str, "speed": str,
    "memory": str, "alarm": str, "accepted": str, "folder": str,
}  # fmt: skip
"""Columns of the long table and their types; missing values are None."""


def to_document(runs: Sequence[Run]) -> dict[str, Any]:
    """Return runs with everything but their reports as plain Python values."""
    return {"schema": SCHEMA, "runs": [_run(run) for run in runs]}


def to_rows(runs: Sequence[Run]) -> Iterator[dict[str, Any]]:
    """Yield one row per metric of each entry of each run; one row for an entry without metrics."""
    for run in runs:
        state = run_state(run)
        for entry in run.entries:
            for metric, estimate in entry.metrics.items() or [(None, None)]:
                low_high = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
                values = [
                    *(run.number, run.suite, run.suite_digest, run.started, run.finished, state, run.exit_code),
                    *(run.host, run.version, entry.model, entry.dataset, entry.job, entry.started, entry.state),
                    *(entry.reason, metric, *low_high, entry.input_digest, entry.job_digest, entry.result_digest),
                    *(entry.seconds, entry.peak_bytes, *_verdicts(entry), entry.accepted, entry.folder),
                ]
                yield {column: None if value == "" else value for column, value in zip(COLUMNS, values, strict=True)}


def finding_document(finding: Finding) -> dict[str, Any]:
    """Return a finding as plain values, with its words as ``reason``."""
    return {**plain(asdict(finding)), "reason": finding_text(finding)}


def write_json(runs: Sequence[Run], file: IO[str]) -> None:
    """Write :func:`to_document` as indented ASCII JSON."""
    json.dump(to_document(runs), file, indent=2, allow_nan=False)
    file.write("\n")


def write_csv(runs: Sequence[Run], file: IO[str]) -> None:
    """Write :func:`to_rows` with a header; every float reads back to the same bits."""
    write_csv_table(list(COLUMNS), (list(row.values()) for row in to_rows(runs)), file)


def write_parquet(runs: Sequence[Run], file: IO[bytes]) -> None:
    """Write :func:`to_rows` as a parquet table; InputError if pyarrow is not installed."""
    pyarrow, parquet = (import_extra(name, "parquet", "parquet") for name in ("pyarrow", "pyarrow.parquet"))
    types = {int: pyarrow.int64(), float: pyarrow.float64(), str: pyarrow.string()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in COLUMNS.items()])
    parquet.write_table(pyarrow.Table.from_pylist(list(to_rows(runs)), schema=schema), file)


def _run(run: Run) -> dict[str, Any]:
    document: dict[str, Any] = plain({**asdict(run), "entries": []})
    document["state"] = run_state(run)
    document["entries"] = [
        {
            "name": entry.name,
            **plain(asdict(entry)),
            "findings": [finding_document(each) for each in entry.findings],
            "is_good": entry.is_good,
            "is_regression": entry.is_regression,
        }
        for entry in run.entries
    ]
    return document


def _verdicts(entry: Entry) -> list[str]:
    by_gate = {finding.gate: finding.verdict for finding in entry.findings}
    return [*(by_gate.get(gate, "") for gate in GATES), entry.alarm]
