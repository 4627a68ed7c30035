r"""k-reciprocal sets from a table of neighbours, and sparse rows over them.

Two items are reciprocal neighbours when each is in the list of the other.  ``R(i, k)`` are those of item ``i`` among
lists of ``k`` items, and ``R*(i)`` is ``R(i, k1)`` with ``R(c, h)`` for all ``c`` of ``R(i, k1)`` that share enough of
theirs with it.

Sparse rows hold numbers of items as int32: a row of weights takes 12 bytes a member, not 16, and a million rows are
read from memory again and again.  There is no set of 2,147,483,648 items.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import entry_owners
from reid_dist.kernels.arrays import lengthened, sort, with_room
from reid_dist.kernels.compiled import inner_kernel, kernel
from reid_dist.kernels.exponential import exponentials

# Relation of an item to the one whose set is collected.
_RECIPROCAL = 1
_ADDED = 2


class SparseRows(NamedTuple):
    """Rows of which only some columns are stored."""

    # Row ``i`` is at ``indptr[i]:indptr[i + 1]``, shape (n + 1,), int64.
    indptr: NDArray[np.int64]
    # Columns, ascending within a row, each once, shape (nnz,), int32.
    column: NDArray[np.int32]
    # Their values, shape (nnz,), float64; not negative.
    value: NDArray[np.float64]


@inner_kernel
def _names(index: NDArray[np.int32], row: int, length: int, item: int) -> bool:
    """Whether the first `length` neighbours of a row include an item."""
    for place in range(length):  # noqa: SIM110 - generators are not compiled
        if index[row, place] == item:
            return True
    return False


@inner_kernel
def _add_candidate(
    index: NDArray[np.int32],
    c: int,
    length: int,
    inclusive: bool,
    state: NDArray[np.uint8],
    member: NDArray[np.int32],
    n: int,
) -> int:
    """Add ``R(c, length)`` after the `n` members if enough of it is reciprocal; return the new number of members."""
    size = 0
    shared = 0
    end = n
    for place in range(length):
        j = int(index[c, place])
        if j >= 0 and _names(index, j, length, c):
            size += 1
            shared += int(state[j] == _RECIPROCAL)
            # Written always, kept when new: those before `end` are members only if the whole set is added.
            member[end] = j
            end += int(state[j] == 0)
    if 3 * shared < 2 * size or (3 * shared == 2 * size and not inclusive):
        return n
    for m in range(n, end):
        state[member[m]] = _ADDED
    return end


@kernel
def reciprocal_items(index: NDArray[np.int32], start: int, stop: int, length: int) -> NDArray[np.int32]:
    """First `length` neighbours of items `start` to `stop`, shape (stop - start, length); -1 for one not reciprocal."""
    found = np.empty((stop - start, length), np.int32)
    for i in range(start, stop):
        for place in range(length):
            j = int(index[i, place])
            found[i - start, place] = j if j >= 0 and _names(index, j, length, i) else -1
    return found


def reciprocal_sets(
    index: NDArray[np.int32], start: int, stop: int, n_near: int, n_half: int, inclusive: bool
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Collect ``R*`` of items `start` to `stop`.

    `index`, shape (n_items, k), holds the neighbours of all items from near to far: the item itself first, each once,
    -1 after the last.  `n_near` and `n_half` are the lengths of the lists of ``R(i, k1)`` and ``R(c, h)``, cut to k.
    `inclusive` accepts exactly two thirds of ``R(c, h)`` in ``R(i, k1)``; otherwise it must be more.

    Returns the begin of the set of each item, shape (stop - start + 1,), int64, and the members, ascending, int32.
    """
    near = max(min(n_near, index.shape[1]), 0)
    return grown_sets(index, reciprocal_items(index, start, stop, near), n_half, inclusive, -1)


