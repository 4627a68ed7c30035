"""Canonical distances: one definite float64 for a pair of rows, independent of the tile or block it is computed in.

The product of two float32 numbers is exact in float64.  Only the order of the sum remains to be chosen, and it is that
of `reid_dist.kernels.vectors`.

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

from reid_dist.kernels.bisection import first_at_least
from reid_dist.kernels.compiled import inlined_kernel, inner_kernel, kernel
from reid_dist.kernels.prefetch import request_row
from reid_dist.kernels.vectors import dot, squared_difference

COSINE = 0
SQEUCLIDEAN = 1
EUCLIDEAN = 2
# Precomputed distances: a query row holds them, a gallery row holds its position among them.
GIVEN = 3


# Lower bound of plain distances in screening, in units of `scale`: those farther below the rescored distance 0 are
# screened as if they were at this bound.
LOWEST = -64.0

# Pairs between a request of a row and its use.
_AHEAD = 2


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
    first_column: int = 0
    # Graph distance of pairs without a given value; mixed with the plain distance.
    apart: float = 1.0
    # Whether given values are graph distances, mixed with the plain distance as well.
    mixed: bool = False


PLAIN = Rescoring(False, 1.0, False, np.empty(0), np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))


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
    return float(distances.view(np.float64)[int(place.view(np.float64)[0])])


@inlined_kernel
def plain_distance(kind: int, x: NDArray[np.float32], y: NDArray[np.float32], xx: float, yy: float) -> float:
    """Canonical distance of two rows, not rescored; `xx` and `yy` are their canonical squared norms, for ``COSINE``.

    Cosine is 1 - xy / sqrt(xx * yy), and 1 if a row is zero.
    """
    if kind == GIVEN:
        return _given(x, y)
    if kind == COSINE:
        return 1.0 if xx == 0.0 or yy == 0.0 else 1.0 - dot(x, y) / math.sqrt(xx * yy)
    total = squared_difference(x, y)
    return math.sqrt(total) if kind == EUCLIDEAN else total


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
    stop = rescoring.indptr[i + 1]
    place = first_at_least(rescoring.column, rescoring.indptr[i], stop, wanted)
    graph = rescoring.apart
    if place < stop and rescoring.column[place] == wanted:
        graph = float(rescoring.value[place])
        if not rescoring.mixed:
            return graph
    if rescoring.weight == 0.0:
        return graph
    return mix(rescoring.weight, rescoring.squares, rescoring.scale[i], distance, graph)


@inner_kernel
def pair_distance(rows: PairRows, i: int, j: int) -> float:
    """Canonical distance of query `i` and gallery row `j`, rescored if `rows.rescoring` is active."""
    xx, yy = rows.query_norm[i], rows.gallery_norm[j]
    distance = plain_distance(rows.kind, rows.query[i], rows.gallery[j], xx, yy)
    if rows.rescoring.active:
        return _rescored(rows.rescoring, i, j, distance)
    return distance


@inner_kernel
def on_screen_scale(rows: PairRows, i: int, distance: float, side: float) -> float:
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
def write_distances(
    rows: PairRows,
    query_index: NDArray[np.int64],
    gallery_index: NDArray[np.int64],
    distances: NDArray[np.float64],
) -> None:
    """Write the canonical distances of listed pairs to `distances`."""
    # Fields are extracted once: passing the tuple costs as much as a short sum.
    kind, query, gallery, rescoring = rows.kind, rows.query, rows.gallery, rows.rescoring
    query_norm, gallery_norm = rows.query_norm, rows.gallery_norm
    for p in range(len(distances)):
        if p + _AHEAD < len(distances):
            request_row(gallery, gallery_index[p + _AHEAD])
        i, j = query_index[p], gallery_index[p]
        distances[p] = plain_distance(kind, query[i], gallery[j], query_norm[i], gallery_norm[j])
    if rescoring.active:
        for p in range(len(distances)):
            distances[p] = _rescored(rescoring, query_index[p], gallery_index[p], distances[p])


@kernel
def pair_distances(
    rows: PairRows, query_index: NDArray[np.int64], gallery_index: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Canonical distances of listed pairs, shape (n,), float64; fastest if those of a row of a side are together."""
    distances = np.empty(query_index.shape[0], np.float64)
    write_distances(rows, query_index, gallery_index, distances)
    return distances


def squared_norms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Canonical squared norms of rows (n, dim) float32; not finite exactly where a row holds NaN or infinity."""
    return _squared_norms(read_only(rows))


@kernel
def _squared_norms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    norms = np.empty(rows.shape[0], np.float64)
    for i in range(rows.shape[0]):
        norms[i] = dot(rows[i], rows[i])
    return norms
