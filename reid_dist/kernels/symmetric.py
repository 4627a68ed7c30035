r"""Nearest and farthest items of a set among itself: a tile of screening values read once, for its rows and columns.

The idea
--------
A distance is symmetric, so a tile of rows ``a`` against rows ``b`` serves the lists of both, and half of all tiles will
do.  A value less the bias of its column is the screening value of the row's list, less the bias of its row that of the
column's.  Both are compared with an entry level, and, for the largest distance of each item, with a lower bound: an
item with a smaller value may be farther than all items so far.

*One pass of vector code per row* compares all its values with the levels and lower bounds of row and columns, and marks
those that pass: see `reid_dist.kernels.marks`.  The others, nearly all, are not read again.

*One side alone* gets neighbours where the columns need none (queries against a gallery), by the same comparisons
without those of the columns.

*Levels* and lists are those of `reid_dist.kernels.topk`.  *Lower bounds* need no list: for a value at or below the
bound the canonical distance is computed at once, and a new largest distance lowers the bound to the values of items
that may be farther still.

*Labels* of both sides leave out pairs of equal ones: their marks are discarded.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.canonical import falling_at, pair_distance
from reid_dist.kernels.marks import make_marks, mark_values, mark_values_of_both, marked_places
from reid_dist.kernels.settings import inner_kernel, kernel
from reid_dist.kernels.topk import Candidates, make_scratch, thin_and_add


class Side(NamedTuple):
    """State of the items of one side of a tile."""

    # Candidates for the nearest items; its queries are this side, its gallery rows the other.
    lists: Candidates
    # Largest canonical distance so far, shape (n,), float64.
    farthest: NDArray[np.float64]
    # Screening value at or below which an item may be farther, shape (n,), in the type of the tiles.  It is NaN, as
    # `farthest` is, where largest distances are not searched for.
    lower_bound: NDArray[np.floating]
    # Subtracted from the values where this side is the columns, shape (n,), in the type of the tiles.
    bias: NDArray[np.floating]
    # Labels of this side and of the other, int64: pairs of equal labels are left out.  Empty to compare all pairs.
    label: NDArray[np.int64]
    other_label: NDArray[np.int64]


@inner_kernel
def leave_out(marked: NDArray[np.int64], n: int, side: Side, row: int, column_start: int) -> int:
    """Remove columns of the label of a row from `n` marked ones, if there are labels; return how many are left."""
    if not len(side.label):
        return n
    own = side.label[row]
    kept = 0
    for p in range(n):
        marked[kept] = marked[p]
        kept += int(side.other_label[column_start + marked[p]] != own)
    return kept


@inner_kernel
def reach_farther(side: Side, item: int, other: int) -> None:
    """Compare a pair with the item's largest distance, and lower the bound when it is larger."""
    lists = side.lists
    distance = pair_distance(lists.rows, item, other)
    if distance > side.farthest[item]:
        side.farthest[item] = distance
        falling = falling_at(lists.rows, item, distance, -1.0)
        edge = lists.centre[item] - lists.slope * falling + lists.epsilon[item]
        # Raised by the largest error of rounding to the type of the tiles.
        side.lower_bound[item] = edge + abs(edge) * 2.0**-22 + 2.0**-125


@kernel
def collect_both(
    tile: NDArray[np.floating], row_start: int, column_start: int, row_side: Side, column_side: Side, both: bool
) -> None:
    """Add one tile to the lists of its rows and of its columns, which are the same `Side` for a block against itself.

    `tile` holds products of prepared rows, no bias subtracted, shape (rows, columns), C order; `row_start` and
    `column_start` are the positions of its first row and column in their blocks.

    Without `both`, only rows get neighbours, and pairs of an item with itself are omitted: a tile on the diagonal holds
    each pair twice.
    """
    n_columns = tile.shape[1]
    marks, marked = make_marks(n_columns)
    row_lists, column_lists = row_side.lists, column_side.lists
    longest = max(row_lists.value.shape[1], column_lists.value.shape[1])
    scratch = make_scratch(longest)
    bias = column_side.bias[column_start : column_start + n_columns]
    column_level = column_side.lists.level[column_start : column_start + n_columns]
    column_lower_bound = column_side.lower_bound[column_start : column_start + n_columns]
    # Unpacked once, outside of the loops.
    row_value, row_column, row_size, row_level = row_lists.value, row_lists.column, row_lists.size, row_lists.level
    column_value, column_column, column_size = column_lists.value, column_lists.column, column_lists.size
    capacity = row_value.shape[1]
    for i in range(tile.shape[0]):
        row = row_start + i
        lower_bound = row_side.lower_bound[row]
        level = row_level[row]
        values = tile[i]
        own = row_side.bias[row]
        if both:
            mark_values_of_both(values, bias, level, lower_bound, own, column_level, column_lower_bound, marks)
        else:
            mark_values(values, bias, level, lower_bound, marks)
        for p in range(leave_out(marked, marked_places(marks, marked), row_side, row, column_start)):
            c = marked[p]
            column = column_start + c
            if not both and row == column:
                continue
            mine = values[c] - bias[c]
            if mine >= row_level[row]:
                if row_size[row] < capacity:
                    row_value[row, row_size[row]] = mine
                    row_column[row, row_size[row]] = column
                    row_size[row] += 1
                else:
                    thin_and_add(row, column, mine, row_lists, scratch)
            if mine <= lower_bound:
                reach_farther(row_side, row, column)
                lower_bound = row_side.lower_bound[row]
            if not both:
                continue
            theirs = values[c] - own
            if theirs >= column_level[c]:
                if column_size[column] < capacity:
                    column_value[column, column_size[column]] = theirs
                    column_column[column, column_size[column]] = row
                    column_size[column] += 1
                else:
                    thin_and_add(column, row, theirs, column_lists, scratch)
            if theirs <= column_lower_bound[c]:
                reach_farther(column_side, column, row)


@kernel
def collect_one(
    tile: NDArray[np.floating], bias: NDArray[np.floating], row_start: int, column_start: int, side: Side
) -> None:
    """Add one tile to the lists of its rows only, with all columns; `bias` belongs to the columns of the tile."""
    n_columns = tile.shape[1]
    marks, marked = make_marks(n_columns)
    lists = side.lists
    scratch = make_scratch(lists.value.shape[1])
    list_value, list_column, list_size, list_level = lists.value, lists.column, lists.size, lists.level
    capacity = list_value.shape[1]
    for i in range(tile.shape[0]):
        row = row_start + i
        lower_bound = side.lower_bound[row]
        level = list_level[row]
        values = tile[i]
        mark_values(values, bias, level, lower_bound, marks)
        for p in range(leave_out(marked, marked_places(marks, marked), side, row, column_start)):
            c = marked[p]
            value = values[c] - bias[c]
            if value >= list_level[row]:
                if list_size[row] < capacity:
                    list_value[row, list_size[row]] = value
                    list_column[row, list_size[row]] = column_start + c
                    list_size[row] += 1
                else:
                    thin_and_add(row, column_start + c, value, lists, scratch)
            if value <= side.lower_bound[row]:
                reach_farther(side, row, column_start + c)
