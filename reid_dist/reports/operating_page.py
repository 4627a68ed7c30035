"""The page of operating points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reid_dist.core import formatting
from reid_dist.core.findings import Finding
from reid_dist.reports.html import document_opening, page_environment
from reid_dist.reports.sections.operating_point_section import operating_points
from reid_dist.reports.tabular.table import Cell, Table

_COUNTS = {
    "n_query": "queries",
    "n_gallery": "gallery rows",
    "n_genuine": "genuine pairs: not junk, of one identity",
    "n_impostor": "impostor pairs: not junk, of two identities",
    "n_mated": "mated queries",
    "n_non_mated": "non-mated queries",
}


def render_operating_points(document: Mapping[str, Any], findings: Sequence[Finding]) -> str:
    """Return the page of operating points from the content of ``thresholds.json``, and its findings."""
    return page_environment().get_template("thresholds.html.j2").render(_content(document, findings))


def _content(document: Mapping[str, Any], findings: Sequence[Finding]) -> dict[str, Any]:
    stages = [document[name] for name in ("protocol", "distance", "expand", "rerank") if document[name]]
    section = operating_points(document)
    points: Table = section["points"]
    heads = [column.head for column in points.columns]
    return document_opening(
        document,
        kicker="Operating points",
        findings=findings,
        counted_at="counts",
        stages=stages,
        first={},
    ) | {
        "headline": [
            _card(dict(zip(heads, row, strict=True)))
            for row in points.cells(detail=True)
            if row[0].text in ("FAR=1e-3", "EER", "FPIR=1e-2")
        ],
        "operating": section,
        "counts": [
            (text, formatting.integer(document["counts"][name]))
            for name, text in _COUNTS.items()
            if name in document["counts"]
        ],
    }


def _card(row: Mapping[str, Cell]) -> dict[str, str]:
    return {
        "name": f"Threshold at {row['point'].text}",
        "value": row["threshold"].text,
        "interval": "",
        "words": f"TAR {row['TAR'].text}, precision {row['precision'].text}",
    }
