"""Console tables in one style, and the report as such tables: every number beside its convention, in 80 columns.

No cell brings in control characters; a log file gets plain text.
"""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import IO

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from reid_dist.core.credentials import without_controls
from reid_dist.core.findings import before_and_below, lines_of
from reid_dist.core.formatting import counted, duration, integer
from reid_dist.core.summary import Summary
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.sections.breakdown_section import breakdown_line
from reid_dist.reports.sections.metrics import metric_names, tie_values
from reid_dist.reports.sections.stage_changes import stage_changes
from reid_dist.reports.sections.verification import distance_words
from reid_dist.reports.words import (
    bounded_value,
    call,
    conventions_once,
    interval,
    metric_value,
    named,
    published,
    resampled,
)

_LOG_COLUMNS = 80
_CALM = "cyan"
_ALARM = "red"


class _TextConsole(Console):
    """A console on which text brings in no control characters; styles and rules are its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(without_controls(segment.text), segment.style)


def value_table(first: str | None = None, *numbers: str) -> Table:
    """Return an empty table with a rule below its heads: a bold column of names, and one for each kind of number."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True, header_style="bold")
    if first is not None:
        table.add_column(first, style="bold", no_wrap=True)
    add_numbers(table, *numbers)
    return table


def add_numbers(table: Table, *heads: str) -> None:
    """Add a column of numbers for each head."""
    for head in heads:
        table.add_column(Text(head), justify="right", no_wrap=True)


def fact_table(facts: Iterable[tuple[str, str]] = ()) -> Table:
    """Return a table of two columns: names and folded text."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, words in facts:
        table.add_row(name, Text(words))
    return table


def summary_parts(summary: Summary) -> tuple[Table, Table]:
    """Return the table of a summary, and its facts and notes."""
    table = value_table(*summary.heads)
    for cells in summary.rows:
        table.add_row(*map(Text, cells))
    return table, fact_table([*summary.facts.items(), *lines_of(summary.notes)])


def print_parts(*parts: RenderableType, file: IO[str] | None = None) -> None:
    """Print tables and texts below each other, on standard output when `file` is None.

    A file that is not a terminal gets plain text, 80 columns wide, and only characters that its encoding has.
    """
    stream = sys.stdout if file is None else file
    if stream.isatty():
        _TextConsole(file=stream, highlight=False).print(Group(*parts))
        return
    # A buffer of the stream's own encoding: rich then draws rules out of the characters that there are.
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=getattr(stream, "encoding", None) or "utf-8", errors="replace")
    _TextConsole(file=buffer, width=_LOG_COLUMNS, color_system=None, force_terminal=False).print(Group(*parts))
    buffer.seek(0)
    stream.writelines(f"{line.rstrip()}\n" for line in buffer)


def print_report(report: ReportData, file: IO[str] | None = None) -> None:
    """Print a report, as `print_parts` does."""
    print_parts(render_table(report), file=file)


def render_table(report: ReportData) -> RenderableType:
    """Return the report as something that a :class:`rich.console.Console` prints."""
    warnings, notes = before_and_below(report.findings)
    parts: list[RenderableType] = [_head(report, warnings), _metrics(report, _ALARM if warnings else _CALM)]
    if sides := tie_values(report):
        parts.append(_ties(report, sides))
    return Group(*parts, fact_table([*_lines(report), *notes]))


def _head(report: ReportData, warnings: Sequence[str]) -> Text:
    """Return the name of the run, and what must be known before any number is read."""
    title, *others = report.heading.lines
    # The word as well as the colour: a log file has no colours.
    alarms = (Text(line, style=f"bold {_ALARM}") for line in warnings)
    return Text("\n").join([Text(title, style="bold"), *map(Text, others), *alarms])


def _metrics(report: ReportData, style: str) -> Table:
    table = value_table("metric")
    # "between 41.20 and 45.00 %" breaks rather than taking the place of the convention.
    table.add_column("value", justify="right", no_wrap=not report.bounds, style=style)
    confidence = report.confidence
    if confidence is not None:
        table.add_column(f"{100 * confidence['level']:g} % interval", justify="right", no_wrap=True)
    table.add_column("convention", style="dim", overflow="fold")
    names = metric_names(report)
    for name, words in zip(names, conventions_once(names, report.definitions), strict=True):
        value = bounded_value(name, report.metrics.get(name, math.nan), report.bounds.get(name))
        more = [] if confidence is None else [interval(name, confidence["intervals"].get(name))]
        # Text, not str: a name in square brackets is a name, not rich's markup.
        table.add_row(Text(name), value, *map(Text, more), Text(words))
    return table


def _ties(report: ReportData, sides: list[dict[str, float]]) -> Table:
    """Return the metrics with every tie settled for, and against, the relevant items."""
    table = value_table("order of ties", "optimistic", "as ranked", "pessimistic")
    for name in sides[0]:
        values = (sides[0][name], report.metrics.get(name, math.nan), sides[1].get(name, math.nan))
        table.add_row(Text(name), *(metric_value(name, value) for value in values))
    return table


def _lines(report: ReportData) -> Iterator[tuple[str, str]]:
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
    if "n_junk_rows" in counts:
        gallery += f", {integer(counts['n_junk_rows'])} junk for every query"
    yield "gallery", gallery
    pairs = f"{integer(counts['n_junk'])} junk"
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
    if report.confidence is not None:
        yield "intervals", resampled(report.confidence)
    for table in stage_changes(report):
        name = table.title.lower()
        for line in table.lines:
            yield name, line
            name = ""
    if report.bounds:
        yield "bounds", "only the top of each ranking is known; the value lies within these bounds"
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
