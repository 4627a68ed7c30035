"""Values of operating points: rates at thresholds, histograms, calibrations, and their intervals by identity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries
from reid_dist.core.segments import owners
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.jobs import Probes
from reid_dist.engine.threshold_passes import ImpostorsNearer
from reid_dist.metrics.confidence import percentile_interval, resampled_sums
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

_N_RESAMPLES: Final = 1000

TOP_MATCHES: Final = ("mated_correct", "mated_wrong", "non_mated")


@dataclass(frozen=True)
class Counted:
    """The pairs and the nearest kept rows of the queries that count, by identity.

    `pids` are (n_query,), `counted` whether each query counts, and `nearer` holds all requested distances.
    """

    ranked: RankedQueries
    probes: Probes
    counted: Bool
    pids: Int64
    nearer: ImpostorsNearer

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

    @cached_property
    def _impostors(self) -> Int64:
        """Impostors of every identity nearer than the known distances, and all, (n_identity, n + 1)."""
        order = np.argsort(self._identity, kind="stable")[: int(self.counted.sum())]
        first = np.searchsorted(self._identity[order], np.arange(len(self.identities)))
        nearer = np.add.reduceat(self.nearer.count[order], first, axis=0)
        return np.append(nearer, self.by_identity(self.n_impostor), axis=1)

    def impostors_nearer(self, distances: Float64) -> Int64:
        """Impostors of every identity nearer than some known distances, all at infinity, (n_identity, n)."""
        return self._impostors[:, np.searchsorted(self.nearer.distance, distances)]

    def genuine_nearer(self, distances: Float64) -> Int64:
        """Genuine pairs of every identity nearer than some ascending distances, (n_identity, n)."""
        owner = owners(np.arange(len(self.ranked.rank)), self.ranked.indptr)
        return self._nearer(self.ranked.distance, owner, distances)

    @property
    def n_impostor(self) -> Int64:
        """Impostors of every query, 0 for one that does not count, (n_query,)."""
        return np.where(self.counted, self.ranked.n_kept - self.ranked.n_relevant, 0)

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

    def top_nearer(self, name: str, distances: Float64) -> Int64:
        """Top matches of a kind nearer than ascending distances, by identity, (n_identity, n)."""
        queries, distance = self.top_matches()[name]
        place = np.flatnonzero(queries)
        return self._nearer(distance[place], place, distances)

    def _nearer(self, values: Float64, query: Int64, distances: Float64) -> Int64:
        """Number of values, of known queries, below each of some ascending distances, by identity."""
        shape = len(self.identities) + 1, len(distances) + 1
        place = self._identity[query] * shape[1] + np.searchsorted(distances, values, "right")
        found = np.bincount(place, minlength=shape[0] * shape[1]).reshape(shape)
        return np.cumsum(found[:-1, :-1], axis=1)


class Intervals:
    """Percentile intervals of functions of sums over identities, all from the same resamples."""

    def __init__(self, level: float | None, seed: int, n_units: int) -> None:
        self._level, self._seed, self._n_units = level, seed, n_units
        self._columns: list[Float64] = []
        self._requested: list[tuple[list[slice], Callable[..., Float64], Bool]] = []
        self._found: list[Ends] | None = None

    def add(self, parts: Sequence[NDArray[Any]], function: Callable[..., Float64]) -> Callable[[], Ends]:
        """Request intervals of a function of sums of parts, (n_unit, n) each; the last part is the denominator.

        The function takes sums (…, n) and returns values (…, m).  Returns a function that gives [low, high] by value
        once all are requested: NaN where fewer than two identities have anything in the denominator.
        """
        first = sum(columns.shape[1] for columns in self._columns)
        slices = []
        for part in parts:
            slices.append(slice(first, first + part.shape[1]))
            first += part.shape[1]
            self._columns.append(part.astype(np.float64))
        place = len(self._requested)
        self._requested.append((slices, function, np.count_nonzero(parts[-1], axis=0) >= 2))
        return lambda: self._all()[place]

    def _all(self) -> list[Ends]:
        if self._found is None:
            self._found = self._resample()
        return self._found

    def _resample(self) -> list[Ends]:
        level = self._level
        if level is None or self._n_units < 2:
            return [[] for _ in self._requested]
        drawn: list[list[Float64]] = [[] for _ in self._requested]
        # Threads of BLAS that wait for more work take longer than these products.
        with one_blas_thread(), np.errstate(invalid="ignore", divide="ignore"):
            for sums in resampled_sums(
                np.hstack(self._columns), level=level, n_resamples=_N_RESAMPLES, seed=self._seed
            ):
                for values, (slices, function, _) in zip(drawn, self._requested, strict=True):
                    values.append(function(*(sums[:, each] for each in slices)))
        found = []
        for values, (_, _, known) in zip(drawn, self._requested, strict=True):
            columns = np.concatenate(values).T
            ends: Ends = []
            for column, is_known in zip(columns, np.broadcast_to(known, len(columns)), strict=True):
                interval = percentile_interval(column, level) if is_known else None
                ends.append([np.nan, np.nan] if interval is None else [interval.low, interval.high])
            found.append(ends)
        return found

    def describe(self) -> dict[str, Any] | None:
        """Entry of the report; None without intervals."""
        if self._level is None:
            return None
        return {
            "level": self._level,
            "unit": "identity",
            "n_units": self._n_units,
            "n_resamples": _N_RESAMPLES,
            "seed": self._seed,
        }


def _ratio(part: Float64, whole: Float64) -> Float64:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(part / whole, np.float64)


def point_table(
    found: Counted, points: Mapping[str, float], intervals: Intervals
) -> tuple[dict[str, Any], dict[str, Callable[[], Ends]]]:
    """Columns of the table of thresholds, by ascending distance, and functions that give the intervals of the rates.

    `points` are thresholds by name.
    """
    ordered = sorted(points, key=lambda name: points[name])
    distances = np.array([points[name] for name in ordered])
    genuine, impostor = found.genuine_nearer(distances), found.impostors_nearer(distances)
    correct, wrong, non_mated = (found.top_nearer(name, distances) for name in TOP_MATCHES)
    kinds = found.top_matches()
    mated = kinds["mated_correct"][0] | kinds["mated_wrong"][0]
    rates: dict[str, tuple[list[NDArray[Any]], Callable[..., Float64]]] = {
        "FAR": ([impostor, found.by_identity(found.n_impostor)], _ratio),
        "TAR": ([genuine, found.by_identity(found.ranked.n_relevant)], _ratio),
        "FPIR": ([non_mated, found.by_identity(kinds["non_mated"][0])], _ratio),
        "FNIR": ([correct, found.by_identity(mated)], lambda part, whole: _ratio(whole - part, whole)),
        "precision": ([correct, correct + wrong + non_mated], _ratio),
    }
    table: dict[str, Any] = {"point": ordered, "threshold": distances}
    ends = {}
    for name, (parts, function) in rates.items():
        table[name] = np.broadcast_to(function(*(part.sum(axis=0) for part in parts)), len(ordered))
        ends[name] = intervals.add(parts, function)
    table["n_accepted"] = (correct + wrong + non_mated).sum(axis=0)
    return table, ends


@dataclass(frozen=True)
class Bins:
    """Ascending edges of bins of pairs and of top matches: those of histograms, and all, for calibration."""

    pairs: Float64
    all_pairs: Float64
    tops: Float64
    all_tops: Float64


def histograms(found: Counted, bins: Bins) -> dict[str, dict[str, Any]]:
    """Counts of pairs and of top matches from each edge to the next, the last bin without end."""
    kinds = {
        "pairs": (bins.pairs, _pairs_in_bins(found, bins.pairs)),
        "top_matches": (bins.tops, _tops_in_bins(found, bins.tops)),
    }
    return {
        name: {"edge": edge} | {kind: of_kind.sum(axis=0) for kind, of_kind in counts.items()}
        for name, (edge, counts) in kinds.items()
    }


def _pairs_in_bins(found: Counted, edges: Float64) -> dict[str, Int64]:
    """Counts of pairs in the bins of ascending edges by identity, (n_identity, n_edge) each."""
    return {
        "genuine": _in_bins(found.genuine_nearer(edges), found.by_identity(found.ranked.n_relevant)),
        "impostor": _in_bins(found.impostors_nearer(edges), found.by_identity(found.n_impostor)),
    }


def _tops_in_bins(found: Counted, edges: Float64) -> dict[str, Int64]:
    """The same of top matches."""
    return {
        name: _in_bins(found.top_nearer(name, edges), found.by_identity(queries & np.isfinite(distance)))
        for name, (queries, distance) in found.top_matches().items()
    }


def _in_bins(nearer: Int64, total: Int64) -> Int64:
    """Counts in bins, (n_identity, n), from those nearer than the start of each and those of all, (n_identity, 1)."""
    return np.diff(np.append(nearer, total, axis=1), axis=1)


def calibrated(
    found: Counted, bins: Bins, prior: float | None, seed: int, intervals: Intervals
) -> dict[str, dict[str, Any]]:
    """Calibrations of pairs, and of nearest kept rows; values that wait for intervals are functions.

    A calibration has steps ``from`` a distance, their numbers of ``matches`` and ``others``, and for every prior the
    ``probability`` of each step, with the errors of probabilities fitted on other identities.
    """
    fold = folds_of(found.identities, seed)
    pairs, tops = _pairs_in_bins(found, bins.all_pairs), _tops_in_bins(found, bins.all_tops)
    correct, wrong, non_mated = tops.values()
    priors = [None] if prior is None else [None, prior]
    return {
        "pairs": _calibration([*pairs.values()], bins.all_pairs, priors, fold, intervals),
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
    found = []
    for prior in priors:
        share = n_matches / (n_matches + n_others) if prior is None else prior
        fitted = CrossFitted.fit(near, far, prior)
        squares = np.array([math.fsum(c) for c in fitted.squared_errors(near, far, np.arange(N_FOLDS)).T.tolist()])
        brier = brier_score(prior, squares, np.array([n_matches]), np.array([n_others]))
        ends = intervals.add([*of_step, *wholes, of_step[0] + of_step[1]], partial(_probability, prior))
        parts = [fitted.squared_errors(matches, others, fold), *wholes, wholes[0] + wholes[1]]
        brier_ends = intervals.add(parts, partial(_brier, prior))
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
                "intervals": (ends, brier_ends),
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
        return _ratio(match, match + other)
    near, far = prior * _ratio(match, all_matches), (1.0 - prior) * _ratio(other, all_others)
    return _ratio(near, near + far)


def _brier(prior: float | None, squares: Float64, n_matches: Float64, n_others: Float64, _: Float64) -> Float64:
    """Brier score from sums over a resample."""
    return brier_score(prior, squares, n_matches, n_others)
