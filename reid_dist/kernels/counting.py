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

*One query row, 512 values at a time.*  The values are copied to a buffer that stays in the first-level cache, less a
bias per column (half a squared norm for Euclidean distances; infinity for a column that the query may not see: queries
that hide the same columns, such as those of their camera, share a row of biases).  The copy
also counts the values that reach the last, farthest threshold.  For a well-trained model there are hardly any, and the
block is finished.  Otherwise relevant and junk columns are removed and the thresholds are compared from far to near
until one has no value above its lower edge: all nearer ones have none either.

*Few thresholds: both edges in one loop, in int32.*  Comparisons are summed, never branched on, and the loops run over
slices: this is what LLVM makes vector code of.  Only when the two counts of a threshold differ does its band hold
something, and only then are the values looked at one by one, 64 at a time.

*More thresholds: a table of bins* (`reid_dist.kernels.bins`).  One pass over the values, whatever the number of
thresholds: each is counted at the nearest threshold that it passes, and the counts are added up once per row.  The
table is not made for a row of which few values reach the farthest threshold: bisection places these.

*Row by row.*  Values inside a band are noted until the row is finished; then the canonical distances of all of them are
computed together, once per pair, and only then are the results of the row added to the counts.

*Limit on crowded bands.*  Before the pairs that were decided canonically exceed a given number the kernel stops and
returns the row: a float64 product with its far narrower bands is cheaper for the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bins import Pending, fill_steps, first_reached, make_pending, make_steps, place
from reid_dist.kernels.canonical import LANES, PairRows, row_distances
from reid_dist.kernels.settings import inner_kernel, kernel

__all__ = [
    "BLOCK",
    "FEW_THRESHOLDS",
    "PATCH",
    "Bands",
    "RankCounts",
    "Row",
    "compare_few",
    "count_tile",
    "first_at_least",
    "note_reached",
    "settle_few",
    "settle_many",
]

BLOCK = 512
PATCH = 64

# Up to here comparing with every threshold (some 0.1 ns a value each on a Zen 4 core) beats the table (some 2 ns).
FEW_THRESHOLDS = 10

# Up to so many values of a block that reach the farthest threshold, bisection beats the table.
_FEW_REACHED = 16


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
    near, tied
        Per threshold: negatives nearer than it, and negatives exactly at it.
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


class Row(NamedTuple):
    """Intermediate results of one row of a tile before they are added to the counts.

    Attributes
    ----------
    above
        For few thresholds: values above the upper edge of each, shape (FEW_THRESHOLDS,), int32.
    placed
        For many thresholds: values by the nearest threshold passed, shape (2, 2 * most + 2), int32; see `place`.
    pending
        Values inside bands.  For few thresholds, a value is noted once per threshold whose band contains it.
    known, unique, slot
        Scratch: by column, the last row in which it was pending; columns without repetition; by column, its place
        among these.
    wide, lanes
        Scratch of `row_distances`.
    """

    above: NDArray[np.int32]
    placed: NDArray[np.int32]
    pending: Pending
    known: NDArray[np.int64]
    unique: NDArray[np.int64]
    slot: NDArray[np.int64]
    wide: NDArray[np.float64]
    lanes: NDArray[np.float64]


@inner_kernel
def _add_tie(row: int, threshold: int, bands: Bands, counts: RankCounts) -> None:
    """Count a negative at exactly the distance of a threshold."""
    counts.tied[threshold] += 1
    stop = bands.positive_start[threshold + 1]
    follower = first_at_least(bands.positive_row, bands.positive_start[threshold], stop, row + 1)
    if follower < stop:
        counts.before[follower - bands.positive_start[0]] += 1


