r"""Impostor distances by the hundred million: a histogram of screening values, and exact counts around chosen places.

Thresholds of verification are order statistics of the distances of all kept negatives.  They are found without a list
of all distances:

1.  `count_keys` makes a histogram of the *screened* distances of a sample.  It locates each order statistic
    approximately.
2.  `split_tile` takes a few brackets ``[lo, hi)`` of canonical distances.  It counts the pairs between them, and lists
    those inside or near one, which are then decided by their canonical distances.  Counts are exact, so a bracket that
    misses its order statistic is recognised, and they give the side on which the order statistic lies.

*Keys.*  A screening value ``v`` becomes a *falling value* ``(centre - v) / slope``: about the distance, or its square.
Its float32 bits, less the last 11, are its key: bins whose width is a 4096th to an 8192th of their value, so that no
range has to be known beforehand and histograms of any tiles add up.  Negative values, which only given distances have,
count downwards from zero.

*Speed.*  The keys of 512 values are computed in loops without a branch, over slices, which LLVM makes vector code of.
Then one look-up per value follows, in a table of which the hot part lies in the first-level cache: the count of the
key, or the gap between brackets that contains it, with a mark if the value must be read.

*Certainty.*  A key determines the gap of a pair when it is farther from the brackets than the error of screening; see
`reid_dist.engine.reductions.impostor_counts`.  Other pairs are compared again in float64 with the error of their own
query, and those that may be inside a bracket are open.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import inlined_kernel, inner_kernel, kernel
from reid_dist.kernels.deciding import OpenPairs
from reid_dist.kernels.placing import hide_columns, take_known
from reid_dist.kernels.tiles import Tile, read_row, refined

BLOCK = 512

# Bits of a float32 that a key omits.
DROPPED_BITS = 11

# Key of infinity; keys go from its negative to it.  The place of a key in a table is the key plus this.
LARGEST_KEY = 0x7F800000 >> DROPPED_BITS
N_PLACES = 2 * LARGEST_KEY + 1

# Added to the entry of a key whose values are read.
NEEDS_VALUE = 1


def falling_keys(falling: NDArray[np.float64]) -> NDArray[np.int64]:
    """Keys of falling values, shape (n,), float64 in, int64 out; never falls when the value rises."""
    with np.errstate(over="ignore", under="ignore"):
        bits = np.asarray(falling, np.float64).astype(np.float32).view(np.int32).astype(np.int64)
    size = (bits & 0x7FFFFFFF) >> DROPPED_BITS
    return np.where(bits < 0, -size, size)


def key_edges(key: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Falling values between which those of a key lie: two arrays (n,), float64, both edges inclusive."""

    def value(size: NDArray[np.int64]) -> NDArray[np.float64]:
        bits = np.minimum(size, LARGEST_KEY) << DROPPED_BITS
        return bits.astype(np.int32).view(np.float32).astype(np.float64)

    near, far = value(np.abs(key)), value(np.abs(key) + 1)
    return np.where(key > 0, near, -far), np.where(key < 0, -near, far)


class Screened(NamedTuple):
    """A tile, and the pairs hidden from its queries."""

    # Its biases hide columns.
    tile: Tile
    # Columns of the block, ascending, that a query of the block does not count: its relevant items and its junk; int64.
    hidden_indptr: NDArray[np.int64]
    hidden_column: NDArray[np.int64]
    # Whether a query counts at all, shape (n_query,), bool.
    counted: NDArray[np.bool_]
    # Screening value of distance 0, shape (n_query,), in the type of the tile.
    centre: NDArray[np.floating]
    # One over how much a screening value falls per unit, in the type of the tile; a power of two.
    scale: np.floating


class Brackets(NamedTuple):
    """Brackets of distances in the units of a tile."""

    # By place of key: the number of edges that are certainly not above its values, which is even, and ``NEEDS_VALUE``
    # if others may be.  Shape (N_PLACES,), uint32.
    at_place: NDArray[np.uint32]
    # The last place with that mark.
    last_place: int
    # Edges of the brackets in falling values, ascending: ``lo, hi, lo, hi, …``; shape (2 n_bracket,), float64.
    falling: NDArray[np.float64]
    # Screening value of distance 0, and half width of the band, of each query, shape (n_query,), float64.
    centre: NDArray[np.float64]
    epsilon: NDArray[np.float64]


