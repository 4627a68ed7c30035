"""The report as one HTML page: no network, no script, light or dark as the reader's screen is.

This file says what stands on the page; ``templates/report.html.j2`` says where, ``templates/page.css`` how it
looks.  Every text is escaped by the template: paths and reasons come from outside.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from reid_dist.reports import words
from reid_dist.reports.plots import cmc_axis_start, cmc_plot, histogram, precision_recall_plot

if TYPE_CHECKING:
    from reid_dist.reports.report import Report

__all__ = ["render_html"]

_HARDEST = 20
_LISTED_ROWS = 100
_RANKS = (1, 2, 3, 5, 10, 20, 50, 100, 1000)
# Column of ``per_query`` and its heading, in the order of the table of the hardest queries.
_COLUMNS = {
    "pid": "pid",
    "camid": "camid",
    "AP": "AP",
    "AP_trapezoid": "AP (trapezoid)",
    "INP": "INP",
    "first_rank": "first rank",
    "last_rank": "last rank",
    "n_relevant": "relevant",
}
_LABELS = {
    "n_gallery": "gallery rows",
    "n_junk_rows": "gallery rows that are junk for every query",
    "n_relevant": "relevant query-gallery pairs",
    "n_junk": "junk query-gallery pairs",
    "cmc_family": "CMC family",
    "ap_family": "AP family",
    "uri": "URI",
    "cpu": "CPU",
}


def render_html(report: Report) -> str:
    """Return the page of a report; the same report gives the same bytes.

    Its size does not grow with the number of queries: distributions are binned and lists are cut, with the count
    of what was left out.
    """
    return _environment().get_template("report.html.j2").render(_content(report))


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("reid_dist.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["integer"] = words.integer
    return environment


def _content(report: Report) -> dict[str, Any]:
    """Return everything that the template names, as text, numbers and drawn charts."""
    headline = [_metric(report, name) for name in _headline_names(report)]
    return {
        "title": _title(report),
        "compared": [
            (side, described["uri"]) for side, described in report.inputs.items() if described.get("uri") is not None
        ],
        "headline": headline,
        "metrics": [_metric(report, name) for name in report.metrics],
        "notes": report.notes,
        "n_query": report.counts["n_query"],
        "n_valid": report.counts["n_valid"],
        "valid_share": words.share(report.counts["n_valid"], report.counts["n_query"]),
        "invalid_query": report.protocol.get("invalid_query", ""),
        "counts": _counts(report.counts),
        "invalid": _invalid(report),
        "curves": _curves(report),
        "distributions": _distributions(report),
        "hardest": _hardest(report),
        "conventions": _conventions(report),
        "inputs": [(side, _rows(described)) for side, described in report.inputs.items()],
        "timing": _timing(report.timing),
        "environment": _rows(report.environment),
        "digest": report.result_digest,
    }


def _title(report: Report) -> str:
    stages = [report.protocol, report.distance, report.expand, report.rerank]
    return " \N{MIDDLE DOT} ".join(_name(stage) for stage in stages if stage is not None)


def _headline_names(report: Report) -> list[str]:
    """Return the three metrics that papers print: the protocol's own AP, its CMC at 1, and mINP."""
    names = list(report.metrics)
    trapezoid = "trapezoid" in str(report.protocol.get("ap_family", ""))
    averages = ["mAP_trapezoid", "mAP"] if trapezoid else ["mAP", "mAP_trapezoid"]
    chosen = [next((name for name in averages if name in names), "")]
    chosen.append(next((name for name in names if name.startswith("CMC") and name.endswith("@1")), ""))
    chosen.append("mINP" if "mINP" in names else "")
    return [name for name in chosen if name] or names[:3]


def _metric(report: Report, name: str) -> dict[str, str]:
    value = words.metric_value(name, report.metrics[name])
    return {"name": name, "value": value, "words": words.metric_words(name, report.definitions)}


def _name(description: Mapping[str, Any]) -> str:
    return str(description.get("name", "unnamed"))


def _label(name: str) -> str:
    return _LABELS.get(name, name.removeprefix("n_").replace("_", " "))


def _rows(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(_label(name), text) for name, text in words.flatten(values)]


