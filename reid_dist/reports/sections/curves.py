"""Curves over ranks and recall, and how the queries are spread."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core import formatting
from reid_dist.metrics.definitions import curve_family
from reid_dist.reports.plots.curves import cmc_axis_start, cmc_plot, histogram, precision_recall_plot
from reid_dist.reports.report_data import ReportData

_RANKS = (1, 2, 3, 5, 10, 20, 50, 100, 1000)


def curves(report: ReportData) -> list[dict[str, Any]]:
    """Return the curves that are drawn here, each with its caption and a table of some of its values."""
    drawn: list[dict[str, Any]] = []
    for name, curve in report.curves.items():
        family = curve_family(name)
        if len(curve) and family is not None:
            drawn.append(_by_rank(name, family.explanation or f"{name} up to each rank.", curve))
        elif len(curve) and name == "precision_recall":
            drawn.append(_precision_recall(curve))
    return drawn


def _by_rank(name: str, caption: str, curve: NDArray[np.float64]) -> dict[str, Any]:
    ranks = sorted({rank for rank in _RANKS if rank <= len(curve)} | {len(curve)})
    table = [(formatting.integer(rank), formatting.percent(float(curve[rank - 1]))) for rank in ranks]
    start = cmc_axis_start(curve)
    if start > 0:
        caption += f" The vertical axis starts at {100 * start:.0f} %."
    return {"plot": cmc_plot(name, curve), "caption": caption, "head": "rank", "table": table}


def _precision_recall(curve: NDArray[np.float64]) -> dict[str, Any]:
    levels = np.linspace(0, 1, len(curve))
    tenth = max(1, (len(curve) - 1) // 10)
    table = [
        (f"{100 * level:.0f} %", formatting.percent(float(value)))
        for level, value in zip(levels[::tenth], curve[::tenth], strict=True)
    ]
    caption = "Precision at each recall: the best from there on (interpolated), mean over queries."
    return {"plot": precision_recall_plot(curve), "caption": caption, "head": "recall", "table": table}


def distributions(report: ReportData) -> list[dict[str, Any]]:
    """Return histograms of the average precision and of the inverse negative penalty of the queries."""
    shown = [
        (family, report.per_query[family.per_query_name])
        for family in map(report.per_query_headline, ("average", "last"))
        if family.per_query_name in report.per_query
    ]
    return [
        {
            "plot": histogram(family.per_query_name, values, series=series),
            "caption": f"{family.per_query_name} of each query: {family.summary}.",
        }
        for (family, values), series in zip(shown, "ab", strict=False)
    ]
