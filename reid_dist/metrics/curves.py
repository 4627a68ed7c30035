"""Curves over ranks and over recall: means over queries, as `reid_dist.metrics.metric` at single points."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries
from reid_dist.core.segments import entry_owners, segment_suffix_maxima
from reid_dist.metrics.metric import exact_quotient

Float64 = NDArray[np.float64]

RECALL_LEVELS = 101
# Of queries at recall levels that are held at a time, 8 MiB each of places and of precisions.
_MOST_VALUES = 2**20


def cmc_curve(ranked: RankedQueries, max_rank: int, *, zero_for_invalid: bool = False) -> Float64:
    """CMC@1 to CMC@max_rank; a short ranking holds its last value.  Shape (max_rank,), float64."""
    valid = ranked.n_relevant > 0
    first = ranked.first_rank[valid]
    found = np.bincount(first[first <= max_rank], minlength=max_rank + 1)[1:]
    return np.cumsum(found) / max(_number(valid, zero_for_invalid), 1)


def _number(valid: NDArray[np.bool_], zero_for_invalid: bool) -> int:
    """Number of queries that means are taken over."""
    return len(valid) if zero_for_invalid else int(np.count_nonzero(valid))


def curve_bytes(n_query: int, max_rank: int) -> int:
    """Bytes that `rank_curves` holds at its fullest: three values of every query at every rank."""
    return 3 * 8 * n_query * max_rank


def rank_curves(ranked: RankedQueries, max_rank: int, *, zero_for_invalid: bool = False) -> dict[str, Float64]:
    """``P``, ``R`` and ``CMC_allshots`` at every rank from 1 to `max_rank`: three arrays (max_rank,), float64.

    They are the means of ``P@k``, ``R@k`` and ``CMC_allshots@k``, bit for bit.
    """
    valid = ranked.n_relevant > 0
    owner = entry_owners(ranked.indptr)

    def hits(rank: NDArray[np.int64]) -> Float64:
        """Positives up to each rank; shape (n_query, max_rank)."""
        near = rank <= max_rank
        place = owner[near] * max_rank + rank[near] - 1
        return np.cumsum(np.bincount(place, minlength=len(valid) * max_rank).reshape(len(valid), max_rank), axis=1)

    number = _number(valid, zero_for_invalid)

    def means(values: Float64) -> Float64:
        return np.array([exact_quotient(column, number) for column in values[valid].T])

    found = hits(ranked.rank)
    n = np.maximum(ranked.n_relevant, 1)[:, None]
    return {
        "P": means(found / np.arange(1, max_rank + 1)),
        "R": means(found / n),
        "CMC_allshots": means(hits(ranked.rank - ranked.number + 1) / n),
    }


def mean_precision_recall(ranked: RankedQueries, *, zero_for_invalid: bool = False) -> Float64:
    """Mean over the queries of the interpolated precision at recall 0.00, 0.01, ..., 1.00; shape (101,), float64.

    The precision at a level is the largest over all points (j / n, j / r_j) whose recall reaches it; the comparison is
    made in integers, ``100 j >= level n``.
    """
    best = segment_suffix_maxima(ranked.number / ranked.rank, ranked.indptr)
    valid = ranked.n_relevant > 0
    n, start = ranked.n_relevant[valid], ranked.indptr[:-1][valid]
    number = _number(valid, zero_for_invalid)
    means = []
    for levels in np.array_split(np.arange(RECALL_LEVELS), 1 + RECALL_LEVELS * len(n) // _MOST_VALUES):
        # The number of positives that reach each level.
        reached = np.maximum(-(-levels[:, None] * n // (RECALL_LEVELS - 1)), 1)
        means += [exact_quotient(precisions, number) for precisions in best[start + reached - 1]]
    return np.array(means)
