"""Canonical distances: one definite float64 for a pair of rows, wherever and in whatever company it is computed.

The product of two float32 numbers is exact in float64.  What is left to choose is the order of the sum, and it is
fixed here: element ``i`` goes to lane ``i mod 32``, each lane adds its terms in ascending order, and the lanes are
folded in halves (0 with 16, 1 with 17, …; then 0 with 8, …).  The lanes are memory, not registers named one by one,
because that is the form that LLVM turns into vector instructions without permission to reorder anything.

Rows that are equal bit for bit are at cosine distance exactly 0: then ``xy == xx == yy`` and the correctly rounded
square root of the rounded square of a float64 is that float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import kernel

__all__ = [
    "COSINE",
    "EUCLIDEAN",
    "GIVEN",
    "LANES",
    "SQEUCLIDEAN",
    "PairRows",
    "pair_distance",
    "pair_distances",
    "squared_norms",
]

LANES = 32

COSINE = 0
SQEUCLIDEAN = 1
EUCLIDEAN = 2
# Distances that somebody else computed: a query row holds them, a gallery row holds the place of its own.
GIVEN = 3


class PairRows(NamedTuple):
    """Rows that canonical distances are computed from, on both sides.

    Attributes
    ----------
    kind
        ``COSINE``, ``SQEUCLIDEAN``, ``EUCLIDEAN`` or ``GIVEN``.
    query, gallery
        Features, shapes (n_query, dim) and (n_gallery, dim), float32, C order; under ``GIVEN`` distances, shape
        (n_query, n), and places among those n, shape (n_gallery, 1), float64.
    query_norm, gallery_norm
        Canonical squared norms, float64.
    """

    kind: int
    query: NDArray[np.floating]
    gallery: NDArray[np.floating]
    query_norm: NDArray[np.float64]
    gallery_norm: NDArray[np.float64]


@kernel
def _fold(lanes: NDArray[np.float64]) -> float:
    width = LANES
    while width > 1:
        width //= 2
        for lane in range(width):
            lanes[lane] += lanes[lane + width]
    return float(lanes[0])


@kernel
def _dot(x: NDArray[np.float32], y: NDArray[np.float32], lanes: NDArray[np.float64]) -> float:
    n = x.shape[0]
    lanes[:] = 0.0
    for block in range(n // LANES):
        xs = x[block * LANES : block * LANES + LANES]
        ys = y[block * LANES : block * LANES + LANES]
        for lane in range(LANES):
            lanes[lane] += np.float64(xs[lane]) * np.float64(ys[lane])
    tail = n // LANES * LANES
    for lane in range(n - tail):
        lanes[lane] += np.float64(x[tail + lane]) * np.float64(y[tail + lane])
    return _fold(lanes)


@kernel
def _squared_difference(x: NDArray[np.float32], y: NDArray[np.float32], lanes: NDArray[np.float64]) -> float:
    n = x.shape[0]
    lanes[:] = 0.0
    for block in range(n // LANES):
        xs = x[block * LANES : block * LANES + LANES]
        ys = y[block * LANES : block * LANES + LANES]
        for lane in range(LANES):
            difference = np.float64(xs[lane]) - np.float64(ys[lane])
            lanes[lane] += difference * difference
    tail = n // LANES * LANES
    for lane in range(n - tail):
        difference = np.float64(x[tail + lane]) - np.float64(y[tail + lane])
        lanes[lane] += difference * difference
    return _fold(lanes)


@kernel
def pair_distance(
    kind: int,
    x: NDArray[np.floating],
    y: NDArray[np.floating],
    xx: float,
    yy: float,
    lanes: NDArray[np.float64],
) -> float:
    """Canonical distance of one pair.

    Parameters
    ----------
    kind
        ``COSINE`` (1 - xy / sqrt(xx * yy); 1 when either row is zero), ``SQEUCLIDEAN`` (sum of squared differences),
        ``EUCLIDEAN`` (its square root) or ``GIVEN`` (looked up).
    x, y
        Rows, C-contiguous; see `PairRows`.
    xx, yy
        Their canonical squared norms, used by ``COSINE`` alone.
    lanes
        Scratch of shape (32,), float64.
    """
    if kind == GIVEN:
        return np.float64(x[np.int64(y[0])])
    if kind == COSINE:
        if xx == 0.0 or yy == 0.0:
            return 1.0
        return 1.0 - _dot(x, y, lanes) / math.sqrt(xx * yy)
    total = _squared_difference(x, y, lanes)
    if kind == EUCLIDEAN:
        return math.sqrt(total)
    return total


@kernel
def pair_distances(
    rows: PairRows, query_index: NDArray[np.int64], gallery_index: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Canonical distances of listed pairs.

    Parameters
    ----------
    rows
        Both sides.
    query_index, gallery_index
        The pairs, shape (n_pairs,), as positions in them.

    Returns
    -------
    Distances, shape (n_pairs,), float64.
    """
    distances = np.empty(query_index.shape[0], np.float64)
    lanes = np.empty(LANES, np.float64)
    for pair in range(query_index.shape[0]):
        i = query_index[pair]
        j = gallery_index[pair]
        distances[pair] = pair_distance(
            rows.kind, rows.query[i], rows.gallery[j], rows.query_norm[i], rows.gallery_norm[j], lanes
        )
    return distances


@kernel
def squared_norms(rows: NDArray[np.float32]) -> NDArray[np.float64]:
    """Canonical squared norms of rows (n, dim) float32; not finite exactly where a row holds NaN or infinity."""
    norms = np.empty(rows.shape[0], np.float64)
    lanes = np.empty(LANES, np.float64)
    for i in range(rows.shape[0]):
        norms[i] = _dot(rows[i], rows[i], lanes)
    return norms
