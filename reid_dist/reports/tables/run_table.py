"""A table of runs: its values, its JSON, its page and figures, and how it is shown.

The page has tables with intervals, curves of all runs of a group in one chart, and queries that changed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from reid_dist.core.formatting import counted, integer
from reid_dist.metrics.confidence import Interval
from reid_dist.metrics.metric import curve_family
from reid_dist.reports.comparison.comparison_values import Comparison
from reid_dist.reports.documents import Result, plain, plain_fields
from reid_dist.reports.html import page_environment
from reid_dist.reports.plots.curve_charts import rank_chart, share_start
from reid_dist.reports.plots.embedded import Figure
from reid_dist.reports.plots.figures import plot_chart
from reid_dist.reports.plots.run_curves import DET, DISTRACTORS, PRECISION_RECALL, ROC, curve_chart, has_curve
from reid_dist.reports.report_data import ReportData
from reid_dist.reports.sections.queries import picture_tiles
from reid_dist.reports.tables.moved import MovedQueries
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
from reid_dist.reports.words import metric_value

SCHEMA: Final = 1
"""The version of tables as JSON."""

NEAR_BEST: Final = "\N{DAGGER}"

Loaded = TypeVar("Loaded", bound=ReportData)

_CAPTIONS = {
    PRECISION_RECALL: "Interpolated precision at each recall (the best at this or any higher recall), mean over "
    "queries.",
    DET: "False rejects against false accepts; closer to the lower left is better.",
    ROC: "True accepts against false accepts.",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One metric of one run: value and bootstrap interval (None without one), and how it stands among the others.

    `is_near_best` is whether it does not differ significantly from the best value; runs that share a letter do not
    differ significantly.  The value is NaN where the run knows it between bounds only; without a test there are no
    letters, and none is near.
    """

    value: float
    interval: Interval | None
    is_best: bool
    is_near_best: bool
    letters: str

    def mark(self, *, letters: bool) -> str:
        """The letters, or a dagger for what does not differ from the best value."""
        return self.letters if letters else NEAR_BEST if self.is_near_best else ""


