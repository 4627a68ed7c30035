"""The k-th of some values, for thousands of lists of some hundred values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import inner_kernel


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
