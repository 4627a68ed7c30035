r"""Placing many values among many thresholds: a table of equal bins, then two comparisons.

Thresholds of a query are sorted from near to far, and with them their edges ``lower[u] <= upper[u]`` in screening
values, where larger is nearer.  A value is *placed* at the first threshold whose lower edge it reaches.  It passes that
threshold and all farther ones if it lies above the upper edge there; otherwise it lies inside a band.

*Bins.*  A range of screening values is cut into equal bins.  The table holds, for every bin, the number of thresholds
whose lower edge lies in a nearer bin: the place of a value that reaches all lower edges of its own bin.  Values and
edges are binned by the same non-decreasing function of floating-point numbers, so that order between bins is order
between values: no rounding in that function can put a value on the wrong side of an edge.

*Plain and mixed bins.*  A bin is mixed if it reaches down to the upper edge at its place: its values may lie on either
side of an edge.  All values of a plain bin are settled by the table, and only counted.  Entries of mixed bins are
raised by the number of places, so that one counter array takes all values without a branch.

*Two comparisons* with the lower edges from there on settle a value of a mixed bin that holds at most two of them.  One
comparison with the upper edge then finds both the values inside a band and those that were not settled, since these
lie below the lower edge of their place.  They are few, and they are left *pending*.

The bins cover the range of the values, estimated from a sample, and not the range of the thresholds: with one very near
threshold, the latter would put all values into a few bins.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.bisection import first_at_most
from reid_dist.kernels.compiled import inlined_kernel, inner_kernel

BINS = 4096

# Size of the sample that estimates the range of a row, and what is added to its range on either side.
_SAMPLE = 16
_MARGIN = np.float32(0.75)

# In a range without width, the first bin holds one value and the last all larger ones.
_SMALLEST_RANGE = np.float32(1e-18)
_LARGEST_SCALE = np.float32((BINS - 1) / 1e-18)

# Thresholds from which bisection is faster than comparing with all of them.
_MANY = 128


class Steps(NamedTuple):
    """Thresholds of one query, prepared for placing."""

    # Edges, near to far, shape (most + 1,): after the last threshold a NaN, which no value reaches or stays below.
    lower: NDArray[np.floating]
    upper: NDArray[np.floating]
    # Place of the values of every bin, uint32, in mixed bins raised by the number of places.  Bin 0 is that of values
    # that reach no threshold, bin BINS + 2 the last; one that is not read follows.
    table: NDArray[np.uint32]
    # Scratch for the bins of both edges, shape (most,), uint32.
    enters: NDArray[np.uint32]
    leaves: NDArray[np.uint32]
    # Scratch for the bins of a block of values, and for the positions of those in mixed bins; uint32.
    bins: NDArray[np.uint32]
    noted: NDArray[np.uint32]


class Pending(NamedTuple):
    """Unsettled values of a row."""

    # Column in the tile, and a lower bound of the place; int64.
    column: NDArray[np.int64]
    place: NDArray[np.int64]
    # Screening value, in the type of the tile.
    value: NDArray[np.floating]


@inner_kernel
def make_steps(most: int, block: int, like: NDArray[np.floating]) -> Steps:
    """Allocate `Steps` for `most` thresholds and for blocks of `block` values of the type of `like`."""
    return Steps(
        np.empty(most + 1, like.dtype),
        np.empty(most + 1, like.dtype),
        np.empty(BINS + 4, np.uint32),
        np.empty(most, np.uint32),
        np.empty(most, np.uint32),
        np.empty(block, np.uint32),
        np.empty(block + 1, np.uint32),
    )


@inner_kernel
def make_pending(most: int, like: NDArray[np.floating]) -> Pending:
    """Allocate `Pending` for `most` values of the type of `like`, and one more that is written and discarded."""
    capacity = most + 1
    return Pending(
        np.empty(capacity, np.int64),
        np.empty(capacity, np.int64),
        np.empty(capacity, like.dtype),
    )


@inner_kernel
def bin_of(value: np.floating, base: np.floating, scale: np.floating) -> np.uint32:
    """Bin of a value: 1 below `base`, 2 to BINS + 2 from there on; non-decreasing in the value.

    Clipped before conversion: the integer value of a float out of range is undefined.
    """
    zero = base - base
    least = zero + np.float32(1)
    most = zero + np.float32(BINS + 2)
    place = (value - base) * scale + (zero + np.float32(2))
    place = place if place > least else least
    place = place if place < most else most
    return np.uint32(place)


@inner_kernel
def _fill(enters: NDArray[np.uint32], leaves: NDArray[np.uint32], raised: np.uint32, table: NDArray[np.uint32]) -> None:
    """Fill a table from the bins of both edges: lower edges per bin, their running sums, mixed bins."""
    for b in range(BINS + 4):
        table[b] = np.uint32(0)
    # Unsigned indices avoid the test for negative ones.
    for u in range(len(enters)):
        table[np.uint64(enters[u])] += np.uint32(1)
    nearer = np.uint32(0)
    for b in range(BINS + 3):
        at = np.uint64(BINS + 2 - b)
        own = table[at]
        table[at] = nearer
        nearer += own
    for u in range(len(enters)):
        begin = np.uint64(enters[u])
        last = np.uint64(leaves[u])
        place = table[begin]
        table[begin] = place + raised * np.uint32(place < raised)
        # Written always: a branch on it is unpredictable.
        after = begin + np.uint64(1)
        place = table[after]
        table[after] = place + raised * np.uint32((place < raised) & (last > begin))
        for mixed in range(np.int64(begin) + 2, np.int64(last) + 1):
            place = table[mixed]
            table[mixed] = place + raised * np.uint32(place < raised)


@inner_kernel
def fill_steps(
    lower: NDArray[np.floating],
    upper: NDArray[np.floating],
    values: NDArray[np.floating],
    steps: Steps,
) -> tuple[np.floating, np.floating]:
    """Prepare the thresholds of a query for placing values in the range of a sample, `values`.

    `lower` and `upper` are the edges of the query's thresholds, near to far, at least one.  Returns the first value of
    the bins, and bins per unit, as arguments of `bin_of`.
    """
    n = len(lower)
    # Element by element: assigning an array to a slice makes the compiler format the message of a shape mismatch.
    for u in range(n):
        steps.lower[u] = lower[u]
        steps.upper[u] = upper[u]
    steps.lower[n] = np.nan
    steps.upper[n] = np.nan
    base = lower[n - 1]
    end = upper[0]
    smallest = end
    largest = base
    for k in range(0, len(values), max(1, len(values) // _SAMPLE)):
        value = values[k]
        # A hidden column holds minus infinity and does not count in the range.
        if value > -np.inf:
            smallest = min(smallest, value)
            largest = max(largest, value)
    if smallest < largest:
        margin = (largest - smallest) * _MARGIN
        if smallest - margin > base:
            base = smallest - margin
        if largest + margin < end:
            end = largest + margin
    # The last bin begins beyond the nearest upper edge, so that it is plain.
    span = end - base
    scale = np.float32(BINS - 1) / span if span > _SMALLEST_RANGE else _LARGEST_SCALE + (base - base)
    table, enters, leaves = steps.table, steps.enters[:n], steps.leaves[:n]
    for u in range(n):
        enters[u] = bin_of(lower[u], base, scale)
        leaves[u] = bin_of(upper[u], base, scale)
    raised = np.uint32(len(steps.lower))
    _fill(enters, leaves, raised, table)
    return base, scale


@inner_kernel
def place(
    values: NDArray[np.floating],
    start: int,
    lowest: np.floating,
    base: np.floating,
    scale: np.floating,
    steps: Steps,
    placed: NDArray[np.int32],
    pending: Pending,
    n_pending: int,
) -> int:
    """Place a block of values, and count the values at each place; return the number of pending values.

    `start` is the column of the first value, `lowest` the lower edge of the farthest threshold; `base` and `scale` are
    from `fill_steps`.  The counters `placed`, shape (4, 2 * most + 2), are added to: places come first, the entries
    after them are meaningless, and pending values are not counted.

    Four values in turn have counters of their own: an addition to a counter that was just written waits for that write.
    Unsigned indices avoid the test for negative ones.
    """
    lower, upper, table, noted = steps.lower, steps.upper, steps.table, steps.noted
    bins = steps.bins[: len(values)]
    for j in range(len(values)):
        bins[j] = bin_of(values[j], base, scale) * np.uint32(values[j] >= lowest)
    raised = np.uint64(len(lower))
    n = np.uint64(0)
    for j in range(len(values)):
        k = np.uint64(j)
        a = np.uint64(table[np.uint64(bins[k])])
        placed[k % np.uint64(4), a] += np.int32(1)
        # Written always, kept only if it counts: no unpredictable branch.
        noted[n] = np.uint32(k)
        n += np.uint64(a >= raised)
    kept = np.uint64(n_pending)
    for p in range(np.int64(n)):
        at = np.uint64(noted[p])
        v = values[at]
        a = np.uint64(table[np.uint64(bins[at])]) - raised
        a += np.uint64(lower[a] > v)
        a += np.uint64(lower[a] > v)
        left = np.int32(v <= upper[a])
        placed[np.uint64(0), a] += np.int32(1) - left
        pending.column[kept] = start + np.int64(at)
        pending.place[kept] = np.int64(a)
        pending.value[kept] = v
        kept += np.uint64(left)
    return int(np.int64(kept))


@inlined_kernel
def place_among(lower: NDArray[np.floating], value: Any) -> int:
    """Find the first threshold whose lower edge a value reaches; the number of thresholds for none."""
    if len(lower) > _MANY:
        # A typed zero: the type of a literal is its value, and another compilation.
        return first_at_most(lower, int(np.int64(0)), len(lower), value)
    # Edges fall: without branches, which would be unpredictable.
    place = np.int32(0)
    for u in range(len(lower)):
        place = np.int32(place + np.int32(lower[u] > value))
    return int(place)
