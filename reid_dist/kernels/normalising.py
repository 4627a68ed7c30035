"""Sums of rows, covariances, their inverses and eigenvectors, and maps of rows in float64, sums in one fixed order.

Sums of products run over rows, and the elements of a row are independent: so LLVM makes vector instructions of them
without permission to reorder, and the bits are the same on every processor.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.compiled import inner_kernel, kernel

Float64 = NDArray[np.float64]

# Rows added at once, so that a matrix is loaded and stored a quarter as often.
_AT_ONCE = 4
# Rows of the matrix, and rows that are mapped, in the cache at a time.
_PANEL = 32


@inner_kernel
def _squared(row: NDArray[np.floating]) -> float:
    """Sum of the squares of a row, in order."""
    total = 0.0
    for column in range(len(row)):
        total += np.float64(row[column]) * np.float64(row[column])
    return total


@kernel
def row_lengths(rows: NDArray[np.floating]) -> Float64:
    """Lengths of rows (n, dim), shape (n,), float64."""
    lengths = np.empty(rows.shape[0], np.float64)
    for i in range(rows.shape[0]):
        lengths[i] = math.sqrt(_squared(rows[i]))
    return lengths


def unit_rows(rows: NDArray[np.floating]) -> Float64:
    """Rows scaled to length 1, shape (n, dim), float64; a zero row stays zero."""
    length = row_lengths(rows)[:, None]
    unit: Float64 = np.divide(rows, length, out=np.zeros(rows.shape), where=length > 0.0)
    return unit


def add_rows(
    total: Float64,
    owner: NDArray[np.int64],
    place: NDArray[np.int64],
    weight: Float64,
    rows: NDArray[np.float32],
    unit: bool,
) -> None:
    """Add ``weight[e]`` times row ``place[e]`` of `rows` to ``total[owner[e]]`` in order; of length 1 if `unit`."""
    _add_quotients(total, owner, place, weight, rows, row_lengths(rows) if unit else np.ones(len(rows)))


@kernel
def _add_quotients(
    total: Float64,
    owner: NDArray[np.int64],
    place: NDArray[np.int64],
    weight: Float64,
    rows: NDArray[np.float32],
    length: Float64,
) -> None:
    """Add weighted rows, divided by their lengths; those of length 0 are left out."""
    for entry in range(len(owner)):
        row, own, share, divisor = rows[place[entry]], total[owner[entry]], weight[entry], length[place[entry]]
        if divisor > 0.0:
            for column in range(len(row)):
                own[column] += share * (np.float64(row[column]) / divisor)


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


def inverse_of(matrix: Float64) -> Float64:
    """Inverse of a symmetric positive definite matrix, by Cholesky; only the upper triangle is read.

    No element is a sum of NumPy's: products of rows are subtracted from all later rows, one after the other.
    """
    dim = len(matrix)
    # Upper triangular factor U with U^T U = matrix; then rows of U^-T, which is lower triangular.
    upper, lower, out = matrix.copy(), np.eye(dim), np.zeros((dim, dim))
    for k in range(dim):
        upper[k, k:] /= math.sqrt(upper[k, k])
        upper[k + 1 :, k + 1 :] -= np.multiply.outer(upper[k, k + 1 :], upper[k, k + 1 :])
    for k in range(dim):
        row = lower[k, : k + 1]
        row /= upper[k, k]
        lower[k + 1 :, : k + 1] -= np.multiply.outer(upper[k, k + 1 :], row)
        out[: k + 1, : k + 1] += np.multiply.outer(row, row)
    return out


@inner_kernel
def _subtract(row: Float64, factor: float, other: Float64, first: int) -> None:
    """Subtract a multiple of `other` from `row`, from column `first` on."""
    for j in range(first, row.shape[0]):
        row[j] -= factor * other[j]


def eigenvectors_of(matrix: Float64) -> tuple[Float64, Float64]:
    """Eigenvalues, ascending, shape (dim,), and eigenvectors, the rows of (dim, dim), of a symmetric matrix.

    Only the upper triangle is read.
    """
    is_lower = np.tri(len(matrix), k=-1, dtype=np.bool_)
    values, vectors = _turned(np.where(is_lower, matrix.T, matrix))
    order = np.argsort(values, kind="stable")
    return values[order], vectors[order]


@kernel
def _turned(left: Float64) -> tuple[Float64, Float64]:
    """Eigenvalues and eigenvectors of a symmetric matrix, which is overwritten, in no particular order.

    Householder's reduction to a tridiagonal matrix and implicit QL steps with Wilkinson's shift (Golub and Van Loan,
    Matrix Computations, section 8.3).
    """
    dim = left.shape[0]
    vectors = np.eye(dim)
    diagonal, beside = np.zeros(dim), np.zeros(dim)
    factors = np.zeros(dim)
    for k in range(dim - 2):
        beside[k], factors[k] = _reflect(left[k, k + 1 :])
        if factors[k] != 0.0:
            _apply_both_sides(left[k + 1 :, k + 1 :], left[k, k + 1 :], factors[k])
    for k in range(dim):
        diagonal[k] = left[k, k]
    if dim > 1:
        beside[dim - 2] = left[dim - 2, dim - 1]
    for k in range(dim - 3, -1, -1):
        if factors[k] != 0.0:
            _apply_left(vectors[k + 1 :], left[k, k + 1 :], factors[k])
    # Columns of the product of reflections are turned as rows.
    turned = np.ascontiguousarray(vectors.T)
    for first in range(dim):
        _converge(diagonal, beside, turned, first)
    return diagonal, turned


@inner_kernel
def _reflect(x: Float64) -> tuple[float, float]:
    """Write v over x, and return a and f with x - f (v . x) v = (a, 0, 0, ...); f is 0 if nothing is to be done."""
    largest = 0.0
    for j in range(len(x)):
        largest = max(largest, abs(x[j]))
    if largest == 0.0:
        return 0.0, 0.0
    total = 0.0
    for j in range(len(x)):
        total += (x[j] / largest) * (x[j] / largest)
    length = largest * math.sqrt(total)
    end = -length if x[0] > 0.0 else length
    x[0] -= end
    squared = _squared(x)
    return end, (2.0 / squared if squared > 0.0 else 0.0)


@inner_kernel
def _apply_both_sides(matrix: Float64, v: Float64, factor: float) -> None:
    """Replace a symmetric matrix A by H A H with the reflection H = I - factor v v'."""
    n = len(v)
    product = np.zeros(n)
    for i in range(n):
        _subtract(product, -factor * v[i], matrix[i], 0)
    share = 0.0
    for j in range(n):
        share += product[j] * v[j]
    _subtract(product, 0.5 * factor * share, v, 0)
    for i in range(n):
        _subtract(matrix[i], v[i], product, 0)
        _subtract(matrix[i], product[i], v, 0)


