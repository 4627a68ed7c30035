"""The k-th of some values, and the order of short lists, for thousands of lists of some hundred values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import inner_kernel

# Up to here sorting by insertion beats merging.
_SHORT = 64


@inner_kernel
def select(values: NDArray[np.floating], place: int) -> Any:
    """Value at a place, from 0, of the ascending order, without sorting (Hoare, 1961, Algorithm 65).

    `values`, shape (n,), none of them NaN, are reordered.
    """
    low = 0
    high = len(values) - 1
    while low < high:
        middle = (low + high) >> 1
        # The median of three for a pivot: it stops both runs, and sorted values are no bad case.
        if values[middle] < values[low]:
            values[middle], values[low] = values[low], values[middle]
        if values[high] < values[low]:
            values[high], values[low] = values[low], values[high]
        if values[high] < values[middle]:
            values[high], values[middle] = values[middle], values[high]
        pivot = values[middle]
        i = low
        j = high
        while i <= j:
            while values[i] < pivot:
                i += 1
            while pivot < values[j]:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
    return values[place]


@inner_kernel
def order_of(values: NDArray[np.float64]) -> NDArray[np.int64]:
    """Places of the values in ascending order, shape (n,), int64; those of equal values ascend; none is NaN."""
    n = len(values)
    order = np.empty(n, np.int64)
    for start in range(0, n, _SHORT):
        for place in range(start, min(start + _SHORT, n)):
            value = values[place]
            at = place
            while at > start and value < values[order[at - 1]]:
                order[at] = order[at - 1]
                at -= 1
            order[at] = place
    width = _SHORT
    while width < n:
        merged = np.empty(n, np.int64)
        for start in range(0, n, 2 * width):
            left, right = start, min(start + width, n)
            middle, stop = right, min(start + 2 * width, n)
            for at in range(start, stop):
                if left < middle and (right == stop or not values[order[right]] < values[order[left]]):
                    merged[at] = order[left]
                    left += 1
                else:
                    merged[at] = order[right]
                    right += 1
        order = merged
        width *= 2
    return order
