"""Counts of the negatives nearer than each positive from products of eight-bit integers.

A product of integers gives two ends that the exact product of the prepared rows lies between
(`reid_dist.kernels.coarse`).  An upper end below the lower edge of the farthest threshold is farther than all of them.
Any other pair is placed at the first threshold whose lower edge its upper end reaches, as a value is in
`reid_dist.kernels.counting`: it is nearer if its lower end is above the upper edge there.  Otherwise an edge lies
between its ends, and products with residuals give ends that are some hundred times closer.  What these leave open is
decided by distances.

Under a re-ranked distance, edges are those of plain distances.  Known pairs are left out of the products, and placed by
their screening values, as in `reid_dist.engine.reductions.screens`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bins import place_among
from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.coarse import AHEAD, Factors, UpperEnds, fine_ends, request
from reid_dist.kernels.deciding import BATCH, RankCounts, ScreenedTile, decide, make_doubts
from reid_dist.kernels.marks import make_marks, mark_products, marked_places
from reid_dist.kernels.settings import kernel


class CoarseTile(NamedTuple):
    """Products of the integers of some queries, plus an offset, and some gallery rows."""

    # Shape (rows, columns), int32, and the query of each row, shape (rows,), int64; -1 for one that is not counted.
    products: NDArray[np.int32]
    query: NDArray[np.int64]
    # Factors of all queries, and of the columns.
    own: Factors
    other: Factors
    # Screening values of known pairs under a re-ranked distance, shape (n,), float64: those of all queries.
    known: NDArray[np.float64]


@kernel
def count_coarse(
    tile: CoarseTile,
    screened: ScreenedTile,
    counts: RankCounts,
    most: int,
    crowded: NDArray[np.int32],
    ends: UpperEnds,
) -> int:
    """Add a tile to the counts of its queries.

    `screened` holds all queries of the block; its values and `ties` are not read.  A query of which more than `most`
    pairs have an edge between their ends is not counted, and their number is written to `crowded`, shape (n_query,).
    `ends` receives those of the tile.
    Returns the number of pairs that products with residuals left open.
    """
    products, own, other = tile.products, tile.own, tile.other
    bias, column_start, bands, rows = screened.bias, screened.column_start, screened.bands, screened.rows
    n_rows, n_columns = products.shape
    # Columns of the tile are numbered from here among those of known pairs.
    rescores, first_known = rows.rescoring.active, rows.rescoring.first_column
    known_indptr, known_column = rows.rescoring.indptr, rows.rescoring.column
    doubts = make_doubts(BATCH + n_columns)
    values, nearer = np.empty(n_columns + 1, np.float32), np.empty(n_columns + 1, np.int64)
    lows, highs = np.empty(n_columns, np.float64), np.empty(n_columns, np.float64)
    marks, columns = make_marks(n_columns)
    shift, scale, span, residual = other.shift, other.scale, other.span, other.residual
    n_kept = ends.end.shape[1]
    n_doubts = int(np.int64(0))
    decided = int(np.int64(0))
    for i in range(n_rows):
        q = tile.query[i]
        ends.threshold[i] = np.float32(np.inf)
        if q < 0:
            continue
        begin, stop = bands.indptr[q], bands.indptr[q + 1]
        if begin == stop:
            continue
        lower, upper, near = bands.lower[begin:stop], bands.upper[begin:stop], counts.near[begin:stop]
        n = stop - begin
        lowest = lower[n - 1]
        factor, spread, length = own.scale[q], own.spread[q], own.length[q]
        hidden_stop = bands.hidden_indptr[q + 1]
        hidden_start = first_at_least(bands.hidden_column, bands.hidden_indptr[q], hidden_stop, column_start)
        hidden = hidden_start
        known_start = known_stop = int(np.int64(0))
        if rescores:
            known_stop = int(known_indptr[q + 1])
            known_start = first_at_least(known_column, known_indptr[q], known_stop, first_known)
            known_stop = first_at_least(known_column, known_start, known_stop, first_known + n_columns)
        known = known_start
        kind = screened.bias_of[q]
        product, less = products[i], bias[kind]
        # No product is so far that it counts.
        mark_products(
            product, shift, scale, span, residual, factor, spread, length, less, lowest, np.float32(np.nan), marks
        )
        n_marked = marked_places(marks, columns)
        largest = np.float32(-np.inf)
        n_open = n_nearer = int(np.int64(0))
        for p in range(n_marked):
            c = columns[p]
            value = np.float32(np.int32(product[c] - shift[c])) * (scale[c] * factor)
            error = spread * span[c] + length * residual[c]
            end = value + error - less[c]
            largest = max(largest, end)
            if p < n_kept:
                ends.end[i, p], ends.column[i, p] = end, np.int32(c)
            while hidden < hidden_stop and bands.hidden_column[hidden] < column_start + c:
                hidden += 1
            if hidden < hidden_stop and bands.hidden_column[hidden] == column_start + c:
                continue
            while known < known_stop and known_column[known] < first_known + c:
                known += 1
            if known < known_stop and known_column[known] == first_known + c:
                continue
            a = place_among(lower, end)
            columns[n_open], values[n_open] = c, value
            is_open = int(value - error - less[c] <= upper[a])
            n_open += is_open
            nearer[n_nearer] = a
            n_nearer += 1 - is_open
        ends.threshold[i], ends.largest[i], ends.n[i] = lowest, largest, n_marked
        if n_open > most:
            crowded[q] = np.int32(n_open)
            continue
        for p in range(n_nearer):
            near[nearer[p]] += np.int32(1)
        for p in range(n_open):
            if p + AHEAD < n_open:
                request(columns[p + AHEAD], other)
            lows[p], highs[p] = fine_ends(q, columns[p], values[p], own, other)
        for p in range(n_open):
            column = columns[p]
            less_one = np.float64(less[column])
            a = place_among(lower, highs[p] - less_one)
            if a == n:
                continue
            if lows[p] - less_one > upper[a]:
                near[a] += np.int32(1)
                continue
            doubts.row[n_doubts], doubts.column[n_doubts], doubts.threshold[n_doubts] = q, column, begin + a
            n_doubts += 1
        hidden = hidden_start
        for known in range(known_start, known_stop):
            column = known_column[known] - first_known
            while hidden < hidden_stop and bands.hidden_column[hidden] < column_start + column:
                hidden += 1
            if hidden < hidden_stop and bands.hidden_column[hidden] == column_start + column:
                continue
            value = np.float32(tile.known[known - known_indptr[0]])
            a = place_among(lower, value)
            if a == n or less[column] == np.inf:
                continue
            if value > upper[a]:
                near[a] += np.int32(1)
                continue
            doubts.row[n_doubts], doubts.column[n_doubts], doubts.threshold[n_doubts] = q, column, begin + a
            n_doubts += 1
        if n_doubts >= BATCH:
            decide(doubts, n_doubts, screened.row_of, bands, rows, counts)
            decided += n_doubts
            n_doubts = int(np.int64(0))
    decide(doubts, n_doubts, screened.row_of, bands, rows, counts)
    return decided + n_doubts
