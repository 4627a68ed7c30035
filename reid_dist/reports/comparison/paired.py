"""Comparison of two reports: paired queries, resampled differences, verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding, caution
from reid_dist.core.numeric import is_number, is_whole
from reid_dist.errors import InputError
from reid_dist.metrics.confidence import Confidence, Interval, bootstrap_intervals, few_units, sign_flip_p_values
from reid_dist.metrics.metric import exact_mean, parse_metric
from reid_dist.reports import Report
from reid_dist.reports.comparison.common_metrics import (
    averaged,
    choose_metrics,
    has_query_values,
    mean_of_queries,
    metric_value_of,
    per_query_column,
    zero_for_invalid,
)
from reid_dist.reports.comparison.comparison_values import ChangedQuery, Comparison, MetricComparison, Untested
from reid_dist.reports.comparison.conditions import differing_conditions, differing_options, refuse_unlike
from reid_dist.reports.verdicts import (
    ROUNDING,
    SMALLEST_EFFECT,
    UNDECIDED,
    decidable,
    verdict_of,
    verdict_of_interval,
)

Float64 = NDArray[np.float64]


def compare(
    baseline: Report | str | Path,
    candidate: Report | str | Path,
    *,
    metrics: str | Sequence[str] | None = None,
    level: float = 0.95,
    n_resamples: int = 10_000,
    seed: int = 0,
    unit: str = "identity",
    minimum_effect: float = SMALLEST_EFFECT,
    allow_different: bool = False,
    n_changed: int = 5,
    names: Sequence[str] = ("baseline", "candidate"),
) -> Comparison:
    """Compare two runs on the same queries.

    Parameters
    ----------
    baseline, candidate
        The runs: reports, or the directories that hold them.
    metrics
        Names; None for all common ones.  A metric that a report does not list is taken from its per-query
        values, if it has them.
    level
        Confidence level of the intervals, between 0 and 1.
    n_resamples, seed
        Number of resamples of the bootstrap and the permutation test, and their random seed.
    unit
        Resampling unit: ``identity`` or ``query``.
    minimum_effect
        Smallest change of interest of a metric, as a share (0.005 is half a point).  Smaller changes are never called
        better or worse; if the whole interval lies within ± this share, the verdict is same.
    allow_different
        Compare even if protocol or gallery differ, or query labels other than pid and camid; the differences are listed
        in ``conditions``.  If different queries are valid, those valid in both runs are paired.
    n_changed
        Number of queries to list that gained most, and that lost most.
    names
        Names of both runs, for tables.

    Raises
    ------
    InputError
        If the runs cannot be compared; the message names every difference.
    UnknownNameError
        For a metric that a run does not have.
    """
    _check_options(minimum_effect, n_changed)
    baseline, candidate = (each if isinstance(each, Report) else Report.load(each) for each in (baseline, candidate))
    conditions = tuple(differing_conditions(baseline, candidate))
    refuse_unlike(baseline, candidate, conditions, allow_different=allow_different)
    chosen, missing = choose_metrics(metrics, (("the baseline", baseline), ("the candidate", candidate)))
    pairs = {name: pair_values(name, baseline, candidate) for name in chosen}
    differences = {name: pair.difference for name, pair in pairs.items() if not pair.untested}
    pids = resampled_units(baseline, unit)
    confidence = bootstrap_intervals(differences, pids, level=level, unit=unit, n_resamples=n_resamples, seed=seed)
    p_values = sign_flip_p_values(differences, pids, unit=unit, n_resamples=n_resamples, seed=seed)
    compared = []
    for name, pair in pairs.items():
        plain = MetricComparison(
            name, metric_value_of(baseline, name), metric_value_of(candidate, name), math.nan, untested=pair.untested
        )
        if pair.untested:
            apart = replace(plain, difference=plain.candidate - plain.baseline)
            compared.append(_by_own_intervals(apart, (baseline, candidate), confidence, minimum_effect))
            continue
        changed = _changes(plain, pair, baseline, n_changed)
        compared.append(_with_verdict(changed, confidence, p_values[name], minimum_effect))
    paired = (pair.baseline for pair in pairs.values() if not pair.untested)
    n_paired = max((int(np.count_nonzero(~np.isnan(values))) for values in paired), default=0)
    return Comparison(
        identical=baseline.result_digest == candidate.result_digest,
        metrics=tuple(compared),
        options=tuple(differing_options(baseline, candidate)),
        conditions=conditions,
        level=confidence.level,
        unit=unit,
        n_resamples=confidence.n_resamples,
        seed=confidence.seed,
        minimum_effect=float(minimum_effect),
        n_query=int(baseline.counts["n_query"]),
        n_paired=n_paired,
        n_units=confidence.n_units,
        names=(names[0], names[1]),
        baseline_digest=baseline.result_digest,
        candidate_digest=candidate.result_digest,
        notes=(
            *missing,
            *_cautions(baseline, candidate, confidence),
            *(each for each in _few_false_accepts((baseline, candidate)) if {*chosen} & {*each.values["names"]}),
        ),
    )


@dataclass(frozen=True, slots=True)
class PairedValues:
    """Values of the same queries in both runs, shape (n_query,), NaN in both where not paired; or why none."""

    # The values, and what the difference candidate - baseline of the metric is the mean of; empty if there are none.
    baseline: Float64
    candidate: Float64
    difference: Float64
    # Why there are none; None if there are.
    untested: Untested | None = None


def untestable(report: Report, name: str) -> Untested | None:
    """Return why a metric of a report has no values per query that it is the mean of; None if it has them."""
    if name in report.bounds:
        return Untested.BOUNDS
    if not has_query_values(report, name):
        return Untested.NO_QUERY_VALUES
    # A guard against a column of the right name and another meaning.
    if not abs(mean_of_queries(report, name) - metric_value_of(report, name)) <= ROUNDING:
        return Untested.OTHER_MEAN
    return None


def query_values(report: Report, name: str) -> Float64:
    """Return what a metric is the mean of, shape (n_query,), float64; NaN where a query does not count."""
    return averaged(report, name, report.per_query[per_query_column(name)])


def pair_values(name: str, baseline: Report, candidate: Report) -> PairedValues:
    """Return the values of a metric for the queries that are paired, or why there are none."""
    runs = (baseline, candidate)
    nothing = np.empty(0)
    reasons = [reason for report in runs if (reason := untestable(report, name))]
    if reasons:
        return PairedValues(nothing, nothing, nothing, min(reasons, key=list(Untested).index))
    before, after = (report.per_query[per_query_column(name)] for report in runs)
    if all(map(zero_for_invalid, runs)):
        before, after = np.nan_to_num(before, nan=0.0), np.nan_to_num(after, nan=0.0)
    unpaired = np.isnan(before) | np.isnan(after)
    before, after = np.where(unpaired, np.nan, before), np.where(unpaired, np.nan, after)
    return PairedValues(before, after, parse_metric(name).averaged(after - before, resampled_units(baseline, "query")))


def resampled_units(report: Report, unit: str) -> NDArray[np.int64]:
    """Return the unit of every query, shape (n_query,): its pid, or its row."""
    if "pid" in report.per_query:
        return report.per_query["pid"]
    if unit == "identity":
        raise InputError("the run does not hold the pids of its queries; evaluate it again, or compare by query")
    return np.arange(int(report.counts["n_query"]))


def _changes(
    metric: MetricComparison,
    pair: PairedValues,
    baseline: Report,
    n_changed: int,
) -> MetricComparison:
    """Name the queries that changed most, by their labels in the baseline."""
    before, after = pair.baseline, pair.candidate
    difference = after - before
    changed = np.flatnonzero(~np.isnan(difference) & (difference != 0))
    order = changed[np.argsort(difference[changed], kind="stable")]
    lost = order[difference[order] < 0]
    # By falling gain; among equals by row, as a stable sort of the negated gains gives it.
    gained = changed[np.argsort(-difference[changed], kind="stable")]
    gained = gained[difference[gained] > 0]

    labels, names = baseline.per_query, {} if baseline.names is None else baseline.names.query

    def named(row: int) -> ChangedQuery:
        pid, camid = (int(labels[name][row]) if name in labels else None for name in ("pid", "camid"))
        path = str(names["image_path"][row]) if "image_path" in names else None
        return ChangedQuery(row, pid, camid, float(before[row]), float(after[row]), path)

    return replace(
        metric,
        difference=exact_mean(pair.difference),
        n_gained=len(gained),
        n_lost=len(lost),
        gained=tuple(map(named, gained[:n_changed].tolist())),
        lost=tuple(map(named, lost[:n_changed].tolist())),
    )


def _with_verdict(
    metric: MetricComparison, confidence: Confidence, p_value: float, minimum_effect: float
) -> MetricComparison:
    interval = confidence.intervals[metric.name]
    if not interval.is_known:
        return replace(metric, untested=Untested.FEW_UNITS)
    verdict = verdict_of(
        metric.difference,
        interval,
        p_value,
        level=confidence.level,
        n_units=confidence.n_units,
        smallest_effect=minimum_effect,
    )
    return replace(metric, interval=interval, p_value=p_value, verdict=verdict)


def _by_own_intervals(
    metric: MetricComparison, runs: tuple[Report, Report], confidence: Confidence, minimum_effect: float
) -> MetricComparison:
    """Compare a metric without values per query by the intervals that both runs have of it, if these are of the level.

    The interval of the difference goes from the lower end of one less the upper end of the other to the converse: it is
    wide enough for values of any correlation, and wider than one of pairs.  It takes the thresholds of rates as fixed;
    those of rates with fewer than ten false accepts vary too much for that, and the verdict is ``undecided``.
    """
    before, after = (_own_interval(report, metric.name, confidence) for report in runs)
    if before is None or after is None:
        has_others = all(report.confidence and report.confidence["intervals"].get(metric.name) for report in runs)
        return replace(metric, untested=Untested.OTHER_LEVEL) if has_others else metric
    is_one_result = runs[0].result_digest == runs[1].result_digest
    interval = Interval(0.0, 0.0) if is_one_result else Interval(after.low - before.high, after.high - before.low)
    verdict = UNDECIDED
    n_units = min(int((report.confidence or {}).get("n_units", 0)) for report in runs)
    is_supported = not any(metric.name in each.values["names"] for each in _few_false_accepts(runs))
    if decidable(n_units, confidence.level) and (is_one_result or is_supported):
        worse_up = parse_metric(metric.name).family.lower_is_better
        verdict = verdict_of_interval(
            metric.difference, interval, smallest_effect=minimum_effect, lower_is_better=worse_up
        )
    return replace(metric, interval=interval, verdict=verdict, untested=None)


def _few_false_accepts(runs: Iterable[Report]) -> list[Finding]:
    """Findings of rates that rest on few false accepts, each once."""
    return list(dict.fromkeys(each for report in runs for each in report.notes if each.code == "few_false_accepts"))


def _own_interval(report: Report, name: str, confidence: Confidence) -> Interval | None:
    """Interval of a metric in a report, if it is one of this level and unit."""
    own = report.confidence
    if own is None or (own["level"], own["unit"]) != (confidence.level, confidence.unit):
        return None
    low, high = own["intervals"].get(name) or (None, None)
    return None if low is None or high is None else Interval(low, high)


def _cautions(baseline: Report, candidate: Report, confidence: Confidence) -> Iterator[Finding]:
    n_units, level = confidence.n_units, confidence.level
    if confidence.unit == "query":
        yield caution("queries_resampled")
    else:
        yield from few_units(n_units)
    if n_units > 1 and not decidable(n_units, level):
        yield caution("no_verdict", n_units=n_units, unit=confidence.unit, level=level)
    valid = {"baseline": int(baseline.counts["n_valid"]), "candidate": int(candidate.counts["n_valid"])}
    if len({*valid.values()}) > 1:
        yield caution("other_valid_queries", **valid)
    if zero_for_invalid(baseline) != zero_for_invalid(candidate):
        yield caution("other_invalid_rule")


def _check_options(minimum_effect: object, n_changed: object) -> None:
    if not is_number(minimum_effect) or not 0 <= minimum_effect < math.inf:
        raise InputError(f"minimum_effect must be a share, 0 or more, found {minimum_effect!r}; 0.005 is half a point")
    if not is_whole(n_changed) or n_changed < 0:
        raise InputError(f"n_changed must be a whole number, at least 0, found {n_changed!r}")
