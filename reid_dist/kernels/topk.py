r"""The k nearest gallery rows of each query, collected tile by tile from screening values.

The idea
--------
Per query there is a short list of candidates, each with its screening value ``v`` (larger is nearer) and gallery row,
and an entry level below which nothing can belong to the k nearest.  A value differs from the true similarity by at most
``epsilon``; so once k candidates have values of at least ``v_k``, k items are truly at least as near as
``v_k - epsilon``, and an item whose value lies below ``v_k - 2 epsilon`` is strictly farther than all of them.

A list with some entries more than k is thinned to those that pass that level.  If that does not help, because hundreds
of values lie within the band (duplicates, collapsed features), the list is *settled*: canonical distances decide, the k
best by (distance, gallery row) stay, and the level becomes the lower edge of the k-th distance.  At the end every list
is settled, so that the result is canonical and does not depend on tiles.

*First values.*  If the largest values of n groups of columns are above some level, at least n values are above it; with
many groups, few of them have two such values.  So the first row of values sets a level before any of them is listed.
The values above it are listed before all others: for values of integers, the level that they leave is much higher.

*Values of integers* that reach the level when it is lowered by their error are refined (`reid_dist.kernels.tiles`), and
listed as those of float32 are: ``epsilon`` contains the largest error of a refined value so far.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.kernels.arrays import sort
from reid_dist.kernels.canonical import PairRows, on_screen_scale, write_distances
from reid_dist.kernels.compiled import inner_kernel, kernel
from reid_dist.kernels.selection import select

# Groups of first values whose largest ones bound the nearest items, per item of a list.
GROUPS_PER_NEIGHBOUR = 3

# Entries between two thinnings of a list: at least so many, a power of two, and this part of k.
_LEAST_LAG, _LAGS_PER_LIST = 16, 4


class Candidates(NamedTuple):
    """Lists of a block of queries, and the values that decide what enters them."""

    # Screening values, shape (n_query, capacity), in the type of the tiles.
    value: NDArray[np.floating]
    # Columns of the gallery block, shape (n_query, capacity), int32, in the order of the tiles.
    column: NDArray[np.int32]
    # Used entries of each list, shape (n_query,), int64.
    size: NDArray[np.int64]
    # Entry levels, shape (n_query,), in the type of the tiles.
    level: NDArray[np.floating]
    # Number of nearest rows to find.
    k: int
    # The block of queries and the gallery block.
    rows: PairRows
    # Half widths of the bands, and what refined values have added to them, shape (n_query,), float64.
    epsilon: NDArray[np.float64]
    fine: NDArray[np.float64]
    # A canonical distance ``d`` corresponds to the screening value
    # ``centre[q] - slope * on_screen_scale(rows, q, d, 0)``.
    centre: NDArray[np.float64]
    slope: float


def make_candidates(
    k: int,
    rows: PairRows,
    epsilon: NDArray[np.float64],
    centre: NDArray[np.float64],
    slope: float,
    dtype: DTypeLike = np.float32,
) -> Candidates:
    """Empty lists for the `k` nearest of each query; see `Candidates`."""
    n_query, capacity = len(epsilon), k + max(64, k // 2)
    value, column = np.empty((n_query, capacity), dtype), np.empty((n_query, capacity), np.int32)
    # Not -inf: that is the value of a hidden column.
    level = np.full(n_query, np.finfo(dtype).min, dtype)
    size, fine = np.zeros(n_query, np.int64), np.zeros(n_query)
    return Candidates(value, column, size, level, k, rows, epsilon.copy(), fine, centre, slope)


class Scratch(NamedTuple):
    """Memory of `shorten`, for lists of ``capacity`` entries."""

    # Values to select from, distances and columns of a list, shape (capacity,); float64 and int64.
    selected: NDArray[np.float64]
    distance: NDArray[np.float64]
    column: NDArray[np.int64]


@inner_kernel
def make_scratch(capacity: int) -> Scratch:
    """Allocate `Scratch`."""
    return Scratch(np.empty(capacity, np.float64), np.empty(capacity, np.float64), np.empty(capacity, np.int64))


@inner_kernel
def lowered(edge: float) -> float:
    """Lower an edge by two float32 roundings of its size, so that it is never too high in the type of the tiles."""
    return edge - abs(edge) * 2.0**-22 - 2.0**-125


@inner_kernel
def thin(q: int, lists: Candidates, scratch: Scratch) -> None:
    """Remove entries more than two bands below the k-th best value, from a list of more than k."""
    size = lists.size[q]
    # Fields of tuples are read outside of loops: each time, references to the array are counted.
    own, columns = lists.value[q, :size], lists.column[q, :size]
    values = scratch.selected[:size]
    for c in range(len(values)):
        values[c] = own[c]
    level = lowered(select(values, size - lists.k) - 2.0 * lists.epsilon[q])
    kept = 0
    for c in range(len(own)):
        value, column = own[c], columns[c]
        if value >= level:
            own[kept], columns[kept] = value, column
            kept += 1
    lists.size[q] = kept
    if level > np.float64(lists.level[q]):
        lists.level[q] = level


@inner_kernel
def _sort_by_column(q: int, lists: Candidates) -> None:
    """Sort a list by column, by insertion: it consists of few runs, mostly of one."""
    columns, values = lists.column[q], lists.value[q]
    for p in range(1, lists.size[q]):
        column, value = columns[p], values[p]
        place = p
        while place > 0 and columns[place - 1] > column:
            columns[place], values[place] = columns[place - 1], values[place - 1]
            place -= 1
        columns[place], values[place] = column, value


@inner_kernel
def _order_of(q: int, lists: Candidates, scratch: Scratch) -> NDArray[np.int64]:
    """Sort a list by column, write its columns and canonical distances to memory, and return the order of these."""
    _sort_by_column(q, lists)
    size = lists.size[q]
    columns, distances, listed = scratch.column[:size], scratch.distance[:size], lists.column[q, :size]
    for c in range(len(columns)):
        columns[c] = listed[c]
    write_distances(lists.rows, np.full(size, q), columns, distances)
    # It is stable.
    return np.argsort(distances, kind="mergesort")


@inner_kernel
def _settle_one(q: int, lists: Candidates, scratch: Scratch) -> None:
    """Keep the k best of a longer list by (canonical distance, column), and raise its level."""
    best = _order_of(q, lists, scratch)[: lists.k]
    falling = on_screen_scale(lists.rows, q, scratch.distance[best[-1]], 1.0)
    sort(best)
    own, listed = lists.value[q], lists.column[q]
    for kept in range(len(best)):
        own[kept], listed[kept] = own[best[kept]], listed[best[kept]]
    lists.size[q] = lists.k
    level = lowered(lists.centre[q] - lists.slope * falling - lists.epsilon[q])
    if level > np.float64(lists.level[q]):
        lists.level[q] = level


@inner_kernel
def lag_of(k: int) -> int:
    """Number of entries between two thinnings of a list, a power of two."""
    lag = _LEAST_LAG
    while lag * _LAGS_PER_LIST <= k:
        lag *= 2
    return lag


@inner_kernel
def shorten(q: int, lists: Candidates, scratch: Scratch) -> None:
    """Thin a list of more than k entries; a full one has room after it."""
    thin(q, lists, scratch)
    if lists.size[q] > lists.value.shape[1] - 32:
        # So many entries are left that canonical distances are to decide; of those at the largest, the first ones stay.
        _settle_one(q, lists, scratch)


@inner_kernel
def first_level(values: NDArray[np.floating], wanted: int, groups: NDArray[np.floating]) -> np.floating:
    """A number that at least `wanted` of some values reach, and few others; the lowest one for few values.

    `groups` is memory for `GROUPS_PER_NEIGHBOUR` times as many values.
    """
    size = len(values) // len(groups)
    if size <= 1:
        return np.finfo(values.dtype).min
    for g in range(len(groups)):
        groups[g] = values[g]
    for start in range(len(groups), size * len(groups), len(groups)):
        part = values[start : start + len(groups)]
        for g in range(len(part)):
            groups[g] = max(groups[g], part[g])
    return values.dtype.type(select(groups, len(groups) - wanted))


@kernel
def settle(lists: Candidates, index: NDArray[np.int64], distance: NDArray[np.float64]) -> None:
    """Write the k nearest columns by (canonical distance, column) to `index` and `distance`, shapes (n_query, k).

    Entries beyond the end of a list are not written.
    """
    scratch = make_scratch(lists.value.shape[1])
    for q in range(len(lists.size)):
        if lists.size[q] > lists.k:
            thin(q, lists, scratch)
        order = _order_of(q, lists, scratch)
        for c in range(min(lists.k, len(order))):
            index[q, c], distance[q, c] = scratch.column[order[c]], scratch.distance[order[c]]


@kernel
def merge_lists(
    index: NDArray[np.int64],
    distance: NDArray[np.float64],
    more_index: NDArray[np.int64],
    more_distance: NDArray[np.float64],
    out_index: NDArray[np.int64],
    out_distance: NDArray[np.float64],
) -> None:
    """Merge lists of different items, each by (distance, item), into the first k of both.

    Items and distances have shapes (n, a), (n, b) and, written, (n, k); -1 and inf after the last entry.
    """
    for i in range(out_index.shape[0]):
        a = 0
        b = 0
        for place in range(out_index.shape[1]):
            has_a = a < index.shape[1] and index[i, a] >= 0
            has_b = b < more_index.shape[1] and more_index[i, b] >= 0
            if not has_a and not has_b:
                out_index[i, place] = -1
                out_distance[i, place] = np.inf
                continue
            first = has_a and (
                not has_b
                or distance[i, a] < more_distance[i, b]
                or (distance[i, a] == more_distance[i, b] and index[i, a] < more_index[i, b])
            )
            if first:
                out_index[i, place] = index[i, a]
                out_distance[i, place] = distance[i, a]
                a += 1
            else:
                out_index[i, place] = more_index[i, b]
                out_distance[i, place] = more_distance[i, b]
                b += 1
