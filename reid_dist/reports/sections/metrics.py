"""The metrics: values, intervals, bounds, and what ties could make of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from reid_dist.metrics.metric import headline_metrics
from reid_dist.reports import words
from reid_dist.reports.documents import restored_number
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.tabular.table import Cell, Column, Kind, Note, Table, interval_head, metric_cell


def metric_names(report: ReportData) -> list[str]:
    """Return the names of all metrics, those of which only bounds are known last."""
    return [*report.metrics, *(name for name in report.bounds if name not in report.metrics)]


def headline(report: ReportData) -> list[dict[str, str]]:
    """Return the three metrics that papers print: the protocol's own AP, its CMC at 1, and mINP."""
    names = metric_names(report)
    chosen = headline_metrics(names, str(report.protocol.get("ap_family", "")))
    return [_metric(report, name) for name in chosen or names[:3]]


def metric_table(report: ReportData) -> Table:
    """Return the table of all metrics, with notes on its intervals, ties and bounds."""
    confidence = report.confidence
    sides = tie_values(report)
    names = metric_names(report)
    rows = []
    for name, convention in zip(names, words.conventions_once(names, report.definitions), strict=True):
        value = report.metrics.get(name, math.nan)
        text = words.bounded_value(name, value, report.bounds.get(name))
        ends = None if confidence is None else confidence["intervals"].get(name)
        ties = (metric_cell(name, side[name]) if name in side else Cell("-") for side in sides)
        rows.append([Cell(name), metric_cell(name, value, ends, text), *ties, Cell(convention)])
    return Table(
        title=report.heading.title,
        columns=[
            Column("metric", Kind.NAME),
            Column("value", Kind.RESULT),
            *(Column(head) for head in ("optimistic", "pessimistic") if sides),
            Column("convention", Kind.PROSE),
        ],
        rows=rows,
        notes=list(_meanings(report, has_ties=bool(sides))),
        interval_head="interval" if confidence is None else interval_head(confidence["level"]),
    )


def _meanings(report: ReportData, *, has_ties: bool) -> Iterator[Note]:
    if report.confidence is not None:
        yield Note(words.resampled(report.confidence), "intervals", True)
    if has_ties:
        text = "optimistic is the highest value that an order of tied items gives, pessimistic the lowest"
        yield Note(text, "order of ties", True)
    undefined = [name for name, value in report.metrics.items() if math.isnan(value) and name not in report.bounds]
    if undefined and (why := words.nothing_counted(report.verification or {})):
        yield Note(f"{', '.join(undefined)}: {why}", "undefined", True)
    if report.bounds:
        yield Note("only the top of each ranking is known; the value lies within these bounds", "bounds", True)


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
        "interval": f"{100 * confidence['level']:g}%: {words.interval(name, ends)}" if confidence and ends else "",
        "words": words.metric_brief(name, report.definitions),
    }
