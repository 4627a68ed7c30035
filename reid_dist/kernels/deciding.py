r"""Decisions of the pairs of a tile whose screening values lie inside bands.

Bounds from float32 sums (`reid_dist.kernels.bounds`) settle most of them, and canonical distances the others.

The pairs of several queries are decided together, which spares most calls and their arrays of a few elements.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.bounds import bound_pairs
from reid_dist.kernels.canonical import PairRows, write_distances
from reid_dist.kernels.settings import inner_kernel

# Pairs that are decided together.
BATCH = 1024

# Order of a negative and a positive at equal distances; see `ScreenedTile`.
BEFORE = 1
BEHIND = 2
APART = 3


class Bands(NamedTuple):
    """Thresholds of the queries of a tile, and hidden columns."""

    # Thresholds of query ``i`` are ``indptr[i]:indptr[i + 1]``, near to far, without repetition; int64.
    indptr: NDArray[np.int64]
    # Edges in screening values, in the type of the tiles, falling within each query.
    lower: NDArray[np.floating]
    upper: NDArray[np.floating]
    # Canonical distances, float64, rising within each query.
    distance: NDArray[np.float64]
    # Positives of threshold ``u`` are ``positive_start[u]:positive_start[u + 1]``, in order of gallery row; int64.
    # In the counts, those of the first threshold begin at ``before[0]``.
    positive_start: NDArray[np.int64]
    # Gallery rows of the positives, int64.
    positive_row: NDArray[np.int64]
    # Columns, ascending, excluded from the counts of a query: its relevant items and its junk; int64.
    hidden_indptr: NDArray[np.int64]
    hidden_column: NDArray[np.int64]


class ScreenedTile(NamedTuple):
    """A tile with all that is needed to compare its values with the thresholds of its queries."""

    # Screening values, shape (rows, columns), float32 or float64, C order; larger is nearer.
    values: NDArray[np.floating]
    # Subtracted from the rows, shape (kinds, columns); ``inf`` hides a column.
    bias: NDArray[np.floating]
    # Row of `bias` of each query, shape (rows,), int64.
    bias_of: NDArray[np.int64]
    # Column of the gallery block at which the tile begins; `Bands.hidden_column` counts from the start of the block.
    column_start: int
    # Gallery rows of the columns, shape (columns,), int64, ascending.
    row_of: NDArray[np.int64]
    # Thresholds of the queries of the tile.
    bands: Bands
    # Features of the queries and of the columns of the tile.
    rows: PairRows
    # 0 where equal distances are in the order of gallery rows, ``BEFORE`` where an item at the distance of positives
    # comes before all of them, ``BEHIND`` where it comes after; ``APART`` for the order of gallery rows with places of
    # their own for tied items (`reid_dist.kernels.placing.place_row`).
    ties: int


class RankCounts(NamedTuple):
    """Counts, int32 or int64, to which kernels add."""

    # Per threshold: negatives nearer than it and not nearer than the threshold before it.  A running sum within the
    # query gives the negatives nearer than each threshold.
    near: NDArray[np.signedinteger]
    # Per threshold: negatives exactly at it.
    tied: NDArray[np.signedinteger]
    # Per positive: tied negatives whose gallery row lies between that of the positive before it, within the same
    # threshold, and its own.  A running sum within the threshold gives the tied negatives that precede it.
    before: NDArray[np.signedinteger]


class Doubts(NamedTuple):
    """Pairs of a tile inside bands, query by query, and scratch."""

    # Row and column of the tile, int64.
    row: NDArray[np.int64]
    column: NDArray[np.int64]
    # The nearest threshold of the query that may not be nearer than the pair; int64.
    threshold: NDArray[np.int64]
    # Scratch for bounds on distances, float64.
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
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.empty(most, np.float64),
        np.empty(most, np.float64),
    )


@inner_kernel
def decide(doubts: Doubts, n: int, row_of: NDArray[np.int64], bands: Bands, rows: PairRows, counts: RankCounts) -> None:
    """Add the first `n` pairs of `doubts`, which are overwritten, to the counts.

    `row_of` holds the gallery rows of the tile's columns, shape (columns,), ascending.
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
    distance = least[:n_open]
    write_distances(rows, row[:n_open], column[:n_open], distance)
    for p in range(n_open):
        last = indptr[row[p] + 1]
        a = _first_not_nearer(thresholds, threshold[p], last, distance[p])
        if a < last and distance[p] == thresholds[a]:
            add_tie(row_of[column[p]], a, bands, counts)
            a += 1
        if a < last:
            near[a] += 1
