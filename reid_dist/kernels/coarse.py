"""Nearest and farthest items from products of eight-bit integers: see `reid_dist.engine.distances.quantised`.

A product of integers, times the scales of its rows, differs from the product ``p`` of the prepared rows by at most ``e
= spread * span + length * residual``, of factors of the row and of the column (`Factors`).  Where the float32 values of
`reid_dist.kernels.symmetric` are compared with a level, here the upper end ``p + e`` is, and the lower end ``p - e``
with a lower bound.

More ends pass than values would.  Lists therefore hold two kinds of entries: *fine* ones, whose values were corrected
by products with residuals and have some hundred times narrower bounds, and after these the others.  A full list is made
fine, and entries that are certainly farther than k items are removed: if the k-th largest lower end is ``v``, then k
items are truly at least as near as ``v - epsilon``, and an entry with an upper end below ``v - 2 epsilon`` is strictly
farther than all of them.  If that leaves too many, canonical distances decide.  The ``epsilon`` of the lists is that of
the float32 screen, which bounds the error of an exact product of prepared rows as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.canonical import falling_at, row_distances
from reid_dist.kernels.marks import make_marks, marked_places
from reid_dist.kernels.prefetch import LINE, prefetch
from reid_dist.kernels.selection import select
from reid_dist.kernels.settings import inner_kernel, kernel
from reid_dist.kernels.symmetric import Side, leave_out, reach_farther
from reid_dist.kernels.topk import GROUPS_PER_NEIGHBOUR, Candidates, Scratch, lowered, make_scratch, settle_one
from reid_dist.kernels.vectors import crossed_dots

# Entries that are made fine in the time of a canonical distance.
_PER_DISTANCE = 6


# Columns of the factors for products with residuals; with one more, those of a row lie in one cache line.
SCALE, FINE_SCALE, SPREAD, LENGTH, SPAN, RESIDUAL, OMITTED = range(7)

# Entries between a request of a row and its use.
AHEAD = 3


class Factors(NamedTuple):
    """Rows in eight bits, and factors of values and errors; shapes (n,), float32, if not stated otherwise."""

    # Integers of rows and of their residuals, shape (n, 2, dim), int8, and the scale of the former.
    integers: NDArray[np.int8]
    scale: NDArray[np.float32]
    # Factors of errors for products of integers: of the row, and of the column.
    spread: NDArray[np.float32]
    length: NDArray[np.float32]
    span: NDArray[np.float32]
    residual: NDArray[np.float32]
    # Factors for products with residuals, which are read for single pairs and therefore lie together, shape (n, 8):
    # see `fine_factors`.
    fine: NDArray[np.float32]
    # Share of the offset of the row in the products of a column, int32.
    shift: NDArray[np.int32]


def fine_factors(
    scale: NDArray[np.float32],
    fine_scale: NDArray[np.float32],
    spread: NDArray[np.float32],
    length: NDArray[np.float32],
    span: NDArray[np.float32],
    residual: NDArray[np.float32],
    omitted: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Factors for products with residuals, shape (n, 8): both scales, and factors of errors.

    Errors are ``spread * span + length * residual + omitted * omitted``, of the row and of the column.
    """
    nothing = np.zeros_like(scale)
    return np.stack((scale, fine_scale, spread, length, span, residual, omitted, nothing), axis=1)


class CoarseSide(NamedTuple):
    """State of the items of one side of a tile of integers."""

    # As for tiles of float32; the values of entries are upper ends.
    side: Side
    # Lower ends of fine entries, and values of the others, shape (n, capacity), float32.  Entries are in the order of
    # the tiles: their columns need not ascend.
    lower: NDArray[np.float32]
    # Number of fine entries of each list, shape (n,), int64.
    n_fine: NDArray[np.int64]
    # Of this side, and of the other one, from an item on.
    own: Factors
    other: Factors
    first_other: int = 0


@inner_kernel
def request(j: int, other: Factors) -> None:
    """Request what `fine_ends` reads of a column."""
    row = other.integers[j]
    for place in range(0, row.size, LINE):
        prefetch(row, place)
    prefetch(other.fine[j], 0)


