"""Propagation of sparse rows over a graph of neighbours, and rows of rank lists.

No matrix of propagated rows is kept: a row is a product of few links of the graph, computed where it is needed.  All
sums run in a fixed order, which depends on the lists alone.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import owner_offsets
from reid_dist.kernels.arrays import lengthened, sort, with_room
from reid_dist.kernels.compiled import inner_kernel, kernel
from reid_dist.kernels.reciprocal import SparseRows


def mutual_rows(index: NDArray[np.int32], start: int, stop: int) -> SparseRows:
    """Rows `start` to `stop` of ``A + A^T``, where row ``i`` of ``A`` is 1 at the items of its list.

    `index`, shape (n_items, k), is as in `reid_dist.kernels.reciprocal.reciprocal_sets`.
    """
    n_items = len(index)
    row, place = np.nonzero(index[start:stop] >= 0)
    naming, at = np.nonzero((index >= start) & (index < stop))
    own = row * n_items + index[start:stop][row, place]
    others = (index[naming, at] - np.int64(start)) * n_items + naming
    # An entry of both is 2.
    entry, times = np.unique(np.append(own, others), return_counts=True)
    owner, column = np.divmod(entry, n_items)
    return SparseRows(owner_offsets(owner, stop - start), column.astype(np.int32), times.astype(np.float64))


@kernel
def transposed_rows(rows: SparseRows, n_columns: int) -> SparseRows:
    """Transpose of rows: `n_columns` of them."""
    indptr = np.zeros(n_columns + 2, np.int64)
    for e in range(len(rows.column)):
        indptr[rows.column[e] + 2] += 1
    for c in range(n_columns):
        indptr[c + 2] += indptr[c + 1]
    column, value = np.empty(len(rows.column), np.int32), np.empty(len(rows.column), np.float64)
    for i in range(len(rows.indptr) - 1):
        for e in range(rows.indptr[i], rows.indptr[i + 1]):
            at = indptr[rows.column[e] + 1]
            column[at] = i
            value[at] = rows.value[e]
            indptr[rows.column[e] + 1] = at + 1
    return SparseRows(indptr[:-1], column, value)


@kernel
def depth_first(index: NDArray[np.int32], length: int) -> NDArray[np.int32]:
    """Order of all items in which each is followed by the first `length` of its list, as far as they are left.

    Near items have near places, so that sums over neighbours of neighbours touch little memory.
    """
    n_items = len(index)
    order = np.empty(n_items, np.int32)
    waiting = np.empty(n_items * length + 1, np.int32)
    seen = np.zeros(n_items, np.uint8)
    n = 0
    for first in range(n_items):
        waiting[0] = first
        n_waiting = 1
        while n_waiting > 0:
            n_waiting -= 1
            i = waiting[n_waiting]
            if seen[i] == 0:
                seen[i] = 1
                order[n] = i
                n += 1
                for place in range(length - 1, 0, -1):
                    j = index[i, place]
                    if j >= 0 and seen[j] == 0:
                        waiting[n_waiting] = j
                        n_waiting += 1
    return order


@inner_kernel
def _multiply(
    rows: SparseRows,
    first: int,
    scale: NDArray[np.float64],
    total: NDArray[np.float64],
    touched: NDArray[np.int32],
    n: int,
    new_total: NDArray[np.float64],
    new_touched: NDArray[np.int32],
    n_new: int,
) -> int:
    """Add a sparse vector, divided by `scale`, times rows `first` and following to another one; return its entries.

    A vector is an array of totals and a list of the places that are not 0, in the order in which they were touched.
    """
    for m in range(n):
        i = touched[m]
        own = total[i] / scale[i]
        begin = rows.indptr[first + i]
        end = rows.indptr[first + i + 1]
        column = rows.column[begin:end]
        value = rows.value[begin:end]
        for e in range(len(column)):
            j = np.uint32(column[e])
            before = new_total[j]
            after = before + own * value[e]
            new_total[j] = after
            # Written always, kept when the sum leaves 0: no branch.
            new_touched[n_new] = j
            n_new += int((before == 0.0) & (after > 0.0))
    return n_new


@inner_kernel
def _sort_places(place: NDArray[np.int32], other: NDArray[np.int32], count: NDArray[np.int64], largest: int) -> None:
    """Sort places from 0 to `largest` in place, by digits of eleven bits; `other` has their length, `count` 2048."""
    shift = 0
    while largest >> shift > 0:
        count[:] = 0
        for m in range(len(place)):
            count[(place[m] >> shift) & 2047] += 1
        start = 0
        for digit in range(2048):
            size = count[digit]
            count[digit] = start
            start += size
        for m in range(len(place)):
            digit = (place[m] >> shift) & 2047
            other[count[digit]] = place[m]
            count[digit] += 1
        for m in range(len(place)):
            place[m] = other[m]
        shift += 11


@kernel
def propagated_rows(
    begin: SparseRows, links: SparseRows, scale: NDArray[np.float64], steps: NDArray[np.int64]
) -> tuple[SparseRows, NDArray[np.float64]]:
    """Sparse vectors after some steps, scaled to length 1, and their lengths before; a vector of zeros remains.

    Without steps, vectors are not scaled.
    Every vector begins as a row of `begin`.  `links` are several square matrices, one below the other, each of as many
    rows as `scale` has columns.  A step ``(matrix, divisor, source, target)`` adds vector `source`, divided by row
    `divisor` of `scale`, times a matrix to vector `target`; a `matrix` of -1 sets `source` to 0.  Vectors start as 0,
    except vector 0; the result is vector 1, or vector 0 without steps.
    """
    n_items = scale.shape[1]
    n_rows = len(begin.indptr) - 1
    n_vectors = 2
    for s in range(len(steps)):
        n_vectors = max(n_vectors, steps[s, 3] + 1)
    result = 1 if len(steps) else 0
    total = np.zeros((n_vectors, n_items), np.float64)
    touched = np.empty((n_vectors, n_items + 1), np.int32)
    n_touched = np.zeros(n_vectors, np.int64)
    other, count = np.empty(n_items, np.int32), np.empty(2048, np.int64)
    length = np.empty(n_rows, np.float64)
    indptr = np.zeros(n_rows + 1, np.int64)
    # An estimate; made longer where it is too short.
    column = np.empty(n_rows * 64, np.int32)
    value = np.empty(n_rows * 64, np.float64)
    n = 0
    for row in range(n_rows):
        for e in range(begin.indptr[row], begin.indptr[row + 1]):
            if begin.value[e] > 0.0:
                total[0, begin.column[e]] = begin.value[e]
                touched[0, n_touched[0]] = begin.column[e]
                n_touched[0] += 1
        for s in range(len(steps)):
            matrix, divisor, source, target = steps[s, 0], steps[s, 1], steps[s, 2], steps[s, 3]
            if matrix >= 0:
                n_touched[target] = _multiply(
                    links,
                    matrix * n_items,
                    scale[divisor],
                    total[source],
                    touched[source],
                    n_touched[source],
                    total[target],
                    touched[target],
                    n_touched[target],
                )
            else:
                _clear(total[source], touched[source], n_touched[source])
                n_touched[source] = 0
        size = n_touched[result]
        column, value = with_room(column, n, size, row, n_rows), with_room(value, n, size, row, n_rows)
        place = touched[result, :size]
        _sort_places(place, other[:size], count, n_items - 1)
        square = 0.0
        for m in range(size):
            own = total[result, place[m]]
            square += own * own
        length[row] = math.sqrt(square)
        divisor = length[row] if len(steps) and square > 0.0 else 1.0
        for m in range(size):
            column[n + m] = place[m]
            value[n + m] = total[result, place[m]] / divisor
        n += size
        indptr[row + 1] = n
        for vector in range(2):
            _clear(total[vector], touched[vector], n_touched[vector])
            n_touched[vector] = 0
    return SparseRows(indptr, lengthened(column, n, n), lengthened(value, n, n)), length


@inner_kernel
def _clear(total: NDArray[np.float64], touched: NDArray[np.int32], n: int) -> None:
    """Set the touched places of a vector to 0."""
    for m in range(n):
        total[touched[m]] = 0.0


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
    n, n_rows = 0, stop - start
    for i in range(start, stop):
        column = with_room(column, n, most, i - start, n_rows)
        value = with_room(value, n, most, i - start, n_rows)
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
