"""Reports of jobs on the console; that of an evaluation over splits is a table."""

from __future__ import annotations

from pathlib import Path

from reid_dist.cli.resumable import deliver_report, deliver_table
from reid_dist.core.formatting import aligned, counted
from reid_dist.evaluation.splits import SplitReport
from reid_dist.reports import Report
from reid_dist.reports.words import metric_value, published


def deliver(report: Report | SplitReport, *, as_json: bool, output: Path | None) -> None:
    """Print the report of a job, and the names of its files."""
    if isinstance(report, SplitReport):
        deliver_splits(report, as_json=as_json, output=output)
    else:
        deliver_report(report, as_json=as_json, output=output)


def deliver_splits(report: SplitReport, *, as_json: bool, output: Path | None) -> None:
    """Print the report, and the names of its files."""
    rows: list[tuple[str, ...]] = [("metric", "mean", "spread", "lowest", "highest")]
    for name, values in report.per_split.items():
        cells = (report.metrics[name], report.spread[name], float(values.min()), float(values.max()))
        rows.append((name, *(metric_value(name, value) for value in cells)))
    counts = report.counts
    facts = {
        **({} if report.benchmark is None else {"benchmark": published(report.benchmark)}),
        "splits": f"{report.n_splits}, {_galleries(report)}",
        "spread": "sample standard deviation over the splits",
        "queries": f"{_span(counts['n_valid'])} valid of {_span(counts['n_query'])}",
        "gallery": f"{_span(counts['n_gallery'])} rows of {counted(counts['n_identity'], 'identity')}",
        "protocol": f"{report.protocol['name']}, {report.distance['name']} distance",
        **({"ranked": report.protocol["ranked"]} if "ranked" in report.protocol else {}),
    }
    deliver_table(report, aligned(rows, n_left=1), {}, facts, as_json=as_json, output=output)


def _galleries(report: SplitReport) -> str:
    """Where the rows of the galleries come from."""
    draw = report.draw
    if "rows" in draw:
        return f"rows of {draw['rows']}"
    kind = "identity and camera" if draw["per_camera"] else "identity"
    return f"{draw['per_identity']} of each {kind}, seed {draw['seed']}"


def _span(values: list[int]) -> str:
    """Counts of all splits: one number where they agree."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
