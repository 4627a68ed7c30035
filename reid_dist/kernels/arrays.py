"""Filling, copies and sorting of arrays, written out: they compile in a tenth of the time of NumPy's under Numba.

The assignment of an array to a slice compiles the message of a shape mismatch with all of the formatting of strings.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import inner_kernel


@inner_kernel
def put(values: NDArray[Any], out: NDArray[Any], start: int) -> None:
    """Copy all values to `out`, from place `start` on."""
    for place in range(len(values)):
        out[start + place] = values[place]


@inner_kernel
def lengthened(values: NDArray[Any], n: int, length: int) -> NDArray[Any]:
    """Array of a new length with the first `n` values, the others undefined."""
    longer = np.empty(length, values.dtype)
    put(values[:n], longer, 0)
    return longer


@inner_kernel
def filled(values: NDArray[Any], number: float) -> NDArray[Any]:
    """Set all values to a number, and return the array."""
    for place in range(len(values)):
        values[place] = number
    return values


@inner_kernel
def sort(values: NDArray[Any]) -> None:
    """Sort some hundred numbers in place, ascending (Shell, 1959; steps of Gonnet and Baeza-Yates, 1991)."""
    step = len(values)
    while step > 1:
        step = max((5 * step - 1) // 11, 1)
        for place in range(step, len(values)):
            value = values[place]
            at = place
            while at >= step and values[at - step] > value:
                values[at] = values[at - step]
                at -= step
            values[at] = value
