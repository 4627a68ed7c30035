"""Which positive each negative comes before: the columns of a tile row that matter, one by one.

Counting (`reid_dist.kernels.counting`) says how many negatives come before each positive.  Here it is asked *which*:
for every negative that comes before some positive, the first one that it comes before in the order (distance, gallery
row).  It comes before all later ones too.

Most values of a tile lie below the farthest threshold and are dropped 512 at a time.  What is left is packed into a
list without branches, and placed: a few values by bisection, more of them by comparing all with one threshold after the
other, in vector code, or by the counting kernel's table of bins where there are too many thresholds for that.  A value
inside a band is decided by its canonical distance, once per pair.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.canonical import LANES, PairRows, pair_distance
from reid_dist.kernels.counting import (
    BINS,
    BLOCK,
    PATCH,
    TOUCHED,
    Bands,
    bin_of,
    first_at_least,
    make_table,
)
from reid_dist.kernels.settings import kernel

__all__ = ["BEFORE", "BEHIND", "Scratch", "ScreenedTile", "make_scratch", "place_row"]

# What equal distances mean for an item that is no positive; see `ScreenedTile`.
BEFORE = 1
BEHIND = 2

# Below this bisection is faster than what has to be set up for the rest.
_FEW_VALUES = 16

# Up to here comparing with every threshold (some 0.1 ns each) beats the table.
_FEW_THRESHOLDS = 32


class ScreenedTile(NamedTuple):
    """A tile with all that is needed to compare its values with the thresholds of its queries.

    Attributes
    ----------
    values
        Screening values, shape (rows, columns), float32 or float64, C order; larger is nearer.
    bias
        Subtracted from the rows, shape (kinds, columns); ``inf`` hides a column.
    bias_of
        Which row of `bias` each query takes, shape (rows,), int64.
    column_start
        Which column of the gallery block is the first.
    row_of
        Gallery rows of the columns, shape (columns,), int64, ascending.
    bands
        Thresholds of the queries of the tile.
    rows
        Features of the queries and of the columns of the tile.
    ties
        0 where equal distances are in the order of gallery rows, ``BEFORE`` where an item at the distance of positives
        comes before all of them, ``BEHIND`` where it comes after.
    """

    values: NDArray[np.floating]
    bias: NDArray[np.floating]
    bias_of: NDArray[np.int64]
    column_start: int
    row_of: NDArray[np.int64]
    bands: Bands
    rows: PairRows
    ties: int


class Scratch(NamedTuple):
    """Memory that is reused from row to row.

    Attributes
    ----------
    column, place
        The answer of `place_row`: columns of the tile, ascending, and where each belongs; int32 and int64.
    value
        Their screening values, in the type of the tile.
    reached, passed
        Per value: thresholds whose lower edge it reaches, and whose upper edge it passes; int32.
    buffer, table, lanes
        A block of values, bins, and lanes of a sum.
    """

    column: NDArray[np.int32]
    place: NDArray[np.int64]
    value: NDArray[np.floating]
    reached: NDArray[np.int32]
    passed: NDArray[np.int32]
    buffer: NDArray[np.floating]
    table: NDArray[np.uint32]
    lanes: NDArray[np.float64]


@kernel
def make_scratch(values: NDArray[np.floating]) -> Scratch:
    """Scratch for the rows of a tile."""
    n_columns = values.shape[1]
    return Scratch(
        np.empty(n_columns, np.int32),
        np.empty(n_columns, np.int64),
        np.empty(n_columns, values.dtype),
        np.empty(n_columns, np.int32),
        np.empty(n_columns, np.int32),
        np.empty(BLOCK, values.dtype),
        np.empty(BINS + 2, np.uint32),
        np.empty(LANES, np.float64),
    )


@kernel
def _gather(tile: ScreenedTile, q: int, base: np.floating, scratch: Scratch) -> int:
    """Pack the columns of a row whose values reach `base`, and that the query may see; return how many."""
    bands = tile.bands
    n_columns = tile.values.shape[1]
    hidden_stop = bands.hidden_indptr[q + 1]
    hidden = first_at_least(bands.hidden_column, bands.hidden_indptr[q], hidden_stop, tile.column_start)
    n = 0
    for start in range(0, n_columns, BLOCK):
        stop = min(start + BLOCK, n_columns)
        source = tile.values[q, start:stop]
        shift = tile.bias[tile.bias_of[q], start:stop]
        values = scratch.buffer[: stop - start]
        reached = np.int32(0)
        for k in range(len(values)):
            value = source[k] - shift[k]
            values[k] = value
            reached += np.int32(value >= base)
        while hidden < hidden_stop and bands.hidden_column[hidden] < tile.column_start + stop:
            values[bands.hidden_column[hidden] - tile.column_start - start] = -np.inf
            hidden += 1
        if reached == 0:
            continue
        for patch in range(0, len(values), PATCH):
            piece = values[patch : patch + PATCH]
            inside = np.int32(0)
            for k in range(len(piece)):
                inside += np.int32(piece[k] >= base)
            if inside == 0:
                continue
            for k in range(len(piece)):
                # Written always, kept when it counts: no branch to foresee.
                scratch.column[n] = start + patch + k
                scratch.value[n] = piece[k]
                n += int(piece[k] >= base)
    return n


@kernel
def _place_one(
    value: np.floating, q: int, column: int, first: int, last: int, tile: ScreenedTile, scratch: Scratch
) -> tuple[int, int]:
    """Place one value by bisection; also say how many pairs were decided canonically."""
    bands = tile.bands
    a = first
    b = last
    while a < b:
        middle = (a + b) // 2
        if bands.lower[middle] > value:
            a = middle + 1
        else:
            b = middle
    # From `a` on the value reaches the lower edges; it passes threshold `a` unless it lies inside its band.
    if a == last or value > bands.upper[a]:
        return bands.positive_start[a], 0
    distance = pair_distance(tile.rows, q, column, scratch.lanes)
    while a < last and distance > bands.distance[a]:
        a += 1
    if a < last and distance == bands.distance[a]:
        if tile.ties == BEFORE:
            return bands.positive_start[a], 1
        stop = bands.positive_start[a + 1]
        if tile.ties == BEHIND:
            return stop, 1
        return first_at_least(bands.positive_row, bands.positive_start[a], stop, tile.row_of[column] + 1), 1
    return bands.positive_start[a], 1


@kernel
def _compare_all(n: int, first: int, last: int, bands: Bands, scratch: Scratch) -> None:
    """Say of each value how many thresholds it has passed: ``reached`` and ``passed`` differ inside a band alone."""
    value = scratch.value[:n]
    reached = scratch.reached[:n]
    passed = scratch.passed[:n]
    reached[:] = 0
    passed[:] = 0
    for u in range(first, last):
        low = bands.lower[u]
        high = bands.upper[u]
        for k in range(len(value)):
            reached[k] += np.int32(value[k] >= low)
            passed[k] += np.int32(value[k] > high)


@kernel
def _look_up(n: int, first: int, last: int, bands: Bands, scratch: Scratch) -> None:
    """Do the same by the table of bins: a value in a bin that a band touches counts as inside a band."""
    base = bands.lower[last - 1]
    span = bands.upper[first] - base
    scale = np.float32(BINS) / span
    if not scale < 1e30:
        # A span so narrow that the scale would overflow: one bin, and that is touched.
        scale = base - base
    make_table(bands, first, last, base, scale, scratch.table)
    for k in range(n):
        # One more than the first threshold that is passed, from `first`.
        entry = np.int32(scratch.table[bin_of(scratch.value[k], base, scale)])
        scratch.reached[k] = np.int32(last - first + 1) - entry
        scratch.passed[k] = np.int32(-1) if entry == TOUCHED else scratch.reached[k]


@kernel
def place_row(tile: ScreenedTile, q: int, live: int, scratch: Scratch) -> tuple[int, int]:
    """Place the negatives of one row of a tile that come before one of the query's first positives.

    Parameters
    ----------
    tile
        The tile.
    q
        Row of it.
    live
        How many of the query's positives count, near to far; at least 1.
    scratch
        Holds the answer: `column`, and in `place` the first positive (numbered within the query) that the item in this
        column comes before.  A place may be `live` or more, for an item that comes before none of the first ones.

    Returns
    -------
    How many there are, and how many pairs were decided canonically.
    """
    bands = tile.bands
    first = bands.indptr[q]
    own = bands.positive_start[first]
    # The threshold of the last live positive is the last one that matters.
    last = first_at_least(bands.positive_start, first, bands.indptr[q + 1], own + live)
    base = bands.lower[last - 1]
    n = _gather(tile, q, base, scratch)
    decided = 0
    if n < _FEW_VALUES:
        scratch.reached[:n] = 0
        scratch.passed[:n] = -1
    elif last - first <= _FEW_THRESHOLDS:
        _compare_all(n, first, last, bands, scratch)
    else:
        _look_up(n, first, last, bands, scratch)
    start = bands.positive_start[first : last + 1]
    place = scratch.place[:n]
    reached = scratch.reached[:n]
    passed = scratch.passed[:n]
    unclear = np.int32(0)
    for c in range(len(place)):
        place[c] = start[len(start) - 1 - reached[c]] - own
        unclear += np.int32(reached[c] != passed[c])
    for c in range(len(place) if unclear else 0):
        if reached[c] != passed[c]:
            settled, pairs = _place_one(scratch.value[c], q, scratch.column[c], first, last, tile, scratch)
            place[c] = settled - own
            decided += pairs
    return n, decided
