"""First positive after each negative of a tile row.

Counting (`reid_dist.kernels.counting`) gives the number of negatives before each positive.  Here every negative that
comes before some positive is assigned to the first one that it comes before, in the order (distance, gallery row).  It
comes before all later ones too.

Most values of a tile lie below the farthest threshold and are dropped in vector code.  The others are packed into a
list, and placed: a few values by bisection, more of them by comparing all with one threshold after the
other, in vector code, or by a table of bins (`reid_dist.kernels.bins`) where there are too many thresholds for that.
Values inside bands are decided by their canonical distances, those of a row together.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bins import Steps, bin_of, fill_steps, make_steps
from reid_dist.kernels.bisection import first_at_least, first_at_most
from reid_dist.kernels.canonical import PairRows, row_distances
from reid_dist.kernels.deciding import APART, BEFORE, BEHIND, Bands
from reid_dist.kernels.settings import inner_kernel
from reid_dist.kernels.tiles import Marks, Tile, make_marks, mark_outside, read_row, refined

# Below this, bisection is faster than the preparation of the other methods.
_FEW_VALUES = 16

# Up to here comparing with every threshold (some 0.1 ns each) beats the table.
_FEW_THRESHOLDS = 32


class Placing(NamedTuple):
    """What the values of a block pair are placed by."""

    # Thresholds of the queries, in the type of the values.
    bands: Bands
    # Features of both blocks.
    rows: PairRows
    # Gallery rows of the columns, shape (n_column,), int64, ascending.
    row_of: NDArray[np.int64]
    # Rule of ties: 0, ``BEFORE``, ``BEHIND`` or ``APART``.
    ties: int


class Scratch(NamedTuple):
    """Memory that is reused from row to row."""

    # Screening values of a row, and marks of some of them.
    values: NDArray[np.floating]
    marks: Marks
    # Edges as values are compared with them, shape (most,).
    lower: NDArray[np.floating]
    upper: NDArray[np.floating]

    # Output of `place_row`: columns of the tile, ascending, and the place of each; int32 and int64.
    column: NDArray[np.int32]
    place: NDArray[np.int64]
    # Their screening values, in the type of the tile.
    value: NDArray[np.floating]
    # Per value: the nearest threshold whose lower edge it reaches, from 0 on; -1 where it is not determined; int32.
    nearest: NDArray[np.int32]
    # Per value: thresholds whose upper edge it passes, int32.
    passed: NDArray[np.int32]
    # Positions of the values inside a band, their columns and their canonical distances; int64, int64 and float64.
    inside: NDArray[np.int64]
    inside_column: NDArray[np.int64]
    distance: NDArray[np.float64]
    # Thresholds ready for placing.
    steps: Steps


@inner_kernel
def make_scratch(tile: Tile, bands: Bands) -> Scratch:
    """Scratch for the rows of a tile."""
    like, n_columns = tile.scale, tile.products.shape[1]
    most = 0
    for i in range(len(tile.query)):
        q = tile.query[i]
        most = max(most, bands.indptr[q + 1] - bands.indptr[q])
    return Scratch(
        np.empty(n_columns, like.dtype),
        make_marks(n_columns),
        np.empty(most, like.dtype),
        np.empty(most, like.dtype),
        np.empty(n_columns, np.int32),
        np.empty(n_columns, np.int64),
        np.empty(n_columns, like.dtype),
        np.empty(n_columns, np.int32),
        np.empty(n_columns, np.int32),
        np.empty(n_columns, np.int64),
        np.empty(n_columns, np.int64),
        np.empty(n_columns, np.float64),
        make_steps(most, 1, like),
    )


@inner_kernel
def _gather(tile: Tile, bands: Bands, i: int, base: np.floating, scratch: Scratch) -> int:
    """Pack the columns of a row that are visible to the query and whose values reach `base`; return their number."""
    q = tile.query[i]
    hidden_stop = bands.hidden_indptr[q + 1]
    hidden = first_at_least(bands.hidden_column, bands.hidden_indptr[q], hidden_stop, tile.column_start)
    values, marked = scratch.values, scratch.marks.places
    # No value is so far that it counts.
    none = base + np.float32(np.nan)
    less = tile.bias[tile.bias_of[i]]
    if read_row(tile.products[i], tile.shift, tile.scale, tile.factor[i], less, base, none, values) == 0:
        return 0
    n = 0
    for p in range(mark_outside(values, base, none, scratch.marks)):
        column = marked[p]
        while hidden < hidden_stop and bands.hidden_column[hidden] < tile.column_start + column:
            hidden += 1
        if hidden < hidden_stop and bands.hidden_column[hidden] == tile.column_start + column:
            continue
        scratch.column[n] = column
        scratch.value[n] = values[column]
        n += 1
    return n


@inner_kernel
def _compare_all(lower: NDArray[np.floating], upper: NDArray[np.floating], n: int, scratch: Scratch) -> None:
    """Find the nearest threshold of every value by comparing it with all of them."""
    value = scratch.value[:n]
    nearest = scratch.nearest[:n]
    passed = scratch.passed[:n]
    nearest[:] = len(lower)
    passed[:] = 0
    for u in range(len(lower)):
        low = lower[u]
        high = upper[u]
        for k in range(len(value)):
            nearest[k] -= np.int32(value[k] >= low)
            passed[k] += np.int32(value[k] > high)
    for k in range(len(value)):
        nearest[k] = nearest[k] if nearest[k] + passed[k] == len(lower) else -1


@inner_kernel
def _look_up(
    lower: NDArray[np.floating],
    upper: NDArray[np.floating],
    n: int,
    scratch: Scratch,
) -> None:
    """Find the nearest threshold of nearly every value by the table of bins."""
    value = scratch.value[:n]
    nearest = scratch.nearest[:n]
    steps = scratch.steps
    base, scale = fill_steps(lower, upper, value, steps)
    low, high, table = steps.lower, steps.upper, steps.table
    raised = np.uint64(len(low))
    for k in range(len(value)):
        v = value[k]
        a = np.uint64(table[np.uint64(bin_of(v, base, scale))])
        a -= raised * np.uint64(a >= raised)
        a += np.uint64(low[a] > v)
        a += np.uint64(low[a] > v)
        nearest[k] = np.int32(-1) if v <= high[a] else np.int32(a)


@inner_kernel
def place_row(tile: Tile, by: Placing, i: int, n_active: int, scratch: Scratch) -> tuple[int, int]:
    """Place the negatives in row `i` of a tile that come before one of the query's `n_active` first positives.

    Writes to `scratch`: `column`, and in `place` the first positive (numbered within the query) that the item in this
    column comes before; `n_active` or more if it comes before no active positive.  `n_active` is at least 1.

    With ``by.ties == APART``, places are finer: an item nearer than threshold ``u`` (numbered within the query), and
    not nearer than the one before it, is at place ``s + 2u``, ``s`` being the first positive of the threshold; an item
    tied with the threshold is at place ``p + 2u + 1``, where ``p`` is the first of the positives at this distance with
    a higher gallery row, or the one after them.

    Returns the number of items, and the number of values inside bands.
    """
    bands, q, extra = by.bands, tile.query[i], tile.extra[i]
    first = bands.indptr[q]
    own = bands.positive_start[first]
    # Thresholds beyond that of the last active positive are not needed.
    last = first_at_least(bands.positive_start, first, bands.indptr[q + 1], own + n_active)
    n_threshold = last - first
    lower, upper = scratch.lower[:n_threshold], scratch.upper[:n_threshold]
    for u in range(n_threshold):
        lower[u], upper[u] = bands.lower[first + u] - extra, bands.upper[first + u] + extra
    n = _gather(tile, bands, i, lower[n_threshold - 1], scratch)
    nearest = scratch.nearest[:n]
    if n < _FEW_VALUES:
        nearest[:] = -1
    elif n_threshold <= _FEW_THRESHOLDS:
        _compare_all(lower, upper, n, scratch)
    else:
        _look_up(lower, upper, n, scratch)
    start = bands.positive_start[first : last + 1]
    place = scratch.place[:n]
    # Places of a threshold besides those of its positives.
    apart = 2 if by.ties == APART else 0
    inside = decided = 0
    for c in range(len(place)):
        if nearest[c] < 0:
            value = scratch.value[c]
            a = first_at_most(lower, 0, n_threshold, value)
            if a < n_threshold and value <= upper[a]:
                inside += 1
                if extra > 0:
                    column = scratch.column[c]
                    value = refined(tile.near[q], tile.far[column]) - tile.bias[tile.bias_of[i], column]
                    a = first_at_most(bands.lower[first:last], 0, n_threshold, value)
                if a < n_threshold and value <= bands.upper[first + a]:
                    scratch.inside[decided] = c
                    scratch.inside_column[decided] = tile.column_start + scratch.column[c]
                    decided += 1
            nearest[c] = a
        place[c] = start[nearest[c]] - own + apart * nearest[c]
    if decided:
        columns, distances = scratch.inside_column[:decided], scratch.distance[:decided]
        row_distances(by.rows, q, columns, distances)
    for p in range(decided):
        c = scratch.inside[p]
        distance = scratch.distance[p]
        a = first_at_least(bands.distance, first + nearest[c], last, distance)
        settled = bands.positive_start[a]
        among = apart * (a - first)
        if a < last and distance == bands.distance[a] and by.ties != BEFORE:
            settled = bands.positive_start[a + 1]
            if by.ties != BEHIND:
                row = by.row_of[tile.column_start + scratch.column[c]]
                settled = first_at_least(bands.positive_row, bands.positive_start[a], settled, row + 1)
            among += apart // 2
        place[c] = settled - own + among
    return n, inside
