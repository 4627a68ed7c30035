"""What a re-ranking changes: the paired test of `reid-dist compare` against the run without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reid_dist.core.formatting import counted
from reid_dist.reports import Report
from reid_dist.reports.verdicts import WORSE
from reid_dist.reports.words import metric_value, stage_name

if TYPE_CHECKING:
    from reid_dist.reports.comparison import MetricComparison

Lowered = list[dict[str, Any]]
"""Metrics, each with its values before and after, and the interval of the change."""


def lowered_metrics(unranked: Report, report: Report, names: Sequence[str]) -> Lowered:
    """Metrics whose change is decidedly for the worse."""
    from reid_dist.reports.comparison import compare

    compared = compare(unranked, report, metrics=names, n_changed=0)
    return [
        {
            "metric": each.name,
            "values": [each.baseline, each.candidate],
            "interval": [each.interval.low, each.interval.high],
        }
        for each in compared.metrics
        if each.verdict == WORSE and each.interval is not None
    ]


def change_note(plainer: Sequence[Report], report: Report, names: Sequence[str]) -> str:
    """One line on the change of some metrics against runs without the re-ranking, and without the expansion as well."""
    from reid_dist.reports.comparison import compare

    unit = "query" if report.n_identities is None else "identity"
    changes = []
    for unranked in plainer:
        compared = compare(unranked, report, metrics=names, unit=unit, n_changed=0)
        what, missing = _left_out(unranked, report)
        of_metrics = [_change(each, missing) for each in compared.metrics]
        changes.append(f"{what}: {', '.join(of_metrics)}")
    units = {"query": "queries", "identity": "identities"}[unit]
    return f"{'; '.join(changes)}; {100 * compared.level:g} % intervals over {units}"


def _left_out(plain: Report, report: Report) -> tuple[str, str]:
    """What a run lacks of another, in kinds and by name, with the expansion that it keeps."""
    rerank = stage_name(report.rerank or {})
    if report.expand is None:
        return "re-ranking", rerank
    expand = report.expand["name"]
    if plain.expand is None:
        return "expansion and re-ranking", f"{expand} and {rerank}"
    return "re-ranking", f"{rerank}, both with {expand}"


def _change(each: MetricComparison, missing: str) -> str:
    before, after = (metric_value(each.name, value) for value in (each.baseline, each.candidate))
    change = f"{each.name} {after} after {before} without {missing}"
    if each.interval is None:
        return change
    low, high = (metric_value(each.name, value) for value in (each.interval.low, each.interval.high))
    return f"{change} (change from {low} to {high}: {each.verdict})"


def lowered_notes(points: Sequence[tuple[str, Lowered]]) -> list[str]:
    """One note for each metric that is worse at some points, which are specs with their metrics: the largest change."""
    notes = []
    for name in dict.fromkeys(each["metric"] for _, lowered in points for each in lowered):
        found = [(spec, each) for spec, lowered in points for each in lowered if each["metric"] == name]
        spec, worst = max(found, key=lambda one: abs(one[1]["values"][1] - one[1]["values"][0]))
        before, after = (metric_value(name, value) for value in worst["values"])
        low, high = (metric_value(name, value) for value in worst["interval"])
        notes.append(
            f"re-ranking makes {name} worse at {len(found)} of {counted(len(points), 'point')}, most of all {spec}: "
            f"{after} after {before} without re-ranking (change from {low} to {high}, 95 % interval over identities)"
        )
    return notes
