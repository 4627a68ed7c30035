r"""The k nearest gallery rows of each query, collected tile by tile from screening values.

The idea
--------
Per query there is a short list of candidates, each with its screening value ``v`` (larger is nearer) and gallery row,
and an entry level below which nothing can belong to the k nearest.  A value differs from the true similarity by at most
``epsilon``; so once k candidates have values of at least ``v_k``, k items are truly at least as near as
``v_k - epsilon``, and an item whose value lies below ``v_k - 2 epsilon`` is strictly farther than all of them.

A full list is thinned to the entries that pass that level.  If that does not help, because hundreds of values lie
within the band (duplicates, collapsed features), the list is *settled*: canonical distances decide, the k best by
(distance, gallery row) stay, and the level becomes the lower edge of the k-th distance.  At the end every list is
settled, so that the result is canonical and does not depend on tiles.

Rows arrive in ascending order and thinning keeps that order, hence a stable sort by distance is the order by
(distance, gallery row).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from reid_dist.kernels.canonical import GIVEN, PairRows, falling_at, pair_distances, row_distances
from reid_dist.kernels.marks import make_marks, mark_values, marked_places
from reid_dist.kernels.selection import select
from reid_dist.kernels.settings import inner_kernel, kernel

# Groups of first values whose largest ones bound the nearest items, per item of a list.
GROUPS_PER_NEIGHBOUR = 3

# Lists that are settled together.
_SETTLED = 1024


class Candidates(NamedTuple):
    """Lists of a block of queries, and the values that decide what enters them."""

    # Screening values, shape (n_query, capacity), in the type of the tiles.
    value: NDArray[np.floating]
    # Columns of the gallery block, shape (n_query, capacity), int32, ascending within a list.
    column: NDArray[np.int32]
    # Used entries of each list, shape (n_query,), int64.
    size: NDArray[np.int64]
    # Entry levels, shape (n_query,), in the type of the tiles.
    level: NDArray[np.floating]
    # Number of nearest rows to find.
    k: int
    # The block of queries and the gallery block.
    rows: PairRows
    # Half widths of the bands, shape (n_query,), float64.
    epsilon: NDArray[np.float64]
    # A canonical distance ``d`` corresponds to the screening value ``centre[q] - slope * falling_at(rows, q, d, 0)``.
    centre: NDArray[np.float64]
    slope: float


def make_candidates(
    k: int,
    rows: PairRows,
    epsilon: NDArray[np.float64],
    centre: NDArray[np.float64],
    slope: float,
    dtype: DTypeLike = np.float32,
    *,
    room: int | None = None,
) -> Candidates:
    """Empty lists for the `k` nearest of each query; see `Candidates`.

    `room` is the number of entries beyond k, 64 or more: a list that has more is thinned.
    """
    n_query, capacity = len(epsilon), k + (k + 64 if room is None else room)
    value, column = np.empty((n_query, capacity), dtype), np.empty((n_query, capacity), np.int32)
    # Not -inf: that is the value of a hidden column.
    level = np.full(n_query, np.finfo(dtype).min, dtype)
    return Candidates(value, column, np.zeros(n_query, np.int64), level, k, rows, epsilon, centre, slope)


class Scratch(NamedTuple):
    """Memory of `thin_and_add`, for lists of ``capacity`` entries."""

    # Values or distances to select from, distances and columns of a list, shape (capacity,); float64 and int64.
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
    values = scratch.selected[:size]
    for c in range(len(values)):
        values[c] = lists.value[q, c]
    level = lowered(select(values, size - lists.k) - 2.0 * lists.epsilon[q])
    kept = 0
    for c in range(size):
        if lists.value[q, c] >= level:
            lists.value[q, kept] = lists.value[q, c]
            lists.column[q, kept] = lists.column[q, c]
            kept += 1
    lists.size[q] = kept
    if level > np.float64(lists.level[q]):
        lists.level[q] = level


@inner_kernel
def is_crowded(q: int, lists: Candidates) -> bool:
    """Whether so many entries of a list are left that canonical distances are to decide."""
    return bool(lists.size[q] > lists.value.shape[1] - 32)


@inner_kernel
def settle_one(q: int, lists: Candidates, scratch: Scratch) -> None:
    """Keep the k best of a longer list by (canonical distance, column), and raise its level."""
    size = lists.size[q]
    columns, distances, values = scratch.column[:size], scratch.distance[:size], scratch.selected[:size]
    for c in range(size):
        columns[c] = lists.column[q, c]
    row_distances(lists.rows, q, columns, distances)
    for c in range(size):
        values[c] = distances[c]
    largest = select(values, lists.k - 1)
    # Columns ascend: of the entries at the largest distance, the first ones stay.
    at_largest = lists.k
    for c in range(size):
        at_largest -= int(distances[c] < largest)
    kept = 0
    for c in range(size):
        if distances[c] < largest or (distances[c] == largest and at_largest > 0):
            at_largest -= int(distances[c] == largest)
            lists.value[q, kept] = lists.value[q, c]
            lists.column[q, kept] = lists.column[q, c]
            kept += 1
    lists.size[q] = kept
    level = lowered(lists.centre[q] - lists.slope * falling_at(lists.rows, q, largest, 1.0) - lists.epsilon[q])
    if level > np.float64(lists.level[q]):
        lists.level[q] = level


@inner_kernel
def thin_and_add(q: int, column: int, value: np.floating, lists: Candidates, scratch: Scratch) -> None:
    """Thin the full list of query `q`, and add a column if its value still reaches the level."""
    thin(q, lists, scratch)
    if is_crowded(q, lists):
        settle_one(q, lists, scratch)
    if not value >= lists.level[q]:
        return
    lists.value[q, lists.size[q]] = value
    lists.column[q, lists.size[q]] = column
    lists.size[q] += 1


@kernel
def collect_tile(
    tile: NDArray[np.floating],
    bias: NDArray[np.floating],
    bias_of: NDArray[np.int64],
    query_start: int,
    column_start: int,
    lists: Candidates,
) -> None:
    """Add one tile to the lists of its queries.

    `tile`, `bias`, `bias_of` and `column_start` are as in `count_tile`; `query_start` is the first query of the tile.
    """
    n_columns = tile.shape[1]
    marks, marked = make_marks(n_columns)
    scratch = make_scratch(lists.value.shape[1])
    # Unpacked once, outside of the loops; passing the tuple to a kernel takes longer than adding an entry.
    list_value, list_column, list_size, list_level = lists.value, lists.column, lists.size, lists.level
    capacity = list_value.shape[1]
    for i in range(tile.shape[0]):
        q = query_start + i
        values, less = tile[i], bias[bias_of[i]]
        level = list_level[q]
        # No value is so far that it belongs to a list.
        mark_values(values, less, level, level + np.float32(np.nan), marks)
        for p in range(marked_places(marks, marked)):
            c = marked[p]
            value = values[c] - less[c]
            if value < list_level[q]:
                continue
            if list_size[q] < capacity:
                list_value[q, list_size[q]] = value
                list_column[q, list_size[q]] = column_start + c
                list_size[q] += 1
            else:
                thin_and_add(q, column_start + c, value, lists, scratch)


def settle(lists: Candidates, index: NDArray[np.int64], distance: NDArray[np.float64]) -> None:
    """Write the k nearest columns by (canonical distance, column) to `index` and `distance`, shapes (n_query, k).

    Entries beyond the end of a list are not written.
    """
    rows, swapped = lists.rows, lists.rows.kind != GIVEN and not lists.rows.rescoring.active
    if swapped:
        # The distance is the same in both directions, and pairs of a gallery row are consecutive.
        rows = PairRows(rows.kind, rows.gallery, rows.query, rows.gallery_norm, rows.query_norm)
    for start in range(0, len(lists.size), _SETTLED):
        block = slice(start, start + _SETTLED)
        query, place = np.nonzero(_entries(lists, block))
        column, owner = lists.column[block][query, place].astype(np.int64), query + start
        found = pair_distances(rows, column, owner) if swapped else pair_distances(rows, owner, column)
        n = np.bincount(query, minlength=len(lists.size[block]))
        # Left-aligned rows; columns ascend, so that a stable sort is by (distance, column).
        filled = np.arange(n.max(initial=0)) < n[:, None]
        columns, distances = np.zeros(filled.shape, np.int64), np.full(filled.shape, np.inf)
        columns[filled], distances[filled] = column, found
        order = np.argsort(distances, axis=1, kind="stable")[:, : lists.k]
        kept = filled[:, : lists.k]
        index[block, : kept.shape[1]][kept] = np.take_along_axis(columns, order, 1)[kept]
        distance[block, : kept.shape[1]][kept] = np.take_along_axis(distances, order, 1)[kept]


def _entries(lists: Candidates, block: slice) -> NDArray[np.bool_]:
    """Whether entries of some lists are used and not more than two bands below the k-th best value."""
    size, epsilon = lists.size[block, None], lists.epsilon[block, None]
    # Most lists have room for more entries than they hold.
    used = np.arange(max(lists.k, int(size.max(initial=0)))) < size
    value = np.where(used, lists.value[block, : used.shape[1]], -np.inf)
    best = np.partition(value, -lists.k, axis=1)[:, -lists.k, None]
    edge = best.astype(np.float64) - 2.0 * epsilon
    return used & (value >= edge - np.abs(edge) * 2.0**-22 - 2.0**-125)
