"""Curves over ranks and recall, and how the queries are spread."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reid_dist.core import formatting
from reid_dist.metrics.metric import curve_family
from reid_dist.reports.plots.curve_charts import Ends, precision_recall_chart, query_histogram, rank_chart, share_start
from reid_dist.reports.plots.embedded import Figure
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.tabular.table import Column, Row, Table

_RANKS = (1, 2, 3, 5, 10, 20, 50, 100, 1000)


def curves(report: ReportData) -> list[Figure]:
    """Return the curves that are drawn here, each with its caption and a table of some of its values."""
    drawn: list[Figure] = []
    for name, curve in report.curves.items():
        family = curve_family(name)
        if len(curve) and family is not None:
            # The section of conventions explains the CMC.
            caption = "" if family.headline == "match" else family.explanation or f"{name} up to each rank."
            drawn.append(_by_rank(name, caption, curve, report))
        elif len(curve) and name == "precision_recall":
            drawn.append(_precision_recall(curve))
    return drawn


def _by_rank(name: str, caption: str, curve: NDArray[np.float64], report: ReportData) -> Figure:
    ranks = sorted({rank for rank in _RANKS if rank <= len(curve)} | {len(curve)})
    table = [[formatting.integer(rank), formatting.percent(float(curve[rank - 1]))] for rank in ranks]
    start = share_start([curve])
    if start > 0:
        caption += f" The vertical axis starts at {100 * start:.0f}%."
    ends = _ends(name, len(curve), report)
    if len(ends[0]):
        caption += " Vertical lines are intervals."
    chart = rank_chart(name, {"": curve}, ends={"": ends})
    return Figure(chart, caption.strip(), _values("rank", table))


def _ends(name: str, last: int, report: ReportData) -> Ends:
    """Return the intervals of those values of a curve that are metrics."""
    found = []
    for metric, (low, high) in ((report.confidence or {}).get("intervals") or {}).items():
        stem, _, rank = metric.partition("@")
        if stem == name and rank.isdecimal() and int(rank) <= last and low is not None and high is not None:
            found.append((float(rank), low, high))
    places, low, high = np.array(sorted(found), np.float64).reshape(-1, 3).T
    return places, low, high


def _precision_recall(curve: NDArray[np.float64]) -> Figure:
    levels = np.linspace(0, 1, len(curve))
    tenth = max(1, (len(curve) - 1) // 10)
    table = [
        [f"{100 * level:.0f}%", formatting.percent(float(value))]
        for level, value in zip(levels[::tenth], curve[::tenth], strict=True)
    ]
    caption = "Interpolated precision at each recall (the best at this or any higher recall), mean over queries."
    chart = precision_recall_chart({"": curve})
    return Figure(chart, caption, _values("recall", table))


def _values(head: str, rows: Sequence[Row]) -> Table:
    return Table(columns=[Column(head), Column("value")], rows=rows)


def distributions(report: ReportData, explorer: str = "") -> list[Figure]:
    """Return histograms of the average precision and of the inverse negative penalty of the queries.

    Bars of the former lead to their queries in an `explorer`, whose address is relative to the page.
    """
    shown = [
        (family, report.per_query[family.per_query_name])
        for family in map(report.per_query_headline, ("average", "last"))
        if family.per_query_name in report.per_query
    ]
    return [
        Figure(
            query_histogram(
                family.per_query_name, values, series=series, explorer=explorer if family.headline == "average" else ""
            ),
            f"{family.per_query_name} of each query.",
        )
        for series, (family, values) in enumerate(shown)
    ]
