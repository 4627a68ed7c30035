"""Mean, spread and interval of metrics over several runs of one benchmark.

Some benchmarks report a mean over runs: ten models, each trained on its own split (RegDB), ten splits into training and
test identities (PRID 2011, iLIDS-VID), two galleries (IJB-C).  Each run is an evaluation of its own, with its own
features, labels and numbers of rows.  The conventions must agree: protocol, distance, expansion, re-ranking, order of
ties, ``max_rank``, draws of single-shot metrics, definitions of the metrics.

Every run has the weight 1, however many queries it has.  The interval is Student's t over the runs, see
:mod:`reid_dist.metrics.repeats`: it describes how the mean varies with models or splits.  How a value varies with the
queries of one run is what ``confidence`` of a report describes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from reid_dist.core.findings import Finding, caution, info
from reid_dist.core.formatting import counted, integer
from reid_dist.errors import InputError
from reid_dist.metrics.confidence import Interval, check_level
from reid_dist.metrics.repeats import mean_and_spread, mean_interval
from reid_dist.reports.comparison.common_metrics import choose_metrics, metric_value_of
from reid_dist.reports.comparison.comparison_values import Disagreement
from reid_dist.reports.comparison.conditions import differing_conventions, differing_versions
from reid_dist.reports.documents import Result, plain_fields
from reid_dist.reports.report import Report
from reid_dist.reports.tabular.table import (
    Cell,
    Column,
    Kind,
    Note,
    Table,
    bare_cell,
    interval_head,
    metric_cell,
    metric_column,
    notes_of,
)
from reid_dist.reports.words import is_share

SCHEMA: Final = 1
"""The version of averages as JSON."""

_FEWEST: Final = 2
_DIGEST_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class AveragedRun:
    """One of the runs: its name, its result digest, and its counts."""

    name: str
    result_digest: str
    n_query: int
    n_valid: int
    n_gallery: int


@dataclass(frozen=True, slots=True)
class MetricAverage:
    """One metric over all runs.

    Attributes
    ----------
    name
        Of the metric.
    mean
        Over the runs; NaN where a run has no value.
    spread
        Sample standard deviation over the runs (ddof 1); NaN like the mean.
    lowest, highest
        Least and largest value; NaN like the mean.
    interval
        Student's t interval of the mean, of a share within 0 and 1; None where there is no mean.
    values
        One per run, NaN where it has none.
    """

    name: str
    mean: float
    spread: float
    lowest: float
    highest: float
    interval: Interval | None
    values: tuple[float, ...]


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RunAverage(Result):
    """Metrics over several runs.

    Attributes
    ----------
    runs
        The runs, in the order in which they were given.
    metrics
        One entry per metric that all runs have.
    level
        Confidence level of the intervals.
    conditions
        Conventions that differ between the runs; empty unless ``allow_different`` is set.
    notes
        Remarks on the validity of the numbers.
    """

    runs: tuple[AveragedRun, ...]
    metrics: tuple[MetricAverage, ...]
    level: float
    conditions: tuple[Disagreement, ...]
    notes: tuple[Finding, ...]

    @property
    def n_runs(self) -> int:
        """Number of runs."""
        return len(self.runs)

    def to_dict(self) -> dict[str, Any]:
        """Return the averages as plain Python values; numbers that are not finite become None."""
        described: dict[str, Any] = plain_fields(self)
        named = {each.pop("name"): each for each in described["metrics"]}
        return {"schema": SCHEMA} | described | {"metrics": named}

    def tables(self) -> Sequence[Table]:
        """Return mean, spread, minimum, maximum and interval of every metric, and the values of every run."""
        return [self._metrics(), self._values()]

    def _metrics(self) -> Table:
        heads = ("mean", "spread", "lowest", "highest")
        names = self._names()
        rows = []
        for each in self.metrics:
            ends = None if each.interval is None else (each.interval.low, each.interval.high)
            mean = metric_cell(each.name, each.mean, ends)
            numbers = (
                metric_cell(each.name, value) for value in (each.spread, each.lowest, each.highest, *each.values)
            )
            rows.append([Cell(each.name), mean, *numbers])
        return Table(
            title=f"Average over {counted(self.n_runs, 'run')}",
            columns=[
                Column("metric", Kind.NAME),
                *(Column(head, Kind.RESULT if head == "mean" else Kind.NUMBER) for head in heads),
                *(Column(name, is_detail=True) for name in names),
            ],
            rows=rows,
            notes=[
                Note(f"sample standard deviation over {counted(self.n_runs, 'run')}", "spread", True),
                Note(
                    f"Student's t for the mean, {counted(self.n_runs - 1, 'degree')} of freedom, which assumes "
                    "independent runs",
                    "interval",
                    True,
                ),
                *notes_of((("differs", str(each)) for each in self.conditions), self.notes),
            ],
            interval_head=interval_head(self.level),
        )

    def _values(self) -> Table:
        names = self._names()
        facts = []
        for name, run in zip(names, self.runs, strict=True):
            valid = f"{integer(run.n_valid)} valid of {counted(run.n_query, 'query')}"
            facts.append((name, f"{run.name} ({run.result_digest[:_DIGEST_DIGITS]})"))
            facts.append(("", f"{valid}, gallery {counted(run.n_gallery, 'row')}"))
        return Table(
            title="Every run",
            columns=[Column("run", Kind.NAME), *(metric_column(each.name) for each in self.metrics)],
            rows=[
                [name, *(bare_cell(each.name, each.values[at]) for each in self.metrics)]
                for at, name in enumerate(names)
            ],
            notes=notes_of(facts),
        )

    def _names(self) -> list[str]:
        """Return short names of the runs: the last parts of their places, or numbers where some are equal."""
        names = [run.name.rstrip("/").rpartition("/")[2] for run in self.runs]
        return names if len({*names}) == len(names) else [f"run {number}" for number in range(1, len(names) + 1)]


def average_runs(
    reports: Sequence[Report],
    *,
    names: Sequence[str] | None = None,
    metrics: str | Sequence[str] | None = None,
    level: float = 0.95,
    allow_different: bool = False,
) -> RunAverage:
    """Compute mean, spread and interval of metrics over several runs of one benchmark.

    Parameters
    ----------
    reports
        Two or more runs.  Features, labels and numbers of rows may differ.
    names
        One for each run, for messages and results; None for ``run 1``, ``run 2``, ….
    metrics
        Names; None for all common ones.  A metric that a report does not list is taken from its per-query
        values, if it has them.
    level
        Confidence level of the intervals, between 0 and 1.
    allow_different
        Average even if conventions differ: protocol, distance, expansion, re-ranking, order of ties, ``max_rank``,
        draws of single-shot metrics, or definitions of metrics.  The differences are listed in ``conditions``.

    Raises
    ------
    InputError
        If there are fewer than two runs, or conventions differ; the message names every difference.
    UnknownNameError
        For a metric that no run has.
    """
    if isinstance(reports, Report):
        raise InputError("reports must be a sequence of reports, found one; an average needs two runs or more")
    reports = tuple(reports)
    _check_runs(reports)
    check_level(level)
    labels = [f"run {number}" for number in range(1, len(reports) + 1)]
    if names is not None:
        if len(names) != len(reports):
            raise InputError(f"names must have one entry for each of {len(reports)} runs, found {len(names)}")
        labels = [f"{label} ({name})" for label, name in zip(labels, names, strict=True)]
    chosen, missing = choose_metrics(metrics, tuple(zip(labels, reports, strict=True)))
    conditions = tuple(differing_conventions(reports, chosen))
    if conditions and not allow_different:
        named = "; ".join(each.worded(labels) for each in conditions)
        raise InputError(
            f"the runs have different conventions: {named}; evaluate again under equal "
            "conventions, or average all the same with allow_different=True, --allow-different"
        )
    averages = tuple(_average(name, reports, level) for name in chosen)
    return RunAverage(
        runs=tuple(map(_described, labels if names is None else map(str, names), reports)),
        metrics=averages,
        level=float(level),
        conditions=conditions,
        notes=(*missing, *_without_value(averages, reports, labels), *_cautions(reports, labels)),
    )


def _check_runs(reports: Sequence[object]) -> None:
    for number, report in enumerate(reports, 1):
        if not isinstance(report, Report):
            raise InputError(f"run {number} must be a Report, found {type(report).__name__}")
    if len(reports) < _FEWEST:
        raise InputError(f"an average needs two runs or more, found {len(reports)}")


def _described(name: str, report: Report) -> AveragedRun:
    counts = (int(report.counts[each]) for each in ("n_query", "n_valid", "n_gallery"))
    return AveragedRun(name, report.result_digest, *counts)


def _average(name: str, reports: Sequence[Report], level: float) -> MetricAverage:
    values = tuple(metric_value_of(report, name) for report in reports)
    mean, spread = mean_and_spread(values)
    if math.isnan(mean):
        return MetricAverage(name, mean, spread, math.nan, math.nan, None, values)
    interval = mean_interval(values, level)
    if is_share(name):
        # Student's t knows no limits of a share.
        interval = Interval(max(interval.low, 0.0), min(interval.high, 1.0))
    return MetricAverage(name, mean, spread, min(values), max(values), interval, values)


def _without_value(
    averages: Sequence[MetricAverage], reports: Sequence[Report], labels: Sequence[str]
) -> Iterator[Finding]:
    for metric in averages:
        lacking: dict[str, list[str]] = {}
        for label, report, value in zip(labels, reports, metric.values, strict=True):
            if not math.isfinite(value):
                why = "known only between bounds" if metric.name in report.bounds else "no value"
                lacking.setdefault(why, []).append(label)
        for why, runs in lacking.items():
            yield caution("no_mean", metric=metric.name, why=why, runs=runs)


def _cautions(reports: Sequence[Report], labels: Sequence[str]) -> Iterator[Finding]:
    runs: dict[str, list[str]] = {}
    for label, report in zip(labels, reports, strict=True):
        runs.setdefault(report.result_digest, []).append(label)
    yield from (caution("same_result", runs=same) for same in runs.values() if len(same) > 1)
    if _are_models_of_one_set(reports):
        yield caution("models_of_one_set")
    for each in differing_versions(reports):
        yield info("several_versions", what=each.what, values=each.by_value(labels))


def _are_models_of_one_set(reports: Sequence[Report]) -> bool:
    """Whether the features of all runs differ and their labels, which are known, do not."""
    sides = [[report.inputs.get(side) or {} for side in ("query", "gallery")] for report in reports]
    labels = {tuple(each.get("labels_digest") for each in pair) for pair in sides}
    features = {tuple(each.get("content_digest") for each in pair) for pair in sides}
    return len(labels) == 1 and None not in next(iter(labels)) and len(features) == len(reports)
