"""Canonical distances: one definite float64 for a pair of rows, independent of the tile or block it is computed in.

The product of two float32 numbers is exact in float64.  Only the order of the sum remains to be chosen, and it is
fixed here: element ``i`` goes to lane ``i mod 32``, each lane adds its terms in ascending order, and the lanes are
folded in halves (0 with 16, 1 with 17, …; then 0 with 8, …).  The lanes are an array, not separate variables, because
LLVM turns this form into vector instructions without permission to reorder anything.

Rows that are equal bit for bit are at cosine distance exactly 0: then ``xy == xx == yy`` and the correctly rounded
square root of the rounded square of a float64 is that float64.

A distance may be *rescored*, as in re-ranking: ``(1 - weight) * apart + weight * (d / scale)``, an increasing
function of it for each query, for all pairs except a few whose values are given and looked up.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import inner_kernel, kernel

# A power of two.
LANES = 32

# Four terms of a lane are added together, so that lanes are loaded and stored less often; elements of such a run.
TERMS = 4
RUN = TERMS * LANES

COSINE = 0
SQEUCLIDEAN = 1
EUCLIDEAN = 2
# Precomputed distances: a query row holds them, a gallery row holds its position among them.
GIVEN = 3


# Lower bound of plain distances in screening, in units of `scale`: those farther below the rescored distance 0 are
# screened as if they were at this bound.
LOWEST = -64.0


class Rescoring(NamedTuple):
    """Rescoring of the distances of a block of queries."""

    # Whether distances are rescored.
    active: bool
    # Weight of the distance, from 0 to 1.
    weight: float
    # Whether the distance is squared.
    squares: bool
    # Divisor of each query's distances, shape (n_query,), float64; where it is 0, the quotient counts as 0.
    scale: NDArray[np.float64]
    # Given rescored distances: those of query ``i`` are ``indptr[i]:indptr[i + 1]``, columns ascending. Offsets and
    # columns are int64, values float64.
    indptr: NDArray[np.int64]
    column: NDArray[np.int64]
    value: NDArray[np.float64]
    # Column of the first gallery row of the block.
    first_column: int
    # Graph distance of pairs without a given value; mixed with the plain distance.
    apart: float = 1.0
    # Whether given values are graph distances, mixed with the plain distance as well.
    mixed: bool = False


PLAIN = Rescoring(
    False, 1.0, False, np.empty(0), np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.float64), 0
)


class PairRows(NamedTuple):
    """Rows that canonical distances are computed from, on both sides."""

    # ``COSINE``, ``SQEUCLIDEAN``, ``EUCLIDEAN`` or ``GIVEN``.
    kind: int
    # Features, shapes (n_query, dim) and (n_gallery, dim), float32, C order; under ``GIVEN`` distances, shape (n_query,
    # n), and places among those n, shape (n_gallery, 1), both float64 through `bytes_of_given`.
    query: NDArray[np.float32]
    gallery: NDArray[np.float32]
    # Canonical squared norms, float64.
    query_norm: NDArray[np.float64]
    gallery_norm: NDArray[np.float64]
    # Rescoring of the distances; inactive by default.
    rescoring: Rescoring = PLAIN


def read_only(rows: NDArray[Any]) -> NDArray[Any]:
    """View that cannot be written, as kernels take rows: they are compiled for read-only and writable arrays apart."""
    view = rows.view()
    view.flags.writeable = False
    return view


def bytes_of_given(rows: NDArray[np.float64]) -> NDArray[np.float32]:
    """View of rows (n, m) float64 as (n, 2 m) float32, the type of rows that all kernels are compiled for."""
    return rows.view(np.float32)


@inner_kernel
def _given(distances: NDArray[np.float32], place: NDArray[np.float32]) -> float:
    """Precomputed distance of a query row and a gallery row, both of `bytes_of_given`."""
    at = 2 * np.int64(place.view(np.float64)[0])
    return float(distances[at : at + 2].view(np.float64)[0])


@inner_kernel
def fold(lanes: NDArray[np.floating]) -> float:
    """Sum of the 32 lanes in halves; written out, as a loop over halves is not unrolled."""
    for lane in range(16):
        lanes[lane] += lanes[lane + 16]
    for lane in range(8):
        lanes[lane] += lanes[lane + 8]
    for lane in range(4):
        lanes[lane] += lanes[lane + 4]
    return float((lanes[0] + lanes[2]) + (lanes[1] + lanes[3]))


@inner_kernel
def _dot(x: NDArray[np.float32], y: NDArray[np.float32], lanes: NDArray[np.float64]) -> float:
    """Canonical product of two rows."""
    n = x.shape[0]
    for lane in range(LANES):
        lanes[lane] = 0.0
    whole = n - n % RUN
    for start in range(0, whole, RUN):
        xs, ys = x[start : start + RUN], y[start : start + RUN]
        for lane in range(LANES):
            total = lanes[lane]
            for term in range(TERMS):
                at = lane + term * LANES
                total += np.float64(xs[at]) * ys[at]
            lanes[lane] = total
    # Few elements: without vector instructions, whose three loops would take a tenth of all compilation.
    for at in range(whole, n):
        lanes[at & (LANES - 1)] += np.float64(x[at]) * y[at]
    return fold(lanes)


@inner_kernel
def _two_dots(
    x: NDArray[np.float64],
    y: NDArray[np.float32],
    z: NDArray[np.float32],
    lanes: NDArray[np.float64],
    others: NDArray[np.float64],
) -> tuple[float, float]:
    """Canonical products of a row with two others, equal to those of `_dot`; two rows are loaded concurrently."""
    n = x.shape[0]
    for lane in range(LANES):
        lanes[lane] = 0.0
        others[lane] = 0.0
    whole = n - n % RUN
    for start in range(0, whole, RUN):
        stop = start + RUN
        xs, ys, zs = x[start:stop], y[start:stop], z[start:stop]
        for lane in range(LANES):
            total, other = lanes[lane], others[lane]
            for term in range(TERMS):
                at = lane + term * LANES
                total += xs[at] * ys[at]
                other += xs[at] * zs[at]
            lanes[lane], others[lane] = total, other
    for at in range(whole, n):
        lanes[at & (LANES - 1)] += x[at] * y[at]
        others[at & (LANES - 1)] += x[at] * z[at]
    return fold(lanes), fold(others)


@inner_kernel
def _squared_difference(x: NDArray[np.float32], y: NDArray[np.float32], lanes: NDArray[np.float64]) -> float:
    """Canonical sum of squared differences of two rows; structured as `_dot`."""
    n = x.shape[0]
    for lane in range(LANES):
        lanes[lane] = 0.0
    whole = n - n % RUN
    for start in range(0, whole, RUN):
        xs, ys = x[start : start + RUN], y[start : start + RUN]
        for lane in range(LANES):
            total = lanes[lane]
            for term in range(TERMS):
                at = lane + term * LANES
                difference = np.float64(xs[at]) - ys[at]
                total += difference * difference
            lanes[lane] = total
    for at in range(whole, n):
        difference = np.float64(x[at]) - y[at]
        lanes[at & (LANES - 1)] += difference * difference
    return fold(lanes)


@inner_kernel
def _cosine(xy: float, xx: float, yy: float) -> float:
    """Cosine distance of two rows, from their canonical product and squared norms."""
    if xx == 0.0 or yy == 0.0:
        return 1.0
    return 1.0 - xy / math.sqrt(xx * yy)


@inner_kernel
def plain_distance(
    kind: int,
    x: NDArray[np.float32],
    y: NDArray[np.float32],
    xx: float,
    yy: float,
    lanes: NDArray[np.float64],
) -> float:
    """Canonical distance of two rows, not rescored; `xx` and `yy` are their canonical squared norms, for ``COSINE``.

    Cosine is 1 - xy / sqrt(xx * yy), and 1 if a row is zero.  `lanes` is scratch of shape (32,), float64.
    """
    if kind == GIVEN:
        return _given(x, y)
    if kind == COSINE:
        if xx == 0.0 or yy == 0.0:
            return 1.0
        return _cosine(_dot(x, y, lanes), xx, yy)
    total = _squared_difference(x, y, lanes)
    if kind == EUCLIDEAN:
        return math.sqrt(total)
    return total


@inner_kernel
def mix(weight: float, squares: bool, scale: float, distance: float, jaccard: float) -> float:
    """Mix a plain distance with a graph distance; see `Rescoring` for the first three."""
    term = distance * distance if squares else distance
    share = term / scale if scale != 0.0 else 0.0
    return (1.0 - weight) * jaccard + weight * share


@inner_kernel
def _rescored(rescoring: Rescoring, i: int, j: int, distance: float) -> float:
    """Rescored distance of query `i` and gallery row `j`, from the plain one; that is not read with weight 0."""
    wanted = j + rescoring.first_column
    start = rescoring.indptr[i]
    stop = rescoring.indptr[i + 1]
    last = stop
    while start < stop:
        middle = (start + stop) // 2
        if rescoring.column[middle] < wanted:
            start = middle + 1
        else:
            stop = middle
    graph = rescoring.apart
    if start < last and rescoring.column[start] == wanted:
        graph = float(rescoring.value[start])
        if not rescoring.mixed:
            return graph
    if rescoring.weight == 0.0:
        return graph
    return mix(rescoring.weight, rescoring.squares, rescoring.scale[i], distance, graph)


@inner_kernel
def pair_distance(rows: PairRows, i: int, j: int, lanes: NDArray[np.float64]) -> float:
    """Canonical distance of query `i` and gallery row `j`, rescored if `rows.rescoring` is active."""
    xx, yy = rows.query_norm[i], rows.gallery_norm[j]
    distance = plain_distance(rows.kind, rows.query[i], rows.gallery[j], xx, yy, lanes)
    if rows.rescoring.active:
        return _rescored(rows.rescoring, i, j, distance)
    return distance


@inner_kernel
def falling_at(rows: PairRows, i: int, distance: float, side: float) -> float:
    """Falling value at a canonical distance of query `i`: the screening value decreases linearly with it.

    The distance is rescored if `rows.rescoring` is active.  With `side` 1 or -1, no plain distance rescored to
    `distance` exceeds the value, or falls below it; with 0 it lies between these.
    """
    rescoring = rows.rescoring
    value = distance
    if rescoring.active:
        if rescoring.weight == 0.0:
            # Screening values are the graph distances.
            return distance
        # Rescoring rounds four times, each time by at most 2^-53 of a number below 1 + |distance|.
        slack = side * 2.0**-50 * (1.0 + abs(distance))
        value = (distance - (1.0 - rescoring.weight) * rescoring.apart + slack) / rescoring.weight
        value = max(value, LOWEST) * rescoring.scale[i]
        if rescoring.squares:
            return math.sqrt(value) if value > 0.0 else -math.sqrt(-value)
    if rows.kind == EUCLIDEAN:
        return value * value if value > 0.0 else -value * value
    return value


@inner_kernel
def _distances_from(
    kind: int,
    x: NDArray[np.float32],
    xx: float,
    rows: NDArray[np.float32],
    norms: NDArray[np.float64],
    index: NDArray[np.int64],
    distances: NDArray[np.float64],
    wide: NDArray[np.float64],
    lanes: NDArray[np.float64],
) -> None:
    """Write the plain distances of row `x` and rows ``rows[index]``, none of them ``GIVEN``, to `distances`."""
    if kind != COSINE:
        for p in range(len(index)):
            total = _squared_difference(x, rows[index[p]], lanes)
            distances[p] = math.sqrt(total) if kind == EUCLIDEAN else total
        return
    own, others = lanes[:LANES], lanes[LANES:]
    if len(index) > 1:
        for k in range(len(wide)):
            wide[k] = x[k]
    for p in range(1, len(index), 2):
        j, k = index[p - 1], index[p]
        first, second = _two_dots(wide, rows[j], rows[k], own, others)
        distances[p - 1] = _cosine(first, xx, norms[j])
        distances[p] = _cosine(second, xx, norms[k])
    if len(index) % 2:
        j = index[-1]
        distances[-1] = _cosine(_dot(x, rows[j], lanes), xx, norms[j])


@inner_kernel
def write_distances(
    rows: PairRows,
    query_index: NDArray[np.int64],
    gallery_index: NDArray[np.int64],
    distances: NDArray[np.float64],
    wide: NDArray[np.float64],
    lanes: NDArray[np.float64],
) -> None:
    """Write the canonical distances of listed pairs to `distances`; `wide` and `lanes` are as in `row_distances`."""
    # Fields are extracted once: passing the tuple costs as much as a short sum.
    kind, query, gallery, rescoring = rows.kind, rows.query, rows.gallery, rows.rescoring
    query_norm, gallery_norm = rows.query_norm, rows.gallery_norm
    done = 0
    while done < len(distances):
        j = gallery_index[done]
        stop = done + 1
        while stop < len(distances) and gallery_index[stop] == j:
            stop += 1
        own, index, found = gallery[j], query_index[done:stop], distances[done:stop]
        if kind == GIVEN:
            for p in range(len(index)):
                found[p] = _given(query[index[p]], own)
        else:
            _distances_from(kind, own, gallery_norm[j], query, query_norm, index, found, wide, lanes)
        if rescoring.active:
            for p in range(len(index)):
                found[p] = _rescored(rescoring, index[p], j, found[p])
        done = stop


@kernel
def pair_distances(
    rows: PairRows, query_index: NDArray[np.int64], gallery_index: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Canonical distances of listed pairs, shape (n,), float64; fastest if pairs of a gallery row are consecutive."""
    distances = np.empty(query_index.shape[0], np.float64)
    wide, lanes = np.empty(rows.gallery.shape[1], np.float64), np.empty(2 * LANES, np.float64)
    write_distances(rows, query_index, gallery_index, distances, wide, lanes)
    return distances


