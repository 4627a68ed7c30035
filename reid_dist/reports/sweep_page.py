"""The page of a sweep: its table, a chart for each metric, and the conventions."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reid_dist.core import formatting
from reid_dist.core.findings import Finding
from reid_dist.core.specs import value_text
from reid_dist.reports import words
from reid_dist.reports.documents import restored_number
from reid_dist.reports.html import document_opening, page_environment
from reid_dist.reports.plots.chart import (
    Axis,
    Chart,
    Dots,
    Line,
    as_values,
    empty_chart,
    metric_axis,
    padded,
    round_ticks,
)
from reid_dist.reports.plots.embedded import Figure
from reid_dist.reports.tabular.table import Column, Kind, Note, Table, bare_cell, metric_column

# Lines of one chart; more of them cannot be distinguished.
_MOST_LINES = 8

# Parameters that have another name beside a line.
_SHORT = {"lambda_value": "lambda"}

_Row = Mapping[str, Any]


def render_sweep(document: Mapping[str, Any], findings: Sequence[Finding]) -> str:
    """Return the page of a sweep from the content of ``sweep.json``, and its findings."""
    return page_environment().get_template("sweep.html.j2").render(_content(document, findings))


def _content(document: Mapping[str, Any], findings: Sequence[Finding]) -> dict[str, Any]:
    rows, best = document["rows"], document["best"]
    names = list(rows[0]["metrics"])
    counts = document["counts"]
    return document_opening(
        document,
        kicker="Parameter sweep",
        findings=findings,
        counted_at="points",
        stages=[document["protocol"], document["distance"], document["method"]],
        first={"Method": document["method"]},
    ) | {
        "headline": [
            {
                "name": f"Best {name}",
                "value": words.metric_value(name, best[name]["value"]),
                "interval": "",
                "words": "at " + _setting(best[name]["parameters"]),
            }
            for name in names
            if name in best
        ],
        "charts": charts_of(document),
        "table": sweep_table(document),
        "counted": f"{words.counted_queries(counts)}, at every point",
        "definitions": list(zip(names, words.conventions_once(names, document["definitions"]), strict=True)),
        "digests": _digests(rows),
    }


def charts_of(document: Mapping[str, Any]) -> list[Figure]:
    """Return a chart of each metric with its caption."""
    return [_chart(document, name) for name in document["rows"][0]["metrics"]]


def _setting(parameters: _Row) -> str:
    return ", ".join(f"{name} = {value_text(value)}" for name, value in parameters.items())


def _short(name: str, value: object) -> str:
    """A setting as it is written beside a line: a text alone, a number with the name of its parameter."""
    return value if isinstance(value, str) else f"{_SHORT.get(name, name)} {value_text(value)}"


def sweep_table(document: Mapping[str, Any]) -> Table:
    """Return the metrics at all points, the best of each marked, from the content of ``sweep.json``."""
    rows, best = document["rows"], document["best"]
    names = list(rows[0]["metrics"])
    return Table(
        title="All points",
        columns=[*(Column(name, Kind.TEXT) for name in rows[0]["parameters"]), *map(metric_column, names)],
        rows=[
            [
                *map(value_text, row["parameters"].values()),
                *(
                    bare_cell(name, restored_number(row["metrics"][name]), is_best=best.get(name, {}).get("row") == at)
                    for name in names
                ),
            ]
            for at, row in enumerate(rows)
        ],
        notes=[Note("the first of equal best values is marked", "best value", True)],
    )


def _digests(rows: Sequence[_Row]) -> Table:
    kinds = {"point": Kind.NAME, "spec": Kind.TEXT, "result digest": Kind.DIGEST, "time": Kind.NUMBER}
    return Table(
        title="Digests and times",
        columns=[*map(Column, kinds, kinds.values())],
        rows=[
            [_setting(row["parameters"]), row["name"], row["digest"], formatting.duration(row["seconds"])]
            for row in rows
        ],
    )


def _chart(document: Mapping[str, Any], metric: str) -> Figure:
    """A metric against the first parameter that has several values, with one line for each setting of the others."""
    parameters: Mapping[str, Sequence[Any]] = document["parameters"]
    along = next((name for name, values in parameters.items() if len(values) > 1), next(iter(parameters)))
    values = parameters[along]
    numeric = not isinstance(values[0], str)
    places = {value: float(value) if numeric else float(number) for number, value in enumerate(values)}
    labels = [(place, value_text(value)) for value, place in places.items()]
    ticks = None if numeric and len(values) > 8 else labels
    others = [name for name, each in parameters.items() if name != along and len(each) > 1]
    groups: dict[str, list[tuple[float, float | None]]] = {}
    for row in document["rows"]:
        name = ", ".join(_short(other, row["parameters"][other]) for other in others)
        groups.setdefault(name, []).append((places[row["parameters"][along]], row["metrics"][metric]))
    best = document["best"].get(metric)
    lines = {name: sorted(points, key=operator.itemgetter(0)) for name, points in groups.items()}
    shown = _shown(lines, None if best is None else best["value"])
    caption = "The diamond is the best point" + (
        "" if best is None else f": {words.metric_value(metric, best['value'])} at {_setting(best['parameters'])}"
    )
    if len(shown) < len(lines):
        caption += f". The {len(shown)} of {len(lines)} lines that come closest to it are shown; the table has all"
    point = None if best is None else (places[best["parameters"][along]], best["value"])
    chart = _drawn(metric, along, {name: lines[name] for name in shown}, ticks, dict(labels), point)
    return Figure(chart, f"{caption}.")


def _drawn(
    metric: str,
    parameter: str,
    lines: Mapping[str, Sequence[tuple[float, float | None]]],
    ticks: Sequence[tuple[float, str]] | None,
    labels: Mapping[float, str],
    best: tuple[float, float] | None,
) -> Chart:
    """Draw points of lines by name, ascending; `ticks` labels the horizontal axis, by default with round numbers."""
    values = [value for points in lines.values() for _, value in points if value is not None]
    if not values:
        return empty_chart(f"{metric}: no query is valid")
    low, high = min(labels), max(labels)
    # One value alone is a dot in the middle of an axis around it.
    low, high = (low - 1, high + 1) if low == high else padded(low, high, spread=0.02, level=0.0)
    if ticks is None:
        ticks = [(tick, f"{tick:g}") for tick in round_ticks(low, high) if low <= tick <= high]
    x = Axis(name=parameter, low=low, high=high, ticks=ticks, write=lambda place: labels.get(place, value_text(place)))
    y = metric_axis(metric, *padded(min(values), max(values), spread=0.12, level=0.002))
    layers: list[Line | Dots] = []
    for number, (name, points) in enumerate(lines.items()):
        at, each = as_values([place for place, _ in points]), as_values([value for _, value in points])
        # A point without a value is left out of its line.
        known = np.isfinite(each)
        layers.append(Line(x=at[known], y=each[known], name=name, series=number, dotted=True))
    described = f"{metric} by {parameter}"
    if best is not None:
        layers.append(Dots(x=np.array([best[0]]), y=np.array([best[1]]), shape="best", labelled=True))
        described += f": best {y.write(best[1])} at {parameter} {x.write(best[0])}"
    return Chart(title=f"{metric} by {parameter}", words=described, x=x, y=y, layers=layers)


def _shown(lines: Mapping[str, Sequence[tuple[float, float | None]]], best: float | None) -> list[str]:
    """Return as many lines as can be distinguished, those first that come closest to the best value."""
    names = list(lines)
    if len(lines) <= _MOST_LINES or best is None:
        return names[:_MOST_LINES]
    far = {
        name: min((abs(value - best) for _, value in points if value is not None), default=float("inf"))
        for name, points in lines.items()
    }
    return sorted(sorted(names, key=far.__getitem__)[:_MOST_LINES], key=names.index)
