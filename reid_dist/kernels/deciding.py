r"""Decisions of pairs whose screening values lie inside bands, by their canonical distances.

The pairs of many rows and tiles are decided together, which spares most calls and their arrays of a few elements.

*Places.*  A decision gives a pair its place among the positives of its query: the first one that it comes before.  That
of an item nearer than threshold ``u``, and not nearer than the one before it, is the first positive of ``u``.  That of
an item tied with ``u`` is the first positive at this distance with a higher gallery row, or the one after them; other
rules of ties put all tied items before these positives, or behind them.

Under ``APART``, places tell all of this: with first positive ``s`` of threshold ``u``, a nearer item is at ``s + 2u``,
and a tied one, that comes before positive ``p``, at ``p + 2u + 1``.  Places ascend from query to query.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.canonical import PairRows, write_distances
from reid_dist.kernels.compiled import inlined_kernel, inner_kernel, kernel

# Rule of ties: 0 where the order of a negative and a positive at equal distances is that of gallery rows, ``BEFORE``
# where an item at the distance of positives comes before all of them, ``BEHIND`` where it comes after; ``APART`` for
# the order of gallery rows with places of their own for tied items.
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


class OpenPairs(NamedTuple):
    """Pairs of a block pair inside bands."""

    # Places in the two blocks, int64.
    query: NDArray[np.int64]
    column: NDArray[np.int64]
    # The nearest threshold of the query that may not be nearer than the pair, and once it is decided its place; int64.
    place: NDArray[np.int64]


def make_open_pairs(most: int) -> OpenPairs:
    """Allocate memory for so many pairs."""
    return OpenPairs(np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64))


@inlined_kernel
def place_before(threshold: int, positive_start: NDArray[np.int64], ties: int) -> int:
    """Place of the items nearer than a threshold and not nearer than the one before it."""
    return int(positive_start[threshold]) + (2 * threshold if ties == APART else 0)


@inner_kernel
def _tied_place(threshold: int, row: int, bands: Bands, ties: int) -> int:
    """Place of an item in a gallery row at exactly the distance of a threshold."""
    start, stop = int(bands.positive_start[threshold]), int(bands.positive_start[threshold + 1])
    if ties == BEFORE:
        return start
    if ties == BEHIND:
        return stop
    follower = first_at_least(bands.positive_row, start, stop, row + 1)
    return follower + (2 * threshold + 1 if ties == APART else 0)


@inner_kernel
def _first_not_nearer(thresholds: NDArray[np.float64], start: int, stop: int, distance: float) -> int:
    """Find the first threshold that is at least a distance; mostly the one at `start` or the next."""
    if start < stop and thresholds[start] < distance:
        start += 1
        if start < stop and thresholds[start] < distance:
            return first_at_least(thresholds, start + 1, stop, distance)
    return start


@kernel
def decide(pairs: OpenPairs, n: int, row_of: NDArray[np.int64], bands: Bands, rows: PairRows, ties: int) -> int:
    """Give the first `n` pairs their places, and move those that come before some threshold to the front.

    `row_of` holds the gallery rows of the columns of the block, shape (columns,), ascending.  Returns how many come
    before a threshold or are tied with one.
    """
    distance = np.empty(n, np.float64)
    write_distances(rows, pairs.query[:n], pairs.column[:n], distance)
    thresholds, indptr, positive_start = bands.distance, bands.indptr, bands.positive_start
    query, column, place = pairs.query, pairs.column, pairs.place
    n_decided = 0
    for p in range(n):
        q, c = query[p], column[p]
        last = indptr[q + 1]
        a = _first_not_nearer(thresholds, place[p], last, distance[p])
        if a == last:
            continue
        query[n_decided], column[n_decided] = q, c
        if distance[p] == thresholds[a]:
            place[n_decided] = _tied_place(a, row_of[c], bands, ties)
        else:
            place[n_decided] = place_before(a, positive_start, ties)
        n_decided += 1
    return n_decided
