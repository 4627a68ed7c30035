"""Averages of feature rows in float64, summed in a fixed order."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.exponential import fixed_power
from reid_dist.kernels.settings import inner_kernel, kernel


@kernel
def similarity_weights(distance: NDArray[np.float64], alpha: float) -> NDArray[np.float64]:
    """Weights ``max(s, 0)^alpha`` of neighbours at cosine distances ``1 - s``, shape (n, k); all 1 when alpha is 0.

    A similarity above 1 due to rounding counts as 1: a large power of it would be unbounded.
    """
    weights = np.ones(distance.shape, np.float64)
    if alpha != 0.0:
        for i in range(distance.shape[0]):
            for place in range(distance.shape[1]):
                weights[i, place] = fixed_power(min(max(1.0 - distance[i, place], 0.0), 1.0), alpha)
    return weights


@inner_kernel
def _add(row: NDArray[np.float32], weight: float, unit: bool, total: NDArray[np.float64]) -> None:
    """Add a row times its weight to `total`, shape (dim,), float64; scaled to length 1 before if `unit`."""
    length = 1.0
    if unit:
        squared = 0.0
        for column in range(len(row)):
            squared += np.float64(row[column]) * np.float64(row[column])
        if squared == 0.0:
            return
        length = math.sqrt(squared)
    for column in range(len(row)):
        total[column] += weight * (np.float64(row[column]) / length)


@kernel
def average_rows(
    own: NDArray[np.float32],
    place: NDArray[np.int64],
    weight: NDArray[np.float64],
    rows: NDArray[np.float32],
    unit: bool,
) -> NDArray[np.float32]:
    """Average each row of `own`, weight 1, with its neighbours in list order; shape (n, dim), float32.

    `place` and `weight` have shape (n, k): numbers of the neighbours in `rows`, -1 for none, and their weights.  With
    `unit`, all rows and the sum are scaled to length 1; otherwise the sum is divided by the number of its rows.
    """
    out = np.empty(own.shape, np.float32)
    total = np.empty(own.shape[1], np.float64)
    for i in range(own.shape[0]):
        total[:] = 0.0
        _add(own[i], 1.0, unit, total)
        n_rows = 1
        for neighbour in range(place.shape[1]):
            if place[i, neighbour] >= 0:
                _add(rows[place[i, neighbour]], weight[i, neighbour], unit, total)
                n_rows += 1
        divisor = float(n_rows)
        if unit:
            squared = 0.0
            for column in range(len(total)):
                squared += total[column] * total[column]
            divisor = math.sqrt(squared) if squared > 0.0 else 1.0
        for column in range(len(total)):
            out[i, column] = total[column] / divisor
    return out