def _counts(counts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the counts that are not told elsewhere on the page, the known ones first."""
    order = [name for name in _LABELS if name in counts] + [name for name in counts if name not in _LABELS]
    told = {"n_query", "n_valid", "n_invalid_by_reason"}
    return [
        (_label(name), words.integer(value) if isinstance(value := counts[name], int | float) else words.scalar(value))
        for name in order
        if name not in told
    ]


def _invalid(report: Report) -> list[dict[str, Any]]:
    reasons = report.per_query.get("reason", np.zeros(0, dtype="<U1"))
    found = []
    for reason, count in report.counts["n_invalid_by_reason"].items():
        rows = np.flatnonzero(reasons == reason)
        found.append(
            {
                "reason": reason,
                "count": count,
                "share": words.share(count, report.counts["n_query"]),
                "advice": words.advice(reason),
                "rows": ", ".join(map(str, rows[:_LISTED_ROWS].tolist())),
                "n_more": max(0, len(rows) - _LISTED_ROWS),
            }
        )
    return found


def _curves(report: Report) -> list[dict[str, Any]]:
    drawn: list[dict[str, Any]] = []
    for name, curve in report.curves.items():
        if name.startswith("CMC") and len(curve):
            ranks = sorted({rank for rank in _RANKS if rank <= len(curve)} | {len(curve)})
            table = [(words.integer(rank), words.percent(float(curve[rank - 1]))) for rank in ranks]
            start = cmc_axis_start(curve)
            caption = f"{name} up to each rank."
            if start > 0:
                caption += f" The vertical axis starts at {100 * start:.0f} %."
            drawn.append({"plot": cmc_plot(name, curve), "caption": caption, "head": "rank", "table": table})
        elif name == "precision_recall" and len(curve):
            levels = np.linspace(0, 1, len(curve))
            tenth = max(1, (len(curve) - 1) // 10)
            table = [
                (f"{100 * level:.0f} %", words.percent(float(value)))
                for level, value in zip(levels[::tenth], curve[::tenth], strict=True)
            ]
            caption = "Precision at each recall: the best from there on (interpolated), mean over queries."
            drawn.append({"plot": precision_recall_plot(curve), "caption": caption, "head": "recall", "table": table})
    return drawn


def _distributions(report: Report) -> list[dict[str, Any]]:
    average = _average_name(report)
    explained = {
        average: "Average precision of each query.",
        "INP": "Inverse negative penalty of each query: relevant items / rank of the last one.",
    }
    present: dict[str, NDArray[Any]] = {name: report.per_query[name] for name in explained if name in report.per_query}
    return [
        {"plot": histogram(name, values, series=series), "caption": explained[name]}
        for (name, values), series in zip(present.items(), "ab", strict=False)
    ]


def _average_name(report: Report) -> str:
    """Return the column of the protocol's average precision, the other one where that is missing."""
    both = ["AP", "AP_trapezoid"]
    if "trapezoid" in str(report.protocol.get("ap_family", "")):
        both.reverse()
    return next((name for name in both if name in report.per_query), "AP")


def _hardest(report: Report) -> dict[str, Any]:
    """Return the valid queries of lowest AP, then lowest INP, then lowest row."""
    average = _average_name(report)
    columns = report.per_query
    if average not in columns:
        return {"heads": [], "rows": []}
    shown = [name for name in _COLUMNS if name in columns and name not in {"AP", "AP_trapezoid"} - {average}]
    rows = np.flatnonzero(np.isfinite(columns[average]))
    inverse = columns["INP"] if "INP" in columns else columns[average]
    order = rows[np.lexsort((rows, inverse[rows], columns[average][rows]))][:_HARDEST]
    return {
        "heads": ["query row", *(_COLUMNS[name] for name in shown)],
        "rows": [[str(row), *(_cell(name, columns[name][row].item()) for name in shown)] for row in order.tolist()],
    }


def _cell(name: str, value: float) -> str:
    if name in {"pid", "camid"}:
        return str(value)  # a label, not a quantity: no thousands separator
    return words.percent(value) if name in {"AP", "AP_trapezoid", "INP"} else words.integer(value)


def _conventions(report: Report) -> list[tuple[str, list[tuple[str, str]]]]:
    described = {
        "Protocol": report.protocol,
        "Distance": report.distance,
        "Query expansion": report.expand,
        "Re-ranking": report.rerank,
        "Ties": report.ties,
    }
    return [(title, [("used", "none")] if value is None else _rows(value)) for title, value in described.items()]


def _timing(timing: Mapping[str, float]) -> list[tuple[str, str, Markup]]:
    longest = max((seconds for seconds in timing.values() if seconds > 0), default=1.0)
    return [
        (stage, words.duration(seconds), Markup("{:.1f}%").format(100 * max(0.0, seconds) / longest))
        for stage, seconds in timing.items()
    ]