@inner_kernel
def compare_few(
    values: NDArray[np.floating],
    start: int,
    lower: NDArray[np.floating],
    upper: NDArray[np.floating],
    above: NDArray[np.int32],
    pending: Pending,
    n_pending: int,
) -> int:
    """Compare a block of values with each of a few thresholds; return the number of pending values."""
    for u in range(len(lower) - 1, -1, -1):
        low = lower[u]
        high = upper[u]
        passing = np.int32(0)
        reaching = np.int32(0)
        for k in range(len(values)):
            passing += np.int32(values[k] > high)
            reaching += np.int32(values[k] >= low)
        if reaching == 0:
            break
        above[u] += passing
        if reaching == passing:
            continue
        for patch in range(0, len(values), PATCH):
            piece = values[patch : patch + PATCH]
            inside = np.int32(0)
            for k in range(len(piece)):
                inside += np.int32((piece[k] >= low) & (piece[k] <= high))
            if inside == 0:
                continue
            for k in range(len(piece)):
                if piece[k] >= low and piece[k] <= high:
                    pending.column[n_pending] = start + patch + k
                    pending.place[n_pending] = u
                    n_pending += 1
    return n_pending


@inner_kernel
def note_reached(
    values: NDArray[np.floating], start: int, lowest: np.floating, pending: Pending, n_pending: int
) -> int:
    """Note the values of a block that reach the farthest threshold as pending; return the number of pending values."""
    for patch in range(0, len(values), PATCH):
        piece = values[patch : patch + PATCH]
        inside = np.int32(0)
        for k in range(len(piece)):
            inside += np.int32(piece[k] >= lowest)
        if inside == 0:
            continue
        for k in range(len(piece)):
            if piece[k] >= lowest:
                pending.column[n_pending] = start + patch + k
                pending.place[n_pending] = 0
                pending.value[n_pending] = piece[k]
                n_pending += 1
    return n_pending


@inner_kernel
def settle_few(
    q: int,
    n_pending: int,
    room: int,
    row: Row,
    row_of: NDArray[np.int64],
    bands: Bands,
    rows: PairRows,
    counts: RankCounts,
) -> int:
    """Add a row with few thresholds to the counts; return the number of decided pairs, -1 if more than `room`."""
    first = bands.indptr[q]
    pending, known, unique, slot = row.pending, row.known, row.unique, row.slot
    decided = 0
    for p in range(n_pending):
        column = pending.column[p]
        if known[column] != q:
            known[column] = q
            unique[decided] = column
            slot[column] = decided
            decided += 1
    if decided > room:
        return -1
    if decided:
        row_distances(rows, q, unique[:decided], pending.distance[:decided], row.wide, row.lanes)
    for p in range(n_pending):
        column = pending.column[p]
        threshold = first + pending.place[p]
        distance = pending.distance[slot[column]]
        if distance < bands.distance[threshold]:
            counts.near[threshold] += 1
        elif distance == bands.distance[threshold]:
            _add_tie(row_of[column], threshold, bands, counts)
    for u in range(bands.indptr[q + 1] - first):
        counts.near[first + u] += row.above[u]
    return decided


@inner_kernel
def settle_many(
    q: int,
    n_pending: int,
    room: int,
    row: Row,
    row_of: NDArray[np.int64],
    bands: Bands,
    rows: PairRows,
    counts: RankCounts,
) -> int:
    """Add a row with many thresholds to the counts; return the number of decided pairs, -1 if more than `room`."""
    first = bands.indptr[q]
    last = bands.indptr[q + 1]
    lower, upper = bands.lower[first:last], bands.upper[first:last]
    columns, places, values = row.pending.column, row.pending.place, row.pending.value
    placed = row.placed[0]
    thresholds = bands.distance
    decided = 0
    for p in range(n_pending):
        value = values[p]
        a = places[p]
        if a < last - first and lower[a] > value:
            a = first_reached(lower, value, a + 1, last - first)
        if a == last - first or value > upper[a]:
            placed[a] += np.int32(1)
            continue
        columns[decided] = columns[p]
        places[decided] = a
        decided += 1
    if decided > room:
        return -1
    if decided:
        row_distances(rows, q, columns[:decided], row.pending.distance[:decided], row.wide, row.lanes)
    for p in range(decided):
        distance = row.pending.distance[p]
        # The first threshold that is not nearer than the value; mostly that whose band it lies in, or the next.
        a = first + places[p]
        if thresholds[a] < distance:
            a += 1
            if a < last and thresholds[a] < distance:
                a = first_at_least(thresholds, a + 1, last, distance)
        if a < last and distance == thresholds[a]:
            _add_tie(row_of[columns[p]], a, bands, counts)
            a += 1
        placed[a - first] += np.int32(1)
    running = 0
    even, odd = row.placed[0], row.placed[1]
    near = counts.near[first:last]
    for u in range(last - first):
        running += even[u] + odd[u]
        near[u] += running
    return decided


