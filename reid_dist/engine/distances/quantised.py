r"""Products of rows in eight bits, exact as integers, and bounds on how far they are from the products of the rows.

*Rows.*  A prepared row (of length 1, or centred) is ``x = s X + e`` with integers ``X`` from ``-L`` to ``L``, and its
residual is ``e = t E + g`` with integers ``E`` from -127 to 127 and ``t = s / 254``; likewise ``y``.  The largest
integer ``L`` is 127, or less where products of larger ones are not exact: see `reid_dist.engine.distances.integers`.
Upper bounds of the lengths ``|x|``, ``|e|`` and ``|g|`` are measured: see `reid_dist.kernels.quantising`.

*Products.*  By the inequality of Cauchy and Schwarz,

    ``|x y - s_x s_y X Y| = |e_x (s_y Y) + x e_y| <= |e_x| (|y| + |e_y|) + |x| |e_y|``.

With ``a = s X`` and ``b = t E``, a product with residuals is ``p = a_x a_y + a_x b_y + b_x a_y``, and

    ``|x y - p| = |g_x y + (a_x + b_x) g_y + b_x b_y|
    <= |g_x| |y| + (|x| + |g_x|) |g_y| + (|e_x| + |g_x|) (|e_y| + |g_y|)``.

The integers themselves are exact: those of the left rows are made unsigned by adding ``L``, a term of the first product
is at most ``2 * 127 * 127``, and rows with more than 2^31 / (2 * 127 * 127) elements are not quantised.

*Roundings*, of unit roundoff ``u = 2^-24``.  A value is an integer, converted, times two scales: three roundings of at
most ``m = (|x| + |e_x|) (|y| + |e_y|)``.  The bound of its error is at most ``2 m`` and carries four more, its sum with
the value one of ``3 m``, and the difference of this end and a bias one of ``3 m`` and of the bias.  These are less than
``17 m u`` and the bias times ``u``.  Values with residuals are computed in float64 from the rounded first value.
Factors of the bounds contain ``32 m u``; the bias and underflow are added to the bound for exact products, which
also covers the preparation of rows and the rounding of the bias to float32: see `reid_dist.engine.reductions.coarse`.

*Compilation.*  The kernels take some five seconds to compile, and save a part of the time of products in float32.
Blocks are left to float32 until they are compiled, by a process beside the workers as a rule; only a process that has
left many blocks there compiles them itself.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.distances.integers import (
    COST_OF_LISTS,
    LARGEST_DIM,
    IntegerProduct,
    forced_screen,
    integer_product,
)
from reid_dist.engine.distances.screening import Float64, Screen, Values
from reid_dist.kernels.coarse import Factors, fine_factors, select_factors
from reid_dist.kernels.quantising import quantise_rows
from reid_dist.kernels.transposing import transpose_integers
from reid_dist.kernels.warmup import lacks_integers

# Rows that are prepared in float32 at a time, before they are quantised.
_PREPARED = 1024

# Smaller blocks are not worth the preparation, nor the import of the library.
_LEAST_QUERIES, _LEAST_ROWS = 256, 2048
# Products of elements, in float32 some ten seconds of a core, before a process compiles the kernels itself.
_MOST_UNCOMPILED = 1e12


class Quantised:
    """Rows in eight bits.

    Parameters
    ----------
    n, dim
        Rows and their elements.
    largest
        Integer of the largest absolute element of a row.

    Attributes
    ----------
    integers
        Integers of rows and of their residuals, shape (n, 2, dim), int8.
    scale, fine_scale
        Scales of both, shape (n,), float32.
    bounds
        Upper bounds of the lengths of rows, residuals and residuals of residuals, shape (n, 3), float64.
    total
        Sums of the integers of rows and of residuals, shape (n, 2), int32.
    """

    def __init__(self, n: int, dim: int, largest: int) -> None:
        self._largest = largest
        self.integers = np.empty((n, 2, dim), np.int8)
        self.scale, self.fine_scale = np.empty(n, np.float32), np.empty(n, np.float32)
        self.bounds = np.empty((n, 3))
        self.total = np.empty((n, 2), np.int32)

    def fill(self, rows: RowRange, prepared: Values) -> None:
        """Quantise some rows."""
        here = slice(rows.start, rows.stop)
        quantise_rows(
            prepared,
            self._largest,
            self.integers[here],
            self.scale[here],
            self.fine_scale[here],
            self.bounds[here],
            self.total[here],
        )

    @cached_property
    def factors(self) -> Factors:
        """Factors of values and errors, rounded up; first read when all rows are quantised."""
        length, residual, end = self.bounds.T
        more = 1.0 + 2.0**-20
        # 32 roundings of the largest value.
        rounded = 2.0**-19 * (length + residual)
        of_length, span = _rounded_up(more * (length + end)), _rounded_up(length + residual)
        return Factors(
            integers=self.integers,
            scale=self.scale,
            spread=_rounded_up(more * residual + rounded),
            length=of_length,
            span=span,
            residual=_rounded_up(more * residual),
            fine=fine_factors(
                self.scale,
                self.fine_scale,
                _rounded_up(more * end + rounded),
                of_length,
                span,
                _rounded_up(more * end),
                _rounded_up(more * (residual + end)),
            ),
            shift=np.int32(self._largest) * self.total[:, 0],
        )

    def factors_of(self, rows: RowRange) -> Factors:
        """Factors of some rows."""
        return select_factors(self.factors, slice(rows.start, rows.stop))


class QuantisedProducts:
    """Integer products of two blocks, with the factors of the values and errors that belong to them.

    Parameters
    ----------
    plain
        Screen of both blocks in float32, not in parts, which need not be that of multiplied rows.
    product
        Integer products.

    Attributes
    ----------
    plain, product
        As given.
    queries
        All queries.
    """

    def __init__(self, plain: Screen, product: IntegerProduct) -> None:
        self.plain, self.product = plain, product
        n_query, n_gallery, dim = plain.shape
        self._scratch = np.empty((min(_PREPARED, max(n_query, n_gallery)), dim), np.float32)
        self.queries = Quantised(n_query, dim, product.largest)
        for cut in cut_rows(n_query, _PREPARED):
            prepared = self._scratch[: len(cut)]
            plain.prepare_queries(cut, prepared)
            self.queries.fill(cut, prepared)
        self._selected: NDArray[np.int64] | None = None
        self.select(np.arange(n_query))
        self._columns: Quantised | None = None
        self._place = RowRange(0, 0)
        self._right: NDArray[np.int8] = np.empty((0, 0), np.int8)
        self._memory: NDArray[np.int32] = np.empty(0, np.int32)

    def columns(self, columns: RowRange) -> Quantised:
        """Quantise some gallery rows."""
        found = Quantised(len(columns), self._scratch.shape[1], self.product.largest)
        for cut in cut_rows(len(columns), _PREPARED):
            start = columns.start + cut.start
            rows, _ = self.plain.gallery_tile(start, start + len(cut), self._scratch[: len(cut)])
            found.fill(cut, rows)
        return found

    def select(self, queries: NDArray[np.int64]) -> None:
        """Restrict further tiles to some queries, in this order; the array must not change while it is used."""
        if queries is not self._selected:
            self._selected = queries
            integers = self.queries.integers[:, 0]
            if not np.array_equal(queries, np.arange(len(integers))):
                integers = integers[queries]
            # Sums modulo 256 are those of the integers.
            self._left = integers.view(np.uint8) + np.uint8(self.product.largest)

    def tile(self, rows: RowRange, quantised: Quantised, columns: RowRange) -> NDArray[np.int32]:
        """Products of the integers of some queries, made unsigned, and of some gallery rows, shape (n_row, n_column).

        `rows` are places among the selected queries, which at first are all, and `columns` among quantised gallery
        rows.  The next call overwrites the products.
        """
        if quantised is not self._columns or columns != self._place:
            self._right = np.empty((self._scratch.shape[1], len(columns)), np.int8)
            transpose_integers(quantised.integers[columns.start : columns.stop], 0, self._right)
            self._columns, self._place = quantised, columns
        left = self._left[rows.start : rows.stop]
        size = len(left) * len(columns)
        if len(self._memory) < size:
            self._memory = np.empty(size, np.int32)
        products = self._memory[:size].reshape(len(left), len(columns))
        self.product.multiply(left, self._right, products)
        return products


def _rounded_up(values: Float64) -> NDArray[np.float32]:
    rounded: NDArray[np.float32] = np.nextafter(values.astype(np.float32), np.float32(np.inf))
    return rounded


class _Screened:
    """Products of elements that this process has left to float32 for lack of kernels; None when it has them."""

    n_products: float | None = 0.0


def _are_worth_compiling(n_products: float) -> bool:
    """Whether the kernels are compiled, or blocks of so many products of elements, and those before, are many."""
    if _Screened.n_products is not None:
        _Screened.n_products += n_products
        if _Screened.n_products <= _MOST_UNCOMPILED and lacks_integers():
            return False
        _Screened.n_products = None
    return True


def quantise(plain: Screen, cost: float = COST_OF_LISTS) -> QuantisedProducts | None:
    """Products in eight bits for a float32 screen; None where they are not available, or save less than `cost`."""
    n_query, n_gallery, dim = plain.shape
    small = n_query < _LEAST_QUERIES or n_gallery < _LEAST_ROWS
    if plain.exact or dim > LARGEST_DIM:
        return None
    if forced_screen() is None and (small or not _are_worth_compiling(float(n_query) * n_gallery * dim)):
        return None
    product = integer_product(dim, cost)
    return None if product is None else QuantisedProducts(plain, product)
