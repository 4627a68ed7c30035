"""TAR, EER and ROC over all pairs, and DIR over probes, under exact thresholds.

A pair is accepted when its distance is *strictly* less than the threshold.  *Genuine* pairs are the relevant ones,
*impostors* the negatives of every query, valid or not; queries that a protocol does not count (of other cameras) are
excluded from both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.exact_sums import exact_sum
from reid_dist.core.model import RankedQueries, TieRule
from reid_dist.core.segments import entry_owners, run_offsets
from reid_dist.engine.outputs.nearest_rows import Probes
from reid_dist.engine.verification.crossings import Crossing, Level
from reid_dist.errors import InputError
from reid_dist.metrics.metric import NEAREST, PAIRS, PROBES, Metric
from reid_dist.relevance.protocols import NOT_COUNTED

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

_PER_DECADE = ("1", "1.584893192461113", "2.511886431509580", "3.981071705534972", "6.309573444801932")
_DECADES = 6

ROC_RATES: tuple[str, ...] = (
    *(f"{step}e-{decade}" for decade in range(_DECADES, 0, -1) for step in _PER_DECADE),
    "1",
)
"""False accept rates of the ROC: five per decade from 1e-6 to 1, evenly spaced in the logarithm.  Decimals, as the rate
of ``TAR@FAR=x``, so that both agree.  Below 1 / N no impostor is accepted, and points differ only in their rate."""


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of verification."""

    # Canonical distances of all genuine pairs, ascending, shape (n_genuine,), float64.
    genuine: Float64
    # Number of impostors.
    n_impostor: int

    @property
    def n_genuine(self) -> int:
        """Number of genuine pairs."""
        return len(self.genuine)

    def accepted(self, threshold: float) -> float:
        """Share of the genuine pairs that are strictly nearer than a threshold, rounded once."""
        return int(np.searchsorted(self.genuine, threshold, "left")) / self.n_genuine


@dataclass(frozen=True)
class Verification:
    """Results of verification and open-set search."""

    # Values by name of the metric.
    metrics: Mapping[str, float] = field(default_factory=dict)
    # ``ROC_FAR``, ``ROC_TAR`` and ``ROC_threshold``, each of shape (31,), float64; empty if not requested.
    curves: Mapping[str, Float64] = field(default_factory=dict)
    # ``n_genuine`` and ``n_impostor``, ``n_mated`` and ``n_non_mated``, as far as computed.
    counts: Mapping[str, int] = field(default_factory=dict)
    # Distance below which pairs or probes are accepted, by name of the metric; infinite if all are accepted.  For the
    # EER, the smallest distance at which FAR + TAR, with pairs at the distance accepted, is at least 1.
    thresholds: Mapping[str, float] = field(default_factory=dict)

    def describe(self) -> dict[str, Any]:
        """Return counts and thresholds for a report."""
        return {**self.counts, "thresholds": dict(self.thresholds)}


def needs_pairs(metrics: Sequence[Metric], roc: bool) -> bool:
    """Whether thresholds over all pairs are requested."""
    return roc or bool(_of_kind(metrics, PAIRS))


def needs_probes(metrics: Sequence[Metric]) -> bool:
    """Whether open-set metrics are requested."""
    return bool(_of_kind(metrics, PROBES))


def n_nearest(metrics: Sequence[Metric]) -> int:
    """Number of nearest negatives of every query that the requested metrics are computed from."""
    return max((max(1, metric.parameter) for metric in _of_kind(metrics, NEAREST)), default=0)


def pairs_of(ranked: RankedQueries) -> Pairs:
    """Sort the distances of the genuine pairs, and count the impostors."""
    counted = ranked.reason != NOT_COUNTED
    return Pairs(np.sort(ranked.distance), int((ranked.n_kept - ranked.n_relevant)[counted].sum()))


def _order_statistic(rate: Fraction, number: int) -> int:
    """Number, from 1, of the distance that is the threshold for a rate: floor(x N) + 1; beyond N all are accepted."""
    return math.floor(rate * number) + 1


