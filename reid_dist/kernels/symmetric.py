r"""Nearest and farthest items, collected tile by tile, for the rows of a tile or for its rows and columns.

The idea
--------
A distance is symmetric, so a tile of rows ``a`` against rows ``b`` of one set serves the lists of both, and half of all
tiles will do.  A value less the bias of its column is the screening value of the row's list, less the bias of its row
that of the column's.  Both are compared with an entry level, and, for the largest distance of each item, with a lower
bound: an item with a smaller value may be farther than all items so far.

*One pass of vector code per row* compares all its values with the levels and lower bounds of row and columns.  Only
the parts of a row that hold one that passes are looked through.

*Levels* and lists are those of `reid_dist.kernels.topk`.  *Lower bounds* need no list: for a value at or below the
bound the canonical distance is computed at once, and a new largest distance lowers the bound to the values of items
that may be farther still.

*Labels* of both sides leave out pairs of equal ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.canonical import on_screen_scale, pair_distance
from reid_dist.kernels.compiled import inner_kernel, kernel
from reid_dist.kernels.placing import hide_columns
from reid_dist.kernels.prefetch import prefetch, request_integers
from reid_dist.kernels.tiles import AHEAD, Tile, make_marks, mark_outside, marked_places, read_row, refined
from reid_dist.kernels.topk import (
    GROUPS_PER_NEIGHBOUR,
    Candidates,
    first_level,
    lag_of,
    lowered,
    make_scratch,
    shorten,
    thin,
)


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
    # Columns that single items leave out as well, ascending: ``struck[indptr[i]:indptr[i + 1]]``; int64.
    struck_indptr: NDArray[np.int64]
    struck: NDArray[np.int64]


@inner_kernel
def _reach_farther(side: Side, item: int, other: int) -> None:
    """Compare a pair with the item's largest distance, and lower the bound when it is larger."""
    lists = side.lists
    distance = pair_distance(lists.rows, item, other)
    if distance > side.farthest[item]:
        side.farthest[item] = distance
        falling = on_screen_scale(lists.rows, item, distance, -1.0)
        edge = lists.centre[item] - lists.slope * falling + lists.epsilon[item]
        # Raised by the largest error of rounding to the type of the tiles.
        side.lower_bound[item] = edge + abs(edge) * 2.0**-22 + 2.0**-125


@inner_kernel
def _widen(side: Side, item: int, fine: np.floating) -> None:
    """Take values with a larger error than those before: bands and thresholds of an item move by the difference."""
    lists = side.lists
    more = np.float64(fine) - lists.fine[item]
    if not more > 0.0:
        return
    lists.fine[item] = fine
    lists.epsilon[item] += more
    level, least = np.float64(lists.level[item]), np.float64(side.lower_bound[item])
    if lists.level[item] > np.finfo(lists.level.dtype).min:
        lists.level[item] = lowered(level - more)
    if side.lower_bound[item] < np.finfo(lists.level.dtype).max:
        side.lower_bound[item] = -lowered(-least - more)


@inner_kernel
def _is_long(size: int, k: int, lag: int, capacity: int) -> bool:
    """Whether a list has become so long that it is thinned."""
    return size >= k + lag and (size & (lag - 1) == 0 or size == capacity)


@inner_kernel
def _begin(
    q: int, extra: np.floating, values: NDArray[np.floating], side: Side, groups: NDArray[np.floating]
) -> np.floating:
    """Set the thresholds of an item that has none from the values of its first columns, whose errors are `extra`.

    Returns a number that more than `k` values reach, as an item may be compared with itself, and few others; infinity
    for few values.
    """
    lists = side.lists
    lowest, highest = np.finfo(values.dtype).min, np.finfo(values.dtype).max
    band = 2.0 * lists.epsilon[q] + np.float64(extra)
    level = first_level(values, lists.k + 1, groups)
    if level > lowest:
        lists.level[q] = max(lowered(np.float64(level) - band), np.float64(lowest))
    if side.lower_bound[q] == highest:
        least = highest
        for c in range(len(values)):
            # What is left out is minus infinity.
            least = min(least, values[c] if values[c] >= lowest else highest)
        side.lower_bound[q] = min(-lowered(-np.float64(least) - band), np.float64(highest))
    return level if level > lowest else values.dtype.type(np.inf)


