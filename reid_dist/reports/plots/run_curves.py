"""Curves of evaluated runs by their names in papers: CMC, PR, ROC, DET and the distractor curve."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from reid_dist.core.formatting import have
from reid_dist.core.registry import unknown_name
from reid_dist.errors import InputError
from reid_dist.metrics.confidence import bootstrap_intervals
from reid_dist.metrics.metric import curve_family, exact_mean, parse_metric
from reid_dist.relevance.protocols import ZERO
from reid_dist.reports.breakdown_tables import GALLERY_SIZE, Breakdown
from reid_dist.reports.plots.chart import Chart, as_values
from reid_dist.reports.plots.curve_charts import (
    Ends,
    det_chart,
    distractor_chart,
    precision_recall_chart,
    rank_chart,
    roc_chart,
    size_ends,
)
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.verdicts import ROUNDING

CMC: Final = "cmc"
PRECISION_RECALL: Final = "pr"
ROC: Final = "roc"
DET: Final = "det"
DISTRACTORS: Final = "distractor"
CURVES: Final = (CMC, PRECISION_RECALL, ROC, DET, DISTRACTORS)
"""Names of curves, in lower case."""

# What an evaluation needs for a curve that not every run has.
_NEEDS: Final = {
    CMC: "",
    PRECISION_RECALL: "; evaluate again with a metric that ranks all positives, such as mAP",
    ROC: "; evaluate again with --roc",
    DET: "; evaluate again with --roc",
    DISTRACTORS: "; evaluate again with --breakdown gallery_size and the metric",
}


def curve_chart(curve: str, runs: Mapping[str, ReportData], metric: str | None = None, *, bands: bool = False) -> Chart:
    """Return a curve of all runs, by their names; `metric` is that of the distractor curve, by default its first one.

    With `bands`, a CMC has the bootstrap interval at each rank, drawn as those of the metrics of its report.
    InputError if a run lacks the curve, UnknownNameError for an unknown curve.
    """
    kind = curve.lower()
    if kind not in CURVES:
        raise unknown_name("curve", curve, CURVES)
    lacking = [name or "the run" for name, report in runs.items() if not has_curve(report, kind, metric)]
    if lacking:
        which = f"{kind} curve" + (f" of {metric}" if metric is not None and kind == DISTRACTORS else "")
        raise InputError(f"{', '.join(lacking)} {have(lacking)} no {which}{_NEEDS[kind]}")
    match kind:
        case "cmc":
            families = list(dict.fromkeys(_match_curve(report) for report in runs.values()))
            if len(families) > 1:
                raise InputError(f"the runs have curves of different meaning: {', '.join(families)}; plot them apart")
            ends = {name: found for name, report in runs.items() if bands and (found := _ends(report)) is not None}
            return rank_chart(
                families[0], {name: report.curves[families[0]] for name, report in runs.items()}, ends=ends
            )
        case "pr":
            return precision_recall_chart({name: report.curves["precision_recall"] for name, report in runs.items()})
        case "roc" | "det":
            rates = {name: (report.curves["ROC_FAR"], report.curves["ROC_TAR"]) for name, report in runs.items()}
            return (roc_chart if kind == ROC else det_chart)(rates)
        case _:
            tables = {name: report.breakdowns[GALLERY_SIZE] for name, report in runs.items()}
            shown = metric or Breakdown(GALLERY_SIZE, next(iter(tables.values()))).metrics[0]
            return distractor_chart(
                shown,
                {name: (table["n_rows"], as_values(table[shown])) for name, table in tables.items()},
                size_ends(tables, shown) if bands else None,
            )


def has_curve(report: ReportData, curve: str, metric: str | None = None) -> bool:
    """Whether a run has a curve, and as a distractor curve that of a metric."""
    match curve:
        case "cmc":
            return bool(_match_curve(report))
        case "pr":
            return len(report.curves.get("precision_recall", ())) > 1
        case "roc" | "det":
            return 0 < len(report.curves.get("ROC_FAR", ())) == len(report.curves.get("ROC_TAR", ()))
        case _:
            table: Mapping[str, Any] = report.breakdowns.get(GALLERY_SIZE, {})
            return bool(table.get("n_rows")) and (metric is None or metric in table)


def _match_curve(report: ReportData) -> str:
    """Return the name of the CMC of a protocol; empty without one."""
    families = ((name, curve_family(name)) for name in report.curves if len(report.curves[name]))
    return next((name for name, family in families if family is not None and family.headline == "match"), "")


def _ends(report: ReportData) -> Ends | None:
    """Return intervals of the CMC at every rank, drawn as those of the metrics; None where values by query lack."""
    first, confidence, curve = report.per_query.get("first_rank"), report.confidence, report.curves.get("CMC")
    if first is None or confidence is None or curve is None:
        return None
    pids = report.per_query.get("pid", np.arange(len(first)))
    zero = report.protocol.get("invalid_query") == ZERO
    found = {}
    for rank, value in enumerate(curve.tolist(), 1):
        hits = np.where(np.isnan(first), np.nan, first <= rank)
        values = parse_metric(f"CMC@{rank}").averaged(hits, pids, zero_for_invalid=zero)
        if not abs(exact_mean(values) - value) <= ROUNDING:
            return None
        found[str(rank)] = values
    draws = {name: confidence[name] for name in ("level", "unit", "n_resamples", "seed")}
    intervals = bootstrap_intervals(found, pids, **draws).intervals.values()
    low, high = (as_values([getattr(each, end) for each in intervals]) for end in ("low", "high"))
    return np.arange(1, len(curve) + 1, dtype=np.float64), low, high
