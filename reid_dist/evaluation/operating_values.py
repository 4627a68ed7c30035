"""Values of operating points: rates at thresholds, histograms, calibrations, and their intervals by identity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.exact_sums import exact_sum
from reid_dist.core.model import RankedQueries
from reid_dist.core.segments import entry_owners
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.outputs.nearest_rows import Probes
from reid_dist.engine.threshold_passes import ImpostorsNearer
from reid_dist.metrics.confidence import N_RESAMPLES, interval_of_magnitudes, percentile_intervals, resampled_sums
from reid_dist.metrics.isotonic import (
    N_FOLDS,
    CrossFitted,
    brier_score,
    folds_of,
    pool_adjacent,
    probabilities,
    weights_of,
)

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]
Ends = list[list[float]]
_EndsOf = Callable[[Float64, float], Float64]
_Rate = tuple[list[NDArray[Any]], Callable[..., Float64]]

TOP_MATCHES: Final = ("mated_correct", "mated_wrong", "non_mated")

# Edges of bins are of two kinds together: round numbers at even steps, which show where both kinds of pairs lie, and
# quantiles of the genuine distances, which are dense where the probability of a match changes, however few lie there.
_STEPS: Final = 40
N_QUANTILES: Final = 20

MOST_EDGES: Final = _STEPS + 3 + N_QUANTILES
"""Edges of both kinds together, at most."""


def even_edges(known: Float64, times: float = 1.0) -> Float64:
    """Multiples of a round step, ascending, from at or below the least of some distances, (n,), some infinite.

    They go on to `times` the span of the distances.
    """
    known = known[np.isfinite(known)]
    low, high = float(known.min()), float(known.max())
    span = times * (high - low)
    if span == 0.0 or not math.isfinite(span) or not math.isfinite(low + span):
        return np.array([low])
    step = _round_step(span / _STEPS)
    first = math.floor(low / step)
    # A far offset leaves no room for steps.
    edges = np.unique(np.arange(first, first + math.ceil(span / step) + 2) * step)
    return edges if edges[0] <= low else np.union1d(edges, [low])


def _round_step(least: float) -> float:
    """The smallest number of one digit that is not below a number; 7 and 9 are left out."""
    power = math.floor(math.log10(least)) - 1
    steps = (float(f"{digit}e{power + more}") for more in range(4) for digit in (1, 2, 3, 4, 5, 6, 8))
    return next((step for step in steps if step >= least), least)


def quantile_edges(ascending: Float64, number: int = N_QUANTILES) -> Float64:
    """Order statistics of ascending distances, (n,), at even shares."""
    place = -(-np.arange(1, number + 1) * len(ascending) // number) - 1
    return np.unique(ascending[np.maximum(place, 0)])


@dataclass(frozen=True)
class CountedPairs:
    """The pairs of the queries that count, by identity.

    `pids` are (n_query,), and `counted` whether each query counts.
    """

    ranked: RankedQueries
    counted: Bool
    pids: Int64

    @cached_property
    def identities(self) -> Int64:
        """Identities of the queries that count, ascending; sums by identity are in this order."""
        return np.unique(self.pids[self.counted])

    @cached_property
    def _identity(self) -> Int64:
        """Position of the identity of every query, (n_query,); that of no query for one that does not count."""
        return np.where(self.counted, np.searchsorted(self.identities, self.pids), len(self.identities))

    def by_identity(self, per_query: NDArray[Any]) -> Int64:
        """Sums of whole numbers, (n_query,), over the queries of every identity, (n_identity, 1)."""
        sums = np.zeros((len(self.identities) + 1, 1), np.int64)
        np.add.at(sums[:, 0], self._identity, per_query)
        return sums[:-1]

    def impostors_of(self, nearer: ImpostorsNearer) -> Int64:
        """Impostors of every identity nearer than the known distances, and all, (n_identity, n + 1)."""
        order = np.argsort(self._identity, kind="stable")[: int(self.counted.sum())]
        first = np.searchsorted(self._identity[order], np.arange(len(self.identities)))
        found = np.add.reduceat(nearer.count[order], first, axis=0)
        return np.append(found, self.by_identity(self.n_impostor), axis=1)

    def genuine_nearer(self, distances: Float64) -> Int64:
        """Genuine pairs of every identity nearer than some ascending distances, (n_identity, n)."""
        return self._nearer(self.ranked.distance, entry_owners(self.ranked.indptr), distances)

    @property
    def n_impostor(self) -> Int64:
        """Impostors of every query, 0 for one that does not count, (n_query,)."""
        return np.where(self.counted, self.ranked.n_kept - self.ranked.n_relevant, 0)

    def _nearer(self, values: Float64, query: Int64, distances: Float64) -> Int64:
        """Number of values, of known queries, below each of some ascending distances, by identity."""
        shape = len(self.identities) + 1, len(distances) + 1
        place = self._identity[query] * shape[1] + np.searchsorted(distances, values, "right")
        found = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)
        return np.cumsum(found[:-1, :-1], axis=1)


@dataclass(frozen=True)
class Counted(CountedPairs):
    """The same with the nearest kept rows; `nearer` holds all requested distances."""

    probes: Probes
    nearer: ImpostorsNearer

    @cached_property
    def _impostors(self) -> Int64:
        return self.impostors_of(self.nearer)

    def impostors_nearer(self, distances: Float64) -> Int64:
        """Impostors of every identity nearer than some known distances, all at infinity, (n_identity, n)."""
        return self._impostors[:, np.searchsorted(self.nearer.distance, distances)]

    def top_matches(self) -> dict[str, tuple[Bool, Float64]]:
        """Queries of every kind of `TOP_MATCHES`, (n_query,), and the distances of the nearest kept row of each."""
        ranked = self.ranked
        valid = ranked.n_relevant > 0
        first = ranked.indptr[:-1][valid]
        # Infinite, and a row beyond all, for queries without relevant rows.
        mate, row = np.full(len(valid), np.inf), np.full(len(valid), np.iinfo(np.int64).max)
        mate[valid], row[valid] = ranked.distance[first], ranked.row[first]
        negative, other = self.probes.nearest_kept, self.probes.nearest.index[:, 0]
        correct = valid & ((mate < negative) | ((mate == negative) & (row < other)))
        distance = np.where(correct, mate, negative)
        kinds = correct, valid & ~correct, ~self.probes.mated & self.counted
        return {name: (queries, distance) for name, queries in zip(TOP_MATCHES, kinds, strict=True)}

    def tops_nearer(self, distances: Float64) -> dict[str, Int64]:
        """Top matches of every kind nearer than ascending distances, by identity, (n_identity, n)."""
        of_kinds = {name: (np.flatnonzero(queries), each) for name, (queries, each) in self.top_matches().items()}
        return {name: self._nearer(each[place], place, distances) for name, (place, each) in of_kinds.items()}


class Intervals:
    """Intervals of functions of sums over identities, all from the same resamples."""

    def __init__(self, level: float | None, seed: int, n_units: int) -> None:
        self._level, self._seed, self._n_units = level, seed, n_units
        self._parts: list[NDArray[Any]] = []
        self._place: dict[int, slice] = {}
        self._requested: list[tuple[list[slice], Callable[..., Float64], Bool, _EndsOf]] = []
        self._found: list[Ends] | None = None

    def add(
        self,
        parts: Sequence[NDArray[Any]],
        function: Callable[..., Float64],
        ends_of: _EndsOf = percentile_intervals,
    ) -> Callable[[], Ends]:
        """Request intervals of a function of sums of parts, (n_unit, n) each; the last part is the denominator.

        The function takes sums (…, n) and returns values (…, m), of which `ends_of` makes ends.  Returns a function
        that gives [low, high] by value once all are requested: NaN where fewer than two identities have anything in the
        denominator, no ends without intervals.  An array that several requests have is summed once.
        """
        place = len(self._requested)
        known = np.count_nonzero(parts[-1], axis=0) >= 2
        self._requested.append(([self._column(part) for part in parts], function, known, ends_of))
        return lambda: self._all()[place]

    def add_one(self, *request: Any) -> Callable[[], list[float] | None]:
        """The same of one value: [low, high], None without intervals."""
        ends = self.add(*request)
        return lambda: next(iter(ends()), None)

    def _column(self, part: NDArray[Any]) -> slice:
        """Columns of the sums of a part."""
        if id(part) not in self._place:
            first = sum(each.shape[1] for each in self._parts)
            self._place[id(part)] = slice(first, first + part.shape[1])
            self._parts.append(part)
        return self._place[id(part)]

    def _all(self) -> list[Ends]:
        if self._found is None:
            self._found = self._resample()
        return self._found

    def _resample(self) -> list[Ends]:
        level = self._level
        if level is None or self._n_units < 2:
            return [[] for _ in self._requested]
        totals = np.hstack(self._parts, dtype=np.float64)
        drawn: list[list[Float64]] = [[] for _ in self._requested]
        # Threads of BLAS that wait for more work take longer than these products.
        with one_blas_thread(), np.errstate(invalid="ignore", divide="ignore"):
            for sums in resampled_sums(totals, level=level, n_resamples=N_RESAMPLES, seed=self._seed):
                for values, (slices, function, _, _) in zip(drawn, self._requested, strict=True):
                    values.append(function(*(sums[:, each] for each in slices)))
        found: list[Ends] = []
        for values, (_, _, known, ends_of) in zip(drawn, self._requested, strict=True):
            ends = ends_of(np.concatenate(values), level)
            found.append(np.where(known[:, np.newaxis], ends, np.nan).tolist())
        return found

    def describe(self) -> dict[str, Any] | None:
        """Entry of the report; None without intervals."""
        if self._level is None:
            return None
        return {
            "level": self._level,
            "unit": "identity",
            "n_units": self._n_units,
            "n_resamples": N_RESAMPLES,
            "seed": self._seed,
        }


def with_intervals(value: Any) -> Any:
    """A value of mappings and lists in which functions of `Intervals.add` are replaced by what they give."""
    if isinstance(value, dict):
        return {name: with_intervals(each) for name, each in value.items()}
    if isinstance(value, list):
        return [with_intervals(each) for each in value]
    return value() if callable(value) else value


def ratio(part: Float64, whole: Float64) -> Float64:
    """A part of a whole, element by element; NaN or infinite for a whole of 0."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(part / whole, np.float64)


