"""Intervals of metrics over pairs and probes, no means of values per query: cluster bootstraps by identity.

A rate at a threshold (TAR@FAR, DIR@FAR) is one of sums over identities at this threshold, which stays as it is: the
interval is that of `reid_dist.operating_points` at the same point.  The threshold of an equal error rate is found
again in every resample, from the numbers of genuine pairs and impostors of every identity nearer than some distances
around it; they take one more pass over all pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.task_graph import Execution
from reid_dist.engine.threshold_passes import impostors_nearer
from reid_dist.engine.verification.measures import Verification
from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.evaluation.operating_values import CountedPairs, Intervals, ratio
from reid_dist.metrics.confidence import N_RESAMPLES, Confidence, Interval
from reid_dist.metrics.metric import PAIRS, PROBES
from reid_dist.relevance.protocols import NOT_COUNTED

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

Request = tuple[list[Int64], Callable[..., Float64]]
"""Sums by identity, the last of them the denominator, and a value of sums over identities."""

# Distances near an equal error rate, and over all genuine ones.
_N_DENSE, _N_WIDE = 48, 15

N_AROUND: Final = _N_DENSE + _N_WIDE + 2
"""Distances around an equal error rate, at most."""


def verification_intervals(
    checked: CheckedOptions,
    job: EvaluationJob,
    ranked: RankedQueries,
    found: Verification,
    execution: Execution,
) -> Confidence | None:
    """Intervals of the metrics of `found` over pairs and probes; None unless intervals are requested."""
    level = checked.values["confidence"]
    metrics = [metric for metric in checked.metrics if metric.family.needs in (PAIRS, PROBES)]
    if level is None or not metrics:
        return None
    pairs = CountedPairs(ranked, ranked.reason != NOT_COUNTED, job.query.pids)
    intervals = Intervals(level, checked.values["seed"], len(pairs.identities))
    ends = {}
    for metric in metrics:
        threshold = np.array([found.thresholds[metric.name]])
        if metric.family.needs == PROBES:
            request = _rate(pairs.by_identity(_identified(ranked, threshold[0])), pairs, ranked.n_relevant > 0)
        elif metric.family.takes_share:
            request = _rate(pairs.genuine_nearer(threshold), pairs, ranked.n_relevant)
        else:
            around = distances_around(ranked.distance, threshold[0], len(pairs.identities))
            impostors = pairs.impostors_of(impostors_nearer(job, around, execution, checked.truth))
            sums = [pairs.genuine_nearer(around), impostors[:, :-1], pairs.by_identity(ranked.n_relevant)]
            request = [*sums, impostors[:, -1:]], equal_error
        ends[metric.name] = intervals.add_one(*request)
    drawn = {name: Interval(*(get() or (math.nan, math.nan))) for name, get in ends.items()}
    return Confidence(level, "identity", len(pairs.identities), N_RESAMPLES, checked.values["seed"], drawn)


def _rate(part: Int64, pairs: CountedPairs, whole: NDArray[Any]) -> Request:
    """Request of the share of sums by identity in those of `whole`, (n_query,)."""
    return [part, pairs.by_identity(whole)], ratio


def _identified(ranked: RankedQueries, threshold: float) -> NDArray[np.bool_]:
    """Whether the mate of every query is at rank 1 and nearer than a threshold, (n_query,)."""
    found: NDArray[np.bool_] = (ranked.n_relevant > 0) & (ranked.first_rank == 1)
    found[found] = ranked.distance[ranked.indptr[:-1][found]] < threshold
    return found


def distances_around(genuine: Float64, threshold: float, n_identities: int) -> Float64:
    """Distances that the thresholds of equal error rates of resamples are sought between, ascending, from `genuine`.

    They are dense within some eight standard errors of the share of genuine pairs beyond the threshold.
    """
    ascending = np.sort(genuine)
    rejected = 1.0 - np.searchsorted(ascending, threshold, "left") / len(ascending)
    spread = 8.0 * math.sqrt(max(rejected * (1.0 - rejected), 1.0 / n_identities) / n_identities)
    dense = np.linspace(1.0 - rejected - spread, 1.0 - rejected + spread, _N_DENSE)
    share = np.clip(np.concatenate([dense, np.linspace(0.0, 1.0, _N_WIDE)]), 0.0, 1.0)
    # Between the last two, pairs at the threshold itself are added, as in the equal error rate of all pairs.
    beyond = np.nextafter(np.nextafter(threshold, np.inf), np.inf)
    return np.unique([*ascending[np.round(share * (len(ascending) - 1)).astype(np.int64)], threshold, beyond])


def equal_error(genuine: Float64, impostor: Float64, n_genuine: Float64, n_impostor: Float64) -> Float64:
    """Equal error rates, (n, 1), from sums over resamples of pairs nearer than ascending distances, (n, n_distance).

    FAR where the straight line between the first point with FAR + TAR of 1 or more and the one before it meets
    FAR = 1 - TAR.
    """
    start, end = np.zeros_like(n_genuine), np.ones_like(n_genuine)
    accepted = np.hstack([start, ratio(genuine, n_genuine), end])
    false = np.hstack([start, ratio(impostor, n_impostor), end])
    sums = accepted + false
    place = np.argmax(sums >= 1.0, axis=1)[:, np.newaxis]
    before, after = (np.take_along_axis(sums, at, 1) for at in (np.maximum(place - 1, 0), place))
    low, high = (np.take_along_axis(false, at, 1) for at in (np.maximum(place - 1, 0), place))
    # Without pairs of a kind there is no rate.
    return np.where(place > 0, low + ratio(1.0 - before, after - before) * (high - low), np.nan)
