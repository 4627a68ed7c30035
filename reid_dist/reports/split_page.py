"""The page of a report over splits: mean and spread of every metric, the values of each split, and the conventions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reid_dist.core import formatting
from reid_dist.core.findings import Finding
from reid_dist.core.formatting import counted
from reid_dist.metrics.metric import headline_metrics
from reid_dist.reports import words
from reid_dist.reports.documents import restored_number
from reid_dist.reports.html import document_opening, page_environment
from reid_dist.reports.tabular.table import Cell, Column, Kind, Note, Table, bare_cell, metric_cell, metric_column


def render_splits(document: Mapping[str, Any], findings: Sequence[Finding]) -> str:
    """Return the page of a report over splits from the content of ``splits.json``, and its findings."""
    return page_environment().get_template("splits.html.j2").render(_content(document, findings))


def _content(document: Mapping[str, Any], findings: Sequence[Finding]) -> dict[str, Any]:
    names = list(document["metrics"])
    metrics, splits = split_tables(document)
    n_splits = len(document["digests"]["result"])
    headline = headline_metrics(names, str(document["protocol"].get("ap_family", ""))) or names[:3]
    return document_opening(
        document,
        kicker=f"Evaluation over {counted(n_splits, 'split')}",
        findings=findings,
        counted_at="splits",
        stages=[document["protocol"], document["distance"]],
        first={
            **({"Benchmark": document["benchmark"]} if document.get("benchmark") else {}),
            "Draw": document["draw"],
        },
    ) | {
        "headline": [_card(document, name, n_splits) for name in headline],
        "metrics": metrics,
        "splits": splits,
        "digests": document["digests"]["result"],
    }


def _card(document: Mapping[str, Any], name: str, n_splits: int) -> dict[str, str]:
    spread = words.metric_value(name, restored_number(document["spread"][name]))
    return {
        "name": name,
        "value": words.metric_value(name, restored_number(document["metrics"][name])),
        "interval": f"spread {spread}" if n_splits > 1 else "",
        "words": words.metric_brief(name, document["definitions"]),
    }


def split_tables(document: Mapping[str, Any]) -> tuple[Table, Table]:
    """Return mean, spread and ends of every metric, and the values of each split, from the content of a document."""
    names = list(document["metrics"])
    n_splits = len(document["digests"]["result"])
    counts = document["counts"]
    rows = []
    for name, convention in zip(names, words.conventions_once(names, document["definitions"]), strict=True):
        values = [restored_number(value) for value in document["per_split"][name]]
        known = [math.nan] if any(map(math.isnan, values)) else values
        numbers = (restored_number(document["metrics"][name]), restored_number(document["spread"][name]))
        cells = (metric_cell(name, value) for value in (*numbers, min(known), max(known)))
        rows.append([Cell(name), *cells, Cell(convention)])
    metrics = Table(
        title=f"Means over {counted(n_splits, 'split')}",
        columns=[
            Column("metric", Kind.NAME),
            Column("mean", Kind.RESULT),
            *map(Column, ("spread", "lowest", "highest")),
            Column("convention", Kind.PROSE),
        ],
        rows=rows,
        notes=[Note("sample standard deviation over the splits", "spread", True)],
    )
    shown = ("n_query", "n_valid", "n_gallery")
    splits = Table(
        title="Every split",
        columns=[
            Column("split", Kind.NAME),
            *map(Column, ("queries", "valid", "gallery rows")),
            *map(metric_column, names),
        ],
        rows=[
            [
                str(split),
                *(Cell(formatting.integer(counts[count][split]), counts[count][split]) for count in shown),
                *(bare_cell(name, restored_number(document["per_split"][name][split])) for name in names),
            ]
            for split in range(n_splits)
        ],
    )
    return metrics, splits
