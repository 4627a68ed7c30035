r"""Bounds on canonical distances from float32 sums: several times faster than the distances themselves.

A pair inside a band of a tile is first compared with bounds that are some ten times narrower than the band; only pairs
that these leave open need their canonical distance.

*Sums.*  The product of two rows is summed in float32, in 32 lanes that are then folded in five steps.  A term carries
one rounding of its product, at most ``ceil(d / 32)`` of its lane and five of the folding.  With unit roundoff ``u =
2^-24``, ``n = ceil(d / 32) + 6`` and ``gamma_n = n u / (1 - n u)`` the error is at most ``gamma_n sum |x_i y_i| <=
gamma_n |x| |y|`` (Higham, *Accuracy and Stability of Numerical Algorithms*, 2nd ed., lemma 3.1 and section 3.1; then
Cauchy-Schwarz).  The rows are the stored ones, so that no rounding of prepared elements is added.

*Underflow.*  Products and partial sums below the normal range, and elements that the processor takes for zero, add at
most ``2^-126`` each, or ``2^-126`` times an element: less than ``4 d 2^-126 (1 + |x| + |y|)`` in all.  Rows shorter
than ``2^-30`` are left open; for all others this is less than ``8 d 2^-66 |x| |y|``, and so less than ``u |x| |y|``.

*Overflow.*  A sum of which a term or a partial sum exceeds the range of float32 is infinite or NaN, and left open.

*Distances.*  The sum, the canonical squared norms and a few roundings in float64 give a distance.  These and the
canonical distance itself are off by less than a share ``gamma' = gamma_{4 d + 100}``, of unit roundoff ``2^-53``, of
the largest term.  So the canonical cosine distance lies within ``gamma_{n + 1} + gamma'`` of the computed one, and the
canonical squared Euclidean distance, of terms ``|x|^2``, ``|y|^2`` and ``2 x y``, within ``2 gamma_{n + 1} |x| |y| +
4 gamma' (|x|^2 + |y|^2)``.  Roots of these bounds, moved outward by more than their rounding, bound the Euclidean
distance.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.canonical import COSINE, EUCLIDEAN, GIVEN, PairRows
from reid_dist.kernels.compiled import inner_kernel
from reid_dist.kernels.prefetch import request_row
from reid_dist.kernels.vectors import LANES, single_dot

# Shortest squared length of a row that is bounded.
_SHORTEST = 2.0**-60


@inner_kernel
def _gamma(roundings: float, roundoff: float) -> float:
    return roundings * roundoff / (1.0 - roundings * roundoff)


@inner_kernel
def _sum_products(
    rows: PairRows, query_index: NDArray[np.int64], gallery_index: NDArray[np.int64], sums: NDArray[np.float64]
) -> None:
    """Write the sums, in float32, of the products of listed pairs."""
    query, gallery = rows.query, rows.gallery
    for p in range(len(sums)):
        if p + 1 < len(sums):
            request_row(gallery, gallery_index[p + 1])
        sums[p] = single_dot(query[query_index[p]], gallery[gallery_index[p]])


@inner_kernel
def bound_pairs(
    rows: PairRows,
    query_index: NDArray[np.int64],
    gallery_index: NDArray[np.int64],
    least: NDArray[np.float64],
    most: NDArray[np.float64],
) -> None:
    """Write bounds, both inclusive, on the canonical distances of listed pairs, best with those of a query together.

    `least` and `most` have shape (n_pairs,).  Distances that are rescored or given are not bounded: their bounds are
    infinite.
    """
    if rows.rescoring.active or rows.kind == GIVEN:
        least[:] = -np.inf
        most[:] = np.inf
        return
    _sum_products(rows, query_index, gallery_index, least)
    dim = rows.query.shape[1]
    single = _gamma(math.ceil(dim / LANES) + 7.0, 2.0**-24)
    double = _gamma(4.0 * dim + 100.0, 2.0**-53)
    for p in range(len(least)):
        xy, xx, yy = least[p], rows.query_norm[query_index[p]], rows.gallery_norm[gallery_index[p]]
        length = math.sqrt(xx * yy)
        if not (abs(xy) < np.inf and xx >= _SHORTEST and yy >= _SHORTEST):
            least[p], most[p] = -np.inf, np.inf
        elif rows.kind == COSINE:
            distance = 1.0 - xy / length
            least[p], most[p] = distance - (single + double), distance + (single + double)
        else:
            square = xx + yy - 2.0 * xy
            error = 2.0 * single * length + 4.0 * double * (xx + yy)
            least[p], most[p] = square - error, square + error
            if rows.kind == EUCLIDEAN:
                least[p] = math.sqrt(max(least[p], 0.0)) * (1.0 - 2.0**-50)
                most[p] = math.sqrt(max(most[p], 0.0)) * (1.0 + 2.0**-50)
