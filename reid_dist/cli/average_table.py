"""Averages over runs on the console."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from reid_dist.core.findings import lines_of
from reid_dist.core.formatting import counted, integer
from reid_dist.reports.averages import RunAverage
from reid_dist.reports.console import add_numbers, fact_table, print_parts, value_table
from reid_dist.reports.words import metric_value

_DIGEST_DIGITS = 16

# In 80 characters.
_METRICS_AT_ONCE = 5


def print_average(average: RunAverage) -> None:
    """Print averages on standard output; where that is no terminal, as plain text of 80 columns."""
    print_parts(_metrics(average), *_values(average), fact_table(_facts(average)))


def _metrics(average: RunAverage) -> Table:
    table = value_table()
    table.add_column("metric", style="bold", overflow="fold")
    add_numbers(table, "mean", "spread", "lowest", "highest", f"{100 * average.level:g} % interval")
    for metric in average.metrics:
        table.add_row(*map(Text, metric.cells))
    return table


def _values(average: RunAverage) -> Iterator[Table]:
    """Tables of the values of every run, some metrics each."""
    names = _names(average)
    for begin in range(0, len(average.metrics), _METRICS_AT_ONCE):
        metrics = average.metrics[begin : begin + _METRICS_AT_ONCE]
        table = value_table("run")
        for metric in metrics:
            table.add_column(Text(metric.name), justify="right", overflow="fold")
        for at in range(average.n_runs):
            table.add_row(Text(names[at]), *(metric_value(metric.name, metric.values[at]) for metric in metrics))
        yield table


def _names(average: RunAverage) -> list[str]:
    """Names of the runs in a table: the last parts of their places, or numbers where these are not all different."""
    names = [run.name.rstrip("/").rpartition("/")[2] for run in average.runs]
    return names if len({*names}) == len(names) else [str(number) for number in range(1, len(names) + 1)]


def _facts(average: RunAverage) -> Iterator[tuple[str, str]]:
    for number, run in enumerate(average.runs, 1):
        yield f"run {number}", f"{run.name} ({run.result_digest[:_DIGEST_DIGITS]})"
        valid = f"{integer(run.n_valid)} valid of {counted(run.n_query, 'query')}"
        yield "", f"{valid}, gallery {counted(run.n_gallery, 'row')}"
    yield "spread", f"sample standard deviation over {counted(average.n_runs, 'run')}"
    degrees = counted(average.n_runs - 1, "degree")
    yield "interval", f"Student's t for the mean, {degrees} of freedom, which assumes independent runs"
    for condition in average.conditions:
        yield "differs", str(condition)
    yield from lines_of(average.notes)