def _level(rate: Fraction, n_impostor: int) -> Level | None:
    """Level of the threshold for a false accept rate; None if all pairs are accepted."""
    number = _order_statistic(rate, n_impostor)
    return Level(1, 0, number) if number <= n_impostor else None


def _equal_error(n_genuine: int, n_impostor: int) -> Level:
    """Level at which FAR + TAR reaches 1, scaled by the product of the numbers of genuine pairs and impostors."""
    return Level(n_genuine, n_impostor, n_genuine * n_impostor)


def wanted_levels(metrics: Sequence[Metric], roc: bool, n_genuine: int, n_impostor: int) -> list[Level]:
    """Levels to find among all pairs, each once; raises `InputError` if there are no impostors."""
    if not n_impostor:
        names = [metric.name for metric in _of_kind(metrics, PAIRS)] or ["the ROC"]
        raise InputError(
            f"{', '.join(names)}: there are no impostor pairs, every gallery row visible to a query is relevant to "
            "it; evaluate against a gallery with other identities"
        )
    levels = [
        _level(metric.false_accept_rate, n_impostor)
        if metric.family.takes_share
        else _equal_error(n_genuine, n_impostor)
        for metric in _of_kind(metrics, PAIRS)
    ]
    if roc:
        levels += [_level(Fraction(rate), n_impostor) for rate in ROC_RATES]
    return list(dict.fromkeys(level for level in levels if level is not None))


def make_verification(
    metrics: Sequence[Metric],
    roc: bool,
    ranked: RankedQueries,
    probes: Probes | None,
    crossings: Mapping[Level, Crossing],
) -> Verification:
    """Compute requested metrics and curves from the results of the main pass and the crossings of `wanted_levels`.

    Metrics of other kinds are ignored.  Raises `InputError` if open-set metrics are requested, and every query has its
    identity in the gallery.
    """
    found = verify_pairs(metrics, roc, pairs_of(ranked), crossings) if needs_pairs(metrics, roc) else Verification()
    counts, thresholds = dict(found.counts), dict(found.thresholds)
    if probes is not None and needs_probes(metrics):
        open_set = _OpenSet(metrics, ranked, probes)
        counts |= {"n_mated": open_set.n_mated, "n_non_mated": len(open_set.non_mated)}
        thresholds |= {metric.name: open_set.threshold(metric.false_accept_rate) for metric in open_set.metrics}
    return Verification(
        {**found.metrics, **identification_rates(metrics, ranked, probes)},
        found.curves,
        counts,
        {metric.name: thresholds[metric.name] for metric in metrics if metric.name in thresholds},
    )


def verify_pairs(
    metrics: Sequence[Metric], roc: bool, pairs: Pairs, crossings: Mapping[Level, Crossing]
) -> Verification:
    """Compute the metrics over pairs among `metrics`, and the ROC, from the crossings of `wanted_levels`."""
    values: dict[str, float] = {}
    thresholds: dict[str, float] = {}
    curves: dict[str, Float64] = {}

    def threshold_at(rate: Fraction) -> float:
        level = _level(rate, pairs.n_impostor)
        return math.inf if level is None else crossings[level].distance

    for metric in _of_kind(metrics, PAIRS):
        if metric.family.takes_share:
            thresholds[metric.name] = threshold_at(metric.false_accept_rate)
            values[metric.name] = pairs.accepted(thresholds[metric.name])
        else:
            crossing = crossings[_equal_error(pairs.n_genuine, pairs.n_impostor)]
            thresholds[metric.name] = crossing.distance
            values[metric.name] = float(_equal_error_rate(pairs, crossing))
    if roc:
        reached = [threshold_at(Fraction(rate)) for rate in ROC_RATES]
        curves = {
            "ROC_FAR": np.array([float(rate) for rate in ROC_RATES]),
            "ROC_TAR": np.array([pairs.accepted(threshold) for threshold in reached]),
            "ROC_threshold": np.array(reached),
        }
    return Verification(values, curves, {"n_genuine": pairs.n_genuine, "n_impostor": pairs.n_impostor}, thresholds)