@kernel
def grown_sets(
    index: NDArray[np.int32], reciprocal: NDArray[np.int32], n_half: int, inclusive: bool, own: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Collect ``R*`` of some items from ``R(i, k1)``.

    `index` is the table; `n_half` and `inclusive` are as in `reciprocal_sets`.  Row ``q`` of `reciprocal`, shape (n,
    m), holds the items of ``R(q, k1)``, each once, and -1 for no item.

    Items that are not in the table have a number `own` larger than any there, each in its own set alone; `reciprocal`
    holds their ``R`` without themselves, as an item adds nothing as a candidate of its own set: its half list is part
    of ``R``.  Otherwise, `own` is -1.

    Returns the begin of the set of each item, shape (n + 1,), int64, and the members, ascending, int32, `own` last.
    """
    n_sets, m = reciprocal.shape
    half = max(min(n_half, index.shape[1]), 0)
    most = (m + 1) * (half + 1) + 1
    indptr = np.zeros(n_sets + 1, np.int64)
    # An estimate; made longer where it is too short.
    member = np.empty(n_sets * (m + 1) + most, np.int32)
    state = np.zeros(index.shape[0], np.uint8)
    n = 0
    for q in range(n_sets):
        member = with_room(member, n, most, q, n_sets)
        found = member[n:]
        n_reciprocal = 0
        for place in range(m):
            j = int(reciprocal[q, place])
            if j >= 0:
                state[j] = _RECIPROCAL
                found[n_reciprocal] = j
                n_reciprocal += 1
        n_found = n_reciprocal
        for c in range(n_reciprocal):
            n_found = _add_candidate(index, found[c], half, inclusive, state, found, n_found)
        for c in range(n_found):
            state[found[c]] = 0
        sort(found[:n_found])
        if own >= 0:
            found[n_found] = own
            n_found += 1
        n += n_found
        indptr[q + 1] = n
    return indptr, lengthened(member, n, n)


@kernel
def listed_distances(
    indptr: NDArray[np.int64],
    member: NDArray[np.int32],
    index: NDArray[np.integer],
    distance: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Distances of the members of sets in the list of their row; NaN for members that are not in the list.

    Members of row ``i`` are ``member[indptr[i]:indptr[i + 1]]``; `index` and `distance` have shape (n, k).
    """
    found = np.full(len(member), np.nan)
    for i in range(len(indptr) - 1):
        for place in range(indptr[i], indptr[i + 1]):
            for listed in range(index.shape[1]):
                if index[i, listed] == member[place]:
                    found[place] = distance[i, listed]
                    break
    return found


def gaussian_rows(
    indptr: NDArray[np.int64], member: NDArray[np.int32], scaled: NDArray[np.float64], normalised: bool
) -> SparseRows:
    """Weights ``exp(-d)`` of the members of sets (see `reciprocal_sets`), from the distance ``d`` of each member.

    With `normalised`, each row is divided by its sum, added up by ascending member; a row whose weights are all 0
    remains.
    """
    value = exponentials(-scaled)
    if normalised:
        owner = entry_owners(indptr)
        # Adds one value after the other, where `np.add.reduceat` and `np.sum` add in pairs.
        total = np.bincount(owner, value, len(indptr) - 1)[owner]
        np.divide(value, total, out=value, where=total > 0.0)
    return SparseRows(indptr, member, value)


def binary_rows(indptr: NDArray[np.int64], member: NDArray[np.int32]) -> SparseRows:
    """Weights 1 for the members of sets; see `gaussian_rows`."""
    return SparseRows(indptr, member, np.ones(len(member)))


@inner_kernel
def _add_row(
    column: NDArray[np.int32],
    value: NDArray[np.float64],
    more_column: NDArray[np.int32],
    more_value: NDArray[np.float64],
    new_column: NDArray[np.int32],
    new_value: NDArray[np.float64],
) -> int:
    """Write the sum of two rows, the second added to the first; return its length."""
    a = 0
    b = 0
    n = 0
    while a < len(column) and b < len(more_column):
        # Both are loaded, and nothing is added as 0, which changes no bit: there is no branch to foresee.
        here = column[a]
        there = more_column[b]
        first = here <= there
        second = there <= here
        one = value[a]
        other = more_value[b]
        new_column[n] = here if first else there
        new_value[n] = (one if first else 0.0) + (other if second else 0.0)
        a += int(first)
        b += int(second)
        n += 1
    for rest in range(a, len(column)):
        new_column[n] = column[rest]
        new_value[n] = value[rest]
        n += 1
    for rest in range(b, len(more_column)):
        new_column[n] = more_column[rest]
        new_value[n] = more_value[rest]
        n += 1
    return n


@kernel
def mean_rows(row: NDArray[np.int64], source: SparseRows) -> SparseRows:
    """Means of some rows of a source, added up in order; empty where all are -1.

    `row`, shape (n, k2), holds the rows of each mean, -1 for none.
    """
    n_rows, k2 = row.shape
    indptr = np.zeros(n_rows + 1, np.int64)
    # An estimate; made longer where it is too short.
    column = np.empty(n_rows * 64, np.int32)
    value = np.empty(n_rows * 64, np.float64)
    places = np.empty(k2, np.int64)
    columns = np.empty((2, 0), np.int32)
    values = np.empty((2, 0), np.float64)
    n = 0
    for i in range(n_rows):
        n_places = 0
        most = 0
        for k in range(k2):
            place = row[i, k]
            if place >= 0:
                places[n_places] = place
                n_places += 1
                most += source.indptr[place + 1] - source.indptr[place]
        if most > columns.shape[1]:
            columns = np.empty((2, 2 * most), np.int32)
            values = np.empty((2, 2 * most), np.float64)
        length = 0
        side = 0
        for p in range(n_places):
            begin = source.indptr[places[p]]
            end = source.indptr[places[p] + 1]
            length = _add_row(
                columns[side, :length],
                values[side, :length],
                source.column[begin:end],
                source.value[begin:end],
                columns[1 - side],
                values[1 - side],
            )
            side = 1 - side
        column, value = with_room(column, n, length, i, n_rows), with_room(value, n, length, i, n_rows)
        for m in range(length):
            column[n + m] = columns[side, m]
            value[n + m] = values[side, m] / n_places
        n += length
        indptr[i + 1] = n
    return SparseRows(indptr, lengthened(column, n, n), lengthened(value, n, n))
