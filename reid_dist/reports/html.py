"""The report as one HTML page: no network, no script, light or dark as the reader's screen is.

``sections`` holds the contents of the page, ``templates/report.html.j2`` their order, ``templates/page.css`` their
style.  Every text is escaped by the template: paths and reasons come from outside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from reid_dist.core import formatting
from reid_dist.core.findings import Finding, by_severity
from reid_dist.core.formatting import counted
from reid_dist.reports import words
from reid_dist.reports.heading import Heading, make_heading
from reid_dist.reports.pages import page_environment as page_environment
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.sections.breakdown_section import breakdowns
from reid_dist.reports.sections.convention_section import described_rows, in_words, parameters
from reid_dist.reports.sections.curve_section import curves, distributions
from reid_dist.reports.sections.data_problem_section import data_problems
from reid_dist.reports.sections.metrics import headline, metric_table
from reid_dist.reports.sections.operating_point_section import operating_points
from reid_dist.reports.sections.queries import hardest_table, invalid_queries, ranked_pictures
from reid_dist.reports.sections.stage_changes import stage_changes
from reid_dist.reports.sections.verification import verification

_COUNTS = {
    "n_gallery": "gallery rows",
    "n_junk_rows": "gallery rows that are junk for every query",
    "n_relevant": "relevant query-gallery pairs",
    "n_junk": "junk query-gallery pairs",
    "n_found": "relevant query-gallery pairs in the lists",
}


def render_html(report: ReportData, explorer: str = "") -> str:
    """Return the page of a report; the same report gives the same bytes.

    Its size does not grow with the number of queries: distributions are binned and lists are cut, with the count
    of what was left out.  Bars of histograms and hard queries lead to an `explorer` beside the page, if there is one.
    """
    return page_environment().get_template("report.html.j2").render(_content(report, explorer))


def page_opening(
    report: Mapping[str, Any], *, kicker: str, heading: Heading, findings: Sequence[Finding], counted_at: str
) -> dict[str, Any]:
    """Return the common content of all pages: heading, findings, inputs, environment and digest.

    The report is a mapping with the entries of its document; `counted_at` is the identifier of the section with counts.
    """
    return {
        "kicker": kicker,
        "heading": heading,
        "findings": by_severity(findings),
        "counted_at": counted_at,
        "contents": [],
        "has_images": False,
        "compared": [
            (side, described["uri"])
            for side, described in report["inputs"].items()
            if isinstance(described, Mapping) and described.get("uri") is not None
        ],
        "inputs": [(side, described_rows(described)) for side, described in report["inputs"].items()],
        "environment": described_rows(report["environment"]),
        "digest": report["result_digest"],
    }


def document_opening(
    document: Mapping[str, Any],
    *,
    kicker: str,
    findings: Sequence[Finding],
    counted_at: str,
    stages: Sequence[Mapping[str, Any]],
    first: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the common content of the pages of sweeps and splits: that of all pages, conventions and duration.

    `first` holds tables of conventions, by title, before those of protocol, distance and options.
    """
    heading = make_heading(document["run"], stages, document["environment"], document["result_digest"])
    seconds = document["timing"].get("total")
    tables = {**first, **{name: document[name.lower()] for name in ("Protocol", "Distance", "Options")}}
    return page_opening(document, kicker=kicker, heading=heading, findings=findings, counted_at=counted_at) | {
        "conventions": [(title, described_rows(values)) for title, values in tables.items()],
        "duration": None if seconds is None else formatting.duration(seconds),
    }


def load_templates() -> None:
    """Compile the templates of every report, which the process keeps."""
    for name in ("report", "page", "macros", "metrics", "inputs"):
        page_environment().get_template(f"{name}.html.j2")


def _content(report: ReportData, explorer: str) -> dict[str, Any]:
    """Return everything that the template names, as text, numbers and drawn charts."""
    identities = report.n_identities
    entries = {name: getattr(report, name) for name in ("inputs", "environment", "result_digest")}
    return page_opening(
        entries,
        kicker="Re-identification report",
        heading=report.heading,
        findings=report.findings,
        counted_at="counts",
    ) | {
        "has_images": report.pictures is not None and bool(report.pictures.queries or report.pictures.thumbnails),
        "headline": headline(report),
        "metrics": metric_table(report),
        "is_one_set": report.is_one_set,
        "identities": None if identities is None else counted(identities, "identity"),
        "n_query": report.counts["n_query"],
        "n_valid": report.counts["n_valid"],
        "valid_share": formatting.share(report.counts["n_valid"], report.counts["n_query"]),
        "explorer": explorer,
        "invalid_query": report.protocol.get("invalid_query", ""),
        "counts": _counts(report.counts),
        "invalid": invalid_queries(report),
        "stage_changes": stage_changes(report),
        "curves": curves(report),
        "verification": verification(report),
        "operating": None if report.operating_points is None else operating_points(report.operating_points.to_dict()),
        "breakdowns": breakdowns(report),
        "distributions": distributions(report, explorer),
        "problems": data_problems(report),
        "hardest": hardest_table(report, explorer),
        "pictures": ranked_pictures(report),
        "in_words": in_words(report),
        "conventions": parameters(report),
        "timing": _timing(report.timing),
    }


def _counts(counts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the counts that are not elsewhere on the page, the usual ones first."""
    order = [name for name in _COUNTS if name in counts] + [name for name in counts if name not in _COUNTS]
    elsewhere = {"n_query", "n_valid", "n_invalid_by_reason"}
    return [
        (
            _COUNTS.get(name) or words.entry_label(name),
            formatting.integer(value) if isinstance(value := counts[name], int | float) else words.scalar(value),
        )
        for name in order
        if name not in elsewhere
    ]


def _timing(timing: Mapping[str, float]) -> list[tuple[str, str, Markup]]:
    longest = max((seconds for seconds in timing.values() if seconds > 0), default=1.0)
    return [
        (stage, formatting.duration(seconds), Markup("{:.1f}%").format(100 * max(0.0, seconds) / longest))
        for stage, seconds in timing.items()
    ]