def identification_rates(
    metrics: Sequence[Metric], ranked: RankedQueries, probes: Probes | None, rule: TieRule | None = None
) -> dict[str, float]:
    """Compute the metrics over probes and nearest rows among `metrics`; `rule` is that of ties, None for the usual."""
    if probes is None:
        return {}
    found: dict[str, float] = {}
    ranked = ranked if rule is None else ranked.settled(rule)
    if needs_probes(metrics):
        open_set = _OpenSet(metrics, ranked, probes)
        found = {metric.name: open_set.identified(metric.false_accept_rate) for metric in open_set.metrics}
    for metric in _of_kind(metrics, NEAREST):
        found[metric.name] = _NEAREST[metric.family.stem](metric, ranked, probes, rule)
    return found


def _of_kind(metrics: Sequence[Metric], kind: str) -> list[Metric]:
    """Metrics of families that are computed from pairs, from probes or from nearest rows."""
    return [metric for metric in metrics if metric.family.needs == kind]


def _equal_error_rate(pairs: Pairs, crossing: Crossing) -> Fraction:
    """FAR where the straight line between the last two points of the ROC meets FAR = 1 - TAR."""
    genuine = [int(np.searchsorted(pairs.genuine, crossing.distance, side)) for side in ("left", "right")]
    near = Fraction(crossing.nearer, pairs.n_impostor), Fraction(genuine[0], pairs.n_genuine)
    far = Fraction(crossing.up_to, pairs.n_impostor), Fraction(genuine[1], pairs.n_genuine)
    sums = near[0] + near[1], far[0] + far[1]
    return near[0] + (1 - sums[0]) / (sums[1] - sums[0]) * (far[0] - near[0])


def _balanced(correct: NDArray[np.bool_], pid: Int64) -> float:
    """Mean over identities of the share of correct queries, rounded once at the end of each step; NaN without any."""
    _, identity, size = np.unique(pid, return_inverse=True, return_counts=True)
    shares = np.bincount(identity, correct, minlength=len(size)) / size
    return exact_sum(shares) / len(size) if len(size) else math.nan


def _accuracy_on_known(metric: Metric, ranked: RankedQueries, probes: Probes, _: TieRule | None) -> float:
    valid = ranked.n_relevant > 0
    correct = valid & (ranked.first_rank == 1)
    correct[correct] = ranked.distance[ranked.indptr[:-1][correct]] < metric.threshold
    return _balanced(correct[valid], probes.pid[valid])


def _answers_by_votes(ranked: RankedQueries, probes: Probes, k: int) -> Int64:
    """Pid that most of the k nearest kept rows of every query have, shape (n_query,); -1 without any kept row.

    Of pids with equally many rows, that of the least mean distance, then the least pid.  `probes` list the k nearest
    negatives of every query or more; with the positives that rank among the first k, they are the k nearest kept rows.
    """
    n_query, negatives = len(probes.pid), probes.nearest
    owner = entry_owners(ranked.indptr)
    near = ranked.rank <= k
    n_positive = np.bincount(owner[near], minlength=n_query)
    listed = (np.arange(negatives.index.shape[1]) < k - n_positive[:, None]) & (negatives.index >= 0)
    voter = np.concatenate([owner[near], np.nonzero(listed)[0]])
    pid = np.concatenate([probes.pid[owner[near]], probes.nearest_pid[listed]])
    distance = np.concatenate([ranked.distance[near], negatives.distance[listed]])
    # One order of the additions, whatever the order of the rows.
    order = np.lexsort((distance, pid, voter))
    voter, pid, distance = voter[order], pid[order], distance[order]
    parties = run_offsets(voter, pid)
    votes = np.diff(parties)
    mean = np.bincount(entry_owners(parties), distance) / votes
    voter, pid = voter[parties[:-1]], pid[parties[:-1]]
    best = np.lexsort((pid, mean, -votes, voter))
    first = best[np.flatnonzero(np.diff(voter[best], prepend=-1))]
    answer = np.full(n_query, -1, np.int64)
    answer[voter[first]] = pid[first]
    return answer


