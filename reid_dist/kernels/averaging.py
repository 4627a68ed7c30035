"""Weighted sums of rows in float64, in a fixed order, and weights of neighbours."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.exponential import fixed_power
from reid_dist.kernels.normalising import row_lengths
from reid_dist.kernels.settings import kernel


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


def add_rows(
    total: NDArray[np.float64],
    owner: NDArray[np.int64],
    place: NDArray[np.int64],
    weight: NDArray[np.float64],
    rows: NDArray[np.float32],
    unit: bool,
) -> None:
    """Add ``weight[e]`` times row ``place[e]`` of `rows` to ``total[owner[e]]`` in order; of length 1 if `unit`."""
    _add_quotients(total, owner, place, weight, rows, row_lengths(rows) if unit else np.ones(len(rows)))


@kernel
def _add_quotients(
    total: NDArray[np.float64],
    owner: NDArray[np.int64],
    place: NDArray[np.int64],
    weight: NDArray[np.float64],
    rows: NDArray[np.float32],
    length: NDArray[np.float64],
) -> None:
    """Add weighted rows, divided by their lengths; those of length 0 are left out."""
    for entry in range(len(owner)):
        row, own, share, divisor = rows[place[entry]], total[owner[entry]], weight[entry], length[place[entry]]
        if divisor > 0.0:
            for column in range(len(row)):
                own[column] += share * (np.float64(row[column]) / divisor)
