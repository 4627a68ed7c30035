"""Residuals of rows in eight bits, in eight bits themselves, and products of rows with them.

A row is ``x = s X + e`` (`reid_dist.kernels.quantising`).  Its residual becomes integers ``E`` from -127 to 127 on a
scale that is 254 times finer, ``e = (s / 254) E + g``: an element of ``e`` is at most half a step ``s``.  The quotients
that are rounded to ``E`` exceed their range by less than 0.01.

The computed ``e`` is off by ``4 u |x|``.  The scale of ``E``, its product and the difference carry three more roundings
of at most twice the size of the element of ``e`` each, which is at most that of ``x``: the computed ``g`` is off by a
vector of length ``12 u |x|`` at most.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.quantising import LARGEST_INTEGER, ROUNDER, ROUNDOFF, longest
from reid_dist.kernels.settings import kernel

# Steps of residuals in one of rows.
_FINER = np.float32(2 * LARGEST_INTEGER)


@kernel
def quantise_residuals(
    rows: NDArray[np.float32],
    integers: NDArray[np.int8],
    scale: NDArray[np.float32],
    bounds: NDArray[np.float64],
    residuals: NDArray[np.int8],
    left: NDArray[np.float64],
    total: NDArray[np.int32],
) -> None:
    """Quantise the residuals of rows; the first four arguments are those of `quantise_rows`, which has filled them.

    Parameters
    ----------
    residuals
        Overwritten with the integers of the residuals, shape (n, dim), int8.
    left
        Overwritten with upper bounds of the Euclidean lengths of what is left, shape (n,), float64.
    total
        Overwritten with the sums of these integers, shape (n,), int32.
    """
    rest = np.empty(rows.shape[1], np.float32)
    for i in range(rows.shape[0]):
        row, coarse, fine, step = rows[i], integers[i], residuals[i], scale[i]
        if step == 0.0:
            # The row is its own residual, and all of it is left.
            for k in range(len(rest)):
                fine[k] = 0
            left[i], total[i] = bounds[i, 1], 0
            continue
        inverse, share = _FINER / step, step / _FINER
        for k in range(len(rest)):
            rest[k] = row[k] - step * np.float32(coarse[k])
        for k in range(len(rest)):
            rounded = (rest[k] * inverse + ROUNDER) - ROUNDER
            fine[k] = np.int32(rounded)
            rest[k] -= share * rounded
        count = np.int32(0)
        for k in range(len(rest)):
            count = np.int32(count + np.int32(fine[k]))
        left[i], total[i] = longest(rest) + 12.0 * ROUNDOFF * bounds[i, 0], count


@kernel
def add_residuals(
    products: NDArray[np.number],
    crossed: NDArray[np.int32],
    shift: NDArray[np.number],
    crossed_shift: NDArray[np.int32],
    factor: NDArray[np.float32],
    scale: NDArray[np.float32],
    values: NDArray[np.float32],
) -> None:
    """Write the products of rows with residuals to `values`.

    Parameters
    ----------
    products
        Products of the integers of rows, shape (rows, columns), int32.
    crossed
        Sums of the products of integers of rows and of residuals of the other side, both ways, of the same shape.
    shift, crossed_shift
        Share of the offset of unsigned integers in both, shape (columns,), int32.
    factor, scale
        Scales of rows and of columns, shapes (rows,) and (columns,), float32.
    values
        Overwritten, shape (rows, columns), float32.
    """
    share = np.float32(1.0) / _FINER
    for i in range(products.shape[0]):
        first, second, out, own = products[i], crossed[i], values[i], factor[i]
        for c in range(len(out)):
            rest = np.float32(np.int32(second[c] - crossed_shift[c])) * share
            out[c] = (np.float32(np.int32(first[c] - shift[c])) + rest) * (own * scale[c])
