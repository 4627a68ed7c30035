"""The same metrics by camera, by identity, by label, by camera pair, and against the size of the gallery."""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from reid_dist.core import formatting
from reid_dist.core.formatting import counted
from reid_dist.metrics.confidence import FEW_UNITS
from reid_dist.reports import words
from reid_dist.reports.breakdown_tables import (
    CAMERA_PAIR,
    GALLERY_SIZE,
    INTERVALS,
    MEAN_OF_GROUPS,
    N_IDENTITIES,
    Breakdown,
)
from reid_dist.reports.plots.chart import as_values
from reid_dist.reports.plots.curve_charts import distractor_chart, distractor_scale, size_ends
from reid_dist.reports.plots.embedded import Figure
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.tabular.table import Cell, Column, Kind, Row, Table, bare_cell, metric_column

_MOST_GROUPS = 40
_MOST_IDENTITIES = 20
_MOST_CAMERAS = 32
_MOST_SIZES = 25
_MOST_CURVES = 6
_MOST_MATRICES = 4
_COUNTS = {"n_query": "queries", "n_valid": "valid", N_IDENTITIES: "identities"}


def breakdowns(report: ReportData) -> list[dict[str, Any]]:
    """Return title, caption, charts and tables of every breakdown."""
    shown = []
    for number, (name, table) in enumerate(report.breakdowns.items()):
        make = {CAMERA_PAIR: _pairs, GALLERY_SIZE: _sizes}.get(name)
        content = _groups(name, table, report) if make is None else make(table)
        # Each kind of content has an empty value, so that the template needs no cases.
        nothing: dict[str, Any] = {"charts": [], "counts": None}
        shown.append({"id": f"breakdown-{number}", "title": words.breakdown_title(name)} | nothing | content)
    return shown


def breakdown_line(name: str, table: Mapping[str, Any]) -> str:
    """Return one line for the console: how many, from what to what in the first metric, and where the table is."""
    found = Breakdown(name, table)
    where = f"report.json: breakdowns.{name}; report.html: {words.breakdown_title(name)}"
    if name == CAMERA_PAIR:
        n_query, n_gallery = (len(table[side]) for side in found.kind.keys)
        what = f"{n_query} query x {counted(n_gallery, 'gallery camera')}"
        labels = [f"{query} to {gallery}" for query, gallery in found.keys]
    elif name == GALLERY_SIZE:
        what = f"{counted(len(found.keys), 'size')}, rows in {table['order']} order"
        labels = [f"{formatting.compact(size)} {'row' if size == 1 else 'rows'}" for (size,) in found.keys]
    else:
        what = counted(len(found.keys), "group")
        labels = [f"{name if found.key == 'value' else found.key} {group}" for (group,) in found.keys]
    metric = next(iter(found.metrics), "")
    cells = found.cells(metric) if metric else []
    known = [(value, ends, label) for (value, ends), label in zip(cells, labels, strict=False) if value is not None]
    if known:
        low, high = (
            " ".join([words.metric_value(metric, value), *_interval(metric, ends), f"({label})"])
            for value, ends, label in (end(known, key=operator.itemgetter(0)) for end in (min, max))
        )
        what += f", {metric} {low} to {high}"
    if table.get(MEAN_OF_GROUPS) and known:
        what += f", mean of groups {words.metric_value(metric, table[MEAN_OF_GROUPS][metric])}"
    return f"{what} ({where})"


def _groups(name: str, table: Mapping[str, Any], report: ReportData) -> dict[str, Any]:
    """Return a table with a row per camera, identity or label: the worst identities, the others in their order."""
    found = Breakdown(name, table)
    key, metrics = found.key, found.metrics
    n_groups = len(table[key])
    places = list(range(n_groups))
    caption = ["Each value is the mean over the valid queries of its group."]
    if str(report.protocol.get("invalid_query", "")).startswith("counts as 0"):
        caption = ["Each value is the mean over the queries of its group; an invalid query counts as 0."]
    if name == "identity" and metrics:
        first = table[metrics[0]]
        places.sort(key=lambda place: (first[place] is None, first[place] or 0.0, place))
        caption.append(f"Lowest {metrics[0]} first.")
    most = _MOST_IDENTITIES if name == "identity" else _MOST_GROUPS
    if n_groups > most:
        caption.append(f"report.json has {counted(n_groups - most, 'more row')} under breakdowns.{name}.")
    if (n_identities := table.get(N_IDENTITIES)) is not None:
        caption.append("In brackets: cluster bootstrap intervals over the identities of the group.")
        few = sum(0 < number < FEW_UNITS for number in n_identities)
        if few:
            caption.append(f"They are too narrow in {counted(few, 'group')} with fewer than {FEW_UNITS} identities.")
    counts = found.counts
    cells = {metric: found.cells(metric) for metric in metrics}
    rows: list[Row] = [
        [
            words.scalar(table[key][place]),
            *(formatting.integer(table[count][place]) for count in counts),
            *(_cell(metric, *cells[metric][place]) for metric in metrics),
        ]
        for place in places[:most]
    ]
    if means := table.get(MEAN_OF_GROUPS):
        caption.append("The last row is the unweighted mean over groups.")
        # An identity may have queries in several groups.
        sums = ("" if count == N_IDENTITIES else formatting.integer(sum(table[count])) for count in counts)
        rows.append(["mean of groups", *sums, *(_cell(metric, means[metric]) for metric in metrics)])
    columns = [
        Column({"camid": "camera", "pid": "pid"}.get(key, name), Kind.NAME),
        *(Column(_COUNTS[count]) for count in counts),
        *map(metric_column, metrics),
    ]
    title = words.breakdown_title(name)
    return {"caption": " ".join(caption), "tables": [Table(title=title, columns=columns, rows=rows)]}


