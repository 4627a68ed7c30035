"""Many runs side by side: one row per run, its metrics with intervals, and which runs differ significantly."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, Final

from reid_dist.core.formatting import counted, integer
from reid_dist.errors import InputError, load_all
from reid_dist.metrics.confidence import (
    Interval,
    bootstrap_intervals,
    bootstrap_p_values,
    check_level,
    few_units,
    sign_flip_p_values,
)
from reid_dist.metrics.metric import metric_family
from reid_dist.reports.comparison.common_metrics import choose_metrics, metric_value_of
from reid_dist.reports.comparison.comparison_values import Comparison, Untested
from reid_dist.reports.comparison.conditions import differing_conditions, unlike_queries
from reid_dist.reports.comparison.paired import compare, pair_values, query_values, resampled_units, untestable
from reid_dist.reports.documents import Result
from reid_dist.reports.pages import render_tables
from reid_dist.reports.report import Report
from reid_dist.reports.tables.letters import compact_letters, holm
from reid_dist.reports.tables.moved import moved_queries
from reid_dist.reports.tables.run_table import Cell, Group, Row, RunTable
from reid_dist.reports.tabular.table import Table
from reid_dist.reports.words import call, conventions_once, flatten

# Stages that may differ between the rows of a group; each has a column where it does.
_STAGES: Final = ("distance", "expand", "rerank")


def compare_runs(
    reports: Sequence[Report | str | Path],
    *,
    names: Sequence[str] | None = None,
    metrics: str | Sequence[str] | None = None,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
    unit: str = "identity",
    pictures: bool = False,
    image_root: str | os.PathLike[str] | None = None,
) -> RunTable:
    """Put the metrics of many runs into one table, with the significance of their differences.

    Runs that differ in protocol, queries, gallery or labels go into separate groups; values are compared only within a
    group.  Two runs of a group differ in a metric if the larger p-value of paired bootstrap and sign-flip test, both by
    identity, is below 1 - `level` after Holm's correction for all pairs of the group.

    Parameters
    ----------
    reports
        Reports, or output directories of runs.
    names
        One for each run; None for the names given at evaluation, or those of the directories.
    metrics
        Names; None for all common ones.
    level
        Confidence level of the intervals; the tests use 1 - `level`.
    n_resamples, seed
        Number of resamples of the bootstrap and the sign-flip test, and their random seed.
    unit
        Resampling unit: ``identity`` or ``query``.
    pictures
        Collect pictures of the queries that changed most, for the page, in groups of two runs with lists.
    image_root
        Base directory of relative picture paths; None for that of one of the two runs.

    Raises
    ------
    InputError
        If there is no run, or if the number of names differs.
    UnknownNameError
        For a metric that no run has.
    """
    if isinstance(reports, Report | str | Path):
        raise InputError(f"reports must be a sequence of runs, found one {type(reports).__name__}")
    loaded = load_all(lambda each: each if isinstance(each, Report) else Report.load(each), reports)
    if not loaded:
        raise InputError("a table needs one run or more, found none")
    if names is not None and len(names) != len(loaded):
        raise InputError(f"names must have one entry for each of {len(loaded)} runs, found {len(names)}")
    check_level(level)
    labels = list(map(str, names)) if names is not None else run_names(reports, loaded)
    chosen, missing = choose_metrics(
        metrics, [(f"run {at} ({name})", loaded[at - 1]) for at, name in enumerate(labels, 1)]
    )
    draws = _Draws(float(level), unit, n_resamples, seed, pictures, image_root)
    return RunTable(
        metrics=tuple(chosen),
        groups=tuple(
            _group([labels[at] for at in members], [loaded[at] for at in members], chosen, draws)
            for members in comparable(loaded)
        ),
        level=float(level),
        unit=unit,
        n_resamples=int(n_resamples),
        seed=int(seed),
        notes=tuple(map(str, missing)),
    )


@dataclass(frozen=True, slots=True)
class ComparedRuns(Result):
    """A comparison of two runs, and the runs: its page has their curves, and pictures of queries that changed.

    `image_root` is as `compare_runs` has it.
    """

    comparison: Comparison
    reports: Sequence[Report]
    image_root: str | os.PathLike[str] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain Python values."""
        return self.comparison.to_dict()

    def tables(self) -> Sequence[Table]:
        """Return the tables of the comparison."""
        return self.comparison.tables()

    def to_html(self) -> str:
        """Return the page of both runs; of runs that are compared although they differ, the tables alone."""
        found = self.comparison
        table = compare_runs(
            self.reports,
            names=found.names,
            metrics=[metric.name for metric in found.metrics],
            level=found.level,
            n_resamples=found.n_resamples,
            seed=found.seed,
            unit=found.unit,
            pictures=True,
            image_root=self.image_root,
        )
        if len(table.groups) > 1:
            return render_tables(self.tables())
        return replace(table, groups=(replace(table.groups[0], paired=found),)).to_html()


