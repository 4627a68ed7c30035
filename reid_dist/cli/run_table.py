"""A table of runs on the console."""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table
from rich.text import Text

from reid_dist.reports.console import fact_table, print_parts, value_table
from reid_dist.reports.tables import Group, RunTable
from reid_dist.reports.tables.run_table_values import BEST
from reid_dist.reports.tables.texts import heads, interval_text, notes_of, plain_value

# In 80 characters, beside the names of runs.
_METRICS_AT_ONCE = 5
_WITH_INTERVALS = 2


def print_table(table: RunTable, *, intervals: bool, letters: bool) -> None:
    """Print a table of runs on standard output; where that is no terminal, as plain text of 80 columns."""
    for group in table.groups:
        parts = (
            _metrics(table, group, columns, intervals=intervals, letters=letters)
            for columns in _columns(table, intervals=intervals)
        )
        print_parts(
            Text(group.title, style="bold"),
            *parts,
            fact_table(_facts(table, group, intervals=intervals, letters=letters)),
        )


def _columns(table: RunTable, *, intervals: bool) -> Iterator[range]:
    """Places of the metrics of each table, few enough for its width."""
    at_once = _WITH_INTERVALS if intervals else _METRICS_AT_ONCE
    for begin in range(0, len(table.metrics), at_once):
        yield range(begin, min(begin + at_once, len(table.metrics)))


def _metrics(table: RunTable, group: Group, columns: range, *, intervals: bool, letters: bool) -> Table:
    shown = value_table()
    shown.add_column("run", style="bold", overflow="fold")
    for stage in group.stages:
        shown.add_column(stage, overflow="fold")
    names = heads(table, group)[1 + len(group.stages) :]
    for at in columns:
        shown.add_column(Text(names[at]), justify="right", overflow="fold")
        if intervals:
            shown.add_column(f"{100 * table.level:g} % interval", no_wrap=True)
    for row in group.ranked:
        cells = []
        for at in columns:
            cells.append(plain_value(table.metrics[at], row.cells[at], letters=letters))
            if intervals:
                cells.append(interval_text(table.metrics[at], row.cells[at]) or "-")
        shown.add_row(*map(Text, (row.name, *row.stages, *cells)))
    return shown


def _facts(table: RunTable, group: Group, *, intervals: bool, letters: bool) -> Iterator[tuple[str, str]]:
    if any(cell.is_best for row in group.rows for cell in row.cells):
        yield BEST, "the best value of its column"
    for note in notes_of(table, group, intervals=intervals, letters=letters):
        name, colon, words = note.partition(": ")
        yield (name, words) if colon and len(name) < 16 else ("note", note)