@dataclass(frozen=True, slots=True)
class Row:
    """One run: its name, its result digest, its stages that differ within the group, its cells."""

    name: str
    result_digest: str
    stages: tuple[str, ...]
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """Runs whose values can be compared: the same protocol, queries, gallery rows and labels.

    Attributes
    ----------
    title
        Protocol, and numbers of queries and gallery rows.
    stages
        Names of the stages that differ between the rows.
    rows
        In the order in which the runs were given; `ranked` has them by their first metric.
    reports
        Those of the rows.
    n_units
        Identities (or queries) that were resampled; 0 without a test.
    paired
        Comparison of the two runs of a group of two, None of others.
    moved
        Lists of the queries that changed most from the first run to the second, for pages; None if not requested.
    test
        How and at what level differences of the runs are tested; empty without a test.
    notes
        Conventions, and remarks on the validity of the numbers.
    """

    title: str
    stages: tuple[str, ...]
    rows: tuple[Row, ...]
    reports: tuple[ReportData, ...]
    n_units: int
    paired: Comparison | None
    moved: MovedQueries | None
    test: str
    notes: tuple[str, ...]

    @property
    def named_reports(self) -> dict[str, ReportData]:
        """Reports by the names of their rows."""
        return distinct_names([row.name for row in self.rows], self.reports)

    @property
    def ranked(self) -> tuple[Row, ...]:
        """The rows by their first metric, the best first; equal ones as they were given, unknown values last."""
        values = [row.cells[0].value if row.cells else math.nan for row in self.rows]
        best = next((row.cells[0].value for row in self.rows if row.cells and row.cells[0].is_best), math.nan)
        order = sorted(range(len(values)), key=lambda at: (math.isnan(values[at]), abs(values[at] - best)))
        return tuple(self.rows[at] for at in order)


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RunTable(Result):
    """Metrics of many runs in several formats.

    Attributes
    ----------
    metrics
        Names of the columns.
    groups
        Groups of comparable runs, in the order of their first runs.
    level, unit, n_resamples, seed
        Confidence level of the intervals, resampling unit, number of resamples, and random seed.
    notes
        Remarks on the choice of metrics, and on what letters and intervals mean.
    """

    metrics: tuple[str, ...]
    groups: tuple[Group, ...]
    level: float
    unit: str
    n_resamples: int
    seed: int
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the table as plain Python values; what is not a finite number is None."""
        # Pictures are for pages alone, and of the reports a table has the curves.
        unseen = replace(self, groups=tuple(replace(group, moved=None, reports=()) for group in self.groups))
        described: dict[str, Any] = {"schema": SCHEMA} | plain_fields(unseen)
        for group, known in zip(described["groups"], self.groups, strict=True):
            del group["moved"], group["reports"]
            group["paired"] = None if known.paired is None else known.paired.to_dict()
            for row, report in zip(group["rows"], known.reports, strict=True):
                row["curves"] = plain({name: curve.tolist() for name, curve in report.curves.items()})
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
        groups = self.runs.groups
        page = page_environment().get_template("runs.html.j2")
        return page.render(
            title=f"{counted(sum(len(group.rows) for group in groups), 'run')} side by side",
            groups=[_group(self.runs, group, shown) for group, shown in zip(groups, tables, strict=True)],
            has_images=any(group.moved is not None and group.moved.queries for group in groups),
        )

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
            yield Note(f"runs that share a letter do not differ significantly {group.test}", "letters", True)
        elif group.test and any(cell.is_near_best for row in group.rows for cell in row.cells):
            yield Note(f"does not differ significantly from the best value {group.test}", NEAR_BEST, True)
        elif group.test:
            text = f"every tested value differs significantly from the best one of its column {group.test}"
            yield Note(text, "test", True)
        if intervals and group.n_units:
            drawn = f"{counted(group.n_units, self.runs.unit)}, {integer(self.runs.n_resamples)} draws"
            text = f"{100 * self.runs.level:g}% bootstrap intervals over {drawn}, seed {self.runs.seed}"
            yield Note(text, "[low, high]", True)


def _cell(name: str, cell: Cell, *, intervals: bool, mark: str) -> TableCell:
    ends = (cell.interval.low, cell.interval.high) if intervals and cell.interval is not None else None
    return bare_cell(name, cell.value, ends, is_best=cell.is_best, mark=mark)


def _group(table: RunTable, group: Group, shown: Table) -> dict[str, Any]:
    return {
        "table": shown,
        "digests": Table(
            title="Result digests",
            columns=[Column("run", Kind.NAME), Column("result digest", Kind.DIGEST)],
            rows=[[row.name, row.result_digest] for row in group.rows],
        ),
        "charts": list(_charts(table, group)),
        "moved": None if group.moved is None else _moved(group, group.moved),
        "compared": None if group.paired is None else group.paired.tables()[0],
        "changes": [] if group.paired is None else list(group.paired.changed_queries(every_metric=True)),
    }


def _charts(table: RunTable, group: Group) -> Iterator[Figure]:
    """Every curve that runs of a group have, of all of them; charts of one curve have one scale in all groups."""
    runs = group.named_reports
    for name in dict.fromkeys(name for report in group.reports for name in report.curves):
        drawn = {run: report.curves[name] for run, report in runs.items() if len(report.curves.get(name, ()))}
        family = curve_family(name)
        if family is not None and drawn:
            everywhere = [report.curves.get(name) for each in table.groups for report in each.reports]
            start = share_start([curve for curve in everywhere if curve is not None])
            caption = family.explanation or f"{name} up to each rank."
            yield Figure(rank_chart(name, drawn, start=start), caption)
    for kind, caption in _CAPTIONS.items():
        having = {run: report for run, report in runs.items() if has_curve(report, kind)}
        if having:
            yield Figure(curve_chart(kind, having), caption)
    for metric in table.metrics:
        having = {run: report for run, report in runs.items() if has_curve(report, DISTRACTORS, metric)}
        if having:
            caption = "Relevant and junk rows are in the gallery from the start."
            yield Figure(curve_chart(DISTRACTORS, having, metric), caption)


def _moved(group: Group, moved: MovedQueries) -> dict[str, Any]:
    """Lists of both runs for every query, and a note."""
    queries = []
    for each in moved.queries:
        changed = each.changed
        before, after = (metric_value(moved.metric, value) for value in (changed.baseline, changed.candidate))
        runs = [
            {"name": row.name, "tiles": picture_tiles(shown)} for row, shown in zip(group.rows, each.lists, strict=True)
        ]
        queries.append({"title": f"Query row {changed.row}", "facts": f"{before} to {after}", "runs": runs})
    return {"title": f"Queries that changed most: {moved.metric}", "queries": queries, "note": moved.note}


def distinct_names(names: Sequence[str], reports: Sequence[Loaded]) -> dict[str, Loaded]:
    """Return reports by their names; one that occurs before has its number beside it."""
    named: dict[str, Loaded] = {}
    for number, (name, report) in enumerate(zip(names, reports, strict=True), 1):
        named[name if name not in named else f"{name} (run {number})"] = report
    return named
