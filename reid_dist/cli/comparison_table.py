"""A comparison on the console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rich.table import Table
from rich.text import Text

from reid_dist.core.findings import lines_of
from reid_dist.core.formatting import counted, integer
from reid_dist.reports.comparison import Comparison
from reid_dist.reports.console import add_numbers, fact_table, print_parts, value_table
from reid_dist.reports.verdicts import BETTER, SAME, UNDECIDED, WORSE

_DIGEST_DIGITS = 16


def print_comparison(comparison: Comparison, baseline: Path, candidate: Path) -> None:
    """Print a comparison of two runs on standard output; where that is no terminal, as plain text of 80 columns."""
    print_parts(_metrics(comparison), fact_table(_facts(comparison, baseline, candidate)), *_changed(comparison))


def _metrics(comparison: Comparison) -> Table:
    table = value_table()
    table.add_column("metric", style="bold", overflow="fold")
    add_numbers(table, "baseline", "candidate", "change", f"{100 * comparison.level:g} % interval", "p")
    table.add_column("verdict", no_wrap=True, style="cyan")
    for metric in comparison.metrics:
        table.add_row(*map(Text, metric.cells))
    return table


def _facts(comparison: Comparison, baseline: Path, candidate: Path) -> Iterator[tuple[str, str]]:
    yield "baseline", f"{baseline} ({comparison.baseline_digest[:_DIGEST_DIGITS]})"
    yield "candidate", f"{candidate} ({comparison.candidate_digest[:_DIGEST_DIGITS]})"
    if comparison.identical:
        yield "", "identical: the same result, to the last bit"
    yield "queries", f"{integer(comparison.n_paired)} paired of {integer(comparison.n_query)}"
    yield (
        "draws",
        f"{integer(comparison.n_resamples)} of {counted(comparison.n_units, comparison.unit)}, seed {comparison.seed}",
    )
    yield "change", "candidate - baseline, in points"
    yield from _verdict_words(comparison)
    for option in comparison.options:
        yield from _difference("compared", option.what, option.baseline, option.candidate)
    for condition in comparison.conditions:
        yield from _difference("differs", condition.what, condition.baseline, condition.candidate)
    for metric in comparison.metrics:
        if metric.untested:
            yield "no test", f"{metric.name}: {metric.untested}"
    yield from lines_of(comparison.notes)


def _verdict_words(comparison: Comparison) -> Iterator[tuple[str, str]]:
    """Definitions of the verdicts that occur in the table."""
    found = {metric.verdict for metric in comparison.metrics}
    effect = f"{100 * comparison.minimum_effect:g} points"
    if SAME in found:
        yield "same", f"the interval lies within ±{effect}"
    if UNDECIDED in found:
        yield "undecided", f"compatible both with no change and with one of {effect} or more"
    if found & {BETTER, WORSE}:
        yield "verdict", f"better or worse: significant, and at least {effect}"


def _difference(title: str, what: str, baseline: str, candidate: str) -> Iterator[tuple[str, str]]:
    if "digest" in what or "labels" in what:
        baseline, candidate = baseline[:_DIGEST_DIGITS], candidate[:_DIGEST_DIGITS]
    yield title, f"{what}: {baseline} -> {candidate}"


def _changed(comparison: Comparison) -> Iterator[Table]:
    """Tables of the queries that changed most under the first metric that is tested."""
    main = next((metric for metric in comparison.metrics if not metric.untested), None)
    if main is None or not main.n_gained + main.n_lost:
        return
    table = value_table()
    table.add_column(f"{main.name}: {main.n_lost:,} lost, {main.n_gained:,} gained")
    add_numbers(table, "row", "pid", "camid", "baseline", "candidate")
    for title, queries in (("lost most", main.lost), ("gained most", main.gained)):
        for at, query in enumerate(queries):
            labels = ("-" if label is None else str(label) for label in (query.row, query.pid, query.camid))
            values = (f"{value:.4f}" for value in (query.baseline, query.candidate))
            table.add_row("" if at else title, *labels, *values)
    yield table
