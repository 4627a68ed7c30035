"""Nearest and farthest items from products of eight-bit integers: see `reid_dist.kernels.coarse`.

Where the float32 values of `reid_dist.kernels.symmetric` are compared with a level, here the upper end ``p + e`` is,
and the lower end ``p - e`` with a lower bound.  More ends pass than values would.  Those are compared again as fine
values, and only these enter the lists, which are lists of float32 values with wider bands: the ``epsilon`` of an item
is that of the float32 screen, which bounds the error of an exact product of prepared rows as well, plus the largest
error of its fine values.

An entry costs more than one of float32, and the number of those that pass depends on the level.  Lists are therefore
thinned when they have a few entries more than k, to raise it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.arrays import filled
from reid_dist.kernels.canonical import row_distances
from reid_dist.kernels.coarse import AHEAD, Factors, UpperEnds, columns_reaching, fine_value, request
from reid_dist.kernels.marks import make_marks, mark_products, mark_products_of_both, mark_values, marked_places
from reid_dist.kernels.prefetch import prefetch
from reid_dist.kernels.selection import select
from reid_dist.kernels.settings import inner_kernel, kernel
from reid_dist.kernels.symmetric import Side, leave_out, reach_farther
from reid_dist.kernels.topk import (
    GROUPS_PER_NEIGHBOUR,
    Candidates,
    Scratch,
    is_crowded,
    lowered,
    make_scratch,
    settle_one,
    thin,
)

# Entries between two thinnings of a list: at least so many, a power of two, and this part of k.
_LEAST_LAG, _LAGS_PER_LIST = 16, 8


class CoarseSide(NamedTuple):
    """State of the items of one side of a tile of integers."""

    # As for tiles of float32; the values of entries are fine.  Entries are in the order of the tiles: their columns
    # need not ascend.
    side: Side
    # Of this side, and of the other one, from an item on.
    own: Factors
    other: Factors
    first_other: int = 0


@inner_kernel
def _sort(q: int, lists: Candidates) -> None:
    """Sort a list by column, by insertion: it consists of few runs."""
    columns, values = lists.column[q], lists.value[q]
    for p in range(1, lists.size[q]):
        column, value = columns[p], values[p]
        place = p
        while place > 0 and columns[place - 1] > column:
            columns[place], values[place] = columns[place - 1], values[place - 1]
            place -= 1
        columns[place], values[place] = column, value


@inner_kernel
def _lag(k: int) -> int:
    """Number of entries between two thinnings of a list, a power of two."""
    lag = _LEAST_LAG
    while lag * _LAGS_PER_LIST <= k:
        lag *= 2
    return lag


@inner_kernel
def _is_long(size: int, k: int, lag: int, capacity: int) -> bool:
    """Whether a list has become so long that it is thinned."""
    return size >= k + lag and (size & (lag - 1) == 0 or size == capacity)


@inner_kernel
def _shorten(q: int, lists: Candidates, scratch: Scratch) -> None:
    """Thin a long list; this also makes room in a full one."""
    thin(q, lists, scratch)
    if is_crowded(q, lists):
        # Of entries at the largest distance, the first ones stay.
        _sort(q, lists)
        settle_one(q, lists, scratch)


@inner_kernel
def _begin(
    q: int, first: int, lower: NDArray[np.float32], upper: NDArray[np.float32], coarse: CoarseSide, scratch: Scratch
) -> np.float32:
    """Set the thresholds of an item from the ends of its first columns, from column `first` on; they are changed.

    As in `reid_dist.engine.reductions.surroundings`, the largest lower ends of groups of columns bound the nearest
    items, and the least upper end the farthest one.  Returns a number that the lower ends of at least k other columns
    reach, of few of all; infinity for few columns.
    """
    side, lists = coarse.side, coarse.side.lists
    lowest, highest = np.finfo(np.float32).min, np.finfo(np.float32).max
    if len(side.label):
        own, others = side.label[q], side.other_label[first : first + len(lower)]
        for c in range(len(lower)):
            if others[c] == own:
                lower[c], upper[c] = lowest, highest
    band = 2.0 * lists.epsilon[q]
    if side.lower_bound[q] == highest:
        least = highest
        for c in range(len(upper)):
            least = min(least, upper[c])
        side.lower_bound[q] = min(-lowered(-np.float64(least) - band), np.float64(highest))
    # One more than k, as an item may be compared with itself.
    wanted = lists.k + 1
    n_groups = GROUPS_PER_NEIGHBOUR * wanted
    size = len(lower) // n_groups
    if size <= 1:
        return np.float32(np.inf)
    largest = upper[:n_groups]
    for c in range(n_groups):
        largest[c] = lower[c]
    for start in range(n_groups, size * n_groups, n_groups):
        group = lower[start : start + n_groups]
        for c in range(len(group)):
            largest[c] = max(largest[c], group[c])
    reached = np.float32(select(largest, n_groups - wanted))
    lists.level[q] = max(lowered(np.float64(reached) - band), np.float64(lists.level[q]))
    return reached


@kernel
def collect_coarse(
    tile: NDArray[np.int32], row_start: int, column_start: int, rows: CoarseSide, columns: CoarseSide
) -> int:
    """Add one tile of integer products to the lists of its rows and of its columns, which are different items.

    The arguments are as in `reid_dist.kernels.symmetric.collect_both`.  Returns the number of fine values.
    """
    marks, marked = make_marks(tile.shape[1])
    scratch = make_scratch(max(rows.side.lists.value.shape[1], columns.side.lists.value.shape[1]))
    return _collect_both(tile, row_start, column_start, rows, columns, marks, marked, scratch)


@inner_kernel
def _collect_both(
    tile: NDArray[np.int32],
    row_start: int,
    column_start: int,
    rows: CoarseSide,
    columns: CoarseSide,
    marks: NDArray[np.uint64],
    marked: NDArray[np.int64],
    scratch: Scratch,
) -> int:
    """Do as `collect_coarse` does, in given memory."""
    n_columns = tile.shape[1]
    stop = column_start + n_columns
    capacity = columns.side.lists.value.shape[1]
    lag = _lag(rows.side.lists.k)
    near, far = rows.own, columns.own
    scale, span, residual = far.scale[column_start:stop], far.span[column_start:stop], far.residual[column_start:stop]
    shift, bias = far.shift[column_start:stop], columns.side.bias[column_start:stop]
    column_level = columns.side.lists.level[column_start:stop]
    column_lower_bound = columns.side.lower_bound[column_start:stop]
    # Unpacked once, outside of the loops.
    row_level, row_value, row_column, row_size = (
        rows.side.lists.level,
        rows.side.lists.value,
        rows.side.lists.column,
        rows.side.lists.size,
    )
    column_value, column_column, column_size = (
        columns.side.lists.value,
        columns.side.lists.column,
        columns.side.lists.size,
    )
    row_k, row_capacity, column_k = rows.side.lists.k, row_value.shape[1], columns.side.lists.k
    n_fine = 0
    for i in range(tile.shape[0]):
        row = row_start + i
        level, lower_bound, own = row_level[row], rows.side.lower_bound[row], rows.side.bias[row]
        factor, spread, length = near.scale[row], near.spread[row], near.length[row]
        products = tile[i]
        mark_products_of_both(
            products,
            shift,
            scale,
            span,
            residual,
            factor,
            spread,
            length,
            bias,
            level,
            lower_bound,
            own,
            column_level,
            column_lower_bound,
            marks,
        )
        n_marked = leave_out(marked, marked_places(marks, marked), rows.side, row, column_start)
        for p in range(n_marked):
            if p + AHEAD < n_marked:
                column = column_start + marked[p + AHEAD]
                request(column, far)
                # Lists of columns are far apart.
                place = column * capacity + column_size[column]
                prefetch(column_value, place)
                prefetch(column_column, place)
            c = marked[p]
            column = column_start + c
            value = np.float32(np.int32(products[c] - shift[c])) * (scale[c] * factor)
            value = np.float32(fine_value(row, column, value, near, far))
            mine = value - bias[c]
            theirs = value - own
            if mine >= row_level[row]:
                size = row_size[row]
                row_value[row, size], row_column[row, size] = mine, column
                row_size[row] = size + 1
                if _is_long(size + 1, row_k, lag, row_capacity):
                    _shorten(row, rows.side.lists, scratch)
            if theirs >= column_level[c]:
                size = column_size[column]
                column_value[column, size], column_column[column, size] = theirs, row
                column_size[column] = size + 1
                if _is_long(size + 1, column_k, lag, capacity):
                    _shorten(column, columns.side.lists, scratch)
            if mine <= rows.side.lower_bound[row]:
                reach_farther(rows.side, row, column)
            if theirs <= column_lower_bound[c]:
                reach_farther(columns.side, column, row)
        n_fine += n_marked
    return n_fine


@kernel
def collect_coarse_rows(
    tile: NDArray[np.int32],
    biases: NDArray[np.float32],
    bias_of: NDArray[np.int64],
    query: NDArray[np.int64],
    column_start: int,
    rows: CoarseSide,
    ends: UpperEnds,
) -> int:
    """Add one tile of integer products to the lists of its rows only.

    `biases`, shape (kinds, columns), belong to the columns of the tile; an infinite one hides a column.  `bias_of` and
    `query` hold the kind and the item of each row, shape (rows,).  `ends` are those of the tile with these biases, as
    far as they are known.  Returns as `collect_coarse` does.
    """
    n_columns = tile.shape[1]
    marks, marked = make_marks(n_columns)
    lower_ends, upper_ends = np.empty(n_columns, np.float32), np.empty(n_columns, np.float32)
    memory = lower_ends, upper_ends, filled(np.empty(n_columns, np.float32), 0)
    scratch = make_scratch(rows.side.lists.value.shape[1])
    return _collect_rows(tile, biases, bias_of, query, column_start, rows, ends, marks, marked, memory, scratch)


@inner_kernel
def _collect_rows(
    tile: NDArray[np.int32],
    biases: NDArray[np.float32],
    bias_of: NDArray[np.int64],
    query: NDArray[np.int64],
    column_start: int,
    rows: CoarseSide,
    ends: UpperEnds,
    marks: NDArray[np.uint64],
    marked: NDArray[np.int64],
    memory: tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]],
    scratch: Scratch,
) -> int:
    """Do as `collect_coarse_rows` does, in given memory: `memory` holds lower and upper ends, and zeros."""
    n_columns = tile.shape[1]
    side, near, far = rows.side, rows.own, rows.other
    lag = _lag(side.lists.k)
    lower_ends, upper_ends, no_bias = memory
    start = column_start - rows.first_other
    stop = start + n_columns
    scale, span, residual, shift = (
        far.scale[start:stop],
        far.span[start:stop],
        far.residual[start:stop],
        far.shift[start:stop],
    )
    # Unpacked once, outside of the loops.
    lists = side.lists
    row_level, row_value, row_column, row_size = lists.level, lists.value, lists.column, lists.size
    k, capacity = lists.k, row_value.shape[1]
    threshold, largest, row_lower_bound = ends.threshold, ends.largest, side.lower_bound
    lowest, highest = np.finfo(np.float32).min, np.finfo(np.float32).max
    n_fine = 0
    for i in range(tile.shape[0]):
        row = query[i]
        if threshold[i] <= row_level[row] and largest[i] < row_level[row] and np.isnan(row_lower_bound[row]):
            # No column enters the list, as in most rows.
            continue
        bias = biases[bias_of[i]]
        factor, spread, length = near.scale[row], near.spread[row], near.length[row]
        products = tile[i]
        begins = row_level[row] == lowest or side.lower_bound[row] == highest
        reached = np.float32(np.inf)
        if begins:
            for c in range(len(products)):
                value = np.float32(np.int32(products[c] - shift[c])) * (scale[c] * factor)
                error = spread * span[c] + length * residual[c]
                lower_ends[c], upper_ends[c] = value - error - bias[c], value + error - bias[c]
            reached = _begin(row, column_start, lower_ends, upper_ends, rows, scratch)
        # Fine values of the columns that are nearest by their lower ends raise the level for the others.
        for turn in range(int(reached == np.inf), 2):
            level, lower_bound = row_level[row], side.lower_bound[row]
            n_marked = -1
            if turn == 0:
                level, lower_bound = reached, np.float32(np.nan)
                mark_values(lower_ends, no_bias, level, lower_bound, marks)
            elif np.isnan(lower_bound):
                n_marked = columns_reaching(i, level, ends, marked)
            if n_marked < 0:
                if turn == 1:
                    mark_products(
                        products, shift, scale, span, residual, factor, spread, length, bias, level, lower_bound, marks
                    )
                n_marked = marked_places(marks, marked)
            for p in range(leave_out(marked, n_marked, side, row, column_start)):
                c = marked[p]
                value = np.float32(np.int32(products[c] - shift[c])) * (scale[c] * factor)
                error = spread * span[c] + length * residual[c]
                upper, lower = value + error - bias[c], value - error - bias[c]
                # Thresholds change meanwhile.
                if turn == 1 and (lower >= reached or not (upper >= row_level[row] or lower <= side.lower_bound[row])):
                    continue
                n_fine += 1
                fine = np.float32(fine_value(row, start + c, value, near, far)) - bias[c]
                if fine >= row_level[row]:
                    size = row_size[row]
                    row_value[row, size], row_column[row, size] = fine, column_start + c
                    row_size[row] = size + 1
                    if _is_long(size + 1, k, lag, capacity):
                        _shorten(row, lists, scratch)
                if fine <= side.lower_bound[row]:
                    reach_farther(side, row, column_start + c)
            if turn == 0 and row_size[row] >= k:
                thin(row, lists, scratch)
    return n_fine


@kernel
def settle_coarse(lists: Candidates, index: NDArray[np.int64], distance: NDArray[np.float64]) -> None:
    """Write the k nearest columns of lists by (canonical distance, column), shapes (n, k).

    Entries beyond the end of a list are not written.
    """
    scratch = make_scratch(lists.value.shape[1])
    for q in range(len(lists.size)):
        if lists.size[q] > lists.k:
            thin(q, lists, scratch)
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
