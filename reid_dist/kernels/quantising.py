"""Rows in eight bits.

A row ``x`` of float32 becomes integers ``X`` from -127 to 127 and a scale ``s``, its largest absolute element divided
by 127, with ``x = s X + e``.  The residual ``e`` becomes integers ``E`` of the same range, with ``e = t E + g`` and the
scale ``t = s / 254``.  Scales are float32 numbers, taken as exact: lengths of ``e`` and ``g`` are measured with them.

Elements of ``e`` are computed as ``x - s X`` in float32, with a rounding of the product and one of the difference.
Both are at most ``u`` times a number of at most ``2 |x|``, so that the computed residual is off by a vector of length
``4 u |x|`` at most, and ``g`` by one of ``4 u (|x| + |e|)`` more.  Squares are summed in float32, in 32 lanes of
``ceil(d / 32)`` terms each with one rounding more; the lanes are added in float64.  What underflows is less than
``2^-126`` for each square.  The stored lengths contain all of this.  Rows without elements above 1e-15 have integers 0:
they are their own residuals.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import kernel

LARGEST = 127
# The offset that makes integers of the left factor unsigned.
OFFSET = 128

_LANES = 32
_ROUNDOFF = 2.0**-24
# Rows of smaller elements are their own residuals: their squares would underflow.
_SMALLEST = np.float32(1e-15)


@kernel
def quantise_rows(
    rows: NDArray[np.float32],
    integers: NDArray[np.int8],
    scale: NDArray[np.float32],
    fine_scale: NDArray[np.float32],
    bounds: NDArray[np.float64],
    total: NDArray[np.int32],
) -> None:
    """Quantise rows and their residuals.

    Parameters
    ----------
    rows
        Shape (n, dim), float32.
    integers
        Overwritten with the integers of rows and residuals, shape (n, 2, dim), int8.
    scale, fine_scale
        Overwritten with their scales, shape (n,), float32.
    bounds
        Overwritten with upper bounds of the Euclidean lengths of rows, residuals and residuals of residuals, shape
        (n, 3), float64.
    total
        Overwritten with the sums of the integers of rows, shape (n,), int32.
    """
    dim = rows.shape[1]
    whole = dim - dim % _LANES
    sizes = np.empty(_LANES, np.float32)
    squares, rests, ends = (np.empty(_LANES, np.float32), np.empty(_LANES, np.float32), np.empty(_LANES, np.float32))
    for i in range(rows.shape[0]):
        row, coarse, fine = rows[i], integers[i, 0], integers[i, 1]
        sizes[:] = 0.0
        for start in range(0, whole, _LANES):
            for lane in range(_LANES):
                size = abs(row[start + lane])
                sizes[lane] = size if size > sizes[lane] else sizes[lane]
        largest = np.float32(0.0)
        for lane in range(_LANES):
            largest = max(largest, sizes[lane])
        for k in range(whole, dim):
            largest = max(largest, abs(row[k]))
        if not largest > _SMALLEST:
            integers[i] = 0
            scale[i], fine_scale[i], total[i] = 0.0, 0.0, 0
            bounds[i] = np.float64(largest) * np.sqrt(dim) * (1.0 + 2.0**-40)
            continue
        step = largest / np.float32(LARGEST)
        inverse = np.float32(LARGEST) / largest
        fine_step = step / np.float32(2 * LARGEST)
        fine_inverse = np.float32(2 * LARGEST) / step
        count = np.int32(0)
        for k in range(dim):
            integer = np.int32(np.rint(row[k] * inverse))
            rest = row[k] - step * np.float32(integer)
            end = np.rint(rest * fine_inverse)
            coarse[k] = integer
            fine[k] = np.int32(min(max(end, np.float32(-LARGEST)), np.float32(LARGEST)))
            count += integer
        squares[:] = 0.0
        rests[:] = 0.0
        ends[:] = 0.0
        for start in range(0, whole, _LANES):
            for lane in range(_LANES):
                value = row[start + lane]
                rest = value - step * np.float32(coarse[start + lane])
                end = rest - fine_step * np.float32(fine[start + lane])
                squares[lane] += value * value
                rests[lane] += rest * rest
                ends[lane] += end * end
        square, rest_square, end_square = 0.0, 0.0, 0.0
        for lane in range(_LANES):
            square += np.float64(squares[lane])
            rest_square += np.float64(rests[lane])
            end_square += np.float64(ends[lane])
        for k in range(whole, dim):
            rest = row[k] - step * np.float32(coarse[k])
            end = rest - fine_step * np.float32(fine[k])
            square += np.float64(row[k]) ** 2
            rest_square += np.float64(rest) ** 2
            end_square += np.float64(end) ** 2
        # A sum carries at most dim / 32 + 2 roundings in float32.
        slack = 1.0 + (dim / _LANES + 8.0) * _ROUNDOFF
        # Squares below the normal numbers may be lost: each is less than 2^-126.
        lost = np.sqrt(dim) * 2.0**-62
        length = np.sqrt(square) * slack + lost
        # A product with a scale and a difference carry two roundings of at most the size of the row's element each.
        residual = np.sqrt(rest_square) * slack + lost + 4.0 * _ROUNDOFF * length
        bounds[i, 0], bounds[i, 1] = length, residual
        bounds[i, 2] = np.sqrt(end_square) * slack + lost + 4.0 * _ROUNDOFF * (length + residual)
        scale[i], fine_scale[i], total[i] = step, fine_step, count


@kernel
def transpose_bytes(rows: NDArray[np.int8], out: NDArray[np.int8]) -> None:
    """Write rows of shape (n, dim) as columns of `out`, shape (dim, n)."""
    n, dim = rows.shape
    for first in range(0, n, 64):
        last = min(n, first + 64)
        for low in range(0, dim, 64):
            for k in range(low, min(dim, low + 64)):
                target = out[k]
                for i in range(first, last):
                    target[i] = rows[i, k]