@inner_kernel
def row_distances(
    rows: PairRows,
    i: int,
    columns: NDArray[np.int64],
    distances: NDArray[np.float64],
    wide: NDArray[np.float64],
    lanes: NDArray[np.float64],
) -> None:
    """Write the canonical distances of query `i` and some gallery columns, shape (n,), to `distances`.

    A call per pair costs several times as much: here the fields of `rows` are read once, and the query is widened to
    float64 once.  `wide` and `lanes` are scratch of shapes (dim,) and (64,), float64.
    """
    own = rows.query[i]
    if rows.kind == GIVEN:
        for p in range(len(columns)):
            distances[p] = _given(own, rows.gallery[columns[p]])
    else:
        norm, norms = rows.query_norm[i], rows.gallery_norm
        _distances_from(rows.kind, own, norm, rows.gallery, norms, columns, distances, wide, lanes)
    if rows.rescoring.active:
        for p in range(len(columns)):
            distances[p] = _rescored(rows.rescoring, i, columns[p], distances[p])


def squared_norms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Canonical squared norms of rows (n, dim) float32; not finite exactly where a row holds NaN or infinity."""
    return _squared_norms(read_only(rows))


@kernel
def _squared_norms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    norms = np.empty(rows.shape[0], np.float64)
    lanes = np.empty(LANES, np.float64)
    for i in range(rows.shape[0]):
        norms[i] = _dot(rows[i], rows[i], lanes)
    return norms