def run_names(sources: Sequence[object], reports: Sequence[Report]) -> list[str]:
    """Return the names under which runs were evaluated; without one, the last part of a source, or all of it."""
    last = [Path(str(source)).name for source in sources]
    distinct = len(set(last)) == len(last)
    names = []
    for source, short, report in zip(sources, last, reports, strict=True):
        own = report.run.get("name", "")
        names.append(
            own or (report.heading.title if isinstance(source, Report) else short if distinct else str(source))
        )
    return names


def comparable(reports: Sequence[Report]) -> list[list[int]]:
    """Return the places of the runs of every group: protocol, queries, gallery and labels agree."""
    groups: list[list[int]] = []
    for at, report in enumerate(reports):
        for members in groups:
            first = reports[members[0]]
            if not any(differing_conditions(first, report)) and not unlike_queries(first, report):
                members.append(at)
                break
        else:
            groups.append([at])
    return groups


@dataclass(frozen=True, slots=True)
class _Draws:
    """Options of intervals and tests, and whether pictures are collected."""

    level: float
    unit: str
    n_resamples: int
    seed: int
    pictures: bool
    image_root: str | os.PathLike[str] | None

    @property
    def options(self) -> dict[str, Any]:
        """Keyword arguments of tests."""
        return {"unit": self.unit, "n_resamples": self.n_resamples, "seed": self.seed}


def _group(names: Sequence[str], reports: Sequence[Report], metrics: Sequence[str], draws: _Draws) -> Group:
    reasons = {name: next(filter(None, (untestable(each, name) for each in reports)), None) for name in metrics}
    tested = [name for name in metrics if not reasons[name]]
    pids = resampled_units(reports[0], draws.unit)
    per_run = {(at, name): query_values(report, name) for at, report in enumerate(reports) for name in tested}
    numbered = {str(number): values for number, values in enumerate(per_run.values())}
    drawn = bootstrap_intervals(numbered, pids, level=draws.level, **draws.options)
    intervals = dict(zip(per_run, drawn.intervals.values(), strict=True))
    marks = {name: _marks(name, reports, pids, draws) for name in tested} if len(reports) > 1 else {}
    columns = [
        _column(
            name,
            [metric_value_of(report, name) for report in reports],
            [
                interval if (interval := intervals.get((at, name))) and interval.is_known else None
                for at in range(len(reports))
            ],
            marks.get(name, [("", False)] * len(reports)),
        )
        for name in metrics
    ]
    described = list(zip(*(_stage_texts(reports, stage) for stage in _STAGES), strict=True))
    differing = [at for at in range(len(_STAGES)) if len({row[at] for row in described}) > 1]
    rows = (
        Row(
            name,
            report.result_digest,
            tuple(stages[at] for at in differing),
            tuple(cells),
        )
        for name, report, stages, cells in zip(names, reports, described, zip(*columns, strict=True), strict=True)
    )
    paired = (
        compare(*reports, metrics=metrics, level=draws.level, names=names, **draws.options)
        if len(reports) == 2
        else None
    )
    return Group(
        title=_title(reports[0]),
        stages=tuple(_STAGES[at] for at in differing),
        rows=tuple(rows),
        reports=tuple(reports),
        n_units=drawn.n_units,
        paired=paired,
        moved=moved_queries(paired, reports, draws.image_root) if paired is not None and draws.pictures else None,
        test=_test_words(len(reports), draws) if tested and len(reports) > 1 else "",
        notes=tuple(_notes(reports, metrics, reasons, drawn.n_units, draws)),
    )


def _column(
    name: str, values: Sequence[float], intervals: Sequence[Interval | None], marks: Sequence[tuple[str, bool]]
) -> list[Cell]:
    family = metric_family(name)
    known = [value for value in values if not math.isnan(value)]
    best = (min if family is not None and family.lower_is_better else max)(known, default=math.nan)
    several = len(values) > 1
    return [
        Cell(value, interval, several and value == best, is_near and value != best, text)
        for value, interval, (text, is_near) in zip(values, intervals, marks, strict=True)
    ]


