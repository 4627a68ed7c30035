"""A table of runs: its JSON, page and figures, and how it is shown, with marks or letters, with intervals or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from reid_dist.core.formatting import counted, integer
from reid_dist.reports.documents import Result, plain
from reid_dist.reports.plots.figures import plot_chart
from reid_dist.reports.plots.run_curves import curve_chart
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.tables.page import render_runs
from reid_dist.reports.tables.run_table_values import NEAR_BEST, Cell, Group, TableData
from reid_dist.reports.tabular.table import Cell as TableCell
from reid_dist.reports.tabular.table import (
    Column,
    Kind,
    Note,
    Table,
    bare_cell,
    interval_head,
    metric_column,
)

SCHEMA: Final = 1
"""The version of tables as JSON."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RunTable(TableData, Result):
    """Metrics of many runs in several formats; the fields are those of `TableData`."""

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain Python values; what is not a finite number is None."""
        # Pictures are for pages alone, and of the reports a table has the curves.
        unseen = replace(self, groups=tuple(replace(group, moved=None, reports=()) for group in self.groups))
        described: dict[str, Any] = {"schema": SCHEMA} | plain(asdict(unseen))
        for group, known in zip(described["groups"], self.groups, strict=True):
            del group["moved"], group["reports"]
            group["paired"] = None if known.paired is None else known.paired.to_dict()
            for row, report in zip(group["rows"], known.reports, strict=True):
                row["curves"] = plain({name: curve.tolist() for name, curve in report.curves.items()})
                for cell in row["cells"]:
                    cell["interval"] = cell["interval"] and [cell["interval"][end] for end in ("low", "high")]
                row["metrics"] = dict(zip(self.metrics, row.pop("cells"), strict=True))
                row["stages"] = dict(zip(group["stages"], row["stages"], strict=True))
        return described

    def tables(self) -> Sequence[Table]:
        """Return one table per group, without intervals."""
        return ShownRuns(self).tables()

    def records(self) -> Sequence[Table]:
        """Return one table per group, with intervals."""
        return ShownRuns(self).records()

    def to_markdown(self, *, notes: str = "full", intervals: bool = False, letters: bool = False) -> str:
        """Return one pipe table per group; the best values are bold, marks are superscripts.

        A dagger marks values that do not differ significantly from the best; `letters` marks all runs by letters
        instead.  `notes` is ``none``, ``short`` (explains marks and intervals) or ``full``.
        """
        return ShownRuns(self, intervals, letters).to_markdown(notes=notes)

    def to_latex(self, *, notes: str = "full", intervals: bool = False, letters: bool = False) -> str:
        """Return one ``tabular`` per group with its notes below; load ``booktabs`` in your document.

        Parameters are as in `to_markdown`.
        """
        return ShownRuns(self, intervals, letters).to_latex(notes=notes)

    def to_html(self, *, letters: bool = False) -> str:
        """Return a page: tables with intervals, curves of all runs of a group in one chart, queries that changed.

        `letters` is as in `to_markdown`.
        """
        return ShownRuns(self, letters=letters).to_html()

    def plot(self, curve: str = "CMC", ax: Any = None, *, metric: str | None = None) -> tuple[Any, Any]:
        """Draw a curve of all runs with matplotlib, and return figure and axes.

        Values of different groups are not comparable, so the legend shows the title of each group.  Parameters and
        errors are those of `Report.plot`.
        """
        runs: dict[str, ReportData] = {}
        for group in self.groups:
            beside = f" ({group.title})" if len(self.groups) > 1 else ""
            runs |= {f"{name}{beside}": report for name, report in group.named_reports.items()}
        return plot_chart(curve_chart(curve, runs, metric, bands=True), ax)


@dataclass(frozen=True, slots=True)
class ShownRuns(Result):
    """A table of runs and how it is shown: with the interval of every value, with letters in place of daggers."""

    runs: RunTable
    intervals: bool = False
    letters: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Return the table of runs as plain Python values."""
        return self.runs.to_dict()

    def to_html(self) -> str:
        """Return a page: tables with intervals, curves of all runs of a group in one chart, queries that changed."""
        tables = ShownRuns(self.runs, intervals=True, letters=self.letters).tables()
        return render_runs(self.runs, tables)

    def tables(self) -> Sequence[Table]:
        """Return one table per group, its rows by the first metric."""
        return [self._table(group, self.intervals) for group in self.runs.groups]

    def records(self) -> Sequence[Table]:
        """Return the tables with intervals."""
        return [self._table(group, True) for group in self.runs.groups]

    def _table(self, group: Group, intervals: bool) -> Table:
        return Table(
            title=group.title,
            columns=[
                Column("run", Kind.NAME),
                *(Column(stage, Kind.TEXT) for stage in group.stages),
                *map(metric_column, self.runs.metrics),
                Column("result_digest", Kind.DIGEST, is_detail=True),
            ],
            rows=[
                [
                    row.name,
                    *row.stages,
                    *(
                        _cell(name, cell, intervals=intervals, mark=cell.mark(letters=self.letters))
                        for name, cell in zip(self.runs.metrics, row.cells, strict=True)
                    ),
                    row.result_digest,
                ]
                for row in group.ranked
            ],
            notes=[*self._meanings(group, intervals), *map(Note, (*group.notes, *self.runs.notes))],
            interval_head=interval_head(self.runs.level),
        )

    def _meanings(self, group: Group, intervals: bool) -> Iterator[Note]:
        """What marks and intervals are."""
        if group.test and self.letters:
            yield Note(f"runs that share a letter do not differ {group.test}", "letters", True)
        elif group.test and any(cell.is_near_best for row in group.rows for cell in row.cells):
            yield Note(f"does not differ significantly from the best value {group.test}", NEAR_BEST, True)
        elif group.test:
            text = f"every tested value differs significantly from the best one of its column {group.test}"
            yield Note(text, "test", True)
        if intervals and group.n_units:
            drawn = f"{counted(group.n_units, self.runs.unit)}, {integer(self.runs.n_resamples)} draws"
            text = f"{100 * self.runs.level:g} % bootstrap intervals over {drawn}, seed {self.runs.seed}"
            yield Note(text, "[low, high]", True)


def _cell(name: str, cell: Cell, *, intervals: bool, mark: str) -> TableCell:
    ends = (cell.interval.low, cell.interval.high) if intervals and cell.interval is not None else None
    return bare_cell(name, cell.value, ends, is_best=cell.is_best, mark=mark)
