"""Conversion of relevance to thresholds, and of counts to ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries, Relevance, RowRange, Targets
from reid_dist.core.segments import owners, segment_running_sums
from reid_dist.engine.reductions.counts import PartialCounts

Int64 = NDArray[np.int64]

# Mean positives per query from which sorting query by query is faster than sorting all at once.
_MANY = 64


def relevant_places(relevance: Relevance, rows: RowRange) -> tuple[Int64, Int64]:
    """Find the positives that lie in a range of gallery rows.

    Returns positions in ``relevance.relevant_row``, ascending, and the query of each, both shape (n,), int64.
    """
    relevant = relevance.relevant_row
    place = np.flatnonzero((relevant >= rows.start) & (relevant < rows.stop))
    return place, owners(place, relevance.relevant_indptr)


def make_targets(relevance: Relevance, parts: Sequence[tuple[Int64, NDArray[np.float64]]]) -> Targets:
    """Sort the positives of each query by (distance, gallery row) and list their distinct distances.

    `parts` are positions in ``relevance.relevant_row`` and canonical distances; together all positives, in any order.
    """
    distance = np.full(len(relevance.relevant_row), np.nan)
    for place, values in parts:
        distance[place] = values
    n_query = relevance.n_query
    owner = np.repeat(np.arange(n_query), np.diff(relevance.relevant_indptr))
    order = _by_distance(distance, owner, relevance.relevant_indptr)
    distance, row = distance[order], relevance.relevant_row[order]
    opens = np.ones(len(row), bool)
    opens[1:] = (distance[1:] != distance[:-1]) | (owner[1:] != owner[:-1])
    start = np.flatnonzero(opens)
    indptr = np.zeros(n_query + 1, np.int64)
    np.cumsum(np.bincount(owner[start], minlength=n_query), out=indptr[1:])
    return Targets(
        indptr=indptr,
        distance=distance[start],
        positive_start=np.append(start, len(row)),
        positive_row=row,
        hidden=relevance.hidden,
    )


def _by_distance(distance: NDArray[np.float64], owner: Int64, indptr: Int64) -> Int64:
    """Order of the positives by (query, distance, gallery row); gallery rows ascend within a query."""
    if len(distance) < _MANY * (len(indptr) - 1):
        return np.lexsort((distance, owner))
    order = np.empty(len(distance), np.int64)
    for start, stop in pairwise(indptr.tolist()):
        own = distance[start:stop]
        found = np.argsort(own)
        if (own[found[1:]] == own[found[:-1]]).any():
            # Slower: equal distances stay in order of gallery rows.
            found = np.argsort(own, kind="stable")
        order[start:stop] = start + found
    return order


def rank(relevance: Relevance, targets: Targets, counts: PartialCounts) -> RankedQueries:
    """Compute ranks under the order (distance, gallery row) from the counts of the whole gallery.

    ``r_j = 1 + (negatives nearer) + (negatives tied with it in a lower gallery row) + (positives before it)``.
    """
    indptr = targets.positive_indptr
    size = np.diff(targets.positive_start)
    near = np.repeat(counts.near.astype(np.int64), size)
    preceding = segment_running_sums(counts.before.dense(len(targets.positive_row)), targets.positive_start)
    position = np.arange(len(targets.positive_row)) - np.repeat(indptr[:-1], np.diff(indptr))
    return RankedQueries(
        indptr=indptr,
        rank=1 + near + preceding + position,
        tied=np.repeat(counts.tied.dense(len(targets.distance)), size),
        tied_before=preceding,
        row=targets.positive_row,
        distance=np.repeat(targets.distance, size),
        n_kept=relevance.n_kept,
        n_junk=relevance.n_junk,
        reason=relevance.reason,
    )