def _marks(name: str, reports: Sequence[Report], pids: Any, draws: _Draws) -> list[tuple[str, bool]]:
    """Letters of all runs, ``a`` with the best, and whether each does not differ from the best."""
    pairs = list(combinations(range(len(reports)), 2))
    differences = {str(at): pair_values(name, reports[i], reports[j]).difference for at, (i, j) in enumerate(pairs)}
    by_test = [test(differences, pids, **draws.options) for test in (bootstrap_p_values, sign_flip_p_values)]
    p_values = {pair: max(test[str(at)] for test in by_test) for at, pair in enumerate(pairs)}
    if any(map(math.isnan, p_values.values())):
        return [("", False)] * len(reports)
    differing = {pair for pair, p_value in holm(p_values).items() if p_value < 1 - draws.level}
    family = metric_family(name)
    sign = 1 if family is not None and family.lower_is_better else -1
    order = sorted(range(len(reports)), key=lambda at: sign * metric_value_of(reports[at], name))
    place = {run: at for at, run in enumerate(order)}
    ranked = {(min(place[i], place[j]), max(place[i], place[j])) for i, j in differing}
    found = compact_letters(len(reports), ranked)
    return [(found[place[run]], (0, place[run]) not in ranked) for run in range(len(reports))]


def _stage_texts(reports: Sequence[Report], stage: str) -> list[str]:
    """Text of a stage of every run: its name, with the parameters that vary among runs of that name."""
    described = [getattr(report, stage) for report in reports]
    fields = [{} if each is None else dict(flatten(each)) for each in described]
    texts = []
    for mine in fields:
        alike = [other for other in fields if other.get("name") == mine.get("name")]
        varied = [name for name in mine if len({other.get(name) for other in alike}) > 1]
        arguments = ", ".join(f"{name}={mine[name]}" for name in varied)
        name = mine.get("name", "-")
        texts.append(f"{name}({arguments})" if arguments else name)
    return texts


def _title(report: Report) -> str:
    benchmark = report.benchmark
    counts = report.counts
    sides = f"{counted(counts['n_query'], 'query')}, {counted(counts['n_gallery'], 'gallery row')}"
    name = report.protocol.get("name", "protocol without a name") if benchmark is None else benchmark["name"]
    return f"{name}: {sides}"


def _test_words(n_runs: int, draws: _Draws) -> str:
    return (
        f"at {100 * (1 - draws.level):.6g}%: the larger p-value of paired bootstrap and sign-flip test by "
        f"{draws.unit}, {integer(draws.n_resamples)} draws, seed {draws.seed}, with Holm's correction for "
        f"{counted(math.comb(n_runs, 2), 'pair')} of runs per metric"
    )


def _notes(
    reports: Sequence[Report], metrics: Sequence[str], reasons: dict[str, Untested | None], n_units: int, draws: _Draws
) -> Iterator[str]:
    conventions = zip(*(conventions_once(metrics, report.definitions) for report in reports), strict=True)
    for name, texts in zip(metrics, conventions, strict=True):
        yield from (f"{name}: {words}" for words in dict.fromkeys(texts) if words and not words.startswith("as "))
    for stage in _STAGES:
        described = (getattr(report, stage) for report in reports)
        yield from (
            f"{stage}: {words}" for words in dict.fromkeys(call(each) for each in described if each is not None)
        )
    valid = {int(report.counts["n_valid"]) for report in reports}
    if len(valid) > 1:
        yield f"valid queries: {', '.join(integer(n) for n in sorted(valid))}; pairs are tested on those valid in both"
    untested = [f"{name} ({reason.words})" for name, reason in reasons.items() if reason]
    if untested:
        yield f"no interval: {', '.join(untested)}"
    if len(untested) == len(metrics):
        return
    if len(reports) > 1:
        n_pairs = math.comb(len(reports), 2)
        if (needed := math.ceil(2 * n_pairs / (1 - draws.level))) > draws.n_resamples:
            yield f"{integer(draws.n_resamples)} resamples are too few for so many comparisons; use {integer(needed)}"
    yield from map(str, few_units(n_units, draws.unit))
