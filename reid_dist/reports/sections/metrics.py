"""The metrics: values, intervals, bounds, and what ties could make of them."""

from __future__ import annotations

import math
from typing import Any

from reid_dist.metrics.metric import headline_metrics
from reid_dist.reports import words
from reid_dist.reports.documents import restored_number
from reid_dist.reports.report_data import ReportData


def metric_names(report: ReportData) -> list[str]:
    """Return the names of all metrics, those of which only bounds are known last."""
    return [*report.metrics, *(name for name in report.bounds if name not in report.metrics)]


def headline(report: ReportData) -> list[dict[str, str]]:
    """Return the three metrics that papers print: the protocol's own AP, its CMC at 1, and mINP."""
    names = metric_names(report)
    chosen = headline_metrics(names, str(report.protocol.get("ap_family", "")))
    return [_metric(report, name) for name in chosen or names[:3]]


def metric_table(report: ReportData) -> dict[str, Any]:
    """Return the table of all metrics: ``heads`` of the columns between value and convention, ``rows``, remarks."""
    heads = []
    lines = []
    if report.confidence is not None:
        heads.append(f"{100 * report.confidence['level']:g} % interval")
        lines.append(f"{words.resampled(report.confidence)}.")
    sides = tie_values(report)
    if sides:
        heads += ["Optimistic", "Pessimistic"]
        lines.append("Optimistic: the highest value that an order of tied items gives. Pessimistic: the lowest.")
    if report.bounds:
        lines.append("Between: only the top of each ranking is known; the value lies within these bounds.")
    rows = []
    names = metric_names(report)
    for name, convention in zip(names, words.conventions_once(names, report.definitions), strict=True):
        more = []
        if report.confidence is not None:
            more.append(words.interval(name, report.confidence["intervals"].get(name)))
        if sides:
            more += [words.metric_value(name, side[name]) if name in side else "-" for side in sides]
        rows.append(_metric(report, name) | {"words": convention, "more": list(zip(heads, more, strict=True))})
    return {"heads": heads, "rows": rows, "lines": lines}


def tie_values(report: ReportData) -> list[dict[str, float]]:
    """Return the optimistic and the pessimistic value by metric; empty where they were not requested."""
    sides = [report.ties.get(side) for side in ("optimistic", "pessimistic")]
    if not all(sides):
        return []
    return [{name: restored_number(value) for name, value in (side or {}).items()} for side in sides]


def _metric(report: ReportData, name: str) -> dict[str, str]:
    confidence = report.confidence
    ends = None if confidence is None else confidence["intervals"].get(name)
    return {
        "name": name,
        "value": words.bounded_value(name, report.metrics.get(name, math.nan), report.bounds.get(name)),
        "interval": f"{100 * confidence['level']:g} %: {words.interval(name, ends)}" if confidence and ends else "",
        "words": words.metric_words(name, report.definitions),
    }
