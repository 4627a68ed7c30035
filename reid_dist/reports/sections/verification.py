"""Verification and open-set search: what was counted, at which thresholds, and the curves behind it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core import formatting
from reid_dist.metrics.metric import METRICS, PAIRS, PROBES, MetricFamily, metric_family, parse_metric
from reid_dist.reports.plots.curve_charts import det_chart, roc_chart
from reid_dist.reports.plots.embedded import Figure
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.tabular.table import Cell, Column, Kind, Table, metric_cell

_MOST_POINTS = 12
_COUNTED = {
    "n_genuine": "genuine pairs: not junk, of one identity",
    "n_impostor": "impostor pairs: not junk, of two identities",
    "n_mated": "mated queries: the gallery has a relevant row of their identity",
    "n_non_mated": "non-mated queries: no gallery row has their identity",
}
_FAR = (
    "FAR (false accept rate): the share of impostor pairs nearer than the threshold. FRR (false reject rate) is "
    "1 - TAR."
)


def verification(report: ReportData) -> dict[str, Any]:
    """Return counts, thresholds, curves and the words for them; an empty dict where there is none of it."""
    counted = report.verification or {}
    far, tar = report.curves.get("ROC_FAR"), report.curves.get("ROC_TAR")
    has_curve = far is not None and tar is not None and 0 < len(far) == len(tar)
    if not counted and not has_curve:
        return {}
    thresholds = counted.get("thresholds", {})
    names = list(thresholds) + [name for name in report.metrics if _has_threshold(name) and name not in thresholds]
    families = [family for family in map(metric_family, names) if family is not None]
    used = [family for family in METRICS if family in families or (has_curve and _is_roc_point(family))]
    meaning = [family.explanation for family in used]
    if any(family.needs == PAIRS for family in used):
        meaning.insert(1, _FAR)
    return {
        "counts": [(text, formatting.integer(counted[name])) for name, text in _COUNTED.items() if name in counted],
        "meaning": meaning,
        "thresholds": Table(
            title="Thresholds",
            columns=[Column("metric", Kind.NAME), Column("value", Kind.RESULT), Column("threshold (distance)")],
            rows=[
                [
                    name,
                    metric_cell(name, report.metrics.get(name, math.nan)),
                    Cell(distance_words(thresholds.get(name)), thresholds.get(name)),
                ]
                for name in names
            ],
        ),
        "charts": _charts(report, far, tar) if far is not None and tar is not None and has_curve else [],
    }


def distance_words(threshold: float | None) -> str:
    """Return a threshold in the unit of the distance; an infinite one in words."""
    if threshold is None or math.isnan(threshold):
        return "-"
    if math.isinf(threshold):
        return "none: every pair is accepted" if threshold > 0 else "no pair is accepted"
    return f"{threshold:.9g}"


def _has_threshold(name: str) -> bool:
    family = metric_family(name)
    return family is not None and family.needs in (PAIRS, PROBES)


def _is_roc_point(family: MetricFamily) -> bool:
    return family.needs == PAIRS and family.takes_share


def _charts(report: ReportData, far: NDArray[np.float64], tar: NDArray[np.float64]) -> list[Figure]:
    marked = []
    for name, value in report.metrics.items():
        family = metric_family(name)
        if family is not None and _is_roc_point(family) and math.isfinite(value):
            marked.append((name, float(parse_metric(name).false_accept_rate), value))
    threshold = report.curves.get("ROC_threshold")
    table = Table(
        columns=[*map(Column, ("FAR", "TAR", "FRR", *([] if threshold is None else ["threshold"])))],
        rows=[
            [
                formatting.rate(float(far[at])),
                formatting.rate(float(tar[at])),
                formatting.rate(1.0 - float(tar[at])),
                *([] if threshold is None else [distance_words(float(threshold[at]))]),
            ]
            for at in _table_places(far)
        ],
    )
    return [
        Figure(
            det_chart({"": (far, tar)}, marked),
            "False rejects against false accepts, both axes logarithmic; closer to the lower left is better. Dashed, "
            "where in view: both are equal.",
            table,
        ),
        Figure(
            roc_chart({"": (far, tar)}, marked), "True accepts against false accepts, the latter logarithmic.", table
        ),
    ]


def _table_places(far: NDArray[np.float64]) -> list[int]:
    """Return some dozen points: those nearest to powers of ten, and the two ends."""
    positive = far[far > 0]
    if not len(positive):
        return [0]
    exponents = range(math.floor(math.log10(float(positive.min()))), 1)
    places = {0, len(far) - 1}
    for exponent in exponents:
        gap = np.abs(np.log10(np.maximum(far, 1e-300)) - exponent)
        if float(gap.min()) < 0.25:
            places.add(int(gap.argmin()))
    ordered = sorted(places)
    return ordered if len(ordered) <= _MOST_POINTS else [ordered[0], *ordered[-_MOST_POINTS + 1 :]]
