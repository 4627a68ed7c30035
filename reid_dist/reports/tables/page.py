"""A table of runs as one HTML page: tables with intervals, curves of all runs in one chart, queries that changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from reid_dist.core.formatting import counted, integer
from reid_dist.metrics.definitions import curve_family
from reid_dist.reports.comparison.values import ChangedQuery, Comparison
from reid_dist.reports.html import page_environment
from reid_dist.reports.plots.frame import thinned
from reid_dist.reports.plots.sweeps import SweepLine, sweep_plot
from reid_dist.reports.sections.queries import picture_tiles
from reid_dist.reports.tables.texts import heads, interval_text, notes_of, number
from reid_dist.reports.tables.values import Group, MovedQueries, TableData

_PRECISION_RECALL = "precision_recall"
# Names of runs stand beside their lines.
_LONGEST_NAME = 24


def render_tables(table: TableData, *, letters: bool) -> str:
    """Return the page of a table; the same table gives the same bytes."""
    groups = [_group(table, group, letters=letters) for group in table.groups]
    n_runs = sum(len(group.rows) for group in table.groups)
    return (
        page_environment()
        .get_template("runs.html.j2")
        .render(
            title=f"{counted(n_runs, 'run')} side by side",
            groups=groups,
            notes=table.notes,
            has_images=any(group.moved is not None and group.moved.queries for group in table.groups),
        )
    )


def _group(table: TableData, group: Group, *, letters: bool) -> dict[str, Any]:
    rows = [
        {
            "name": row.name,
            "stages": row.stages,
            "cells": [
                {
                    "value": number(name, cell.value),
                    "best": cell.is_best,
                    "mark": cell.mark(letters=letters),
                    "interval": interval_text(name, cell),
                }
                for name, cell in zip(table.metrics, row.cells, strict=True)
            ],
            "digest": row.result_digest,
        }
        for row in group.ranked
    ]
    return {
        "title": group.title,
        "heads": heads(table, group),
        "n_texts": 1 + len(group.stages),
        "rows": rows,
        "charts": list(_charts(group)),
        "moved": None if group.moved is None else _moved(group, group.moved),
        "changes": [] if group.paired is None else list(_changes(group, group.paired)),
        "notes": notes_of(table, group, intervals=True, letters=letters),
    }


def _charts(group: Group) -> Iterator[dict[str, Any]]:
    """Every curve that several runs have, of all of them."""
    for name in dict.fromkeys(name for row in group.rows for name in row.curves):
        family = curve_family(name)
        drawn = [(row.name, row.curves[name]) for row in group.rows if row.curves.get(name)]
        if family is not None:
            lines = [SweepLine(_short(run), _points(values, range(1, len(values) + 1))) for run, values in drawn]
            caption = family.explanation or f"{name} up to each rank."
            yield {"plot": sweep_plot(name, "rank", lines, None, None), "caption": caption, "table": None}
        elif name == _PRECISION_RECALL:
            lines = [
                SweepLine(_short(run), _points(values, np.linspace(0, 1, len(values)).tolist()))
                for run, values in drawn
            ]
            caption = "Precision (P) at each recall: the best from there on (interpolated), mean over queries."
            yield {"plot": sweep_plot("P", "recall", lines, None, None), "caption": caption, "table": None}


def _points(values: Sequence[float], places: Sequence[float]) -> list[tuple[float, float | None]]:
    kept = thinned(len(values)).tolist()
    return [(places[at], values[at] if np.isfinite(values[at]) else None) for at in kept]


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 1]}\N{HORIZONTAL ELLIPSIS}"


def _changes(group: Group, paired: Comparison) -> Iterator[dict[str, Any]]:
    """For each tested metric, the queries that lost and gained most from the first run to the second."""
    for metric in paired.metrics:
        if metric.untested or not metric.n_gained + metric.n_lost:
            continue
        heads = ["query row", "pid", "camid", *(row.name for row in group.rows), "change"]
        rows = [_changed(metric.name, query) for query in (*metric.lost, *metric.gained)]
        yield {
            "title": f"{metric.name}: {integer(metric.n_lost)} queries lost, {integer(metric.n_gained)} gained",
            "heads": heads,
            "rows": rows,
        }


def _moved(group: Group, moved: MovedQueries) -> dict[str, Any]:
    """Lists of both runs for every query, and a note."""
    queries = []
    for each in moved.queries:
        changed = each.changed
        before, after = (number(moved.metric, value) for value in (changed.baseline, changed.candidate))
        runs = [
            {"name": row.name, "tiles": picture_tiles(shown)} for row, shown in zip(group.rows, each.lists, strict=True)
        ]
        queries.append({"title": f"Query row {changed.row}", "facts": f"{before} to {after}", "runs": runs})
    return {"title": f"Queries that changed most: {moved.metric}", "queries": queries, "note": moved.note}


def _changed(name: str, query: ChangedQuery) -> list[str]:
    labels = ["-" if label is None else str(label) for label in (query.row, query.pid, query.camid)]
    values = [number(name, value) for value in (query.baseline, query.candidate)]
    return [*labels, *values, f"{100 * (query.candidate - query.baseline):+.2f}"]
