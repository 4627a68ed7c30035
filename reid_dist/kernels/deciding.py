r"""Decisions of pairs whose screening values lie inside bands.

Bounds from float32 sums (`reid_dist.kernels.bounds`) settle most of them, and canonical distances the others.

The pairs of many rows and tiles are decided together, which spares most calls and their arrays of a few elements.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.bounds import bound_pairs
from reid_dist.kernels.canonical import PairRows, write_distances
from reid_dist.kernels.settings import inner_kernel, kernel

# Order of a negative and a positive at equal distances: 0 where it is that of gallery rows, ``BEFORE`` where an item at
# the distance of positives comes before all of them, ``BEHIND`` where it comes after; ``APART`` for the order of
# gallery rows with places of their own for tied items (`reid_dist.kernels.placing.place_row`).
BEFORE = 1
BEHIND = 2
APART = 3


class Bands(NamedTuple):
    """Thresholds of a block of queries, and columns of a gallery block that are hidden from them."""

    # Thresholds of query ``i`` are ``indptr[i]:indptr[i + 1]``, near to far, without repetition; int64.
    indptr: NDArray[np.int64]
    # Edges in screening values, in the type of the tiles, falling within each query.
    lower: NDArray[np.floating]
    upper: NDArray[np.floating]
    # Canonical distances, float64, rising within each query.
    distance: NDArray[np.float64]
    # Positives of threshold ``u`` are ``positive_start[u]:positive_start[u + 1]``, in order of gallery row; int64.
    positive_start: NDArray[np.int64]
    # Gallery rows of the positives, int64.
    positive_row: NDArray[np.int64]
    # Columns, ascending, excluded from the counts of a query: its relevant items and its junk; int64.
    hidden_indptr: NDArray[np.int64]
    hidden_column: NDArray[np.int64]


class RankCounts(NamedTuple):
    """Counts by group of gallery rows, shape (groups, …), int32 or int64, to which kernels add."""

    # Per threshold: negatives nearer than it and not nearer than the threshold before it.  A running sum within the
    # query gives the negatives nearer than each threshold.
    near: NDArray[np.signedinteger]
    # Per threshold: negatives exactly at it.
    tied: NDArray[np.signedinteger]
    # Per positive: tied negatives whose gallery row lies between that of the positive before it, within the same
    # threshold, and its own.  A running sum within the threshold gives the tied negatives that precede it.
    before: NDArray[np.signedinteger]


class OpenPairs(NamedTuple):
    """Pairs of a block pair inside bands."""

    # Places in the two blocks, int64.
    query: NDArray[np.int64]
    column: NDArray[np.int64]
    # The nearest threshold of the query that may not be nearer than the pair; int64.
    threshold: NDArray[np.int64]


def make_open_pairs(most: int) -> OpenPairs:
    """Allocate memory for so many pairs."""
    return OpenPairs(np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64))


@inner_kernel
def _add_tie(row: int, group: int, threshold: int, bands: Bands, counts: RankCounts) -> None:
    """Count a negative at exactly the distance of a threshold."""
    counts.tied[group, threshold] += 1
    stop = bands.positive_start[threshold + 1]
    follower = first_at_least(bands.positive_row, bands.positive_start[threshold], stop, row + 1)
    if follower < stop:
        counts.before[group, follower] += 1


@inner_kernel
def _first_not_nearer(thresholds: NDArray[np.float64], start: int, stop: int, distance: float) -> int:
    """Find the first threshold that is at least a distance; mostly the one at `start` or the next."""
    if start < stop and thresholds[start] < distance:
        start += 1
        if start < stop and thresholds[start] < distance:
            return first_at_least(thresholds, start + 1, stop, distance)
    return start


@kernel
def decide(
    pairs: OpenPairs,
    n: int,
    row_of: NDArray[np.int64],
    group_of: NDArray[np.int64],
    bands: Bands,
    rows: PairRows,
    counts: RankCounts,
) -> int:
    """Add the first `n` pairs, which are overwritten, to the counts; return how many canonical distances decided.

    `row_of` holds the gallery rows of the columns of the block, shape (columns,), ascending, and `group_of` the place
    of the group of each among the counts; it is empty if all are of the first.
    """
    are_grouped = len(group_of) > 0
    row, column, threshold = pairs.query[:n], pairs.column[:n], pairs.threshold[:n]
    least, most = np.empty(n, np.float64), np.empty(n, np.float64)
    thresholds, near, indptr = bands.distance, counts.near, bands.indptr
    bound_pairs(rows, row, column, least, most)
    n_open = 0
    for p in range(n):
        last = indptr[row[p] + 1]
        a = _first_not_nearer(thresholds, threshold[p], last, least[p])
        if a < last and thresholds[a] <= most[p]:
            row[n_open], column[n_open], threshold[n_open] = row[p], column[p], a
            n_open += 1
        elif a < last:
            near[group_of[column[p]] if are_grouped else 0, a] += 1
    distance = least[:n_open]
    write_distances(rows, row[:n_open], column[:n_open], distance)
    for p in range(n_open):
        last = indptr[row[p] + 1]
        a = _first_not_nearer(thresholds, threshold[p], last, distance[p])
        group = group_of[column[p]] if are_grouped else 0
        if a < last and distance[p] == thresholds[a]:
            _add_tie(row_of[column[p]], group, a, bands, counts)
            a += 1
        if a < last:
            near[group, a] += 1
    return n_open