@kernel
def collect_rows(tile: Tile, side: Side) -> int:
    """Add a tile to the lists of its rows; return the number of refined values."""
    n_columns = tile.products.shape[1]
    lists = side.lists
    values, marks = np.empty(n_columns, tile.scale.dtype), make_marks(n_columns)
    places = marks.places
    groups = np.empty(GROUPS_PER_NEIGHBOUR * (lists.k + 1), tile.scale.dtype)
    scratch = make_scratch(lists.value.shape[1])
    lag, start = lag_of(lists.k), tile.column_start
    # Unpacked once, outside of the loops: passing a tuple to a kernel takes longer than adding an entry.
    list_level, lower_bounds, list_value, list_column = lists.level, side.lower_bound, lists.value, lists.column
    list_size, k, capacity = lists.size, lists.k, lists.value.shape[1]
    label, other_label, near, far = side.label, side.other_label, tile.near, tile.far
    products, shift, scale, bias, spared, fine = (
        tile.products,
        tile.shift,
        tile.scale,
        tile.bias,
        tile.spared,
        tile.fine,
    )
    has_labels = len(label) > 0
    lowest, highest = np.finfo(values.dtype).min, np.finfo(values.dtype).max
    infinite, unknown, nothing = values.dtype.type(np.inf), values.dtype.type(np.nan), values.dtype.type(0)
    # Of products of floating-point numbers, whose errors the bands of lists contain.
    are_floats = products.dtype == values.dtype
    n_refined = 0
    for i in range(len(tile.query)):
        q, factor, product = tile.query[i], tile.factor[i], products[i]
        if fine[i] > 0:
            _widen(side, q, fine[i])
        extra = nothing if are_floats else tile.extra[i]
        level, least = list_level[q] - extra, lower_bounds[q] + extra
        begins = list_level[q] == lowest or lower_bounds[q] == highest
        less = bias[tile.bias_of[i]]
        reached = read_row(product, shift, scale, factor, less, level, least, values)
        if reached == 0 and not begins:
            continue
        hide_columns(q, side.struck_indptr, side.struck, start, values)
        first = infinite
        if begins:
            if has_labels:
                for c in range(n_columns):
                    if label[q] == other_label[start + c]:
                        values[c] = -np.inf
            first = _begin(q, extra, values, side, groups)
        # Where a list begins, its largest values raise the level for all others.
        for turn in range(int(first == infinite), 2):
            level, least = first, unknown
            if turn == 1:
                level, least = list_level[q] - extra, lower_bounds[q] + extra
            mark_outside(values, level, least, marks)
            n_places = marked_places(marks)
            for p in range(n_places):
                c = places[p]
                value = values[c]
                # Thresholds change meanwhile.
                error = extra - spared[c]
                is_near = turn == 0 or (value + error >= list_level[q] and value < first)
                if not (is_near or value - error <= lower_bounds[q]):
                    continue
                if value == -np.inf or (has_labels and label[q] == other_label[start + c]):
                    continue
                if not are_floats:
                    n_refined += 1
                    if p + AHEAD < n_places:
                        request_integers(far, places[p + AHEAD])
                    value = refined(product[c] - shift[c], near, q, far, c, scale[c] * factor) - less[c]
                if is_near and value >= list_level[q]:
                    size = list_size[q]
                    list_value[q, size], list_column[q, size] = value, start + c
                    list_size[q] = size + 1
                    if _is_long(size + 1, k, lag, capacity):
                        shorten(q, lists, scratch)
                if value <= lower_bounds[q]:
                    _reach_farther(side, q, start + c)
            if turn == 0 and list_size[q] >= k:
                thin(q, lists, scratch)
    return n_refined


