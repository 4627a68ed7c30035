"""What a comparison of two runs consists of, and how it is written as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from reid_dist.core.findings import Finding
from reid_dist.core.formatting import counted, integer, joined, short_digests
from reid_dist.metrics.confidence import Interval
from reid_dist.reports.documents import Result, plain_fields
from reid_dist.reports.tabular.table import (
    Cell,
    Column,
    Kind,
    Note,
    Table,
    interval_head,
    metric_cell,
    notes_of,
    points_cell,
)
from reid_dist.reports.verdicts import BETTER, SAME, SMALLEST_P_VALUE, UNDECIDED, WORSE

SCHEMA: Final = 1
"""The version of the comparison as JSON."""

_DIGEST_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Difference:
    """A property that differs between the runs, with its value in each, as text."""

    what: str
    baseline: str
    candidate: str

    def __str__(self) -> str:
        return f"{self.what}: {self.baseline} in the baseline, {self.candidate} in the candidate"

    @property
    def arrow(self) -> str:
        """Both values side by side; digests are shortened."""
        before, after = short_digests(self.baseline, self.candidate)
        return f"{self.what}: {before} -> {after}"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """Something in which several runs differ, and what it is in each, in words."""

    what: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return self.worded([f"run {number}" for number in range(1, len(self.values) + 1)])

    def worded(self, labels: Sequence[str]) -> str:
        """Return every value with its runs, which have these names."""
        return f"{self.what}: {', '.join(f'{value} in {joined(runs)}' for value, runs in self.by_value(labels))}"

    def by_value(self, labels: Sequence[str]) -> list[tuple[str, list[str]]]:
        """Return every value with the names of its runs, which have these names."""
        runs: dict[str, list[str]] = {}
        for label, value in zip(labels, self.values, strict=True):
            runs.setdefault(value, []).append(label)
        return [*runs.items()]


class Untested(StrEnum):
    """Why a metric has no test, the gravest reason first."""

    BOUNDS = "bounds"
    NO_QUERY_VALUES = "no_query_values"
    OTHER_MEAN = "other_mean"
    OTHER_LEVEL = "other_level"
    FEW_UNITS = "few_units"

    @property
    def words(self) -> str:
        """The reason in words."""
        return {
            Untested.BOUNDS: "known only between bounds",
            Untested.NO_QUERY_VALUES: "no mean of values per query",
            Untested.OTHER_MEAN: "not the mean of its values per query",
            Untested.OTHER_LEVEL: (
                "no mean of values per query, and its intervals in the runs are of another level or unit"
            ),
            Untested.FEW_UNITS: "fewer than two identities or queries to resample",
        }[self]


@dataclass(frozen=True, slots=True)
class ChangedQuery:
    """A query whose value changed, both values, and its image path, where the run has it."""

    row: int
    pid: int | None
    camid: int | None
    baseline: float
    candidate: float
    path: str | None = None


@dataclass(frozen=True, slots=True)
class MetricComparison:
    """One metric in both runs.

    Attributes
    ----------
    name
        Name of the metric.
    baseline, candidate
        Its values in both reports; NaN if a run has none.
    difference
        Candidate - baseline; with a test, the mean over the paired queries.
    interval
        Interval of the difference; None without a test.
    p_value
        Two-sided p-value under the hypothesis of no change; None without a paired test.
    verdict
        ``better``, ``worse``, ``same`` or ``undecided``, see :mod:`reid_dist.reports.verdicts`; None without a test.
    untested
        Why there is no test; None if there is one.
    n_gained, n_lost
        Numbers of paired queries whose value rose and fell.
    gained, lost
        Queries whose value rose and fell most, the largest change first, then by row.
    """

    name: str
    baseline: float
    candidate: float
    difference: float
    interval: Interval | None = None
    p_value: float | None = None
    verdict: str | None = None
    untested: Untested | None = None
    n_gained: int = 0
    n_lost: int = 0
    gained: tuple[ChangedQuery, ...] = ()
    lost: tuple[ChangedQuery, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Comparison(Result):
    """Comparison of two runs.

    Attributes
    ----------
    identical
        Whether the result digests are equal, that is, all values are bit-identical.
    metrics
        One entry for each metric that both runs have.
    options
        Differences that are compared on purpose: features, distance, expansion, re-ranking, version.
    conditions
        Differences that should not exist; empty unless ``allow_different`` is set.
    level, unit, n_resamples, seed, minimum_effect
        As requested.
    n_query, n_paired, n_units
        Numbers of queries of each run, of paired queries, and of resampled identities (or queries).
    names
        Names of baseline and candidate in tables.
    baseline_digest, candidate_digest
        Result digests.
    notes
        Remarks on the validity of the numbers.
    """

    identical: bool
    metrics: tuple[MetricComparison, ...]
    options: tuple[Difference, ...]
    conditions: tuple[Difference, ...]
    level: float
    unit: str
    n_resamples: int
    seed: int
    minimum_effect: float
    n_query: int
    n_paired: int
    n_units: int
    names: tuple[str, str] = field(compare=False)
    baseline_digest: str
    candidate_digest: str
    notes: tuple[Finding, ...]

    @property
    def worse(self) -> tuple[str, ...]:
        """Names of the metrics that are worse."""
        return tuple(metric.name for metric in self.metrics if metric.verdict == WORSE)

    @property
    def undecided(self) -> tuple[str, ...]:
        """Names of the metrics whose verdict is undecided."""
        return tuple(metric.name for metric in self.metrics if metric.verdict == UNDECIDED)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain Python values; numbers that are not finite become None."""
        described: dict[str, Any] = plain_fields(self)
        # One run may be named in several ways.
        del described["names"]
        named = {metric.pop("name"): metric for metric in described["metrics"]}
        verdicts = {"worse": list(self.worse), "undecided": list(self.undecided)}
        return {"schema": SCHEMA} | described | {"metrics": named} | verdicts

    def tables(self) -> Sequence[Table]:
        """Return values, change, p-value and verdict of every metric, and the queries that changed most."""
        return [self._metrics(), *self.changed_queries()]

    def _metrics(self) -> Table:
        rows = []
        for each in self.metrics:
            ends = None if each.interval is None else (each.interval.low, each.interval.high)
            values = (metric_cell(each.name, value) for value in (each.baseline, each.candidate))
            change = points_cell(each.difference, ends)
            rows.append([Cell(each.name), *values, change, _p_value(each.p_value), Cell(each.verdict or "-")])
        return Table(
            title=" against ".join(reversed(self.names)),
            columns=[
                Column("metric", Kind.NAME),
                *(Column(head) for head in ("baseline", "candidate", "change", "p")),
                Column("verdict", Kind.TEXT),
            ],
            rows=rows,
            notes=[*self._meanings(), *self._facts()],
            interval_head=interval_head(self.level),
        )

    def _meanings(self) -> Iterator[Note]:
        """What the change is, and the verdicts that occur."""
        found = {metric.verdict for metric in self.metrics}
        effect = f"{100 * self.minimum_effect:g} points"
        yield Note("candidate - baseline, in points", "change", True)
        if SAME in found:
            yield Note(f"the interval lies within ±{effect}", "same", True)
        if UNDECIDED in found:
            yield Note("none of these; the interval is too wide to decide", "undecided", True)
        if found & {BETTER, WORSE}:
            yield Note(f"better or worse: significant, and at least {effect}", "verdict", True)
        if unpaired := [each.name for each in self.metrics if each.interval is not None and each.p_value is None]:
            words = "from the intervals of both runs, without pairing queries"
            yield Note(f"{', '.join(unpaired)}: {words}", "interval", True)
        if self.n_units:
            units = counted(self.n_units, self.unit)
            yield Note(f"{integer(self.n_resamples)} of {units}, seed {self.seed}", "draws", True)

    def _facts(self) -> Iterator[Note]:
        digests = (self.baseline_digest, self.candidate_digest)
        for role, name, digest in zip(("baseline", "candidate"), self.names, digests, strict=True):
            yield Note(f"{name} ({digest[:_DIGEST_DIGITS]})", role)
        if self.identical:
            yield Note("identical: all values are bit-identical", "")
        yield Note(f"{integer(self.n_paired)} paired of {integer(self.n_query)}", "queries")
        for title, differences in (("compared", self.options), ("differs", self.conditions)):
            yield from (Note(each.arrow, title) for each in differences)
        yield from (Note(f"{each.name}: {each.untested.words}", "no test") for each in self.metrics if each.untested)
        yield from notes_of((), self.notes)

    def changed_queries(self, *, every_metric: bool = False) -> Iterator[Table]:
        """Yield tables of the queries that changed most under the first tested metric, or under each."""
        tested = [metric for metric in self.metrics if not metric.untested]
        for metric in tested if every_metric else tested[:1]:
            queries = [*(("lost", each) for each in metric.lost), *(("gained", each) for each in metric.gained)]
            if queries:
                has_paths = any(query.path is not None for _, query in queries)
                yield Table(
                    title=f"{metric.name}: {metric.n_lost:,} queries lost, {metric.n_gained:,} gained; the largest "
                    "changes",
                    columns=[
                        Column("", Kind.NAME),
                        *(Column(head) for head in ("query row", "pid", "camera", "baseline", "candidate", "change")),
                        *([Column("file", Kind.FILE)] if has_paths else []),
                    ],
                    rows=[
                        [what, *_changed(metric.name, query), *([Cell(query.path or "-")] if has_paths else [])]
                        for what, query in queries
                    ],
                )


def _p_value(p_value: float | None) -> Cell:
    """A p-value in four decimals; none from a finite number of permutations is zero."""
    if p_value is None:
        return Cell("-")
    shown = f"{p_value:.4f}" if p_value >= SMALLEST_P_VALUE else f"<{SMALLEST_P_VALUE:.4f}"
    return Cell(shown, p_value)


def _changed(name: str, query: ChangedQuery) -> list[Cell]:
    labels = (Cell("-" if label is None else str(label)) for label in (query.row, query.pid, query.camid))
    values = (metric_cell(name, value) for value in (query.baseline, query.candidate))
    return [*labels, *values, points_cell(query.candidate - query.baseline)]