def _accuracy_by_votes(metric: Metric, ranked: RankedQueries, probes: Probes, _: TieRule | None) -> float:
    pid, valid = probes.pid, ranked.n_relevant > 0
    answer = _answers_by_votes(ranked, probes, metric.parameter)
    return _balanced((answer == pid)[valid], pid[valid])


def _accuracy_on_unknown(metric: Metric, ranked: RankedQueries, probes: Probes, _: TieRule | None) -> float:
    unknown = ~probes.mated & (ranked.reason != NOT_COUNTED)
    if not unknown.any():
        raise no_unknown(metric)
    return _balanced(probes.nearest_kept[unknown] >= metric.threshold, probes.pid[unknown])


def _global_average_precision(_: Metric, ranked: RankedQueries, probes: Probes, rule: TieRule | None) -> float:
    """Average precision of one ranking of all queries by the distance of the nearest kept row, then by query.

    With a rule of ties, `ranked` follows it, and of answers at one distance the correct ones come first, or last.
    """
    valid = ranked.n_relevant > 0
    is_correct = valid & (ranked.first_rank == 1)
    nearest = probes.nearest_kept.copy()
    nearest[is_correct] = ranked.distance[ranked.indptr[:-1][is_correct]]
    # Queries of other cameras, and those that keep no row, have no answer.
    answers = np.flatnonzero((ranked.reason != NOT_COUNTED) & np.isfinite(nearest))
    first = {None: answers, "optimistic": ~is_correct[answers], "pessimistic": is_correct[answers]}[rule]
    ordered = is_correct[answers[np.lexsort((first, nearest[answers]))]]
    number = np.flatnonzero(ordered) + 1
    return exact_sum(np.arange(1, len(number) + 1) / number) / int(valid.sum())


_NEAREST: dict[str, Callable[[Metric, RankedQueries, Probes, TieRule | None], float]] = {
    "GAP": _global_average_precision,
    "BAKS": _accuracy_on_known,
    "BAKS_votes": _accuracy_by_votes,
    "BAUS": _accuracy_on_unknown,
}


class _OpenSet:
    """Open-set identification: mated and non-mated probes; raises `InputError` if there is no non-mated probe."""

    def __init__(self, metrics: Sequence[Metric], ranked: RankedQueries, probes: Probes) -> None:
        valid, self.metrics = ranked.n_relevant > 0, _of_kind(metrics, PROBES)
        self.n_mated = int(valid.sum())
        at_first = valid & (ranked.first_rank == 1)
        self._nearest_mate = np.sort(ranked.distance[ranked.indptr[:-1][at_first]])
        self.non_mated = np.sort(probes.nearest_kept[~probes.mated & (ranked.reason != NOT_COUNTED)])
        if not len(self.non_mated):
            raise no_unknown(self.metrics[0])

    def threshold(self, rate: Fraction) -> float:
        """The (floor(x N) + 1)-th smallest of the nearest distances of the N non-mated probes; infinite beyond N."""
        number = _order_statistic(rate, len(self.non_mated))
        return float(self.non_mated[number - 1]) if number <= len(self.non_mated) else math.inf

    def identified(self, rate: Fraction) -> float:
        """Share of the mated probes whose mate is at rank 1 and strictly nearer than the threshold for a rate."""
        return int(np.searchsorted(self._nearest_mate, self.threshold(rate), "left")) / self.n_mated


def no_unknown(metric: Metric) -> InputError:
    """Error of a metric of non-mated queries where every query is mated."""
    return InputError(
        f"{metric.family.name} needs queries whose identity is not in the gallery, and there are none; add some, or "
        "request TAR@FAR=x",
        details=("such queries: of identities that the gallery lacks, or that you take out of it",),
    )
