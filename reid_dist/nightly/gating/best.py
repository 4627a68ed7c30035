"""Comparison with the best of the last nights, corrected for the choice of the best one.

The best of thirty nights is above the mean of all by some two standard deviations of their noise, so a plain test
against it calls a job worse that did not change.  The test here is over all nights and all gated metrics at once.  Per
metric and night, the differences (night - tonight) are summed by identity and divided by the root of the sum of their
squares.  The p-value is the share of random sign changes, one sign for everything of an identity, in which the largest
of these statistics is at least that of the best night; the observed signs count among them.  Nights and metrics keep
their dependence on one another, and the more nights differ, the larger the drop has to be.

Sources: Westfall and Young, Resampling-Based Multiple Testing, 1993 (largest statistic); Dunnett, JASA 1955 (many means
against one); Phipson and Smyth, SAGMB 2010 (no p-value is zero).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.nightly.gating.nights import Night, distinct

Float64 = NDArray[np.float64]

# A stream of its own, beside those of the bootstrap and of the sign flips of two runs.
_STREAM: Final = 2
# Signs that are held at once.
_BLOCK: Final = 1 << 21
# Statistics nearer to each other than this are equal up to rounding.
_EQUAL: Final = 1e-9


class BestDrop(NamedTuple):
    """Most significant drop from the best of the last nights: metric, run of that night, best - tonight as a share.

    The p-value is one-sided, and corrected for the choice of the best night and of the metric.
    """

    metric: str
    number: int
    drop: float
    p_value: float


def drop_from_best(
    nights: Sequence[Night],
    tonight: Night,
    pids: NDArray[np.int64],
    *,
    smallest_effect: float,
    n_resamples: int,
    seed: int,
) -> BestDrop | None:
    """Test tonight against the best of earlier nights, oldest first, with the metrics of tonight.

    `pids` has the identity of every query, shape (n_query,); `smallest_effect` is a share.  None where no metric
    dropped by so much from its best night.
    """
    others = [night for night in distinct(nights) if night.digest != tonight.digest]
    keys = [(name, night) for name in tonight.values for night in others]
    drops = np.array([_mean(night.values[name]) - _mean(tonight.values[name]) for name, night in keys])
    if not len(drops) or not drops.max() >= smallest_effect:
        return None
    sums = np.stack([_sums(night.values[name] - tonight.values[name], pids) for name, night in keys])
    lengths = np.linalg.norm(sums, axis=1)
    scaled = sums / np.where(lengths > 0, lengths, 1.0)[:, None]
    observed = scaled.sum(axis=1)
    best = [max(np.flatnonzero([key[0] == name for key in keys]), key=lambda at: drops[at]) for name in tonight.values]
    at = max((each for each in best if drops[each] >= smallest_effect), key=lambda each: observed[each])
    p_value = _largest_p_value(scaled, float(observed[at]), n_resamples, seed)
    return BestDrop(keys[at][0], keys[at][1].number, float(drops[at]), p_value)


def _mean(values: Float64) -> float:
    return float(np.nanmean(values)) if not np.isnan(values).all() else 0.0


def _sums(difference: Float64, pids: NDArray[np.int64]) -> Float64:
    """Sums by identity; a query that does not count adds nothing."""
    _, member = np.unique(pids, return_inverse=True)
    return np.bincount(member, weights=np.nan_to_num(difference, nan=0.0)).astype(np.float64)


def _largest_p_value(scaled: Float64, observed: float, n_resamples: int, seed: int) -> float:
    n_units = scaled.shape[1]
    rng = np.random.default_rng((seed, _STREAM))
    total = scaled.sum(axis=1)
    width = -(-n_units // 8)
    most = max(1, _BLOCK // n_units)
    as_far = 0
    for start in range(0, n_resamples, most):
        n = min(most, n_resamples - start)
        bits = np.frombuffer(rng.bytes(n * width), np.uint8).reshape(n, width)
        flipped = np.unpackbits(bits, axis=1, count=n_units).astype(np.float64)
        largest = (total - 2.0 * (flipped @ scaled.T)).max(axis=1)
        as_far += int(np.count_nonzero(largest >= observed - _EQUAL))
    return (1 + as_far) / (1 + n_resamples)
