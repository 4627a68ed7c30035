"""Which queries a model fails on: for the table and for the pictures of the page."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.metrics.definitions import METRICS
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.topk import TopK


def average_precision_column(report: ReportData) -> str:
    """Return the column of the protocol's average precision, the other one where that is missing."""
    families = [family for family in METRICS if family.headline == "average"]
    families.sort(key=lambda family: family.name != report.protocol.get("ap_family"))
    names = [family.per_query_name for family in families]
    return next((name for name in names if name in report.per_query), names[0])


def hardest_queries(report: ReportData, n_most: int) -> NDArray[np.int64]:
    """Return the rows of the valid queries of lowest AP, then lowest INP, then lowest row; at most ``n_most``.

    Empty where the report has no AP by query.
    """
    columns = report.per_query
    average = columns.get(average_precision_column(report))
    if average is None:
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(np.isfinite(average))
    inverse = columns.get("INP", average)
    return rows[np.lexsort((rows, inverse[rows], average[rows]))][:n_most]


def hardest_by_lists(topk: TopK, n_most: int) -> NDArray[np.int64]:
    """Return the rows of the queries whose first relevant item has the highest rank in their lists; at most ``n_most``.

    Those whose list holds none come first; a list does not determine whether such a query is valid.  Empty where the
    lists have no labels.
    """
    if topk.relevant is None or not topk.k:
        return np.zeros(0, np.int64)
    first = np.where(topk.relevant.any(axis=1), topk.relevant.argmax(axis=1), topk.k)
    return np.argsort(-first, kind="stable")[:n_most]
