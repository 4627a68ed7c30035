"""Uncertainty of a mean over queries: bootstrap intervals, and a permutation test of a paired difference.

The queries of one identity are not independent: they show the same person against the same gallery items.  What is
drawn here is therefore identities, each with all of its queries (the cluster bootstrap); drawing single queries takes
them for independent, gives intervals that are too narrow, and is there for comparison.

Interval: one resample draws as many identities as there are, with replacement.  Its value of a metric is the sum of the
per-query values over all draws divided by the number of queries in them, and the interval lies between the quantiles
(1 - level) / 2 and (1 + level) / 2 of these values (linear interpolation between order statistics).  All metrics use
the same resamples, and the interval of one does not depend on which others are requested.

Test: if two runs are equally good, the difference of an identity is as likely to have the one sign as the other.  The
p-value is the share of sign changes, one sign for all queries of an identity, whose total is at least as far from zero
as the one that was observed.  All of them are taken where they are no more than the draws, and the p-value is then
exact; otherwise they are random, and the observed one counts among them, so that no p-value is zero.

Both approximate by a finite number of random draws, repeatable for a seed, and neither belongs to what a digest
of results covers.  The percentile interval is too narrow where there are few identities: below `FEW_UNITS` of them it
is a hint and no more.  It is made of the values that occurred: if all are equal its width is zero.

Sources: Efron, Annals of Statistics 1979; Field and Welsh, JRSS B 2007 (clusters); Smucker, Allan and Carterette,
CIKM 2007 (tests for retrieval); Phipson and Smyth, SAGMB 2010 (no p-value is zero).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding, caution
from reid_dist.core.model import RowRange, cut_rows
from reid_dist.core.numeric import is_number, is_whole
from reid_dist.errors import InputError

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

UNITS: Final = ("identity", "query")

FEW_UNITS: Final = 15
VERY_FEW_UNITS: Final = 5
"""Percentile intervals from fewer identities are too narrow, and far too narrow.

