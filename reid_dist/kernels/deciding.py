r"""Decisions of the pairs of a tile whose screening values lie inside bands.

Bounds from float32 sums (`reid_dist.kernels.bounds`) settle most of them, and canonical distances the others.

The pairs of several queries are decided together, which spares most calls and their arrays of a few elements.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bounds import bound_pairs
from reid_dist.kernels.canonical import PairRows, pair_distances
from reid_dist.kernels.settings import inner_kernel

# Pairs that are decided together.
BATCH = 1024


class Bands(NamedTuple):
    """Thresholds of the queries of a tile, and hidden columns.

    Attributes
    ----------
    indptr
        Thresholds of query ``i`` are ``indptr[i]:indptr[i + 1]``, near to far, without repetition; int64.
    lower, upper
        Edges in screening values, in the type of the tiles, falling within each query.
    distance
        Canonical distances, float64, rising within each query.
    positive_start
        Positives of threshold ``u`` are ``positive_start[u]:positive_start[u + 1]``, in order of gallery row; int64.
        Those of the first threshold are ``before[0]`` and on in the counts.
    positive_row
        Gallery rows of the positives, int64.
    hidden_indptr, hidden_column
        Columns, ascending, excluded from the counts of a query: its relevant items and its junk; int64.
    """

    indptr: NDArray[np.int64]
    lower: NDArray[np.floating]
    upper: NDArray[np.floating]
    distance: NDArray[np.float64]
    positive_start: NDArray[np.int64]
    positive_row: NDArray[np.int64]
    hidden_indptr: NDArray[np.int64]
    hidden_column: NDArray[np.int64]


class RankCounts(NamedTuple):
    """Counts, int32 or int64; added to.

    Attributes
    ----------
    near
        Per threshold: negatives nearer than it and not nearer than the threshold before it.  A running sum within the
        query gives the negatives nearer than each threshold.
    tied
        Per threshold: negatives exactly at it.
    before
        Per positive: tied negatives whose gallery row lies between that of the positive before it, within the same
        threshold, and its own.  A running sum within the threshold gives the tied negatives that precede it.
    """

    near: NDArray[np.signedinteger]
    tied: NDArray[np.signedinteger]
    before: NDArray[np.signedinteger]


@inner_kernel
def first_at_least(values: NDArray[np.int64] | NDArray[np.float64], start: int, stop: int, wanted: float) -> int:
    """Find the first place from `start` to `stop` whose value is at least `wanted`; values ascend, `stop` for none."""
    while start < stop:
        middle = (start + stop) // 2
        if values[middle] < wanted:
            start = middle + 1
        else:
            stop = middle
    return start


class Doubts(NamedTuple):
    """Pairs of a tile inside bands, query by query, and scratch.

    Attributes
    ----------
    row, column
        Row and column of the tile, int64.
    threshold
        The nearest threshold of the query that may not be nearer than the pair; int64.
    least, most
        Scratch for bounds on distances, float64.
    """

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    threshold: NDArray[np.int64]
    least: NDArray[np.float64]
    most: NDArray[np.float64]


@inner_kernel
def add_tie(row: int, threshold: int, bands: Bands, counts: RankCounts) -> None:
    """Count a negative at exactly the distance of a threshold."""
    counts.tied[threshold] += 1
    stop = bands.positive_start[threshold + 1]
    follower = first_at_least(bands.positive_row, bands.positive_start[threshold], stop, row + 1)
    if follower < stop:
        counts.before[follower - bands.positive_start[0]] += 1


@inner_kernel
def _first_not_nearer(thresholds: NDArray[np.float64], start: int, stop: int, distance: float) -> int:
    """Find the first threshold that is at least a distance; mostly the one at `start` or the next."""
    if start < stop and thresholds[start] < distance:
        start += 1
        if start < stop and thresholds[start] < distance:
            return first_at_least(thresholds, start + 1, stop, distance)
    return start


@inner_kernel
def make_doubts(most: int) -> Doubts:
    """Allocate `Doubts` for `most` pairs."""
    return Doubts(
        np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most), np.empty(most)
    )


@inner_kernel
def decide(doubts: Doubts, n: int, row_of: NDArray[np.int64], bands: Bands, rows: PairRows, counts: RankCounts) -> None:
    """Add pairs inside bands to the counts.

    Parameters
    ----------
    doubts
        The pairs; overwritten.
    n
        Number of pairs.
    row_of
        Gallery rows of the tile's columns, shape (columns,), int64, ascending.
    bands, rows, counts
        See the classes.
    """
    row, column, threshold = doubts.row[:n], doubts.column[:n], doubts.threshold[:n]
    least, most = doubts.least[:n], doubts.most[:n]
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
            near[a] += 1
    distance = pair_distances(rows, row[:n_open], column[:n_open])
    for p in range(n_open):
        last = indptr[row[p] + 1]
        a = _first_not_nearer(thresholds, threshold[p], last, distance[p])
        if a < last and distance[p] == thresholds[a]:
            add_tie(row_of[column[p]], a, bands, counts)
            a += 1
        if a < last:
            near[a] += 1
