"""A report at a glance, as text and as HTML for notebooks, and as data frames."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from reid_dist.core.credentials import without_controls
from reid_dist.core.formatting import aligned, integer
from reid_dist.errors import InputError
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.sections.metrics import metric_names
from reid_dist.reports.words import bounded_value, interval

_MOST_ROWS = 30
_MOST_NOTES = 5
_NOTE_LENGTH = 200


@dataclass(frozen=True)
class Summary:
    """A small table with a title above it and facts below.

    Attributes
    ----------
    title
        What it is.
    heads
        Names of the columns; all but the first are set to the right.
    rows
        Cells; of many rows the first and the last are shown.
    facts
        Words by name.
    notes
        Remarks on the validity of the numbers; the first few are shown, cut where they are long.
    """

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    facts: Mapping[str, str]
    notes: Sequence[str] = ()

    def to_text(self) -> str:
        """Return plain text."""
        table = aligned([self.heads, *self._shown()], n_left=1, gap="  ")
        facts = [f"{name}: {words}" for name, words in self._lines()]
        return without_controls("\n".join([self.title, *(f"  {line}" for line in (*table, *facts))]))

    def to_html(self) -> str:
        """Return an HTML fragment."""
        heads = "".join(f"<th>{escape(head)}</th>" for head in self.heads)
        body = "".join(
            f"<tr><th>{escape(row[0])}</th>{''.join(f'<td>{escape(cell)}</td>' for cell in row[1:])}</tr>"
            for row in self._shown()
        )
        facts = "".join(f"<div>{escape(name)}: {escape(words)}</div>" for name, words in self._lines())
        return (
            f"<div><strong>{escape(self.title)}</strong>"
            f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>{facts}</div>"
        )

    def _shown(self) -> list[tuple[str, ...]]:
        if len(self.rows) <= _MOST_ROWS:
            return list(self.rows)
        half = _MOST_ROWS // 2
        left_out = (f"… {len(self.rows) - 2 * half} more", *("" for _ in self.heads[1:]))
        return [*self.rows[:half], left_out, *self.rows[-half:]]

    def _lines(self) -> list[tuple[str, str]]:
        lines = [*self.facts.items(), *(("note", _cut(note)) for note in self.notes[:_MOST_NOTES])]
        if len(self.notes) > _MOST_NOTES:
            lines.append(("notes", f"{len(self.notes) - _MOST_NOTES} more in .notes"))
        return lines


def _cut(note: str) -> str:
    return note if len(note) <= _NOTE_LENGTH else f"{note[: _NOTE_LENGTH - 1]}…"


def make_frame(columns: Mapping[str, Any], *, index: str, names: Sequence[Any] | None = None) -> Any:
    """Return a `pandas.DataFrame`.

    Parameters
    ----------
    columns
        Arrays or lists of one length by name.
    index
        Name of the index.
    names
        The index; row numbers from 0 when None.

    Raises
    ------
    InputError
        If pandas is not installed.
    """
    try:
        # Imported by name: it is an optional dependency, and has no part in anything else.
        pandas = importlib.import_module("pandas")
    except ImportError:
        raise InputError(
            "to_pandas needs pandas, which is not installed: pip install 'reid-dist[pandas]'; per_query and metrics "
            "hold the same values as arrays and numbers"
        ) from None
    frame = pandas.DataFrame(dict(columns), index=names)
    return frame.rename_axis(index)


def summarise(report: ReportData) -> Summary:
    """Return the table of an evaluation: metrics with their intervals, conventions, counts and notes."""
    counts, confidence = report.counts, report.confidence
    ends = {} if confidence is None else confidence["intervals"]
    heads = ("metric", "value", *(() if confidence is None else (f"{100 * confidence['level']:g} % interval",)))
    rows = [
        (
            name,
            bounded_value(name, report.metrics.get(name, math.nan), report.bounds.get(name)),
            *(() if confidence is None else (interval(name, ends.get(name)),)),
        )
        for name in metric_names(report)
    ]
    conventions = [report.protocol, report.distance, *(each for each in (report.expand, report.rerank) if each)]
    facts = {
        "queries": f"{integer(counts['n_valid'])} valid of {integer(counts['n_query'])}, "
        f"gallery {integer(counts['n_gallery'])} rows",
        "digest": report.result_digest[:16],
    }
    title = f"Report: {', '.join(str(each.get('name', 'unnamed')) for each in conventions)}"
    return Summary(title, heads, rows, facts, report.notes)


def report_frame(report: ReportData, table: str) -> Any:
    """Return a data frame of an evaluation; see `Report.to_pandas`."""
    if table == "per_query":
        labels = [name for name in ("pid", "camid") if name in report.per_query]
        order = [*labels, *(name for name in report.per_query if name not in labels)]
        return make_frame({name: report.per_query[name] for name in order}, index="query")
    if table != "metrics":
        raise InputError(f"table must be 'per_query' or 'metrics', found {table!r}")
    names = metric_names(report)
    intervals = (report.confidence or {}).get("intervals", {})
    ends = [[math.nan if end is None else end for end in intervals.get(name) or (None, None)] for name in names]
    columns = {
        "value": [report.metrics.get(name, math.nan) for name in names],
        "low": [low for low, _ in ends],
        "high": [high for _, high in ends],
        "definition": [report.definitions.get(name, "") for name in names],
    }
    return make_frame(columns, index="metric", names=names)
