"""Verification and open-set search: what was counted, at which thresholds, and the curves behind it."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.reports import words
from reid_dist.reports.plots import det_plot, roc_plot
from reid_dist.reports.report_data import ReportData

__all__ = ["distance_words", "verification"]

_MOST_POINTS = 12
_COUNTED = {
    "n_genuine": "genuine pairs: kept, of one identity",
    "n_impostor": "impostor pairs: kept, of two identities",
    "n_mated": "mated queries: the gallery has a relevant row of their identity",
    "n_non_mated": "non-mated queries: no gallery row at all has their identity",
}
_MEANING = {
    "TAR": "TAR (true accept rate): the share of genuine pairs nearer than the threshold.",
    "FAR": "FAR (false accept rate): the share of impostor pairs nearer than the threshold. FRR (false reject rate) "
    "is 1 - TAR.",
    "EER": "EER (equal error rate): the error where FAR and FRR are equal.",
    "DIR": "DIR (detection and identification rate): the share of mated queries whose nearest kept row is right and "
    "nearer than the threshold; its FAR is the share of non-mated queries whose nearest row is nearer than the "
    "threshold.",
}


def verification(report: ReportData) -> dict[str, Any]:
    """Return counts, thresholds, curves and the words for them; an empty dict where there is none of it."""
    counted = report.verification or {}
    far, tar = report.curves.get("ROC_FAR"), report.curves.get("ROC_TAR")
    has_curve = far is not None and tar is not None and 0 < len(far) == len(tar)
    if not counted and not has_curve:
        return {}
    thresholds = counted.get("thresholds", {})
    names = list(thresholds) + [name for name in report.metrics if _is_one(name) and name not in thresholds]
    kinds = {name.partition("@")[0] for name in names} | ({"TAR"} if has_curve else set())
    meaning = [text for kind, text in _MEANING.items() if kind in kinds or (kind == "FAR" and kinds & {"TAR", "EER"})]
    return {
        "counts": [(text, words.integer(counted[name])) for name, text in _COUNTED.items() if name in counted],
        "meaning": meaning,
        "thresholds": [
            (name, words.metric_value(name, report.metrics.get(name, math.nan)), distance_words(thresholds.get(name)))
            for name in names
        ],
        "charts": _charts(report, far, tar) if far is not None and tar is not None and has_curve else [],
    }


def distance_words(threshold: float | None) -> str:
    """Return a threshold in the unit of the distance; an infinite one in words."""
    if threshold is None or math.isnan(threshold):
        return "-"
    if math.isinf(threshold):
        return "none: every pair is accepted" if threshold > 0 else "no pair is accepted"
    return f"{threshold:.9g}"


def _is_one(name: str) -> bool:
    return re.match(r"(TAR|DIR)@FAR=|EER$", name) is not None


def _charts(report: ReportData, far: NDArray[np.float64], tar: NDArray[np.float64]) -> list[dict[str, Any]]:
    marked = []
    for name, value in report.metrics.items():
        match = re.fullmatch(r"TAR@FAR=(\S+)", name)
        if match is not None and math.isfinite(value) and _is_float(match[1]):
            marked.append((name, float(match[1]), value))
    threshold = report.curves.get("ROC_threshold")
    table = {
        "heads": ["FAR", "TAR", "FRR", *([] if threshold is None else ["threshold"])],
        "rows": [
            [
                words.rate(float(far[at])),
                words.rate(float(tar[at])),
                words.rate(1.0 - float(tar[at])),
                *([] if threshold is None else [distance_words(float(threshold[at]))]),
            ]
            for at in _table_places(far)
        ],
    }
    return [
        {
            "plot": det_plot(far, tar, marked),
            "caption": "DET: false rejects against false accepts, both axes logarithmic; the nearer to the lower left, "
            "the better. Dashed, where in view: both are equal.",
            "table": table,
        },
        {
            "plot": roc_plot(far, tar, marked),
            "caption": "ROC: true accepts against false accepts, the latter logarithmic.",
            "table": table,
        },
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


def _is_float(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False