def _pairs(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return a matrix per metric, shaded by its values, and that of the valid queries."""
    found = Breakdown(CAMERA_PAIR, table)
    sides, metrics = found.kind.keys, found.metrics
    caption = (
        "Rows are cameras of the query, columns cameras of the gallery; a cell has only that camera's rows in "
        "the gallery. A stronger colour is a higher value; a dash marks a cell without a valid query."
    )
    if any(len(table[side]) > _MOST_CAMERAS for side in sides):
        caption += (
            f" Showing the first {_MOST_CAMERAS} cameras of {len(table[sides[0]])} and {len(table[sides[1]])}; "
            "report.json has all under breakdowns.camera_pair."
        )
    if len(metrics) > _MOST_MATRICES:
        caption += f" Showing the first {_MOST_MATRICES} of {len(metrics)} metrics; report.json has all."
    tables = [
        _matrix(metric_column(metric).full_head, table, _shaded(metric, _cut(table[metric])))
        for metric in metrics[:_MOST_MATRICES]
    ]
    counts = [[formatting.integer(count) for count in row] for row in _cut(table["n_valid"])]
    return {"caption": caption, "tables": tables, "counts": _matrix("valid queries", table, counts)}


def _cut(matrix: Sequence[Sequence[Any]]) -> list[Sequence[Any]]:
    return [row[:_MOST_CAMERAS] for row in matrix[:_MOST_CAMERAS]]


def _shaded(metric: str, matrix: Sequence[Sequence[float | None]]) -> list[list[Cell]]:
    """Return cells of values, shaded from the lowest to the highest one."""
    known = [value for row in matrix for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)

    def cell(value: float | None) -> Cell:
        if value is None:
            return _cell(metric, value)
        return _cell(metric, value)._replace(shade=(value - low) / (high - low) if high > low else 0.5)

    return [[*map(cell, row)] for row in matrix]


def _matrix(title: str, table: Mapping[str, Any], cells: Sequence[Row]) -> Table:
    queries, galleries = (map(str, table[side][:_MOST_CAMERAS]) for side in ("query_camid", "gallery_camid"))
    return Table(
        title=title,
        columns=[Column("query \\ gallery", Kind.NAME), *map(Column, galleries)],
        rows=[[camid, *row] for camid, row in zip(queries, cells, strict=True)],
    )


def _sizes(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the distractor curve of every metric, and one table."""
    found = Breakdown(GALLERY_SIZE, table)
    n_rows, metrics = table["n_rows"], found.metrics
    order = "in the order of the store" if table["order"] == "stored" else f"in a random order (seed {table['seed']})"
    caption = (
        "Relevant and junk rows are in the gallery from the start; all others, the distractors, enter "
        f"{order}. The last value is that of the whole gallery. The horizontal axis is {distractor_scale(n_rows)}."
    )
    if len(metrics) > _MOST_CURVES:
        caption += f" Showing the first {_MOST_CURVES} of {len(metrics)} metrics; the table has all."
    places = _spread(len(n_rows))
    if len(places) < len(n_rows):
        caption += f" The table shows {len(places)} of {len(n_rows)} sizes; report.json has all."
    cells = {name: found.cells(name) for name in metrics}
    rows = [
        [Cell(formatting.integer(n_rows[at])), *(_cell(name, *cells[name][at]) for name in metrics)] for at in places
    ]
    charts = [
        Figure(
            distractor_chart(name, {"": (n_rows, as_values(table[name]))}, size_ends({"": table}, name)),
            "The vertical axis need not start at 0." + (" Shaded: intervals." if INTERVALS in table else ""),
        )
        for name in metrics[:_MOST_CURVES]
        if n_rows
    ]
    title, columns = words.breakdown_title(GALLERY_SIZE), [Column("gallery rows"), *map(metric_column, metrics)]
    return {"caption": caption, "charts": charts, "tables": [Table(title=title, columns=columns, rows=rows)]}


def _spread(n_places: int) -> list[int]:
    """Return the places to show, evenly spread, first and last among them."""
    if n_places <= _MOST_SIZES:
        return list(range(n_places))
    return sorted({round(step * (n_places - 1) / (_MOST_SIZES - 1)) for step in range(_MOST_SIZES)})


def _cell(name: str, value: float | None, ends: Sequence[float | None] | None = None) -> Cell:
    """Return a value with its interval, if that is known."""
    low, high = ends if ends is not None else (None, None)
    known = None if low is None or high is None else (low, high)
    return bare_cell(name, math.nan if value is None else value, known)


def _interval(name: str, ends: Sequence[float | None] | None) -> list[str]:
    return [] if ends is None or None in ends else [words.interval(name, ends)]
