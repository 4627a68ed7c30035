r"""Counting the negatives that lie nearer than each positive, over one tile of screening values.

The idea
--------
A rank is a count: one more than the number of kept items before the positive.  Counts add over tiles, so no list of
distances is ever kept or sorted.  What remains is to compare every value of a tile with every threshold of its query
(the distance of each relevant item), at the speed at which a matrix product writes them.

*Similarity, not distance.*  A tile holds screening values that grow as the distance falls: near is large.  Threshold
``u`` of a query has two edges, ``lower[u] <= upper[u]``: a value above ``upper`` is nearer than the threshold beyond
doubt, one below ``lower`` is farther beyond doubt, and between them the canonical distance of the pair decides.
Thresholds of a query are sorted from near to far, so that both edges fall from one to the next.

*One query row, 512 values at a time.*  The values are copied to a buffer that stays in the first-level cache, less a
bias per column (half a squared norm for Euclidean distances; infinity for a column that the query may not see: queries
that hide the same columns, such as those of their camera, share a row of biases).  The copy
counts, on the way, the values that reach the last, farthest threshold.  For a well-trained model there are hardly
any, and the block is done.  Otherwise relevant and junk columns are struck out and the thresholds are tried from far
to near until one has no value above its lower edge: all nearer ones have none either.

*Few thresholds: both edges in one loop, in int32.*  Comparisons are summed, never branched on, and the loops run over
slices: this is what LLVM makes vector code of.  Only when the two counts of a threshold differ does its band hold
something, and only then are the values looked at one by one, 64 at a time.

*More thresholds: a table of bins.*  The interval between the farthest lower edge and the nearest upper edge is cut
into equal bins; a bin that no band touches says at once how many thresholds a value in it has passed, whatever their
number, and only values in the other bins are placed by bisection.  Values and edges are binned by the same
non-decreasing function of floating-point numbers, so that order between bins is order between values: no rounding in
that function can put a value on the wrong side of an edge.

*Once per pair.*  The bands of two thresholds may overlap.  A stamp per column remembers, for the query row at hand,
the canonical distance that was computed for it.

*A crowded band gives up.*  When more than a given number of pairs had to be decided canonically the kernel returns
-1: a float64 product with its far narrower band is cheaper than going on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.canonical import LANES, PairRows, pair_distance
from reid_dist.kernels.settings import kernel

__all__ = [
    "BINS",
    "BLOCK",
    "FEW_THRESHOLDS",
    "PATCH",
    "TOUCHED",
    "Bands",
    "RankCounts",
    "bin_of",
    "count_tile",
    "first_at_least",
    "make_table",
]

BLOCK = 512
PATCH = 64

# Up to here comparing with every threshold (some 0.1 ns a value each on a Zen 4 core) beats the table (some 0.6 ns).
FEW_THRESHOLDS = 6
BINS = 2048
TOUCHED = 0


class Bands(NamedTuple):
    """The thresholds of the queries of a tile, and what to leave out.

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
        Columns, ascending, that a query does not count: its relevant items and its junk; int64.
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
    """What is counted; int32 or int64, and added to.

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


@kernel
def first_at_least(values: NDArray[np.int64], start: int, stop: int, wanted: int) -> int:
    """Find the first place from `start` to `stop` whose value is at least `wanted`; values ascend, `stop` for none."""
    while start < stop:
        middle = (start + stop) // 2
        if values[middle] < wanted:
            start = middle + 1
        else:
            stop = middle
    return start


@kernel
def _compare(distance: float, row: int, threshold: int, bands: Bands, counts: RankCounts) -> None:
    """Settle one negative against one threshold by its canonical distance."""
    if distance < bands.distance[threshold]:
        counts.near[threshold] += 1
    elif distance == bands.distance[threshold]:
        counts.tied[threshold] += 1
        stop = bands.positive_start[threshold + 1]
        follower = first_at_least(bands.positive_row, bands.positive_start[threshold], stop, row + 1)
        if follower < stop:
            counts.before[follower - bands.positive_start[0]] += 1


@kernel
def _remember(
    q: int,
    column: int,
    rows: PairRows,
    known: NDArray[np.int64],
    distances: NDArray[np.float64],
    lanes: NDArray[np.float64],
) -> int:
    """Compute the canonical distance of a pair unless this query's is known; return how many were computed."""
    if known[column] == q:
        return 0
    known[column] = q
    distances[column] = pair_distance(rows, q, column, lanes)
    return 1


