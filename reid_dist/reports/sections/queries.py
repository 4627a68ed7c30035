"""Single queries: the hardest ones, their pictures, and those that are invalid."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core import formatting
from reid_dist.metrics.metric import METRICS
from reid_dist.reports import words
from reid_dist.reports.ranked_pictures import Picture, Pictures, RankedPictures
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.tabular.markup import image_address
from reid_dist.reports.tabular.table import Cell, Column, Kind, Table

_LISTED_ROWS = 100
_AVERAGES = {family.per_query_name for family in METRICS if family.headline == "average"}
_SHARES = {
    family.per_query_name: family.per_query_name.replace("_", " ") for family in METRICS if family.in_every_report
}
# Column of ``per_query`` and its heading, in the order of the table of the hardest queries.
_COLUMNS = {
    "pid": "pid",
    "camid": "camera",
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


def hardest_table(report: ReportData, explorer: str = "") -> Table:
    """Return the table of the hardest queries, each with its nearest relevant item.

    Rows lead to their pictures on the page, or to their lists in an `explorer`, whose address is relative to the page.
    """
    average = report.per_query_headline("average").per_query_name
    values = report.per_query
    shown = [name for name in _COLUMNS if name in values and name not in _AVERAGES - {average}]
    pairs = {each["query"]: each for each in report.hardest}
    pictures = report.pictures or Pictures()
    on_page = {each.query.row for each in pictures.queries}

    def place(row: int) -> str:
        return f"{explorer}#q={row}" if explorer else f"#query-{row}" if row in on_page else ""

    def file(side: str, row: int) -> Cell:
        pair = pairs.get(row)
        return Cell(pair["paths"][side == "gallery"], image=pictures.thumbnail(side, pair[side])) if pair else Cell("")

    parts: list[tuple[Column, Callable[[int], Cell | str]]] = [
        (Column("query row"), lambda row: Cell(str(row), row, link=place(row))),
        *(
            (Column(_COLUMNS[name], unit="%" if name in _SHARES else ""), partial(_bare, name, values[name]))
            for name in shown
        ),
    ]
    if pairs:
        parts += [
            (Column("nearest right row"), lambda row: str(pairs.get(row, {}).get("gallery", ""))),
            (Column("its distance"), lambda row: words.distance(pairs.get(row, {}).get("distance"))),
        ]
    if any("paths" in each for each in report.hardest):
        parts.insert(1, (Column("file", Kind.FILE), partial(file, "query")))
        parts.insert(-1, (Column("its file", Kind.FILE), partial(file, "gallery")))
    return Table(
        title="Hardest queries",
        columns=[column for column, _ in parts],
        rows=[[cell(row) for _, cell in parts] for row in report.hardest_queries().tolist()],
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
        "row": row,
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
    """Return a query, the items of its list and, apart from them, its nearest right item for the macro ``tiles``."""
    tiles = [_tile(shown.query, "query"), *(_tile(item, "gallery") for item in shown.items)]
    if shown.right is None:
        return tiles
    nearest = _tile(shown.right, "gallery")
    return [*tiles, nearest | {"kind": f"{nearest['kind']} apart"}]


def _tile(picture: Picture, side: str) -> dict[str, Any]:
    labels = [
        f"{name} {value}" for name, value in (("pid", picture.pid), ("camera", picture.camid)) if value is not None
    ]
    rank = "" if picture.rank is None else f"{formatting.integer(picture.rank)} "
    return {
        "kind": picture.mark.replace(" ", "-"),
        "sign": f"{rank}{_SIGNS[picture.mark]}",
        "row": f"row {picture.row}",
        "labels": labels,
        "distance": words.distance(picture.distance),
        "file": picture.file,
        "name": PurePath(picture.file).name,
        "alt": f"{side} row {picture.row}" + ("" if picture.mark == "query" else f", {picture.mark}"),
        "image": None if picture.image is None else image_address(picture.image),
    }


def _bare(name: str, values: NDArray[Any], row: int) -> str:
    """Return a value for a column that has its unit."""
    value = values[row].item()
    return f"{100 * value:.2f}" if name in _SHARES and math.isfinite(value) else _cell(name, value)


def _cell(name: str, value: float) -> str:
    if name in {"pid", "camid"}:
        return str(value)  # a label, not a quantity: no thousands separator
    return formatting.percent(value) if name in _SHARES else formatting.integer(value)
