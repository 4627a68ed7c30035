"""Rows in eight bits, and their residuals in eight bits as well.

A row ``x`` of float32 becomes integers ``X`` from -127 to 127 and a scale ``s``, its largest absolute element divided
by 127, with ``x = s X + e``.  The scale is a float32 number, taken as exact: the length of ``e`` is measured with it.
The residual becomes integers ``E`` from -127 to 127 on a scale that is 254 times finer, ``e = (s / 254) E + g``: an
element of ``e`` is at most half a step ``s``.

The quotients that are rounded to ``X`` and ``E`` exceed their range by less than 0.01: no integer is out of it.

Elements of ``e`` are computed as ``x - s X`` in float32, with a rounding of the product and one of the difference.
Both are at most ``u`` times a number of at most ``2 |x|``, so that the computed residual is off by a vector of length
``4 u |x|`` at most.  The scale of ``E``, its product and the difference carry three more roundings of at most twice the
size of the element of ``e`` each, which is at most that of ``x``: the computed ``g`` is off by a vector of length
``12 u |x|`` at most.  Squares are summed in float32: a term carries one rounding of its own, at most ``ceil(d / 32)``
of its lane and five of the folding.  What underflows is less than ``2^-126`` for each square.  The stored lengths
contain all of this.  Rows without elements above 1e-15 have integers 0: they are their own residuals, and all of it is
left.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import inner_kernel, kernel
from reid_dist.kernels.vectors import LANES, single_dot

# All of eight bits with a sign.
LARGEST_INTEGER = 127
_LARGEST = np.float32(LARGEST_INTEGER)

ROUNDOFF = 2.0**-24
# A float32 number of less than 2^22 plus this is rounded to an integer, half to even; `np.rint` is a call each.
ROUNDER = np.float32(1.5 * 2**23)
# Rows of smaller elements are their own residuals: their squares would underflow.
SMALLEST = np.float32(1e-15)

FINER = 2 * LARGEST_INTEGER
"""Steps of residuals in one of rows."""
_FINER = np.float32(FINER)

# Rows that are written together: a cache line of each column.
_LINE = 64


@inner_kernel
def longest(row: NDArray[np.float32]) -> float:
    """Upper bound of the Euclidean length of a row of float32 numbers, taken as exact."""
    # A term carries at most dim / 32 + 7 roundings in float32.
    slack = 1.0 + (len(row) / LANES + 8.0) * ROUNDOFF
    # Squares below the normal numbers may be lost: each is less than 2^-126.
    return float(np.sqrt(single_dot(row, row)) * slack + np.sqrt(len(row)) * 2.0**-62)


@kernel
def quantise_rows(
    rows: NDArray[np.float32],
    integers: NDArray[np.int8],
    scale: NDArray[np.float32],
    bounds: NDArray[np.float64],
    total: NDArray[np.int32],
) -> None:
    """Quantise rows and their residuals.

    Parameters
    ----------
    rows
        Shape (n, dim), float32.
    integers
        Overwritten with the integers of the rows and behind them those of the residuals, shape (n, 2 dim), int8.
    scale
        Overwritten with the scales of the rows, shape (n,), float32.
    bounds
        Overwritten with upper bounds of the Euclidean lengths of rows, of residuals and of what is left of these, shape
        (n, 3), float64.
    total
        Overwritten with the sums of the integers of the rows, shape (n,), int32.
    """
    dim = rows.shape[1]
    single = np.empty(1, np.int32)
    rest = np.empty(dim, np.float32)
    for i in range(rows.shape[0]):
        row, coarse, fine = rows[i], integers[i, :dim], integers[i, dim:]
        # Bits of numbers of one sign are in the order of the numbers; a maximum of integers is vectorised.
        bits = row.view(np.int32)
        bits_of_largest = np.int32(0)
        for k in range(dim):
            bits_of_largest = max(bits_of_largest, bits[k] & np.int32(0x7FFFFFFF))
        single[0] = bits_of_largest
        largest = single.view(np.float32)[0]
        if not largest > SMALLEST:
            for k in range(dim):
                coarse[k] = fine[k] = 0
            scale[i] = 0.0
            total[i] = 0
            bounds[i] = np.float64(largest) * np.sqrt(dim) * (1.0 + 2.0**-40)
            continue
        step = largest / _LARGEST
        inverse = _LARGEST / largest
        # One loop each: with more arrays in a loop, or parts of rows, it is not vectorised.
        for k in range(dim):
            rounded = (row[k] * inverse + ROUNDER) - ROUNDER
            coarse[k] = np.int32(rounded)
            rest[k] = row[k] - step * rounded
        length = longest(row)
        scale[i], total[i] = step, _sum_of(coarse)
        # A product with a scale and a difference carry two roundings of at most the size of the row's element each.
        bounds[i, 0], bounds[i, 1] = length, longest(rest) + 4.0 * ROUNDOFF * length
        inverse, share = _FINER / step, step / _FINER
        for k in range(dim):
            rounded = (rest[k] * inverse + ROUNDER) - ROUNDER
            fine[k] = np.int32(rounded)
            rest[k] -= share * rounded
        bounds[i, 2] = longest(rest) + 12.0 * ROUNDOFF * length


@inner_kernel
def _sum_of(integers: NDArray[np.int8]) -> np.int32:
    total = np.int32(0)
    for k in range(len(integers)):
        total = np.int32(total + np.int32(integers[k]))
    return total


def transpose_integers(integers: NDArray[np.int8], columns: NDArray[np.int8]) -> None:
    """Write rows, shape (n, dim), as columns, shape (dim, n)."""
    n, dim = integers.shape
    # Rows at a distance of a power of two would share few lines of the nearest cache.
    part = np.empty((_LINE, dim + _LINE), np.int8)[:, :dim]
    for start in range(0, n, _LINE):
        stop = min(start + _LINE, n)
        part[: stop - start] = integers[start:stop]
        columns[:, start:stop] = part[: stop - start].T