@kernel
def _count_few(
    values: NDArray[np.floating],
    q: int,
    first: int,
    last: int,
    start: int,
    row_of: NDArray[np.int64],
    bands: Bands,
    rows: PairRows,
    counts: RankCounts,
    known: NDArray[np.int64],
    distances: NDArray[np.float64],
    lanes: NDArray[np.float64],
) -> int:
    """Compare a block of values with each of a few thresholds; return how many pairs were decided canonically."""
    decided = 0
    for u in range(last - 1, first - 1, -1):
        low = bands.lower[u]
        high = bands.upper[u]
        above = np.int32(0)
        reaching = np.int32(0)
        for k in range(len(values)):
            above += np.int32(values[k] > high)
            reaching += np.int32(values[k] >= low)
        if reaching == 0:
            break
        counts.near[u] += above
        if reaching == above:
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
                    column = start + patch + k
                    decided += _remember(q, column, rows, known, distances, lanes)
                    _compare(distances[column], row_of[column], u, bands, counts)
    return decided


@kernel
def bin_of(value: np.floating, base: np.floating, scale: np.floating) -> np.uint32:
    """Bin of a value: 0 below `base`, 1 to BINS + 1 from there on.  Never falls when the value rises.

    Clipped before it is converted: the integer value of a float that does not fit is undefined.
    """
    zero = base - base
    place = (value - base) * scale + (zero + np.float32(1))
    place = place if place > zero else zero
    top = zero + np.float32(BINS + 1)
    place = place if place < top else top
    return np.uint32(place)


@kernel
def make_table(
    bands: Bands, first: int, last: int, base: np.floating, scale: np.floating, table: NDArray[np.uint32]
) -> None:
    """Write for every bin one more than the first threshold (from `first`) that a value in it passes, or TOUCHED."""
    table[0] = last - first + 1
    filled = 1
    for u in range(last - 1, first - 1, -1):
        enters = int(bin_of(bands.lower[u], base, scale))
        leaves = int(bin_of(bands.upper[u], base, scale))
        if filled < enters:
            table[filled:enters] = u + 1 - first + 1
            filled = enters
        if filled <= leaves:
            table[filled : leaves + 1] = TOUCHED
            filled = leaves + 1
    table[filled:] = 1


