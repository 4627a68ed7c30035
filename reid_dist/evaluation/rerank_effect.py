"""What a re-ranking changes: the paired test of `reid-dist compare` against the run without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reid_dist.core.findings import Finding, caution
from reid_dist.reports import Report
from reid_dist.reports.documents import plain
from reid_dist.reports.verdicts import WORSE
from reid_dist.reports.words import is_share

if TYPE_CHECKING:
    from reid_dist.reports.comparison import MetricComparison

Changes = list[dict[str, Any]]
"""Metrics, each with its values before and after, the interval of the change, and what it means."""


def lowered_metrics(unranked: Report, report: Report, names: Sequence[str]) -> Changes:
    """Metrics that drop significantly."""
    from reid_dist.reports.comparison import compare

    compared = compare(unranked, report, metrics=names, n_changed=0)
    return [_change(each) for each in compared.metrics if each.verdict == WORSE and each.interval is not None]


def stage_changes(plainer: Sequence[Report], report: Report, names: Sequence[str]) -> dict[str, Any]:
    """Changes of some metrics against runs without the re-ranking, and without the expansion as well.

    Returns ``level`` and ``unit`` of the intervals, and ``without``: for each run the ``stages`` that it lacks
    (``"expand"``, ``"rerank"``) and its ``metrics`` (``metric``, ``baseline``, ``candidate``, ``difference``, ``low``,
    ``high``, ``verdict``; None for what is not known).
    """
    from reid_dist.reports.comparison import compare

    unit = "query" if report.n_identities is None else "identity"
    compared = [compare(plain, report, metrics=names, unit=unit, n_changed=0) for plain in plainer]
    runs = [
        {"stages": _left_out(plain, report), "metrics": [_change(each) for each in comparison.metrics]}
        for plain, comparison in zip(plainer, compared, strict=True)
    ]
    return {"level": compared[0].level, "unit": unit, "without": runs}


def _left_out(plain_run: Report, report: Report) -> list[str]:
    """The stages that a run lacks of another."""
    return [name for name in ("expand", "rerank") if getattr(report, name) != getattr(plain_run, name)]


def _change(each: MetricComparison) -> dict[str, Any]:
    low, high = (None, None) if each.interval is None else (each.interval.low, each.interval.high)
    values = {"baseline": each.baseline, "candidate": each.candidate, "difference": each.difference}
    return {"metric": each.name, **plain({**values, "low": low, "high": high}), "verdict": each.verdict}


def lowered_notes(points: Sequence[tuple[str, Changes]]) -> list[Finding]:
    """One note for each metric that is worse at some points, which are specs with their metrics: the largest change."""
    notes = []
    for name in dict.fromkeys(each["metric"] for _, lowered in points for each in lowered):
        found = [(spec, each) for spec, lowered in points for each in lowered if each["metric"] == name]
        spec, worst = max(found, key=lambda one: abs(one[1]["difference"]))
        values = {"before": worst["baseline"], "after": worst["candidate"], "low": worst["low"], "high": worst["high"]}
        at = {"metric": name, "n_points": len(found), "n_all": len(points), "worst": spec}
        notes.append(caution("reranking_is_worse", **at, **values, is_share=is_share(name)))
    return notes