@inner_kernel
def _find_places(
    values: NDArray[np.floating],
    centre: np.floating,
    scale: np.floating,
    falling: NDArray[np.float32],
    places: NDArray[np.uint32],
) -> None:
    """Write the places of the keys of some values; `falling` is scratch, of the same length."""
    for k in range(len(falling)):
        falling[k] = np.float32((centre - values[k]) * scale)
    bits = falling.view(np.int32)
    for k in range(len(places)):
        sign = bits[k] >> np.int32(31)
        size = (bits[k] & np.int32(0x7FFFFFFF)) >> np.int32(DROPPED_BITS)
        # Two's complement: -size where the sign is -1, size where it is 0.
        places[k] = np.uint32((size ^ sign) - sign + np.int32(LARGEST_KEY))


@kernel
def count_keys(screened: Screened, counts: NDArray[np.int64], span: NDArray[np.uint32]) -> None:
    """Add a tile to the histogram of its falling values.

    `counts`, shape (N_PLACES,), is indexed by place of key; hidden columns count as infinite.  `span`, uint32, holds
    the first and last counted place, infinity aside.
    """
    tile, column_start = screened.tile, screened.tile.column_start
    n_rows, n_columns = tile.products.shape
    values, falling = np.empty(n_columns, tile.scale.dtype), np.empty(BLOCK, np.float32)
    places = np.empty(BLOCK, np.uint32)
    first, last = span[0], span[1]
    beyond = np.uint32(2 * LARGEST_KEY)
    for i in range(n_rows):
        q = tile.query[i]
        if not screened.counted[q]:
            continue
        less, none = tile.bias[tile.bias_of[i]], values.dtype.type(np.nan)
        read_row(tile.products[i], tile.shift, tile.scale, tile.factor[i], less, none, none, values)
        hide_columns(q, screened.hidden_indptr, screened.hidden_column, column_start, values)
        for start in range(0, n_columns, BLOCK):
            stop = min(start + BLOCK, n_columns)
            here = places[: stop - start]
            _find_places(values[start:stop], screened.centre[q], screened.scale, falling[: stop - start], here)
            for k in range(len(here)):
                first = min(first, here[k])
                last = max(last, here[k] if here[k] < beyond else np.uint32(0))
            for k in range(len(here)):
                counts[np.uint64(here[k])] += 1
    span[0], span[1] = first, last


@inlined_kernel
def _edges_from(edges: NDArray[np.float64], value: float, start: int) -> int:
    """Count the edges that are at most a value, the first `start` of which are known to be; mostly one more, or none.

    The last edge is NaN.
    """
    count = start + int(edges[start] <= value)
    while edges[count] <= value:
        count += 1
    return count


@inlined_kernel
def _edges_around(
    edges: NDArray[np.float64], centre: float, width: float, scale: float, value: float, first: int
) -> tuple[int, int]:
    """Count the edges that a pair with a screening value is certainly not before, and that it may not be before.

    A value is off by `width`, roundings of this function aside.
    """
    fall = centre - value
    # Covers the roundings of this line and of the edges, in float64.
    off = width + 2.0**-50 * (abs(centre) + abs(fall))
    near = _edges_from(edges, (fall - off) * scale, first)
    return near, _edges_from(edges, (fall + off) * scale, near)


