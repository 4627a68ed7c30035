"""Covariances, their inverses and linear maps of rows in float64, every sum in one fixed order.

Sums of products run over rows, and the elements of a row are independent: so LLVM makes vector instructions of them
without permission to reorder, and the bits are the same on every processor.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.settings import inner_kernel, kernel

Float64 = NDArray[np.float64]

# Rows added at once, so that a matrix is loaded and stored a quarter as often.
_AT_ONCE = 4
# Rows of the matrix, and rows that are mapped, in the cache at a time.
_PANEL = 32


@kernel
def unit_rows(rows: NDArray[np.float32]) -> Float64:
    """Rows scaled to length 1, shape (n, dim), float64; a zero row stays zero."""
    out = np.zeros(rows.shape, np.float64)
    for i in range(rows.shape[0]):
        squared = 0.0
        for column in range(rows.shape[1]):
            squared += np.float64(rows[i, column]) * np.float64(rows[i, column])
        if squared > 0.0:
            length = math.sqrt(squared)
            for column in range(rows.shape[1]):
                out[i, column] = np.float64(rows[i, column]) / length
    return out


@kernel
def add_products(rows: Float64, sums: Float64, products: Float64) -> None:
    """Add rows, shape (n, dim), to `sums`, and their outer products to the upper triangle of `products`."""
    n, dim = rows.shape
    whole = n - n % _AT_ONCE
    for i in range(n):
        for column in range(dim):
            sums[column] += rows[i, column]
    for first in range(0, dim, _PANEL):
        for start in range(0, whole, _AT_ONCE):
            a, b, c, d = rows[start], rows[start + 1], rows[start + 2], rows[start + 3]
            for i in range(first, min(first + _PANEL, dim)):
                total = products[i]
                for j in range(i, dim):
                    total[j] += ((a[i] * a[j] + b[i] * b[j]) + c[i] * c[j]) + d[i] * d[j]
        for start in range(whole, n):
            row = rows[start]
            for i in range(first, min(first + _PANEL, dim)):
                total = products[i]
                for j in range(i, dim):
                    total[j] += row[i] * row[j]


@kernel
def inverse_of(matrix: Float64) -> Float64:
    """Inverse of a symmetric positive definite matrix, by Cholesky; only the upper triangle is read."""
    dim = matrix.shape[0]
    upper = matrix.copy()
    # Upper triangular factor U with U^T U = matrix, row by row.
    for k in range(dim):
        root = math.sqrt(upper[k, k])
        own = upper[k]
        for j in range(k, dim):
            own[j] /= root
        for i in range(k + 1, dim):
            _subtract(upper[i], own[i], own, i)
    # Rows of U^-T, which is lower triangular: each from those before it.
    lower = np.zeros((dim, dim), np.float64)
    for i in range(dim):
        own = lower[i]
        own[i] = 1.0
        for k in range(i):
            _subtract(own[: k + 1], upper[k, i], lower[k], 0)
        for j in range(i + 1):
            own[j] /= upper[i, i]
    out = np.zeros((dim, dim), np.float64)
    for k in range(dim):
        row = lower[k]
        for i in range(k + 1):
            _subtract(out[i, : k + 1], -row[i], row, 0)
    return out


@inner_kernel
def _subtract(row: Float64, factor: float, other: Float64, first: int) -> None:
    """Subtract a multiple of `other` from `row`, from column `first` on."""
    for j in range(first, row.shape[0]):
        row[j] -= factor * other[j]


@kernel
def mapped_rows(rows: Float64, mean: Float64, matrix: Float64) -> NDArray[np.float32]:
    """Rows (n, dim) minus `mean`, times a symmetric matrix, scaled to length 1: shape (n, dim), float32.

    An empty matrix stands for the identity.  A row that becomes zero stays zero.
    """
    n, dim = rows.shape
    out = np.zeros((n, dim), np.float32)
    total = np.empty((_PANEL, dim), np.float64)
    for start in range(0, n, _PANEL):
        size = min(_PANEL, n - start)
        for r in range(size):
            for j in range(dim):
                total[r, j] = 0.0 if len(matrix) else rows[start + r, j] - mean[j]
        for k in range(len(matrix)):
            weights = matrix[k]
            for r in range(size):
                centred = rows[start + r, k] - mean[k]
                own = total[r]
                for j in range(dim):
                    own[j] += centred * weights[j]
        for r in range(size):
            squared = 0.0
            for j in range(dim):
                squared += total[r, j] * total[r, j]
            if squared > 0.0:
                length = math.sqrt(squared)
                for j in range(dim):
                    out[start + r, j] = total[r, j] / length
    return out