Share of nominal 95% intervals that hold the mean, for values spread as those of AP are (1,500 data sets each): 73%
from 3 identities, 83% from 5, 89% from 8, 91% from 10, 92 to 94% from 15 to 50.
"""

N_RESAMPLES: Final = 1000
"""Resamples of intervals, unless other numbers are requested."""

# Two streams of one seed: signs are not drawn from the bits that drew the resamples.
_RESAMPLES, _SIGNS = 0, 1

# Totals nearer to each other than this part of the sum of magnitudes are equal up to rounding.
_EQUAL: Final = 1e-12

# Weights of units in a block of resamples, 8 bytes each and as many for the draws.
_WEIGHTS_AT_ONCE: Final = 2**16


@dataclass(frozen=True, slots=True)
class Interval:
    """Confidence interval of a mean, both ends in the unit of the metric; NaN where the data do not determine it."""

    low: float
    high: float

    @property
    def is_known(self) -> bool:
        """Whether there is an interval at all."""
        return not (math.isnan(self.low) or math.isnan(self.high))


@dataclass(frozen=True, slots=True)
class Confidence:
    """Intervals of several metrics from the same resamples of the `n_units` units with a query that counts."""

    level: float
    unit: str
    n_units: int
    n_resamples: int
    seed: int
    intervals: dict[str, Interval]

    def describe(self) -> dict[str, Any]:
        """Return what a report holds of it: its fields, with [None, None] for an interval that is not known."""
        ends = {
            name: [interval.low, interval.high] if interval.is_known else [None, None]
            for name, interval in self.intervals.items()
        }
        return {
            "level": self.level,
            "unit": self.unit,
            "n_units": self.n_units,
            "n_resamples": self.n_resamples,
            "seed": self.seed,
            "intervals": ends,
        }


def check_level(level: object) -> None:
    """Refuse a coverage of intervals that is no number between 0 and 1."""
    if not is_number(level) or not 0 < level < 1:
        raise InputError(f"level must lie between 0 and 1, found {level!r}; 0.95 is customary")


def few_units(n_units: int, unit: str = "identity", *, rates: Sequence[str] = ()) -> list[Finding]:
    """Return a finding of intervals from so few units that they are too narrow, of all or of some rates; or none."""
    if not 0 < n_units < FEW_UNITS:
        return []
    return [caution("narrow_intervals", n_units=n_units, unit=unit, enough=FEW_UNITS, rates=rates)]


def bootstrap_intervals(
    values: Mapping[str, Float64],
    pids: Int64,
    *,
    level: float = 0.95,
    unit: str = "identity",
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Confidence:
    """Bootstrap percentile intervals of means of per-query values.

    Only units with a query that counts are drawn.  A metric with values of fewer than two units has no interval:
    drawing one identity again and again gives an interval of width zero, which would be certainty out of nothing.
    Values are (n_query,) float64, NaN for a query that does not count, as
    `reid_dist.metrics.metric.Metric.averaged` returns them.
    Memory is that of the values once more plus some 16 bytes for each unit, at least 2 MiB; time grows with units times
    resamples (100,000 identities, 1000 resamples: about half a second).
    """
    _check_draws(unit, n_resamples, seed)
    check_level(level)
    if n_resamples * (1 - level) / 2 < 1 - 1e-9:
        raise InputError(
            f"{n_resamples} resamples have no quantile beyond each end of a {level:.6g} interval; draw at least "
            f"{math.ceil(2 / (1 - level) - 1e-9)}, 1000 are customary"
        )
    totals = _unit_totals(values, pids, unit)
    means = _resampled_means(totals, n_resamples, np.random.default_rng((seed, _RESAMPLES)))
    tails = (1 - level) / 2, (1 + level) / 2
    intervals = {name: _percentiles(means[at], tails) for at, name in enumerate(values)}
    return Confidence(float(level), unit, totals.n_units, int(n_resamples), int(seed), intervals)


def bootstrap_p_values(
    differences: Mapping[str, Float64],
    pids: Int64,
    *,
    unit: str = "identity",
    n_resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, float]:
    """Two-sided p-values of paired differences, from the draws of `bootstrap_intervals`.

    2 (1 + number of resampled means at or beyond zero, on the side where fewer lie) / (1 + `n_resamples`), at most 1:
    the level of the widest percentile interval that excludes zero.  Differences are as for `sign_flip_p_values`; a
    metric with values of fewer than two units has the p-value NaN.
    """
    _check_draws(unit, n_resamples, seed)
    totals = _unit_totals(differences, pids, unit)
    p_values = {}
    means = _resampled_means(totals, n_resamples, np.random.default_rng((seed, _RESAMPLES)))
    for name, column in zip(differences, means, strict=True):
        known = column[~np.isnan(column)]
        fewer = min(np.count_nonzero(known <= 0), np.count_nonzero(known >= 0))
        p_values[name] = min(1.0, 2 * (1 + fewer) / (1 + len(known))) if len(known) else math.nan
    return p_values


def sign_flip_p_values(
    differences: Mapping[str, Float64],
    pids: Int64,
    *,
    unit: str = "identity",
    n_resamples: int = 10_000,
    seed: int = 0,
) -> dict[str, float]:
    """Two-sided p-values of paired differences whose mean is zero if nothing changed.

    The share of all 2^n sign changes of n units whose total is as far from zero as the observed one, or farther, if
    these are at most `n_resamples`; otherwise (1 + number of such ones among random sign changes) / (1 +
    `n_resamples`).  All queries of a unit change sign together.  The number of queries is the same in every
    arrangement, so totals are compared instead of means.  Differences are (n_query,) float64, NaN for a query that does
    not count; a metric that no query counts for has the p-value NaN.
    """
    _check_draws(unit, n_resamples, seed)
    totals = _unit_totals(differences, pids, unit)
    n_units = totals.n_units
    if n_units == 0:
        return dict.fromkeys(differences, math.nan)
    observed = totals.sums.sum(axis=1)
    least = np.abs(observed) - _EQUAL * np.abs(totals.sums).sum(axis=1)
    rng = np.random.default_rng((seed, _SIGNS))
    as_far = np.zeros(len(observed), np.int64)
    n_all = 2**n_units
    is_exact = n_all <= n_resamples
    for block in _blocks(n_all if is_exact else n_resamples, n_units):
        if is_exact:
            flipped: NDArray[np.integer] = np.arange(block.start, block.stop)[:, np.newaxis] >> np.arange(n_units) & 1
        else:
            words = rng.integers(0, 2**32, (len(block), -(-n_units // 32)), np.uint32).astype("<u4")
            flipped = np.unpackbits(words.view(np.uint8), axis=1, count=n_units)
        changed = observed[:, np.newaxis] - 2.0 * np.vecdot(totals.sums[:, np.newaxis], flipped.astype(np.float64))
        as_far += np.count_nonzero(np.abs(changed) >= least[:, np.newaxis], axis=1)
    p_values = as_far / n_all if is_exact else (1 + as_far) / (1 + n_resamples)
    counted = totals.counts.sum(axis=1) > 0
    known = counted[totals.count_of]
    return {name: float(p_values[at]) if known[at] else math.nan for at, name in enumerate(differences)}


@dataclass(frozen=True, slots=True)
class _UnitTotals:
    """Sums of the values of each unit, (n_metric, n_units) float64, and their numbers, (n_patterns, n_units) float64.

    Metrics that count the same queries, which is the rule, share the row `count_of`, (n_metric,), of the numbers.
    """

    sums: Float64
    counts: Float64
    count_of: Int64

    @property
    def n_units(self) -> int:
        """Number of units with a query that counts."""
        return int(self.sums.shape[1])


def _unit_totals(values: Mapping[str, Float64], pids: Int64, unit: str) -> _UnitTotals:
    columns = {name: _checked(name, column, len(pids)) for name, column in values.items()}
    counted = np.zeros(len(pids), bool)
    for column in columns.values():
        counted |= ~np.isnan(column)
    if unit == "identity":
        found, member = np.unique(pids[counted], return_inverse=True)
        n_units = len(found)
    else:
        n_units = int(counted.sum())
        member = np.arange(n_units)
    sums = np.zeros((len(columns), n_units))
    patterns: list[Float64] = []
    count_of = np.zeros(len(columns), np.int64)
    for at, column in enumerate(columns.values()):
        kept = column[counted]
        valid = ~np.isnan(kept)
        sums[at] = np.bincount(member[valid], weights=kept[valid], minlength=n_units)
        counts = np.bincount(member[valid], minlength=n_units).astype(np.float64)
        same = [place for place, known in enumerate(patterns) if np.array_equal(known, counts)]
        count_of[at] = same[0] if same else len(patterns)
        if not same:
            patterns.append(counts)
    return _UnitTotals(sums, np.array(patterns).reshape(len(patterns), n_units), count_of)


def _resampled_means(totals: _UnitTotals, n_resamples: int, rng: np.random.Generator) -> Float64:
    """Mean of every metric in every resample, shape (n_metric, n_resamples); NaN where no query that counts was drawn.

    The draws are those of one call per resample, and every sum is a dot product of its own: a matrix product may round
    a row differently for other rows beside it.
    """
    n_units = totals.n_units
    means = np.full((len(totals.sums), n_resamples), np.nan)
    if n_units == 0:
        return means
    for block, weights in _drawn_weights(n_units, n_resamples, rng):
        sums = np.vecdot(totals.sums[:, np.newaxis], weights)
        counts = np.vecdot(totals.counts[:, np.newaxis], weights)[totals.count_of]
        np.divide(sums, counts, out=means[:, block.start : block.stop], where=counts > 0)
    too_few = np.count_nonzero(totals.counts, axis=1) < 2
    means[too_few[totals.count_of]] = np.nan
    return means


def resampled_sums(
    totals: Float64, *, level: float, n_resamples: int = N_RESAMPLES, seed: int = 0
) -> Iterator[Float64]:
    """Sums over the units of resamples, some resamples at a time: shape (n, n_column).

    `totals` are the sums of every unit, (n_unit, n_column); the draws are those of `bootstrap_intervals`.
    """
    check_level(level)
    _check_draws("identity", n_resamples, seed)
    rng = np.random.default_rng((seed, _RESAMPLES))
    for _, weights in _drawn_weights(len(totals), n_resamples, rng):
        yield weights @ totals


def percentile_intervals(values: Float64, level: float) -> Float64:
    """Ends between the percentiles of resampled values, (n_resamples, n): (n, 2), NaN without values.

    Values that are NaN are left out.
    """
    tails = (1 - level) / 2, (1 + level) / 2
    ends = np.full((values.shape[1], 2), np.nan)
    known = ~np.isnan(values)
    whole = known.all(axis=0)
    # One call for all columns: a call for each takes longer than the sorting.
    ends[whole] = np.quantile(values[:, whole], tails, axis=0).T
    for place in np.flatnonzero(known.any(axis=0) & ~whole).tolist():
        ends[place] = np.quantile(values[known[:, place], place], tails)
    return ends


def interval_of_magnitudes(means: Float64, resampled: Float64, level: float) -> Float64:
    """Ends for the sum of the magnitudes of means, (n,), from resampled means, (n_resamples, n): (1, 2).

    Resamples with NaN are left out.

    Noise raises magnitudes, so that percentiles of resampled sums lie too high, far too high where the means are
    nearly zero.  The ends are the sum plus and minus a quantile of the most that it may be wrong by: the sum of the
    errors of the means, with their signs for means of known sign (beyond three standard errors), else of their
    magnitudes.  By the triangle inequality the coverage is the level at least.

    Share of nominal 95% intervals that hold the true sum, for calibration errors over 15 bins with correlated pairs of
    30 and of 200 identities (1,000 data sets each): 95 to 96% for a true error of 0, above 98% for 0.01 and 0.05,
    and 98 to 100% for cross-fitted probabilities.  Of percentile intervals: 0% for a true error of 0, 0 to 8% for
    0.01, 80 to 95% for 0.05, 30 to 55% for cross-fitted probabilities.
    """
    errors = resampled[~np.isnan(resampled).any(axis=1)] - means
    if not len(errors):
        return np.full((1, 2), np.nan)
    known = np.abs(means) > 3.0 * errors.std(axis=0)
    most = np.abs((errors * np.where(known, np.sign(means), 0.0)).sum(axis=1)) + np.abs(errors[:, ~known]).sum(axis=1)
    total, margin = float(np.abs(means).sum()), float(np.quantile(most, level))
    return np.array([[max(0.0, total - margin), total + margin]])


def _drawn_weights(n_units: int, n_resamples: int, rng: np.random.Generator) -> Iterator[tuple[RowRange, Float64]]:
    """Blocks of resamples, and how often each draws every unit, (n, n_units) float64."""
    for block in _blocks(n_resamples, n_units):
        n = len(block)
        drawn = rng.integers(0, n_units, (n, n_units)) + np.arange(n)[:, np.newaxis] * n_units
        yield block, np.bincount(drawn.ravel(), minlength=n * n_units).astype(np.float64).reshape(n, n_units)


def _blocks(n_resamples: int, n_units: int) -> Iterator[RowRange]:
    """Blocks of resamples of bounded memory; one at a time, calls would take longer than the draws of few units."""
    return cut_rows(n_resamples, max(1, _WEIGHTS_AT_ONCE // max(1, n_units)))


def _percentiles(means: Float64, tails: tuple[float, float]) -> Interval:
    drawn = means[~np.isnan(means)]
    if not len(drawn):
        return Interval(math.nan, math.nan)
    low, high = np.quantile(drawn, tails)
    return Interval(float(low), float(high))


def _checked(name: str, values: Float64, n_query: int) -> Float64:
    column = np.asarray(values)
    if column.shape != (n_query,) or column.dtype.kind not in "fiub":
        raise InputError(
            f"per-query values of {name!r} must be numbers, one for each of {n_query} queries, found {column.dtype} "
            f"{column.shape}"
        )
    column = column.astype(np.float64, copy=False)
    if np.isinf(column).any():
        row = int(np.flatnonzero(np.isinf(column))[0])
        raise InputError(f"per-query values of {name!r} must be finite, or NaN where invalid; row {row} is infinite")
    return column


def _check_draws(unit: str, n_resamples: object, seed: object) -> None:
    if unit not in UNITS:
        raise InputError(f"unit must be one of {', '.join(UNITS)}, found {unit!r}")
    for name, value, least in (("n_resamples", n_resamples, 1), ("seed", seed, 0)):
        if not is_whole(value) or value < least:
            raise InputError(f"{name} must be a whole number, at least {least}, found {value!r}")
