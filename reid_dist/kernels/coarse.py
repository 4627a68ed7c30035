"""Products of rows in eight bits, and corrections of them: see `reid_dist.engine.distances.quantised`.

A product of integers, times the scales of its rows, differs from the product ``p`` of the prepared rows by at most ``e
= spread * span + length * residual``, of factors of the row and of the column (`Factors`).  A *fine* value is corrected
by products with residuals; its error is some hundred times smaller.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from reid_dist.kernels.prefetch import LINE, prefetch
from reid_dist.kernels.settings import inner_kernel, kernel
from reid_dist.kernels.vectors import crossed_dots

# Columns of the factors for products with residuals; with one more, those of a row lie in one cache line.
SCALE, FINE_SCALE, SPREAD, LENGTH, SPAN, RESIDUAL, OMITTED = range(7)

# Entries between a request of a row and its use.
AHEAD = 3

# Pairs that are compared in vector instructions in the time of one that is compared alone.
_PAIRS_PER_END = 16


class Factors(NamedTuple):
    """Rows in eight bits, and factors of values and errors; shapes (n,), float32, if not stated otherwise."""

    # Integers of rows and of their residuals, shape (n, 2, dim), int8, and the scale of the former.
    integers: NDArray[np.int8]
    scale: NDArray[np.float32]
    # Factors of errors for products of integers: of the row, and of the column.
    spread: NDArray[np.float32]
    length: NDArray[np.float32]
    span: NDArray[np.float32]
    residual: NDArray[np.float32]
    # Factors for products with residuals, which are read for single pairs and therefore lie together, shape (n, 8):
    # see `fine_factors`.
    fine: NDArray[np.float32]
    # Share of the offset of the row in the products of a column, int32.
    shift: NDArray[np.int32]


class UpperEnds(NamedTuple):
    """Upper ends of the pairs of a tile, less a bias, that reach the farthest threshold of their row.

    Other kernels find those in it that reach a higher level.
    """

    # The threshold, ``inf`` for a row whose ends are unknown, and the largest end, shape (rows,), float32.
    threshold: NDArray[np.float32]
    largest: NDArray[np.float32]
    # Number of the ends, shape (rows,), int64; the first of them, float32, and their columns, int32, ascending, both of
    # shape (rows, most).
    n: NDArray[np.int64]
    end: NDArray[np.float32]
    column: NDArray[np.int32]


def make_upper_ends(n_row: int, n_column: int) -> UpperEnds:
    """Memory for the ends of a tile, all of them unknown."""
    shape = n_row, n_column // _PAIRS_PER_END
    return UpperEnds(
        threshold=np.full(n_row, np.inf, np.float32),
        largest=np.empty(n_row, np.float32),
        n=np.empty(n_row, np.int64),
        end=np.empty(shape, np.float32),
        column=np.empty(shape, np.int32),
    )


@inner_kernel
def columns_reaching(i: int, level: np.float32, ends: UpperEnds, columns: NDArray[np.int64]) -> int:
    """Write the columns of a row whose ends reach a level, ascending; return their number, -1 if they are not known."""
    if not level >= ends.threshold[i]:
        return -1
    n = ends.n[i]
    if n > ends.end.shape[1]:
        return -1
    n_reaching = 0
    for p in range(n):
        columns[n_reaching] = ends.column[i, p]
        n_reaching += int(ends.end[i, p] >= level)
    return n_reaching


def select_factors(factors: Factors, rows: slice | NDArray[np.int64]) -> Factors:
    """Factors of some rows."""
    selected: list[Any] = [each[rows] for each in factors]
    return Factors(*selected)


def fine_factors(
    scale: NDArray[np.float32],
    fine_scale: NDArray[np.float32],
    spread: NDArray[np.float32],
    length: NDArray[np.float32],
    span: NDArray[np.float32],
    residual: NDArray[np.float32],
    omitted: NDArray[np.float32],
) -> NDArray[np.float32]:
    """Factors for products with residuals, shape (n, 8): both scales, and factors of errors.

    Errors are ``spread * span + length * residual + omitted * omitted``, of the row and of the column.
    """
    nothing = np.zeros_like(scale)
    return np.stack((scale, fine_scale, spread, length, span, residual, omitted, nothing), axis=1)


def largest_factors(factors: Factors) -> NDArray[np.float32]:
    """Largest of each of the factors for products with residuals among all rows, at least 0, shape (8,)."""
    # Along the short axis of `fine`, NumPy takes several times as long.
    return np.asarray(factors.fine.T.copy().max(axis=1, initial=0.0))


def fine_error(own: Factors, largest: NDArray[np.float32]) -> NDArray[np.float64]:
    """Largest error of a fine value of each row against some columns, shape (n,), float64, with its roundings.

    `largest` are the `largest_factors` of the columns.
    """
    near, far = own.fine.astype(np.float64), largest.astype(np.float64)
    error = near[:, SPREAD] * far[SPAN] + near[:, LENGTH] * far[RESIDUAL] + near[:, OMITTED] * far[OMITTED]
    # A value is at most the product of the spans; it is rounded to float32, and less a bias once more.
    return np.asarray(error * (1.0 + 2.0**-40) + 2.0**-22 * near[:, SPAN] * far[SPAN] + 2.0**-120)


def residual_error(own: Factors, other: Factors) -> NDArray[np.float64]:
    """Largest error of `residual_values` of each row against some columns, less a bias, shape (n,), float64."""
    largest = own.span.astype(np.float64) * float(other.span.max(initial=0.0))
    return np.asarray(fine_error(own, largest_factors(other)) + 2.0**-18 * largest)


@kernel
def residual_values(
    coarse: NDArray[np.int32],
    crossed: NDArray[np.int32],
    own_scale: NDArray[np.float32],
    other_scale: NDArray[np.float32],
    shift: NDArray[np.int32],
    crossed_shift: NDArray[np.int32],
    out: NDArray[np.float32],
) -> None:
    """Write fine values of all pairs to `out`, in float32.

    `coarse` holds products of the integers, `crossed` those of integers and residuals of the other row, both ways, and
    the shifts the share of the offsets of rows in both; shapes (n_row, n_column) and (n_column,).
    """
    share = np.float32(1.0 / 254.0)
    for i in range(coarse.shape[0]):
        first, second, values, factor = coarse[i], crossed[i], out[i], own_scale[i]
        for j in range(len(values)):
            rest = np.float32(np.int32(second[j] - crossed_shift[j])) * share
            values[j] = (np.float32(np.int32(first[j] - shift[j])) + rest) * (factor * other_scale[j])


@inner_kernel
def request(j: int, other: Factors) -> None:
    """Request what `fine_value` reads of a column."""
    row = other.integers[j]
    for place in range(0, row.size, LINE):
        prefetch(row, place)
    prefetch(other.fine[j], 0)


@inner_kernel
def fine_value(q: int, j: int, value: np.float32, own: Factors, other: Factors) -> float:
    """Product of row `q` and column `j` by residuals, from that by integers."""
    one, two = crossed_dots(own.integers[q], other.integers[j])
    near, far = own.fine[q], other.fine[j]
    fine = np.float64(value)
    fine += np.float64(near[SCALE]) * np.float64(far[FINE_SCALE]) * np.float64(one)
    fine += np.float64(near[FINE_SCALE]) * np.float64(far[SCALE]) * np.float64(two)
    return float(fine)


@inner_kernel
def fine_ends(q: int, j: int, value: np.float32, own: Factors, other: Factors) -> tuple[float, float]:
    """Lower and upper end of the product of row `q` and column `j`, by residuals, from that by integers."""
    middle = fine_value(q, j, value, own, other)
    near, far = own.fine[q], other.fine[j]
    error = np.float64(near[SPREAD]) * far[SPAN] + np.float64(near[LENGTH]) * far[RESIDUAL]
    error += np.float64(near[OMITTED]) * far[OMITTED]
    low, high = middle - error, middle + error
    # Outward by more than a rounding to float32.
    return low - (abs(low) * 2.0**-22 + 2.0**-125), high + (abs(high) * 2.0**-22 + 2.0**-125)