@inner_kernel
def fine_ends(q: int, j: int, value: np.float32, own: Factors, other: Factors) -> tuple[float, float]:
    """Lower and upper end of the product of row `q` and column `j`, by residuals, from that by integers."""
    one, two = crossed_dots(own.integers[q], other.integers[j])
    near, far = own.fine[q], other.fine[j]
    middle = np.float64(value)
    middle += np.float64(near[SCALE]) * np.float64(far[FINE_SCALE]) * np.float64(one)
    middle += np.float64(near[FINE_SCALE]) * np.float64(far[SCALE]) * np.float64(two)
    error = np.float64(near[SPREAD]) * far[SPAN] + np.float64(near[LENGTH]) * far[RESIDUAL]
    error += np.float64(near[OMITTED]) * far[OMITTED]
    low, high = middle - error, middle + error
    # Outward by more than a rounding to float32.
    return low - (abs(low) * 2.0**-22 + 2.0**-125), high + (abs(high) * 2.0**-22 + 2.0**-125)


@inner_kernel
def _refine(q: int, coarse: CoarseSide, scratch: Scratch) -> int:
    """Make all entries of a list fine, and remove those below the level; return the number that were not."""
    lists, own, other = coarse.side.lists, coarse.own, coarse.other
    upper, lower, column = lists.value[q], coarse.lower[q], lists.column[q]
    first, size = coarse.n_fine[q], lists.size[q]
    level = float(lists.level[q])
    n = first
    for p in range(first, size):
        if p + AHEAD < size:
            request(column[p + AHEAD] - coarse.first_other, other)
        low, high = fine_ends(q, column[p] - coarse.first_other, lower[p], own, other)
        lower[n], upper[n], column[n] = low, high, column[p]
        # Written always, kept if it counts: no branch.
        n += int(high >= level)
    # Where bounds from other items are narrow, few entries are left.
    if n >= lists.k:
        values = scratch.selected[:n]
        for p in range(n):
            values[p] = lower[p]
        level = max(level, lowered(select(values, n - lists.k) - 2.0 * lists.epsilon[q]))
        kept = 0
        for p in range(n):
            if upper[p] >= level:
                upper[kept], lower[kept], column[kept] = upper[p], lower[p], column[p]
                kept += 1
        n = kept
    lists.size[q] = coarse.n_fine[q] = n
    lists.level[q] = level
    return int(size - first)


@inner_kernel
def _sort(columns: NDArray[np.int32]) -> None:
    """Sort columns by insertion: they consist of few runs."""
    for p in range(1, len(columns)):
        column = columns[p]
        place = p
        while place > 0 and columns[place - 1] > column:
            columns[place] = columns[place - 1]
            place -= 1
        columns[place] = column


@inner_kernel
def _make_room(q: int, coarse: CoarseSide, scratch: Scratch) -> int:
    """Make room in a full list; return the number of entries made fine, or as many as took the same time."""
    n = _refine(q, coarse, scratch)
    lists = coarse.side.lists
    if lists.size[q] > lists.value.shape[1] - 32:
        n += _PER_DISTANCE * lists.size[q]
        # Of entries at the largest distance, the first ones stay.
        _sort(lists.column[q, : lists.size[q]])
        largest = settle_one(q, lists, scratch)
        level = lowered(lists.centre[q] - lists.slope * falling_at(lists.rows, q, largest, 1.0) - lists.epsilon[q])
        lists.level[q] = max(np.float64(lists.level[q]), level)
        for p in range(lists.size[q]):
            # The distances are known; these entries stay until nearer ones are found.
            coarse.lower[q, p] = lists.level[q]
            lists.value[q, p] = np.inf
        coarse.n_fine[q] = lists.size[q]
    return n


@inner_kernel
def _add(q: int, column: int, value: np.float32, coarse: CoarseSide, scratch: Scratch) -> int:
    """Add an entry to the list of an item; returns as `_make_room`."""
    lists = coarse.side.lists
    n = 0
    if lists.size[q] == lists.value.shape[1]:
        n = _make_room(q, coarse, scratch)
    size = lists.size[q]
    coarse.lower[q, size], lists.column[q, size] = value, column
    lists.size[q] = size + 1
    return n


