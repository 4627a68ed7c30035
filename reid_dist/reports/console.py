"""The report on the console: every number beside its convention, readable in 80 columns and in a log file."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator, Mapping
from typing import IO, TYPE_CHECKING, Any

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from reid_dist.reports.words import duration, flatten, integer, metric_value, metric_words

if TYPE_CHECKING:
    from reid_dist.reports.report import Report

__all__ = ["print_report", "render_table"]

_LOG_COLUMNS = 80
_DIGEST_DIGITS = 16
# What a description says about itself rather than about its parameters.
_PROSE = frozenset({"name", "summary", "source", "definition"})


def print_report(report: Report, file: IO[str] | None = None) -> None:
    """Print a report.

    Parameters
    ----------
    report
        What to print.
    file
        Where to; standard output when None.  A file that is not a terminal gets plain text, 80 columns wide,
        and only characters that its encoding has.
    """
    stream = sys.stdout if file is None else file
    if stream.isatty():
        Console(file=stream).print(render_table(report))
        return
    # A buffer of the stream's own encoding: rich then draws rules out of the characters that there are.
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=getattr(stream, "encoding", None) or "utf-8", errors="replace")
    Console(file=buffer, width=_LOG_COLUMNS, color_system=None, force_terminal=False).print(render_table(report))
    buffer.seek(0)
    stream.writelines(f"{line.rstrip()}\n" for line in buffer)


def render_table(report: Report) -> RenderableType:
    """Return the report as something that a :class:`rich.console.Console` prints."""
    return Group(_metrics(report), _facts(report))


def _metrics(report: Report) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    table.add_column("metric", style="bold", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True, style="cyan")
    table.add_column("convention", style="dim", overflow="fold")
    for name, value in report.metrics.items():
        # Text, not str: a name in square brackets is a name, not rich's markup.
        words = metric_words(name, report.definitions)
        table.add_row(Text(name), metric_value(name, value), Text(words))
    return table


def _facts(report: Report) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, words in _lines(report):
        table.add_row(name, Text(words))
    return table


def _lines(report: Report) -> Iterator[tuple[str, str]]:
    counts = report.counts
    n_query, n_valid = counts["n_query"], counts["n_valid"]
    yield "queries", f"{integer(n_valid)} valid of {integer(n_query)}"
    for reason, count in counts["n_invalid_by_reason"].items():
        yield "", f"{integer(count)} invalid: {reason}"
    if n_valid < n_query and "invalid_query" in report.protocol:
        yield "", f"invalid query: {report.protocol['invalid_query']}"
    gallery = f"{integer(counts['n_gallery'])} rows"
    if "n_junk_rows" in counts:
        gallery += f", {integer(counts['n_junk_rows'])} junk for every query"
    yield "gallery", gallery
    pairs = f"{integer(counts['n_junk'])} junk"
    if "n_relevant" in counts:
        pairs = f"{integer(counts['n_relevant'])} relevant, {pairs}"
    yield "pairs", pairs
    yield "protocol", _named(report.protocol, "summary")
    yield "distance", _named(report.distance, "definition")
    for name, value in (("expand", report.expand), ("rerank", report.rerank)):
        if value is not None:
            yield name, _call(value)
    if report.ties:
        yield "ties", str(report.ties.get("rule", next(iter(report.ties.values()))))
    if report.timing:
        stages = ", ".join(f"{stage} {duration(seconds)}" for stage, seconds in report.timing.items())
        yield "time", stages
    yield "digest", report.result_digest[:_DIGEST_DIGITS]
    for note in report.notes:
        yield "note", note


def _named(description: Mapping[str, Any], detail: str) -> str:
    name, words = str(description.get("name", "unnamed")), description.get(detail)
    return f"{name}: {words}" if words else name


def _call(description: Mapping[str, Any]) -> str:
    """Return a stage as it is asked for: ``k_reciprocal(k1=20, k2=6)``."""
    arguments = ", ".join(f"{key}={text}" for key, text in flatten(description) if key not in _PROSE)
    return f"{description.get('name', 'unnamed')}({arguments})"