@kernel
def split_tile(
    screened: Screened,
    brackets: Brackets,
    pairs: OpenPairs,
    n_open: int,
    first_row: int,
    limit: int,
    gaps: NDArray[np.int64],
    tally: NDArray[np.int32],
) -> tuple[int, int, int]:
    """Count the pairs of a tile between brackets, and add those that may be inside one to `pairs`, from `n_open` on.

    Begins at row `first_row`, and ends before a row whose pairs may find no room, and behind one with which more than
    `limit` values were refined or left open.  `gaps`, shape (n_bracket,), counts the pairs in each gap but the last;
    `tally`, shape (n_query, 2, n_bracket), takes them by query in ``tally[:, 0]``, unless it has no elements.  Returns
    the number of the first row that was not added, of open pairs, and of these values.
    """
    tile, column_start = screened.tile, screened.tile.column_start
    n_rows, n_columns = tile.products.shape
    values, falling = np.empty(n_columns, tile.scale.dtype), np.empty(BLOCK, np.float32)
    places = np.empty(BLOCK, np.uint32)
    unclear = np.empty(BLOCK + 1, np.int64)
    # By entry; four counters each in turn, for neighbours mostly share a gap.
    passed = np.zeros((4, 2 * len(gaps) + 1), np.int64)
    at_place, last_place = brackets.at_place, np.uint32(brackets.last_place)
    known, known_value = np.empty(n_columns + 1, np.int64), np.empty(n_columns + 1, values.dtype)
    are_floats = tile.products.dtype == values.dtype
    edges, scale = np.append(brackets.falling, np.nan), np.float64(screened.scale)
    shift, near_rows, far_rows = tile.shift, tile.near, tile.far
    room, inside, i = len(pairs.query) - n_columns, int(np.int64(0)), first_row
    while i < n_rows and n_open <= room and inside <= limit:
        q = tile.query[i]
        if not screened.counted[q]:
            i += 1
            continue
        less, none = tile.bias[tile.bias_of[i]], values.dtype.type(np.nan)
        read_row(tile.products[i], tile.shift, tile.scale, tile.factor[i], less, none, none, values)
        products, centre, epsilon = tile.products[i], brackets.centre[q], brackets.epsilon[q]
        extra, fine = np.float64(tile.extra[i]), np.float64(tile.fine[i])
        hide_columns(q, screened.hidden_indptr, screened.hidden_column, column_start, values)
        n_known = take_known(tile, q, values, known, known_value) if len(tile.known) > 0 else 0
        for start in range(0, n_columns, BLOCK):
            stop = min(start + BLOCK, n_columns)
            here = places[: stop - start]
            _find_places(values[start:stop], screened.centre[q], screened.scale, falling[: stop - start], here)
            reached = np.int32(0)
            for k in range(len(here)):
                reached += np.int32(here[k] <= last_place)
            if reached == 0:
                continue
            n_unclear = np.uint64(0)
            for k in range(len(here)):
                at = np.uint64(k)
                entry = np.uint64(at_place[np.uint64(here[at])])
                passed[at % np.uint64(4), entry] += 1
                # Written always, kept if the value must be read: no branch.
                unclear[n_unclear] = at
                n_unclear += entry % np.uint64(2)
            for p in range(np.int64(n_unclear)):
                k = unclear[p]
                column = start + k
                first, value = int(at_place[here[k]]) - NEEDS_VALUE, values[column]
                if value == -np.inf:
                    # Hidden; brackets may reach as far as that.
                    continue
                near, far = _edges_around(edges, centre, epsilon + extra, scale, np.float64(value), first)
                may_be_inside = int(near != far) | near % 2
                inside += may_be_inside
                if not are_floats and may_be_inside:
                    product, factor = products[column] - shift[column], tile.factor[i] * tile.scale[column]
                    value = refined(product, near_rows, q, far_rows, column, factor) - less[column]
                    near, far = _edges_around(edges, centre, epsilon + fine, scale, np.float64(value), first)
                    may_be_inside = int(near != far) | near % 2
                pairs.query[n_open], pairs.column[n_open] = q, column_start + column
                n_open += may_be_inside
                passed[0, near] += 1 - may_be_inside
        for p in range(n_known):
            near, far = _edges_around(edges, centre, epsilon, scale, np.float64(known_value[p]), 0)
            may_be_inside = int(near != far) | near % 2
            pairs.query[n_open], pairs.column[n_open] = q, column_start + known[p]
            n_open += may_be_inside
            passed[0, near] += 1 - may_be_inside
        for gap in range(len(gaps)):
            nearer = passed[:, 2 * gap].sum()
            gaps[gap] += nearer
            if len(tally):
                tally[q, 0, gap] += np.int32(nearer)
        passed[:] = 0
        i += 1
    return i, n_open, inside