def _rest(part: Float64, whole: Float64) -> Float64:
    return ratio(whole - part, whole)


def point_table(
    found: Counted, points: Mapping[str, float], intervals: Intervals
) -> tuple[dict[str, Any], dict[str, Callable[[], Ends]]]:
    """Columns of the table of thresholds, by ascending distance, and functions that give the intervals of the rates.

    `points` are thresholds by name.
    """
    ordered = sorted(points, key=lambda name: points[name])
    distances = np.array([points[name] for name in ordered])
    tops = found.tops_nearer(distances)
    rates: dict[str, _Rate] = {
        "FAR": ([found.impostors_nearer(distances), found.by_identity(found.n_impostor)], ratio),
        "TAR": ([found.genuine_nearer(distances), found.by_identity(found.ranked.n_relevant)], ratio),
        **_rates_of_tops(found, tops),
    }
    table: dict[str, Any] = {"point": ordered, "threshold": distances}
    for name, (parts, function) in rates.items():
        table[name] = np.broadcast_to(function(*(part.sum(axis=0) for part in parts)), len(ordered))
    table["n_accepted"] = sum(nearer.sum(axis=0) for nearer in tops.values())
    return table, {name: intervals.add(*rate) for name, rate in rates.items()}


def identities_of_tops(found: Counted) -> dict[str, int]:
    """Number of the identities that each rate of top matches rests on at most; those that resamples draw from."""
    rates = _rates_of_tops(found, found.tops_nearer(np.array([np.inf])))
    return {name: int(np.count_nonzero(parts[-1])) for name, (parts, _) in rates.items()}


