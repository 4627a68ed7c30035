"""Bisection of sorted values, within a range of places."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import inner_kernel

Values = NDArray[np.integer] | NDArray[np.floating]


@inner_kernel
def first_at_least(values: Values, start: int, stop: int, wanted: float) -> int:
    """Find the first place from `start` to `stop` whose value is at least `wanted`; values ascend, `stop` for none."""
    while start < stop:
        middle = (start + stop) // 2
        if values[middle] < wanted:
            start = middle + 1
        else:
            stop = middle
    return start


@inner_kernel
def first_at_most(values: Values, start: int, stop: int, wanted: float) -> int:
    """Find the first place from `start` to `stop` whose value is at most `wanted`; values fall, `stop` for none."""
    while start < stop:
        middle = (start + stop) // 2
        if values[middle] > wanted:
            start = middle + 1
        else:
            stop = middle
    return start