@kernel
def _count_many(
    values: NDArray[np.floating],
    q: int,
    first: int,
    last: int,
    start: int,
    row_of: NDArray[np.int64],
    base: np.floating,
    scale: np.floating,
    table: NDArray[np.uint32],
    places: NDArray[np.uint32],
    pending: NDArray[np.int64],
    passed_at: NDArray[np.int32],
    bands: Bands,
    rows: PairRows,
    counts: RankCounts,
    known: NDArray[np.int64],
    distances: NDArray[np.float64],
    lanes: NDArray[np.float64],
) -> int:
    """Place a block of values among many thresholds; return how many pairs were decided canonically.

    Four values at a time, each with counters of its own: neighbours mostly fall into the same bin, and an addition
    to a counter that was just written waits for that write.  Unsigned indices spare the test for negative ones.
    """
    here = places[: len(values)]
    for k in range(len(values)):
        here[k] = bin_of(values[k], base, scale)
    fours = len(values) // 4
    counters0, counters1, counters2, counters3 = passed_at[0], passed_at[1], passed_at[2], passed_at[3]
    n_pending = np.uint64(0)
    for four in range(fours):
        at = np.uint64(four) * np.uint64(4)
        place0 = np.uint64(table[np.uint64(here[at])])
        place1 = np.uint64(table[np.uint64(here[at + np.uint64(1)])])
        place2 = np.uint64(table[np.uint64(here[at + np.uint64(2)])])
        place3 = np.uint64(table[np.uint64(here[at + np.uint64(3)])])
        counters0[place0] += np.int32(1)
        counters1[place1] += np.int32(1)
        counters2[place2] += np.int32(1)
        counters3[place3] += np.int32(1)
        if place0 == TOUCHED or place1 == TOUCHED or place2 == TOUCHED or place3 == TOUCHED:
            pending[n_pending] = four * 4
            n_pending += np.uint64(1)
    decided = 0
    for p in range(np.int64(n_pending) + 1):
        # The last turn takes what is left over when the block is no multiple of four.
        left_over = p == np.int64(n_pending)
        begin = fours * 4 if left_over else pending[p]
        for k in range(begin, len(values) if left_over else begin + 4):
            if not left_over and table[here[k]] != TOUCHED:
                continue
            value = values[k]
            column = start + k
            a = first
            b = last
            while a < b:
                middle = (a + b) // 2
                if bands.lower[middle] > value:
                    a = middle + 1
                else:
                    b = middle
            # From `a` on the value reaches the lower edges; until it passes an upper one it lies inside the bands.
            while a < last and value <= bands.upper[a]:
                decided += _remember(q, column, rows, known, distances, lanes)
                _compare(distances[column], row_of[column], a, bands, counts)
                a += 1
            counters0[a - first + 1] += np.int32(1)
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
) -> int:
    """Add one tile to the counts of its queries.

    Parameters
    ----------
    tile
        Screening values, shape (rows, columns), float32 or float64, C order; larger is nearer.
    bias
        Subtracted from the rows of the tile, shape (kinds, columns); ``inf`` hides a column.
    bias_of
        Which row of `bias` each query takes, shape (rows,), int64.
    column_start
        Which column of the gallery block is the tile's first: `Bands.hidden_column` counts from the block's first.
    row_of
        Gallery rows of the tile's columns, shape (columns,), int64, ascending.
    bands, rows, counts
        See the classes.
    limit
        The most pairs to decide canonically.

    Returns
    -------
    The number of pairs that were decided canonically, or -1 when it passed `limit`; the counts are useless then.
    """
    n_columns = tile.shape[1]
    buffer = np.empty(BLOCK, tile.dtype)
    places = np.empty(BLOCK, np.uint32)
    pending = np.empty(BLOCK // 4 + 1, np.int64)
    table = np.empty(BINS + 2, np.uint32)
    lanes = np.empty(LANES, np.float64)
    known = np.full(n_columns, -1, np.int64)
    distances = np.empty(n_columns, np.float64)
    most = 0
    for i in range(tile.shape[0]):
        most = max(most, bands.indptr[i + 1] - bands.indptr[i])
    # Element TOUCHED takes the values of touched bins, element u + 1 those that passed threshold u first.
    passed_at = np.zeros((4, most + 2), np.int32)
    decided = 0
    for q in range(tile.shape[0]):
        first = bands.indptr[q]
        last = bands.indptr[q + 1]
        if first == last:
            continue
        base = bands.lower[last - 1]
        span = bands.upper[first] - base
        scale = np.float32(BINS) / span
        if not scale < 1e30:
            # A span so narrow that the scale would overflow: one bin, every value is placed by bisection.
            scale = base - base
        many = last - first > FEW_THRESHOLDS
        tabled = False
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
                reached += np.int32(value >= base)
            while hidden < hidden_stop and bands.hidden_column[hidden] < column_start + stop:
                values[bands.hidden_column[hidden] - column_start - start] = -np.inf
                hidden += 1
            if reached == 0:
                continue
            if many:
                if not tabled:
                    make_table(bands, first, last, base, scale, table)
                    tabled = True
                decided += _count_many(
                    values,
                    q,
                    first,
                    last,
                    start,
                    row_of,
                    base,
                    scale,
                    table,
                    places,
                    pending,
                    passed_at,
                    bands,
                    rows,
                    counts,
                    known,
                    distances,
                    lanes,
                )
            else:
                decided += _count_few(
                    values, q, first, last, start, row_of, bands, rows, counts, known, distances, lanes
                )
            if decided > limit:
                return -1
        if tabled:
            running = 0
            for u in range(last - first):
                running += passed_at[0, u + 1] + passed_at[1, u + 1] + passed_at[2, u + 1] + passed_at[3, u + 1]
                counts.near[first + u] += running
            passed_at[:, : last - first + 2] = 0
    return decided