def _rates_of_tops(found: Counted, nearer: Mapping[str, Int64]) -> dict[str, _Rate]:
    """Parts and functions of the rates of top matches, from those nearer than thresholds, (n_identity, n) by kind."""
    correct, wrong, non_mated = (nearer[name] for name in TOP_MATCHES)
    of_correct, of_wrong, of_non_mated = (found.by_identity(queries) for queries, _ in found.top_matches().values())
    return {
        "FPIR": ([non_mated, of_non_mated], ratio),
        "FNIR": ([correct, of_correct + of_wrong], _rest),
        "precision": ([correct, correct + wrong + non_mated], ratio),
    }


@dataclass(frozen=True)
class Bins:
    """Ascending edges of bins of pairs and of top matches: those of histograms, and all, for calibration."""

    pairs: Float64
    all_pairs: Float64
    tops: Float64
    all_tops: Float64


def histograms(found: Counted, bins: Bins, intervals: Intervals) -> dict[str, dict[str, Any]]:
    """Counts of pairs and of top matches from each edge to the next, the last bin without end.

    ``intervals`` are functions that give those of the share of every bin in its kind, by kind, and those of the rates
    of top matches at the edges, by rate.
    """
    kinds = {"pairs": (bins.pairs, _pairs(found, bins.pairs)), "top_matches": (bins.tops, _tops(found, bins.tops))}
    of_tops = {name: nearer for name, (nearer, _) in kinds["top_matches"][1].items()}
    rates = {"pairs": {}, "top_matches": _rates_of_tops(found, of_tops)}
    return {
        name: {
            "edge": edge,
            **{kind: _in_bins(*of_kind).sum(axis=0) for kind, of_kind in counts.items()},
            "intervals": {
                **{kind: intervals.add(of_kind, _shares) for kind, of_kind in counts.items()},
                **{rate: intervals.add(*request) for rate, request in rates[name].items()},
            },
        }
        for name, (edge, counts) in kinds.items()
    }


