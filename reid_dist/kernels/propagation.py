"""Propagation of sparse rows over a graph of neighbours: sums of a matrix and its transpose, weighted sums of rows.

All sums run in a fixed order: along a list from near to far, and along a row by ascending column.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.arrays import lengthened, put, sort
from reid_dist.kernels.reciprocal import SparseRows, add_row, place_of
from reid_dist.kernels.settings import inner_kernel, kernel


@kernel
def mutual_rows(index: NDArray[np.integer], length: int, start: int, stop: int) -> SparseRows:
    """Rows `start` to `stop` of ``A + A^T``, where row ``i`` of ``A`` is 1 at the first `length` items of its list.

    `index`, shape (n_items, k), is as in `reid_dist.kernels.reciprocal.reciprocal_sets`.
    """
    n_rows = stop - start
    # Lists that name each row, by ascending item.
    bounds = np.zeros(n_rows + 2, np.int64)
    for i in range(index.shape[0]):
        for place in range(length):
            row = index[i, place] - start
            if 0 <= row < n_rows:
                bounds[row + 2] += 1
    for row in range(n_rows):
        bounds[row + 2] += bounds[row + 1]
    naming = np.empty(bounds[n_rows + 1], np.int32)
    for i in range(index.shape[0]):
        for place in range(length):
            row = index[i, place] - start
            if 0 <= row < n_rows:
                naming[bounds[row + 1]] = i
                bounds[row + 1] += 1
    most = len(naming) + n_rows * length
    indptr = np.zeros(n_rows + 1, np.int64)
    column, value = np.empty(most, np.int32), np.empty(most, np.float64)
    own, ones = np.empty(length, np.int32), np.ones(length, np.float64)
    named = np.ones(len(naming), np.float64)
    n = 0
    for row in range(n_rows):
        n_own = 0
        for place in range(length):
            if index[start + row, place] >= 0:
                own[n_own] = index[start + row, place]
                n_own += 1
        sort(own[:n_own])
        others = naming[bounds[row] : bounds[row + 1]]
        n += add_row(own[:n_own], ones[:n_own], others, named[: len(others)], column[n:], value[n:])
        indptr[row + 1] = n
    return SparseRows(indptr, lengthened(column, n, n), lengthened(value, n, n))


@kernel
def unit_lists(index: NDArray[np.integer], length: int, start: int, stop: int) -> SparseRows:
    """Rows `start` to `stop` of ``A``, as in `mutual_rows`, scaled to length 1."""
    indptr = np.zeros(stop - start + 1, np.int64)
    column = np.empty((stop - start) * length, np.int32)
    value = np.empty(len(column), np.float64)
    n = 0
    for i in range(start, stop):
        first = n
        for place in range(length):
            if index[i, place] >= 0:
                column[n] = index[i, place]
                n += 1
        sort(column[first:n])
        for m in range(first, n):
            value[m] = 1.0 / math.sqrt(float(n - first))
        indptr[i - start + 1] = n
    return SparseRows(indptr, lengthened(column, n, n), lengthened(value, n, n))


@kernel
def transposed_rows(rows: SparseRows, first: int, n_columns: int) -> SparseRows:
    """Transpose of rows that are numbered from `first` on: `n_columns` rows, whose columns are these numbers."""
    indptr = np.zeros(n_columns + 2, np.int64)
    for e in range(len(rows.column)):
        indptr[rows.column[e] + 2] += 1
    for c in range(n_columns):
        indptr[c + 2] += indptr[c + 1]
    column, value = np.empty(len(rows.column), np.int32), np.empty(len(rows.column), np.float64)
    for i in range(len(rows.indptr) - 1):
        for e in range(rows.indptr[i], rows.indptr[i + 1]):
            at = indptr[rows.column[e] + 1]
            column[at] = first + i
            value[at] = rows.value[e]
            indptr[rows.column[e] + 1] = at + 1
    return SparseRows(indptr[:-1], column, value)


@kernel
def append_columns(
    piece: SparseRows, at: NDArray[np.int64], column: NDArray[np.int32], value: NDArray[np.float64]
) -> None:
    """Write row ``i`` of a piece to ``column[at[i]:]`` and ``value[at[i]:]``, and advance `at` by its entries."""
    for i in range(len(at)):
        begin = piece.indptr[i]
        end = piece.indptr[i + 1]
        put(piece.column[begin:end], column, at[i])
        put(piece.value[begin:end], value, at[i])
        at[i] += end - begin


@kernel
def summed_rows(one: SparseRows, other: SparseRows) -> SparseRows:
    """Sums of the rows of two matrices of equal shape."""
    n_rows = len(one.indptr) - 1
    most = len(one.column) + len(other.column)
    indptr = np.zeros(n_rows + 1, np.int64)
    column, value = np.empty(most, np.int32), np.empty(most, np.float64)
    n = 0
    for i in range(n_rows):
        a, b = one.indptr[i], one.indptr[i + 1]
        c, d = other.indptr[i], other.indptr[i + 1]
        n += add_row(one.column[a:b], one.value[a:b], other.column[c:d], other.value[c:d], column[n:], value[n:])
        indptr[i + 1] = n
    return SparseRows(indptr, lengthened(column, n, n), lengthened(value, n, n))


@inner_kernel
def _scale_to_unit(value: NDArray[np.float64]) -> None:
    """Scale a row to length 1; a row of zeros remains."""
    total = 0.0
    for m in range(len(value)):
        total += value[m] * value[m]
    if total > 0.0:
        length = math.sqrt(total)
        for m in range(len(value)):
            value[m] /= length


@kernel
def propagated_rows(
    first: NDArray[np.integer], weight: NDArray[np.float64], rows: NDArray[np.int64], source: SparseRows
) -> SparseRows:
    """Weighted sums of some rows of a source, added up in the order of `first`, scaled to length 1.

    `first`, shape (n, k2), holds the items of each sum, -1 for none, and `weight` their weights; rows of weight 0 are
    left out.  `rows`, shape (m,), ascending, are the items of the rows of `source`.
    """
    n_rows, k2 = first.shape
    indptr = np.zeros(n_rows + 1, np.int64)
    # An estimate; made longer where it is too short.
    column = np.empty(n_rows * 64, np.int32)
    value = np.empty(n_rows * 64, np.float64)
    scaled = np.empty(0, np.float64)
    columns = np.empty((2, 0), np.int32)
    values = np.empty((2, 0), np.float64)
    n = 0
    for i in range(n_rows):
        length = 0
        side = 0
        for k in range(k2):
            own = weight[i, k]
            if first[i, k] < 0 or own == 0.0:
                continue
            place = place_of(rows, first[i, k])
            begin = source.indptr[place]
            end = source.indptr[place + 1]
            most = length + end - begin
            if most > columns.shape[1]:
                # What is summed so far moves to the longer arrays.
                longer, more = np.empty((2, 2 * most), np.int32), np.empty((2, 2 * most), np.float64)
                put(columns[side, :length], longer[side], 0)
                put(values[side, :length], more[side], 0)
                columns, values, scaled = longer, more, np.empty(2 * most, np.float64)
            for m in range(end - begin):
                scaled[m] = own * source.value[begin + m]
            length = add_row(
                columns[side, :length],
                values[side, :length],
                source.column[begin:end],
                scaled[: end - begin],
                columns[1 - side],
                values[1 - side],
            )
            side = 1 - side
        if n + length > len(column):
            capacity = max(len(column) + len(column) // 2, n + length)
            column, value = lengthened(column, n, capacity), lengthened(value, n, capacity)
        _scale_to_unit(values[side, :length])
        put(columns[side, :length], column, n)
        put(values[side, :length], value, n)
        n += length
        indptr[i + 1] = n
    return SparseRows(indptr, lengthened(column, n, n), lengthened(value, n, n))


@inner_kernel
def _write_list(
    index: NDArray[np.integer], i: int, length: int, total: NDArray[np.float64], touched: NDArray[np.int32], n: int
) -> int:
    """Add ``length - place`` at each item of a list to `total`; note new items after the `n` touched ones."""
    for place in range(length):
        j = index[i, place]
        if j >= 0:
            touched[n] = j
            n += int(total[j] == 0.0)
            total[j] += float(length - place)
    return n


@inner_kernel
def _take_touched(
    total: NDArray[np.float64],
    touched: NDArray[np.int32],
    shift: int,
    column: NDArray[np.int32],
    value: NDArray[np.float64],
    n: int,
) -> int:
    """Move the touched totals, by ascending item, behind `n` entries, with `shift` added to the items."""
    sort(touched)
    for m in range(len(touched)):
        column[n] = touched[m] + shift
        value[n] = total[touched[m]]
        total[touched[m]] = 0.0
        n += 1
    return n


@kernel
def cross_rows(
    index: NDArray[np.integer], start: int, stop: int, n_query: int, lengths: tuple[int, int, int]
) -> SparseRows:
    """Rank-list rows ``F`` and their sums ``P`` over expanded neighbourhoods, of items `start` to `stop`, side by side.

    `lengths` are ``k``, ``t`` and ``q``.  Row ``i`` of ``F`` is ``k - place`` at the first ``k`` items of its list; row
    ``i`` of ``P`` is the sum of ``F`` over the ``t`` nearest items of ``i`` and the ``q`` nearest of each, without
    these themselves.  Of n items, queries hold ``P`` at columns 0 to n - 1 and ``F`` after them, other items the
    reverse, so that the product of a query's row and another is ``P_q F_g + F_q P_g``.  `index` is as in `mutual_rows`;
    all values are whole numbers.
    """
    n_items = index.shape[0]
    k, t, q = lengths
    most = (t * (1 + q) + 1) * k + 1
    indptr = np.zeros(stop - start + 1, np.int64)
    column = np.empty((stop - start) * 4 * k + most, np.int32)
    value = np.empty(len(column), np.float64)
    total = np.zeros(n_items, np.float64)
    touched = np.empty(most, np.int32)
    n = 0
    for i in range(start, stop):
        if n + most > len(column):
            capacity = len(column) + len(column) // 2 + most
            column, value = lengthened(column, n, capacity), lengthened(value, n, capacity)
        for part in range(2):
            shift = part * n_items
            n_touched = 0
            if (part == 0) == (i < n_query):
                for near in range(1, 1 + t):
                    a = index[i, near]
                    if a < 0:
                        continue
                    n_touched = _write_list(index, a, k, total, touched, n_touched)
                    for far in range(1, 1 + q):
                        if index[a, far] >= 0:
                            n_touched = _write_list(index, index[a, far], k, total, touched, n_touched)
            else:
                n_touched = _write_list(index, i, k, total, touched, n_touched)
            n = _take_touched(total, touched[:n_touched], shift, column, value, n)
        indptr[i - start + 1] = n
    return SparseRows(indptr, lengthened(column, n, n), lengthened(value, n, n))