@inner_kernel
def _begin(
    q: int, first: int, lower: NDArray[np.float32], upper: NDArray[np.float32], coarse: CoarseSide, scratch: Scratch
) -> None:
    """Set the thresholds of an item from the ends of its first columns, from column `first` on; `lower` is changed.

    As in `reid_dist.engine.reductions.surroundings`, the largest lower ends of groups of columns bound the nearest
    items, and the least upper end the farthest one.
    """
    side, lists = coarse.side, coarse.side.lists
    lowest, highest = np.finfo(np.float32).min, np.finfo(np.float32).max
    if len(side.label):
        own, others = side.label[q], side.other_label[first : first + len(lower)]
        for c in range(len(lower)):
            if others[c] == own:
                lower[c], upper[c] = lowest, highest
    band = 2.0 * lists.epsilon[q]
    # One more than k, as an item may be compared with itself.
    wanted = lists.k + 1
    n_groups = GROUPS_PER_NEIGHBOUR * wanted
    size = len(lower) // n_groups
    if size > 1:
        largest = lower[:n_groups]
        for start in range(n_groups, size * n_groups, n_groups):
            group = lower[start : start + n_groups]
            for c in range(len(group)):
                largest[c] = max(largest[c], group[c])
        lists.level[q] = max(lowered(np.float64(select(largest, n_groups - wanted)) - band), lists.level[q])
    if side.lower_bound[q] == highest:
        least = highest
        for c in range(len(upper)):
            least = min(least, upper[c])
        side.lower_bound[q] = min(-lowered(-np.float64(least) - band), np.float64(highest))


@kernel
def collect_coarse(
    tile: NDArray[np.int32], row_start: int, column_start: int, rows: CoarseSide, columns: CoarseSide
) -> int:
    """Add one tile of integer products to the lists of its rows and of its columns, which are different items.

    The arguments are as in `reid_dist.kernels.symmetric.collect_both`.  Returns the number of entries made fine, or as
    many as took the same time.
    """
    n_columns = tile.shape[1]
    stop = column_start + n_columns
    marks, marked = make_marks(n_columns)
    passes = marks[:n_columns]
    capacity = columns.side.lists.value.shape[1]
    scratch = make_scratch(max(rows.side.lists.value.shape[1], capacity))
    near, far = rows.own, columns.own
    scale, span, residual = far.scale[column_start:stop], far.span[column_start:stop], far.residual[column_start:stop]
    shift, bias = far.shift[column_start:stop], columns.side.bias[column_start:stop]
    column_level = columns.side.lists.level[column_start:stop]
    column_lower_bound = columns.side.lower_bound[column_start:stop]
    row_level = rows.side.lists.level
    unbiased = not bias.any()
    n_fine = 0
    for i in range(tile.shape[0]):
        row = row_start + i
        level, lower_bound, own = row_level[row], rows.side.lower_bound[row], rows.side.bias[row]
        factor, spread, length = near.scale[row], near.spread[row], near.length[row]
        products = tile[i]
        if unbiased and own == 0.0:
            # The same comparisons, of which two are left.
            for c in range(len(products)):
                value = np.float32(np.int32(products[c] - shift[c])) * (scale[c] * factor)
                error = spread * span[c] + length * residual[c]
                passes[c] = np.uint8(value + error >= min(level, column_level[c])) | np.uint8(
                    value - error <= max(lower_bound, column_lower_bound[c])
                )
        else:
            for c in range(len(products)):
                value = np.float32(np.int32(products[c] - shift[c])) * (scale[c] * factor)
                error = spread * span[c] + length * residual[c]
                upper = value + error
                lower = value - error
                passes[c] = (
                    np.uint8(upper - bias[c] >= level)
                    | np.uint8(lower - bias[c] <= lower_bound)
                    | np.uint8(upper - own >= column_level[c])
                    | np.uint8(lower - own <= column_lower_bound[c])
                )
        leave_out(passes, rows.side, row, column_start)
        n_marked = marked_places(marks, marked)
        for p in range(n_marked):
            if p + AHEAD < n_marked:
                # Lists of columns are far apart.
                column = column_start + marked[p + AHEAD]
                place = column * capacity + columns.side.lists.size[column]
                prefetch(columns.lower, place)
                prefetch(columns.side.lists.column, place)
            c = marked[p]
            column = column_start + c
            value = np.float32(np.int32(products[c] - shift[c])) * (scale[c] * factor)
            error = spread * span[c] + length * residual[c]
            upper = value + error
            lower = value - error
            if upper - bias[c] >= row_level[row]:
                n_fine += _add(row, column, value - bias[c], rows, scratch)
            if upper - own >= column_level[c]:
                n_fine += _add(column, row, value - own, columns, scratch)
            if lower - bias[c] <= rows.side.lower_bound[row]:
                reach_farther(rows.side, row, column)
                n_fine += _PER_DISTANCE
            if lower - own <= column_lower_bound[c]:
                reach_farther(columns.side, column, row)
                n_fine += _PER_DISTANCE
    return n_fine


