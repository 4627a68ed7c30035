r"""Overlaps of rows of weights: sums over the columns of both, of the smaller of two weights or of their product.

All sums run over ascending columns, so a pair of rows has one overlap however it is found: pair by pair, or for whole
blocks by a list of the rows that hold each column.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import entry_owners
from reid_dist.kernels.arrays import with_room
from reid_dist.kernels.compiled import inlined_kernel, inner_kernel, kernel
from reid_dist.kernels.propagation import transposed_rows
from reid_dist.kernels.reciprocal import SparseRows


@kernel
def overlap_pairs(
    a: SparseRows, b: SparseRows, owner: NDArray[np.int64], place: NDArray[np.int64], multiplies: bool
) -> NDArray[np.float64]:
    """Overlaps of listed pairs of rows of `a` and of `b`, over the same columns; shape (n,), float64.

    The sum is one of products with `multiplies`, and of the smaller values without.
    """
    overlap = np.empty(len(owner), np.float64)
    for p in range(len(owner)):
        begin = a.indptr[owner[p]]
        end = a.indptr[owner[p] + 1]
        column = a.column[begin:end]
        value = a.value[begin:end]
        begin = b.indptr[place[p]]
        end = b.indptr[place[p] + 1]
        other_column = b.column[begin:end]
        other_value = b.value[begin:end]
        total = 0.0
        i = 0
        j = 0
        while i < len(column) and j < len(other_column):
            # Columns of one row alone add 0, which changes no bit: no branch.
            here = column[i]
            there = other_column[j]
            smaller = value[i] if value[i] < other_value[j] else other_value[j]
            shared = value[i] * other_value[j] if multiplies else smaller
            total += shared if here == there else 0.0
            i += int(here <= there)
            j += int(there <= here)
        overlap[p] = total
    return overlap


class ColumnLists(NamedTuple):
    """Entries of sparse rows by column: one list per column with entries."""

    # List of each column, shape (n_columns,), int32; 0 is an empty list.
    list_of: NDArray[np.int32]
    # The entries of each list: rows, ascending, as columns, and values.
    lists: SparseRows


class _Found(NamedTuple):
    """The lists of the columns of a row, by begin and end, and the row's values there."""

    begin: NDArray[np.int64]
    end: NDArray[np.int64]
    value: NDArray[np.float64]


@kernel
def columns_of(rows: SparseRows, n_columns: int) -> ColumnLists:
    """Sort the entries of rows by column."""
    # Memory is touched only where there are columns: blocks are small, and columns may be millions.
    list_of = np.zeros(n_columns, np.int32)
    number = np.empty(len(rows.column), np.int32)
    n_lists = 1
    for e in range(len(rows.column)):
        if list_of[rows.column[e]] == 0:
            list_of[rows.column[e]] = n_lists
            n_lists += 1
        number[e] = list_of[rows.column[e]]
    return ColumnLists(list_of, transposed_rows(SparseRows(rows.indptr, number, rows.value), n_lists))


@inner_kernel
def _room(rows: SparseRows) -> _Found:
    """Allocate memory for the lists of any row."""
    longest = 0
    for j in range(len(rows.indptr) - 1):
        longest = max(longest, rows.indptr[j + 1] - rows.indptr[j])
    # One that is looked up and has no entries is written, and not kept.
    n = longest + 1
    return _Found(np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.float64))


@inlined_kernel
def _look_up(columns: ColumnLists, rows: SparseRows, j: int, found: _Found) -> int:
    """Write the lists of the columns of row `j`; return their number."""
    bounds, begin, end, value = columns.lists.indptr, found.begin, found.end, found.value
    n_lists = 0
    for e in range(rows.indptr[j], rows.indptr[j + 1]):
        u = columns.list_of[rows.column[e]]
        begin[n_lists] = bounds[u]
        end[n_lists] = bounds[u + 1]
        value[n_lists] = rows.value[e]
        n_lists += int(u != 0)
    return n_lists