@kernel
def collect_both(tile: Tile, row_side: Side, column_side: Side) -> int:
    """Add one tile to the lists of its rows and of its columns, which are different items.

    Both are the same `Side` for tiles of a block against itself.  Returns the number of refined values.
    """
    n_columns = tile.products.shape[1]
    start, stop = tile.column_start, tile.column_start + n_columns
    values, marks = np.empty(n_columns, tile.scale.dtype), make_marks(n_columns)
    flags, places = marks.flags, marks.places
    row_lists, column_lists = row_side.lists, column_side.lists
    scratch = make_scratch(max(row_lists.value.shape[1], column_lists.value.shape[1]))
    lag, bias = lag_of(row_lists.k), column_side.bias[start:stop]
    # Unpacked once, outside of the loops.
    row_level, row_least = row_lists.level, row_side.lower_bound
    column_level, column_least = column_lists.level[start:stop], column_side.lower_bound[start:stop]
    row_value, row_column, row_size, row_bias = row_lists.value, row_lists.column, row_lists.size, row_side.bias
    column_value, column_column, column_size = column_lists.value, column_lists.column, column_lists.size
    row_k, column_k, row_capacity, column_capacity = (
        row_lists.k,
        column_lists.k,
        row_value.shape[1],
        column_value.shape[1],
    )
    products, shift, scale, spared = tile.products, tile.shift, tile.scale, tile.spared
    near, far = tile.near, tile.far
    label, other_label = row_side.label, row_side.other_label
    has_labels = len(label) > 0
    number, floating = products.dtype.type, values.dtype.type
    are_floats = products.dtype == values.dtype
    n_refined = 0
    fine = tile.fine.max()
    if fine > 0:
        for column in range(start, stop):
            _widen(column_side, column, fine)
    for i in range(len(tile.query)):
        row, factor = tile.query[i], tile.factor[i]
        extra = floating(0) if are_floats else tile.extra[i]
        if fine > 0:
            _widen(row_side, row, fine)
        level, least, own = row_level[row], row_least[row], row_bias[row]
        source = products[i]
        for c in range(n_columns):
            values[c] = floating(number(source[c] - shift[c])) * (scale[c] * factor)
        for c in range(n_columns):
            mine, theirs = values[c] - bias[c], values[c] - own
            error = extra - spared[c]
            reaches = (mine + error >= level) | (theirs + error >= column_level[c])
            flags[c] = np.uint8(reaches | (mine - error <= least) | (theirs - error <= column_least[c]))
        n_places = marked_places(marks)
        for p in range(n_places):
            c = places[p]
            column = start + c
            if has_labels and label[row] == other_label[column]:
                continue
            value = values[c]
            if not are_floats:
                n_refined += 1
                if p + AHEAD < n_places:
                    request_integers(far, places[p + AHEAD])
                    # Lists of columns are far apart.
                    ahead = start + places[p + AHEAD]
                    prefetch(column_value, ahead * column_capacity + column_size[ahead])
                    prefetch(column_column, ahead * column_capacity + column_size[ahead])
                value = refined(source[c] - shift[c], near, row, far, c, scale[c] * factor)
            mine, theirs = value - bias[c], value - own
            if mine >= row_level[row]:
                size = row_size[row]
                row_value[row, size], row_column[row, size] = mine, column
                row_size[row] = size + 1
                if _is_long(size + 1, row_k, lag, row_capacity):
                    shorten(row, row_lists, scratch)
            if theirs >= column_level[c]:
                size = column_size[column]
                column_value[column, size], column_column[column, size] = theirs, row
                column_size[column] = size + 1
                if _is_long(size + 1, column_k, lag, column_capacity):
                    shorten(column, column_lists, scratch)
            if mine <= row_least[row]:
                _reach_farther(row_side, row, column)
            if theirs <= column_least[c]:
                _reach_farther(column_side, column, row)
    return n_refined


@kernel
def enter_rows(
    item: NDArray[np.int32],
    other: NDArray[np.int32],
    values: NDArray[np.floating],
    less: NDArray[np.floating],
    side: Side,
) -> None:
    """Add pairs that a device lists to the lists of one side; arrays (n,), those of an item together.

    Screening values are `values` less the elements of `less`, by place of the other item; it has none for values that
    are screening values themselves.
    """
    lists = side.lists
    scratch, lag = make_scratch(lists.value.shape[1]), lag_of(lists.k)
    # Unpacked once, outside of the loop.
    list_level, lower_bounds, list_value, list_column = lists.level, side.lower_bound, lists.value, lists.column
    list_size, k, capacity = lists.size, lists.k, lists.value.shape[1]
    label, other_label = side.label, side.other_label
    has_labels, has_bias = len(label) > 0, len(less) > 0
    for p in range(len(item)):
        q, c = int(item[p]), int(other[p])
        value = values[p] - less[c] if has_bias else values[p]
        if not (value >= list_level[q] or value <= lower_bounds[q]) or value == -np.inf:
            continue
        if has_labels and label[q] == other_label[c]:
            continue
        if value >= list_level[q]:
            size = list_size[q]
            list_value[q, size], list_column[q, size] = value, c
            list_size[q] = size + 1
            if _is_long(size + 1, k, lag, capacity):
                shorten(q, lists, scratch)
        if value <= lower_bounds[q]:
            _reach_farther(side, q, c)