@kernel
def collect_coarse_rows(
    tile: NDArray[np.int32],
    biases: NDArray[np.float32],
    bias_of: NDArray[np.int64],
    query: NDArray[np.int64],
    column_start: int,
    rows: CoarseSide,
) -> int:
    """Add one tile of integer products to the lists of its rows only.

    `biases`, shape (kinds, columns), belong to the columns of the tile; an infinite one hides a column.  `bias_of` and
    `query` hold the kind and the item of each row, shape (rows,).  Returns as `collect_coarse` does.
    """
    n_columns = tile.shape[1]
    marks, marked = make_marks(n_columns)
    passes = marks[:n_columns]
    side, near, far = rows.side, rows.own, rows.other
    scratch = make_scratch(side.lists.value.shape[1])
    lower_ends, upper_ends = np.empty(n_columns, np.float32), np.empty(n_columns, np.float32)
    start = column_start - rows.first_other
    stop = start + n_columns
    scale, span, residual, shift = (
        far.scale[start:stop],
        far.span[start:stop],
        far.residual[start:stop],
        far.shift[start:stop],
    )
    row_level = side.lists.level
    lowest, highest = np.finfo(np.float32).min, np.finfo(np.float32).max
    n_fine = 0
    for i in range(tile.shape[0]):
        row, bias = query[i], biases[bias_of[i]]
        factor, spread, length = near.scale[row], near.spread[row], near.length[row]
        products = tile[i]
        if row_level[row] == lowest or side.lower_bound[row] == highest:
            for c in range(len(products)):
                value = np.float32(np.int32(products[c] - shift[c])) * (scale[c] * factor)
                error = spread * span[c] + length * residual[c]
                lower_ends[c], upper_ends[c] = value - error - bias[c], value + error - bias[c]
            _begin(row, column_start, lower_ends, upper_ends, rows, scratch)
        level, lower_bound = row_level[row], side.lower_bound[row]
        for c in range(len(products)):
            value = np.float32(np.int32(products[c] - shift[c])) * (scale[c] * factor)
            error = spread * span[c] + length * residual[c]
            upper = value + error
            lower = value - error
            passes[c] = np.uint8(upper - bias[c] >= level) | np.uint8(lower - bias[c] <= lower_bound)
        leave_out(passes, side, row, column_start)
        for p in range(marked_places(marks, marked)):
            c = marked[p]
            column = column_start + c
            value = np.float32(np.int32(products[c] - shift[c])) * (scale[c] * factor)
            error = spread * span[c] + length * residual[c]
            upper = value + error
            lower = value - error
            if upper - bias[c] >= row_level[row]:
                n_fine += _add(row, column, value - bias[c], rows, scratch)
            if lower - bias[c] <= side.lower_bound[row]:
                reach_farther(side, row, column)
                n_fine += _PER_DISTANCE
    return n_fine


@kernel
def settle_coarse(lists: Candidates, index: NDArray[np.int64], distance: NDArray[np.float64]) -> None:
    """Write the k nearest columns of refined lists by (canonical distance, column), shapes (n, k).

    Entries beyond the end of a list are not written.
    """
    scratch = make_scratch(lists.value.shape[1])
    for q in range(len(lists.size)):
        n = lists.size[q]
        columns, found = scratch.column[:n], scratch.distance[:n]
        for p in range(n):
            columns[p] = lists.column[q, p]
        row_distances(lists.rows, q, columns, found)
        # Entries are few.
        for p in range(1, n):
            column, value = columns[p], found[p]
            place = p
            while place > 0 and (
                found[place - 1] > value or (found[place - 1] == value and columns[place - 1] > column)
            ):
                columns[place], found[place] = columns[place - 1], found[place - 1]
                place -= 1
            columns[place], found[place] = column, value
        for p in range(min(n, lists.k)):
            index[q, p], distance[q, p] = columns[p], found[p]


@kernel
def refine_lists(coarse: CoarseSide) -> int:
    """Remove entries of all lists that are certainly not among the k nearest; return the number made fine."""
    lists = coarse.side.lists
    scratch = make_scratch(lists.value.shape[1])
    n_fine = 0
    for q in range(len(lists.size)):
        if lists.size[q] > coarse.n_fine[q]:
            n_fine += _refine(q, coarse, scratch)
    return n_fine