def _pairs(found: Counted, edges: Float64) -> dict[str, tuple[Int64, Int64]]:
    """Pairs of each kind nearer than ascending edges, (n_identity, n_edge), and all, (n_identity, 1)."""
    return {
        "genuine": (found.genuine_nearer(edges), found.by_identity(found.ranked.n_relevant)),
        "impostor": (found.impostors_nearer(edges), found.by_identity(found.n_impostor)),
    }


def _tops(found: Counted, edges: Float64) -> dict[str, tuple[Int64, Int64]]:
    """The same of top matches; queries without a kept row have none."""
    nearer = found.tops_nearer(edges)
    return {
        name: (nearer[name], found.by_identity(queries & np.isfinite(distance)))
        for name, (queries, distance) in found.top_matches().items()
    }


def _in_bins(nearer: NDArray[Any], total: NDArray[Any]) -> NDArray[Any]:
    """Counts in bins, (…, n), from those nearer than the start of each and those of all, (…, 1)."""
    return np.diff(np.append(nearer, total, axis=-1), axis=-1)


def _shares(nearer: Float64, total: Float64) -> Float64:
    return ratio(_in_bins(nearer, total), total)


def calibrated(
    found: Counted, bins: Bins, prior: float | None, seed: int, intervals: Intervals
) -> dict[str, dict[str, Any]]:
    """Calibrations of pairs, and of nearest kept rows; values that wait for intervals are functions.

    A calibration has steps ``from`` a distance, their numbers of ``matches`` and ``others``, and for every prior the
    ``probability`` of each step, with the errors of probabilities fitted on other identities.
    """
    fold = folds_of(found.identities, seed)
    pairs = [_in_bins(*each) for each in _pairs(found, bins.all_pairs).values()]
    correct, wrong, non_mated = (_in_bins(*each) for each in _tops(found, bins.all_tops).values())
    priors = [None] if prior is None else [None, prior]
    return {
        "pairs": _calibration(pairs, bins.all_pairs, priors, fold, intervals),
        "top_matches": _calibration([correct, wrong + non_mated], bins.all_tops, [None], fold, intervals),
    }


