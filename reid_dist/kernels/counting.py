r"""Counts of the negatives nearer than each positive, over one tile of screening values.

Method
------
A rank is a count: one more than the number of kept items before the positive.  Counts add over tiles, so no list of
distances is ever kept or sorted.  The remaining work is to compare every value of a tile with every threshold of its
query (the distance of each relevant item), at the speed at which a matrix product writes them.

*Similarity, not distance.*  A tile holds screening values that increase as the distance decreases.  Threshold
``u`` of a query has two edges, ``lower[u] <= upper[u]``: a value above ``upper`` is certainly nearer than the
threshold, one below ``lower`` is certainly farther, and between them the canonical distance of the pair decides.
Thresholds of a query are sorted from near to far, so that both edges fall from one to the next.

*One query row.*  The values are copied to a buffer that stays in the first-level cache, less a bias per column (half a
squared norm for Euclidean distances; infinity for a column that is hidden from the query: queries that hide the same
columns, such as those of their camera, share a row of biases).  The copy also counts the values that reach the last,
farthest threshold.  For a well-trained model there are none in most rows, and these are finished.  Otherwise relevant
and junk columns are removed, and the way to place the values depends on their number and on that of the thresholds:

- *Few values*: each is compared with all thresholds.
- *Few thresholds*: the values that reach the lower edge of each, and those above its upper edge, are counted in vector
  code.  If both numbers are equal, no value lies inside the band; otherwise these values are looked for.
- *Many of both*: a table of bins (`reid_dist.kernels.bins`) takes one pass over the values, whatever the number of
  thresholds.  Each is counted at the nearest threshold that it passes, and the counts are added up once per row.

*Row by row.*  Values inside a band are noted until the row is finished, and only then are the results of the row added
to the counts.  The pairs of several rows are decided together (`reid_dist.kernels.deciding`).

*Limit on crowded bands.*  Before the pairs inside bands exceed a given number the kernel stops and
returns the row: a float64 product with its far narrower bands is cheaper for the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bins import Pending, Steps, fill_steps, make_pending, make_steps, place, place_among
from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.deciding import (
    BATCH,
    Bands,
    Doubts,
    RankCounts,
    ScreenedTile,
    decide,
    make_doubts,
)
from reid_dist.kernels.marks import Marks, make_marks, mark_between, marked_places, reached_and_passed
from reid_dist.kernels.settings import inner_kernel, kernel

# Values that a table places together.
_BLOCK = 512

# Up to so many values that reach the farthest threshold, each is compared with all thresholds.
_FEW_REACHED = 16

# The same where a table would have to be filled.
_FEWER_THAN_A_TABLE = 64

# Thresholds up to which comparisons of all values with all of them beat the table.
_FEW_THRESHOLDS = 32


class Row(NamedTuple):
    """Intermediate results of one row of a tile before they are added to the counts."""

    # Values less the biases, shape (columns,), in the type of the tile.
    values: NDArray[np.floating]
    # Marks of some of them, and memory for their columns.
    marks: Marks
    columns: NDArray[np.int64]
    # Values by the nearest threshold passed, shape (4, 2 * most + 2), int32; see `place`.
    placed: NDArray[np.int32]
    # Values inside bands.
    pending: Pending


@inner_kernel
def compare(
    values: NDArray[np.floating], lower: NDArray[np.floating], upper: NDArray[np.floating], are_few: bool, row: Row
) -> int:
    """Count the values at each threshold, and note those inside bands as pending; return the number of these.

    With `are_few`, all values that reach the farthest threshold are left pending.
    """
    pending = row.pending
    n_pending = int(np.int64(0))
    nearer = int(np.int64(0))
    for u in range(len(lower) - 1 if are_few else 0, len(lower)):
        least, most, place = lower[u], upper[u], u
        if are_few:
            most, place = abs(most) + np.float32(np.inf), 0
        else:
            reached, passed = reached_and_passed(values, least, most)
            # Bands may overlap: a value that reaches the threshold before is placed there.
            certain = max(passed, nearer)
            row.placed[0, u] = certain - nearer
            nearer = reached
            if reached == certain:
                continue
        mark_between(values, least, most, row.marks)
        for p in range(marked_places(row.marks, row.columns)):
            column = row.columns[p]
            value = values[column]
            pending.column[n_pending], pending.place[n_pending], pending.value[n_pending] = column, place, value
            n_pending += int(place == 0 or value < lower[u - 1])
    return n_pending


@inner_kernel
def settle_row(
    q: int, n_pending: int, budget: int, row: Row, doubts: Doubts, n_doubts: int, bands: Bands, counts: RankCounts
) -> int:
    """Add a row to the counts, and its pairs inside bands to `doubts`.

    Returns the number of these pairs, -1 if more than `budget`.
    """
    first = bands.indptr[q]
    last = bands.indptr[q + 1]
    lower, upper = bands.lower[first:last], bands.upper[first:last]
    columns, places, values = row.pending.column, row.pending.place, row.pending.value
    placed = row.placed
    n = n_doubts
    for p in range(n_pending):
        value = values[p]
        a = places[p]
        if a < last - first and lower[a] > value:
            a = place_among(lower, value)
        if a == last - first or value > upper[a]:
            placed[0, a] += np.int32(1)
            continue
        doubts.row[n] = q
        doubts.column[n] = columns[p]
        doubts.threshold[n] = first + a
        n += 1
    if n - n_doubts > budget:
        return -1
    near = counts.near[first:last]
    for u in range(len(near)):
        near[u] += placed[0, u] + placed[1, u] + placed[2, u] + placed[3, u]
    return int(n - n_doubts)


@inner_kernel
def count_rows(
    screened: ScreenedTile, counts: RankCounts, limit: int, row: Row, steps: Steps | None, doubts: Doubts
) -> tuple[int, int]:
    """Do as `count_tile` does, in given memory; `steps` is None if no query has many thresholds."""
    tile, bias, bias_of, column_start = screened.values, screened.bias, screened.bias_of, screened.column_start
    row_of, bands, rows = screened.row_of, screened.bands, screened.rows
    n_columns = tile.shape[1]
    values = row.values
    # Typed zeros: the type of a literal is its value, and every kernel that takes one would be compiled once more.
    n_doubts = int(np.int64(0))
    decided = int(np.int64(0))
    for q in range(tile.shape[0]):
        first = bands.indptr[q]
        last = bands.indptr[q + 1]
        if first == last:
            continue
        lower, upper = bands.lower[first:last], bands.upper[first:last]
        lowest = lower[last - first - 1]
        source, shift = tile[q], bias[bias_of[q]]
        reached = np.int32(0)
        for k in range(len(values)):
            value = source[k] - shift[k]
            values[k] = value
            reached += np.int32(value >= lowest)
        if reached == 0:
            continue
        hidden_stop = bands.hidden_indptr[q + 1]
        hidden = first_at_least(bands.hidden_column, bands.hidden_indptr[q], hidden_stop, column_start)
        while hidden < hidden_stop and bands.hidden_column[hidden] < column_start + n_columns:
            values[bands.hidden_column[hidden] - column_start] = -np.inf
            hidden += 1
        row.placed[:, : last - first + 1] = 0
        n_pending = int(np.int64(0))
        are_few = bool(reached <= (_FEW_REACHED if steps is None else _FEWER_THAN_A_TABLE))
        # Without a table, its code is not compiled.
        if steps is None or are_few or last - first <= _FEW_THRESHOLDS:
            n_pending = compare(values, lower, upper, are_few, row)
        else:
            base, scale = fill_steps(lower, upper, values, steps)
            for start in range(0, n_columns, _BLOCK):
                block = values[start : min(start + _BLOCK, n_columns)]
                n_pending = place(block, start, lowest, base, scale, steps, row.placed, row.pending, n_pending)
        settled = settle_row(q, n_pending, limit - decided, row, doubts, n_doubts, bands, counts)
        if settled >= 0:
            decided += settled
            n_doubts += settled
        if n_doubts >= BATCH or settled < 0:
            decide(doubts, n_doubts, row_of, bands, rows, counts)
            n_doubts = int(np.int64(0))
        if settled < 0:
            return q, decided
    decide(doubts, n_doubts, row_of, bands, rows, counts)
    return tile.shape[0], decided


def most_of_many(indptr: NDArray[np.int64]) -> int | None:
    """Most thresholds of a query, by the offsets of those of all; None if they are so few that values are compared."""
    most = int(np.diff(indptr).max(initial=0))
    return most if most > _FEW_THRESHOLDS else None


@kernel
def count_tile(screened: ScreenedTile, counts: RankCounts, limit: int, many: int | None) -> tuple[int, int]:
    """Add the rows of a tile to the counts of its queries; `screened.ties` is not read.

    At most `limit` pairs inside bands are decided.  `many` is `most_of_many` of the thresholds: None has machine code
    of its own, which most runs need alone.  Returns the number of rows added, all of them unless the next one would
    have exceeded `limit`, and the number of decided pairs.
    """
    tile = screened.values
    n_columns = tile.shape[1]
    most = _FEW_THRESHOLDS if many is None else many
    marks, columns = make_marks(n_columns)
    row = Row(
        np.empty(n_columns, tile.dtype),
        marks,
        columns,
        np.empty((4, 2 * most + 2), np.int32),
        make_pending(n_columns, tile),
    )
    doubts = make_doubts(BATCH + n_columns)
    if many is None:
        return count_rows(screened, counts, limit, row, None, doubts)
    return count_rows(screened, counts, limit, row, make_steps(many, _BLOCK, tile), doubts)