@kernel
def count_tile(
    tile: NDArray[np.floating],
    bias: NDArray[np.floating],
    bias_of: NDArray[np.int64],
    column_start: int,
    row_of: NDArray[np.int64],
    bands: Bands,
    rows: PairRows,
    counts: RankCounts,
    limit: int,
) -> tuple[int, int]:
    """Add the rows of a tile to the counts of its queries.

    Parameters
    ----------
    tile
        Screening values, shape (rows, columns), float32 or float64, C order; larger is nearer.
    bias
        Subtracted from the rows of the tile, shape (kinds, columns); ``inf`` hides a column.
    bias_of
        Row of `bias` of each query, shape (rows,), int64.
    column_start
        Column of the gallery block at which the tile begins: `Bands.hidden_column` counts from the start of the block.
    row_of
        Gallery rows of the tile's columns, shape (columns,), int64, ascending.
    bands, rows, counts
        See the classes.
    limit
        Largest number of pairs to decide canonically.

    Returns
    -------
    Number of rows added, all of them unless the next one would have exceeded `limit`; and the number of pairs decided
    canonically.
    """
    n_columns = tile.shape[1]
    buffer = np.empty(BLOCK, tile.dtype)
    # Typed zeros: the type of a literal is its value, and every kernel that takes one would be compiled once more.
    most = int(np.int64(0))
    for i in range(tile.shape[0]):
        most = max(most, bands.indptr[i + 1] - bands.indptr[i])
    steps = make_steps(most, BLOCK, tile)
    row = Row(
        np.empty(FEW_THRESHOLDS, np.int32),
        np.empty((2, 2 * most + 2), np.int32),
        make_pending(n_columns * max(1, min(most, FEW_THRESHOLDS)), tile),
        np.full(n_columns, -1, np.int64),
        np.empty(n_columns, np.int64),
        np.empty(n_columns, np.int64),
        np.empty(rows.query.shape[1], np.float64),
        np.empty(LANES, np.float64),
    )
    decided = 0
    for q in range(tile.shape[0]):
        first = bands.indptr[q]
        last = bands.indptr[q + 1]
        if first == last:
            continue
        lower, upper = bands.lower[first:last], bands.upper[first:last]
        lowest = lower[last - first - 1]
        base = scale = lowest
        many = last - first > FEW_THRESHOLDS
        started = filled = False
        n_pending = int(np.int64(0))
        hidden_stop = bands.hidden_indptr[q + 1]
        hidden = first_at_least(bands.hidden_column, bands.hidden_indptr[q], hidden_stop, column_start)
        for start in range(0, n_columns, BLOCK):
            stop = min(start + BLOCK, n_columns)
            source = tile[q, start:stop]
            shift = bias[bias_of[q], start:stop]
            values = buffer[: stop - start]
            reached = np.int32(0)
            for k in range(len(values)):
                value = source[k] - shift[k]
                values[k] = value
                reached += np.int32(value >= lowest)
            while hidden < hidden_stop and bands.hidden_column[hidden] < column_start + stop:
                values[bands.hidden_column[hidden] - column_start - start] = -np.inf
                hidden += 1
            if reached == 0:
                continue
            if many:
                if not started:
                    row.placed[:, : last - first + 1] = 0
                if not filled and reached > _FEW_REACHED:
                    base, scale = fill_steps(lower, upper, tile[q], bias[bias_of[q]], steps)
                    filled = True
                if filled:
                    n_pending = place(values, start, lowest, base, scale, steps, row.placed, row.pending, n_pending)
                else:
                    n_pending = note_reached(values, start, lowest, row.pending, n_pending)
            else:
                if not started:
                    row.above[:] = 0
                n_pending = compare_few(values, start, lower, upper, row.above, row.pending, n_pending)
            started = True
        if not started:
            continue
        room = limit - decided
        if many:
            settled = settle_many(q, n_pending, room, row, row_of, bands, rows, counts)
        else:
            settled = settle_few(q, n_pending, room, row, row_of, bands, rows, counts)
        if settled < 0:
            return q, decided
        decided += settled
    return tile.shape[0], decided