def _calibration(
    units: Sequence[Int64], edges: Float64, priors: Sequence[float | None], fold: Int64, intervals: Intervals
) -> dict[str, Any]:
    matches, others = units
    totals = matches.sum(axis=0), others.sum(axis=0)
    first = pool_adjacent(*totals)
    of_step = [np.add.reduceat(each, first, axis=1) for each in units]
    n_matches, n_others = int(totals[0].sum()), int(totals[1].sum())
    near, far = (np.stack([each[fold == number].sum(axis=0) for number in range(N_FOLDS)]) for each in units)
    wholes = [each.sum(axis=1, keepdims=True) for each in units]
    both, of_steps = wholes[0] + wholes[1], of_step[0] + of_step[1]
    found = []
    for prior in priors:
        share = n_matches / (n_matches + n_others) if prior is None else prior
        fitted = CrossFitted.fit(near, far, prior)
        squares = np.array([exact_sum(each) for each in fitted.squared_errors(near, far, np.arange(N_FOLDS)).T])
        brier = brier_score(prior, squares, np.array([n_matches]), np.array([n_others]))
        errors = [*fitted.level_sums(matches, others, fold), *wholes, both]
        signed = partial(_level_errors, prior)
        of_errors = partial(interval_of_magnitudes, signed(*(part.sum(axis=0) for part in errors)))
        squared = [fitted.squared_errors(matches, others, fold), *wholes, both]
        found.append(
            {
                "prior": share,
                "stated": prior is not None,
                "probability": probabilities(
                    of_step[0].sum(axis=0), of_step[1].sum(axis=0), weights_of(prior, n_matches, n_others)
                ),
                "calibration_error": fitted.calibration_error(near, far),
                "brier": float(brier[0]),
                "brier_of_prior": share * (1.0 - share),
                "intervals": {
                    "probability": intervals.add([*of_step, *wholes, of_steps], partial(_probability, prior)),
                    "calibration_error": intervals.add_one(errors, signed, of_errors),
                    "brier": intervals.add_one(squared, partial(_brier, prior)),
                },
            }
        )
    return {
        "from": edges[first],
        "matches": of_step[0].sum(axis=0),
        "others": of_step[1].sum(axis=0),
        "priors": found,
    }


def _probability(
    prior: float | None, match: Float64, other: Float64, all_matches: Float64, all_others: Float64, _: Float64
) -> Float64:
    """Probability of every step from sums over a resample."""
    if prior is None:
        return ratio(match, match + other)
    near, far = prior * ratio(match, all_matches), (1.0 - prior) * ratio(other, all_others)
    return ratio(near, near + far)


def _level_errors(
    prior: float | None, lacking: Float64, excess: Float64, n_matches: Float64, n_others: Float64, both: Float64
) -> Float64:
    """Terms of the calibration error, with their signs, from sums over a resample."""
    if prior is None:
        return ratio(excess - lacking, both)
    return (1.0 - prior) * ratio(excess, n_others) - prior * ratio(lacking, n_matches)


def _brier(prior: float | None, squares: Float64, n_matches: Float64, n_others: Float64, _: Float64) -> Float64:
    """Brier score from sums over a resample."""
    return brier_score(prior, squares, n_matches, n_others)
