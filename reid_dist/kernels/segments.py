"""Sums over the positives of each query, in the order in which they stand: one definite float64 each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import kernel

__all__ = ["segment_running_sums", "segment_suffix_maxima", "segment_sums"]


@kernel
def segment_sums(values: NDArray[np.float64], indptr: NDArray[np.int64]) -> NDArray[np.float64]:
    """Sum ``values[indptr[i]:indptr[i + 1]]`` from left to right for every ``i``; shape (n,), float64."""
    sums = np.zeros(indptr.shape[0] - 1, np.float64)
    for i in range(sums.shape[0]):
        total = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            total += values[k]
        sums[i] = total
    return sums


@kernel
def segment_running_sums(values: NDArray[np.int64], indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """Running sums that start anew in every segment; shape of `values`, int64."""
    running = np.empty_like(values)
    for i in range(indptr.shape[0] - 1):
        total = 0
        for k in range(indptr[i], indptr[i + 1]):
            total += values[k]
            running[k] = total
    return running


@kernel
def segment_suffix_maxima(values: NDArray[np.float64], indptr: NDArray[np.int64]) -> NDArray[np.float64]:
    """Largest of each value and those after it in its segment; shape of `values`, float64."""
    maxima = np.empty_like(values)
    for i in range(indptr.shape[0] - 1):
        best = -np.inf
        for k in range(indptr[i + 1] - 1, indptr[i] - 1, -1):
            best = max(best, values[k])
            maxima[k] = best
    return maxima
