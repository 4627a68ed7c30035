"""What a table of runs consists of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from reid_dist.metrics.confidence import Interval
from reid_dist.reports.comparison.comparison_values import ChangedQuery, Comparison
from reid_dist.reports.ranked_pictures import RankedPictures
from reid_dist.reports.report_data import ReportData

Loaded = TypeVar("Loaded", bound=ReportData)

BEST: Final = "*"
NEAR_BEST: Final = "\N{DAGGER}"


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
class MovedQuery:
    """A query that changed, and the head of its list in the first and in the second run."""

    changed: ChangedQuery
    lists: tuple[RankedPictures, ...]


@dataclass(frozen=True, slots=True)
class MovedQueries:
    """Queries that changed most under a metric, and a note on the pictures that are missing, or ""."""

    metric: str
    queries: tuple[MovedQuery, ...]
    note: str


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
class TableData:
    """Metrics of many runs.

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


def distinct_names(names: Sequence[str], reports: Sequence[Loaded]) -> dict[str, Loaded]:
    """Return reports by their names; one that occurs before has its number beside it."""
    named: dict[str, Loaded] = {}
    for number, (name, report) in enumerate(zip(names, reports, strict=True), 1):
        named[name if name not in named else f"{name} (run {number})"] = report
    return named
