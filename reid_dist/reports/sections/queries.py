"""Single queries: the hardest ones, their pictures, and those that are invalid."""

from __future__ import annotations

import base64
import math
from typing import Any

import numpy as np
from markupsafe import Markup

from reid_dist.core import formatting
from reid_dist.metrics.metric import METRICS
from reid_dist.reports import words
from reid_dist.reports.ranked_pictures import Picture, RankedPictures
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.tabular.table import Column, Table

_HARDEST = 20
_LISTED_ROWS = 100
_AVERAGES = {family.per_query_name for family in METRICS if family.headline == "average"}
_SHARES = {
    family.per_query_name: family.per_query_name.replace("_", " ") for family in METRICS if family.in_every_report
}
# Column of ``per_query`` and its heading, in the order of the table of the hardest queries.
_COLUMNS = {
    "pid": "pid",
    "camid": "camid",
    **_SHARES,
    "first_rank": "first rank",
    "last_rank": "last rank",
    "n_relevant": "relevant",
}
_SIGNS = {
    "query": "query",
    "right": "\N{CHECK MARK} right",
    "wrong": "\N{BALLOT X} wrong",
    "junk": "junk",
    "not assessed": "not assessed",
}


def hardest_table(report: ReportData) -> Table:
    """Return the table of the hardest queries."""
    average = report.per_query_headline("average").per_query_name
    columns = report.per_query
    shown = [name for name in _COLUMNS if name in columns and name not in _AVERAGES - {average}]
    return Table(
        title="Hardest queries",
        columns=[Column("query row"), *(Column(_COLUMNS[name]) for name in shown)],
        rows=[
            [str(row), *(_cell(name, columns[name][row].item()) for name in shown)]
            for row in report.hardest_queries(_HARDEST).tolist()
        ],
    )


def invalid_queries(report: ReportData) -> list[dict[str, Any]]:
    """Return every reason with its count, its advice and the first of its rows."""
    reasons = report.per_query.get("reason", np.zeros(0, dtype="<U1"))
    found = []
    for reason, count in report.counts["n_invalid_by_reason"].items():
        rows = np.flatnonzero(reasons == reason)
        found.append(
            {
                "reason": reason,
                "count": count,
                "share": formatting.share(count, report.counts["n_query"]),
                "advice": words.advice(reason, listed="ground_truth" in report.protocol),
                "rows": ", ".join(map(str, rows[:_LISTED_ROWS].tolist())),
                "n_more": max(0, len(rows) - _LISTED_ROWS),
            }
        )
    return found


def ranked_pictures(report: ReportData) -> dict[str, Any]:
    """Return the pictures of the page: the queries with their items, and the note on what is missing."""
    pictures = report.pictures
    if pictures is None:
        return {"queries": [], "note": ""}
    return {"queries": [_ranked(report, shown) for shown in pictures.queries], "note": pictures.note}


def _ranked(report: ReportData, shown: RankedPictures) -> dict[str, Any]:
    row = shown.query.row
    return {
        "title": f"Query row {row}",
        "facts": ", ".join(filter(None, (shown.reason, query_facts(report, row)))),
        "tiles": picture_tiles(shown),
    }


def query_facts(report: ReportData, row: int) -> str:
    """Return the average precision of a query and the rank of its first relevant item, or why it is invalid."""
    average = report.per_query_headline("average").per_query_name
    facts = []
    for name, words_before in ((average, _COLUMNS[average]), ("first_rank", "first relevant item at rank")):
        value = float(report.per_query[name][row]) if name in report.per_query else math.nan
        if math.isfinite(value):
            facts.append(f"{words_before} {_cell(name, value)}")
    reason = str(report.per_query["reason"][row]) if "reason" in report.per_query else ""
    if reason:
        facts.append(f"invalid: {reason}")
    return ", ".join(facts)


def picture_tiles(shown: RankedPictures) -> list[dict[str, Any]]:
    """Return a query and the items of its list for the macro ``tiles``."""
    return [_tile(shown.query, "query"), *(_tile(item, "gallery") for item in shown.items)]


def _tile(picture: Picture, side: str) -> dict[str, Any]:
    labels = [f"{name} {value}" for name, value in (("pid", picture.pid), ("cam", picture.camid)) if value is not None]
    rank = "" if picture.rank is None else f"{picture.rank} "
    return {
        "kind": picture.mark.replace(" ", "-"),
        "sign": f"{rank}{_SIGNS[picture.mark]}",
        "row": f"row {picture.row}",
        "labels": labels,
        "distance": "" if picture.distance is None else f"{picture.distance:.4g}",
        "alt": f"{side} row {picture.row}" + ("" if picture.mark == "query" else f", {picture.mark}"),
        # Base64 has no character that means anything in HTML.
        "image": None
        if picture.image is None
        else Markup("data:image/jpeg;base64,") + base64.b64encode(picture.image).decode("ascii"),
    }


def _cell(name: str, value: float) -> str:
    if name in {"pid", "camid"}:
        return str(value)  # a label, not a quantity: no thousands separator
    return formatting.percent(value) if name in _SHARES else formatting.integer(value)