@inner_kernel
def _apply_left(rows: Float64, v: Float64, factor: float) -> None:
    """Replace rows M by H M with the reflection H = I - factor v v'."""
    product = np.zeros(rows.shape[1])
    for i in range(len(v)):
        _subtract(product, -factor * v[i], rows[i], 0)
    for i in range(len(v)):
        _subtract(rows[i], v[i], product, 0)


@inner_kernel
def _converge(diagonal: Float64, beside: Float64, turned: Float64, first: int) -> None:
    """Turn a tridiagonal matrix until its element beside ``diagonal[first]`` is negligible; `turned` turns with it."""
    dim = len(diagonal)
    # A few steps are enough; the limit keeps NaN from running on.
    for _ in range(60):
        last = first
        while last < dim - 1:
            size = abs(diagonal[last]) + abs(diagonal[last + 1])
            if abs(beside[last]) <= 2.0**-53 * size:
                break
            last += 1
        if last == first:
            return
        shift = (diagonal[first + 1] - diagonal[first]) / (2.0 * beside[first])
        radius = math.sqrt(shift * shift + 1.0)
        away = shift + (radius if shift >= 0.0 else -radius)
        along = diagonal[last] - diagonal[first] + beside[first] / away
        sine, cosine, less = 1.0, 1.0, 0.0
        stopped = False
        for i in range(last - 1, first - 1, -1):
            across, own = sine * beside[i], cosine * beside[i]
            radius = math.sqrt(across * across + along * along)
            beside[i + 1] = radius
            if radius == 0.0:
                diagonal[i + 1] -= less
                beside[last] = 0.0
                stopped = True
                break
            sine, cosine = across / radius, along / radius
            along = diagonal[i + 1] - less
            radius = (diagonal[i] - along) * sine + 2.0 * cosine * own
            less = sine * radius
            diagonal[i + 1] = along + less
            along = cosine * radius - own
            upper, lower = turned[i + 1], turned[i]
            for j in range(dim):
                kept = upper[j]
                upper[j] = sine * lower[j] + cosine * kept
                lower[j] = cosine * lower[j] - sine * kept
        if not stopped:
            diagonal[first] -= less
            beside[first] = along
            beside[last] = 0.0


@kernel
def mapped_rows(rows: Float64, mean: Float64, matrix: Float64) -> NDArray[np.float32]:
    """Rows (n, old) minus `mean`, times a matrix (old, dim), scaled to length 1: shape (n, dim), float32.

    A matrix without rows stands for the identity.  A row that becomes zero stays zero.
    """
    n = rows.shape[0]
    dim = matrix.shape[1] if len(matrix) else rows.shape[1]
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
            squared = _squared(total[r])
            if squared > 0.0:
                length = math.sqrt(squared)
                for j in range(dim):
                    out[start + r, j] = total[r, j] / length
    return out
