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


def render_splits(document: Mapping[str, Any], findings: Sequence[Finding]) -> str:
    """Return the page of a report over splits from the content of ``splits.json``, and its findings."""
    return page_environment().get_template("splits.html.j2").render(_content(document, findings))


def _content(document: Mapping[str, Any], findings: Sequence[Finding]) -> dict[str, Any]:
    names = list(document["metrics"])
    conventions = words.conventions_once(names, document["definitions"])
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
        "table": [
            (name, *(words.metric_value(name, value) for value in _facts(document, name)), convention)
            for name, convention in zip(names, conventions, strict=True)
        ],
        "n_splits": counted(n_splits, "split"),
        "splits": _splits(document, names),
        "digests": document["digests"]["result"],
    }


def _card(document: Mapping[str, Any], name: str, n_splits: int) -> dict[str, str]:
    spread = words.metric_value(name, restored_number(document["spread"][name]))
    return {
        "name": name,
        "value": words.metric_value(name, restored_number(document["metrics"][name])),
        "interval": f"spread {spread}" if n_splits > 1 else "",
        "words": words.metric_words(name, document["definitions"]),
    }


def _facts(document: Mapping[str, Any], name: str) -> list[float]:
    """Return mean, spread, lowest and highest value of a metric; NaN for one that is not defined."""
    values = [restored_number(value) for value in document["per_split"][name]]
    known = [math.nan] if any(map(math.isnan, values)) else values
    return [
        restored_number(document["metrics"][name]),
        restored_number(document["spread"][name]),
        min(known),
        max(known),
    ]


def _splits(document: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    counts = document["counts"]
    rows = [
        [
            str(split),
            *(formatting.integer(counts[count][split]) for count in ("n_query", "n_valid", "n_gallery")),
            *(words.metric_value(name, restored_number(document["per_split"][name][split])) for name in names),
        ]
        for split in range(len(document["digests"]["result"]))
    ]
    return {"heads": ["split", "queries", "valid", "gallery rows", *names], "rows": rows}