@kernel
def overlap_block(a: SparseRows, b: SparseRows, n_columns: int, multiplies: bool) -> SparseRows:
    """All pairs of rows of two blocks, over the same `n_columns` columns, that overlap.

    Returns, for each row of `a`, the rows of `b`, ascending, whose overlap with it is more than 0, as columns, and the
    overlaps.  `multiplies` is as in `overlap_pairs`.  `b` is read once, entry by entry; lists are made of `a`.

    Peak memory is the result twice, the entries of `a` once more, and 4 bytes a column.  Rows have unsigned numbers
    inside: such an index is never taken for one from the end, which saves a step per product.
    """
    n_a = len(a.indptr) - 1
    n_b = len(b.indptr) - 1
    columns, room = columns_of(a, n_columns), _room(b)
    # Unpacked once, outside of the loops.
    begin, end, value, listed = room.begin, room.end, room.value, columns.lists
    listed_row, listed_value = listed.column, listed.value
    total = np.zeros(n_a, np.float64)
    touched = np.empty(n_a + 1, np.uint32)
    # Pairs in the order of `b`, then of being touched.
    found_row = np.empty(4 * n_b + n_a, np.int32)
    found_overlap = np.empty(4 * n_b + n_a, np.float64)
    found_bounds = np.zeros(n_b + 1, np.int64)
    n = 0
    for j in range(n_b):
        # Lists are looked up before any is walked: then no look-up waits for a loop to end.
        n_lists = _look_up(columns, b, j, room)
        n_touched = 0
        for u in range(n_lists):
            own = value[u]
            row = listed_row[begin[u] : end[u]]
            other = listed_value[begin[u] : end[u]]
            for m in range(len(row)):
                i = np.uint32(row[m])
                before = total[i]
                smaller = other[m] if other[m] < own else own
                after = before + (other[m] * own if multiplies else smaller)
                total[i] = after
                # Written always, kept when the sum leaves 0: no branch.
                touched[n_touched] = i
                n_touched += int((before == 0.0) & (after > 0.0))
        found_row = with_room(found_row, n, n_touched, j, n_b)
        found_overlap = with_room(found_overlap, n, n_touched, j, n_b)
        for t in range(n_touched):
            i = touched[t]
            found_row[n + t] = i
            found_overlap[n + t] = total[i]
            total[i] = 0.0
        n += n_touched
        found_bounds[j + 1] = n
    return transposed_rows(SparseRows(found_bounds, found_row[:n], found_overlap[:n]), n_a)


@kernel
def products_into(a: ColumnLists, b: SparseRows, out: NDArray[np.float64]) -> None:
    """Write the sums of products of every row of `b` and every row of `a`, shape (n_b, n_a)."""
    room = _room(b)
    # Unpacked once, outside of the loops.
    begin, end, value, listed_row, listed_value = room.begin, room.end, room.value, a.lists.column, a.lists.value
    for j in range(len(b.indptr) - 1):
        n_lists = _look_up(a, b, j, room)
        total = out[j]
        total[:] = 0.0
        for u in range(n_lists):
            own = value[u]
            row = listed_row[begin[u] : end[u]]
            other = listed_value[begin[u] : end[u]]
            for m in range(len(row)):
                total[np.uint32(row[m])] += other[m] * own


@kernel
def listed_products(
    products: NDArray[np.float64], numbers: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Products that are more than 0, shape (n_b, n_a), by row of `a`: offsets, numbers of rows of `b`, and values."""
    n_b, n_a = products.shape
    indptr = np.zeros(n_a + 1, np.int64)
    for j in range(n_b):
        for i in range(n_a):
            indptr[i + 1] += int(products[j, i] > 0.0)
    for i in range(n_a):
        indptr[i + 1] += indptr[i]
    number = np.empty(indptr[n_a], np.int64)
    value = np.empty(indptr[n_a], np.float64)
    at = indptr.copy()
    # Eight values are a line of the cache.
    for first in range(0, n_a, 8):
        for j in range(n_b):
            for i in range(first, min(first + 8, n_a)):
                if products[j, i] > 0.0:
                    number[at[i]] = numbers[j]
                    value[at[i]] = products[j, i]
                    at[i] += 1
    return indptr, number, value


def row_sums(a: SparseRows) -> NDArray[np.float64]:
    """Sum of each row by ascending column, shape (n,), float64; 0 for an empty row."""
    n = len(a.indptr) - 1
    # Adds one value after the other, as the other sums do, where `np.add.reduceat` and `np.sum` add in pairs.
    sums = np.bincount(entry_owners(a.indptr), a.value[a.indptr[0] : a.indptr[-1]], n)
    # Of no values at all, the sums are integers.
    return sums.astype(np.float64, copy=False)
