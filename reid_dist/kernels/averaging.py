"""Weighted sums of feature rows in float64, in a fixed order, and weights of neighbours."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.exponential import fixed_exp, fixed_power
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


@kernel
def exponential_weights(distance: NDArray[np.float64], beta: float) -> NDArray[np.float64]:
    """Weights ``exp(-d / beta)`` of neighbours, shape (n, k); 0 for those at infinity, 1 below distance 0."""
    weights = np.zeros(distance.shape, np.float64)
    for i in range(distance.shape[0]):
        for place in range(distance.shape[1]):
            if distance[i, place] < np.inf:
                weights[i, place] = fixed_exp(-max(distance[i, place], 0.0) / beta)
    return weights


@kernel
def add_graph_sums(
    index: NDArray[np.integer], weight: NDArray[np.float64], start: int, both: bool, total: NDArray[np.float64]
) -> None:
    """Add the weights of lists of neighbours, shape (n, k), to the items listed, list by list.

    With `both`, half of each weight is added to the listed item and half to the one that lists it, from `start` on.
    """
    for i in range(index.shape[0]):
        for place in range(index.shape[1]):
            if index[i, place] < 0:
                continue
            if both:
                total[index[i, place]] += 0.5 * weight[i, place]
                total[start + i] += 0.5 * weight[i, place]
            else:
                total[index[i, place]] += weight[i, place]


@kernel
def list_sums(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of rows in order, shapes (n, k) and (n,)."""
    total = np.zeros(weight.shape[0], np.float64)
    for i in range(weight.shape[0]):
        for place in range(weight.shape[1]):
            total[i] += weight[i, place]
    return total


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
def add_rows(
    total: NDArray[np.float64],
    owner: NDArray[np.int64],
    place: NDArray[np.int64],
    weight: NDArray[np.float64],
    rows: NDArray[np.float32],
    unit: bool,
) -> None:
    """Add ``weight[e]`` times row ``place[e]`` of `rows` to ``total[owner[e]]`` in order; of length 1 if `unit`."""
    for entry in range(len(owner)):
        _add(rows[place[entry]], weight[entry], unit, total[owner[entry]])


@kernel
def divided_rows(total: NDArray[np.float64], n_added: NDArray[np.int64], unit: bool) -> NDArray[np.float32]:
    """Sums scaled to length 1 if `unit`, otherwise divided by numbers of rows, (n,); shape (n, dim), float32."""
    out = np.empty(total.shape, np.float32)
    for i in range(total.shape[0]):
        row = total[i]
        divisor = float(n_added[i])
        if unit:
            squared = 0.0
            for column in range(len(row)):
                squared += row[column] * row[column]
            divisor = math.sqrt(squared) if squared > 0.0 else 1.0
        for column in range(len(row)):
            out[i, column] = row[column] / divisor
    return out
