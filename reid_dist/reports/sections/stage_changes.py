"""What re-ranking and expansion change: metrics without them and with them, and the interval of the difference."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from reid_dist.core.formatting import upper_first
from reid_dist.reports.documents import restored_number
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.tabular.table import Cell, Column, Kind, Note, Table, interval_head, metric_cell, points_cell
from reid_dist.reports.words import call

_UNITS: Final = {"query": "queries", "identity": "identities"}


def stage_changes(report: ReportData) -> list[Table]:
    """Return one table per run without stages, which its title names; none where the changes were not requested."""
    found = report.stage_changes
    return [] if found is None else list(_tables(report, found))


def change_lines(table: Table) -> list[str]:
    """Return each metric of a table of changes in one line."""
    lines = []
    for metric, before, after, change, _ in table.cells():
        ends = "" if change.ends is None else f", {table.interval_head} {change.ends.text}"
        lines.append(f"{metric.text} {before.text} \N{RIGHTWARDS ARROW} {after.text} ({change.text} points{ends})")
    return lines


def _tables(report: ReportData, found: Mapping[str, Any]) -> Iterator[Table]:
    unit = _UNITS[found["unit"]]
    for run in found["without"]:
        missing = [call(stage) for name in run["stages"] if (stage := getattr(report, name)) is not None]
        kept = report.expand if "expand" not in run["stages"] else None
        words = f"With and without {' and '.join(missing)}"
        words += f", both with {call(kept)}" if kept is not None else ""
        words += f". The {interval_head(found['level'])} of the change is a bootstrap over {unit}, paired by query."
        yield Table(
            title=upper_first(
                " and ".join({"expand": "expansion", "rerank": "re-ranking"}[each] for each in run["stages"])
            ),
            columns=[
                Column("metric", Kind.NAME),
                *map(Column, ("without", "with")),
                Column("change", unit="points"),
                Column("verdict", Kind.TEXT),
            ],
            rows=[*map(_row, run["metrics"])],
            notes=[Note(words, "", True)],
            interval_head=interval_head(found["level"]),
        )


def _row(each: Mapping[str, Any]) -> list[Cell]:
    names = ("baseline", "candidate", "difference", "low", "high")
    before, after, difference, low, high = (restored_number(each[name]) for name in names)
    ends = None if math.isnan(low) or math.isnan(high) else (low, high)
    values = (metric_cell(each["metric"], value) for value in (before, after))
    return [Cell(each["metric"]), *values, points_cell(difference, ends), Cell(each["verdict"] or "not tested")]
