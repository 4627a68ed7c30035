"""The report as a table of every number beside its convention, with what it rests on below, and on a console."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import IO

from reid_dist.core.formatting import counted, duration, integer
from reid_dist.reports.documents import DocumentReport
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.sections.breakdown_section import breakdown_line
from reid_dist.reports.sections.metrics import metric_table
from reid_dist.reports.sections.stage_changes import change_lines, stage_changes
from reid_dist.reports.sections.verification import distance_words
from reid_dist.reports.tabular.table import Table, notes_of
from reid_dist.reports.words import call, named, published


def print_report(report: DocumentReport, file: IO[str] | None = None) -> None:
    """Print a report, as its method ``show`` does."""
    report.show(file=file)


def report_table(report: ReportData) -> Table:
    """Return the table of all metrics with everything that they rest on."""
    table = metric_table(report)
    return replace(table, notes=[*table.notes, *notes_of(_facts(report), report.findings)])


def _facts(report: ReportData) -> Iterator[tuple[str, str]]:
    counts = report.counts
    n_query, n_valid = counts["n_query"], counts["n_valid"]
    yield from report.heading.chosen("date", "command").items()
    identities = report.n_identities
    of = "" if identities is None else f", of {counted(identities, 'identity')}"
    yield "queries", f"{integer(n_valid)} valid of {integer(n_query)}{of}"
    for reason, count in counts["n_invalid_by_reason"].items():
        yield "", f"{integer(count)} invalid: {reason}"
    if n_valid < n_query and "invalid_query" in report.protocol:
        yield "", f"invalid query: {report.protocol['invalid_query']}"
    gallery = counted(counts["n_gallery"], "row")
    if counts.get("n_junk_rows"):
        gallery += f", {integer(counts['n_junk_rows'])} junk for every query"
    yield "gallery", gallery
    if report.is_one_set:
        yield "", "query and gallery are one set"
    pairs = f"{integer(counts['n_junk'])} junk" if counts["n_junk"] else "no junk"
    if "n_relevant" in counts:
        pairs = f"{integer(counts['n_relevant'])} relevant, {pairs}"
    yield "pairs", pairs
    if report.benchmark is not None:
        yield "benchmark", published(report.benchmark)
    yield "protocol", named(report.protocol, "summary")
    if "ranked" in report.protocol:
        yield "ranked", str(report.protocol["ranked"])
    yield "distance", named(report.distance, "definition")
    for name, value in (("expand", report.expand), ("rerank", report.rerank)):
        if value is not None:
            yield name, call(value)
    if report.ties:
        yield "ties", str(report.ties.get("rule", next(iter(report.ties.values()))))
    for table in stage_changes(report):
        name = table.title.lower()
        for line in change_lines(table):
            yield name, line
            name = ""
    yield from _verification(report)
    yield from _problems(report)
    for name, breakdown in report.breakdowns.items():
        yield name, breakdown_line(name, breakdown)
    if "products" in report.environment:
        yield "products", str(report.environment["products"])
    if report.timing:
        stages = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in report.timing.items())
        yield "time", stages
    yield from report.heading.chosen("version", "digest").items()


def _problems(report: ReportData) -> Iterator[tuple[str, str]]:
    found = report.data_problems or {}
    nouns = {
        "n_identities": "doubtful identity pair",
        "n_suspects": "doubtful label",
        "n_duplicates": "duplicate",
    }
    parts = [counted(found[name], words) for name, words in nouns.items() if found.get(name)]
    if parts:
        yield "data errors", f"possible: {', '.join(parts)}; see the page"


def _verification(report: ReportData) -> Iterator[tuple[str, str]]:
    found = report.verification or {}
    nouns = {
        "n_genuine": "genuine pair",
        "n_impostor": "impostor pair",
        "n_mated": "mated query",
        "n_non_mated": "non-mated query",
    }
    parts = [counted(found[name], words) for name, words in nouns.items() if name in found]
    if parts:
        yield "verification", ", ".join(parts)
    for name, threshold in found.get("thresholds", {}).items():
        yield "threshold", f"{name}: {distance_words(threshold)}"
