r"""Products of rows in eight bits, exact as integers, and bounds on how far they are from the products of the rows.

*Rows.*  A prepared row (of length 1, or centred) is ``x = s X + e`` with integers ``X`` from -127 to 127; likewise
``y``.  Upper bounds of the lengths ``|x|`` and ``|e|`` are measured: see `reid_dist.kernels.quantising`.

*Products.*  By the inequality of Cauchy and Schwarz,

    ``|x y - s_x s_y X Y| = |e_x (s_y Y) + x e_y| <= |e_x| (|y| + |e_y|) + |x| |e_y|``.

The integers themselves are exact: those of the left rows are made unsigned by adding 127, a term is at most ``2 * 127 *
127``, and rows with more than 2^31 / (4 * 127 * 127) elements are not quantised: the sums of two products are exact as
well.  Of the columns of a tile, the largest lengths are taken, so that there is one bound per query and tile.  A column
``y`` is *spared* the difference of the largest ``|e_y|`` and its own, times the shortest ``|x|`` of the tile.

*Residuals.*  A residual is ``e = b + g``, with ``b = (s / 254) E``: see `reid_dist.kernels.quantising`.  With ``a = s
X``, the refined value of a pair is ``p = a_x a_y + a_x b_y + b_x a_y``: ``s_x s_y`` times ``X Y + (X F + E Y) / 254``,
of which the second sum is exact.  What is left out is

    ``x y - p = g_x y + (a_x + b_x) g_y + b_x b_y``,

and by the same inequality, with ``a + b = x - g`` and ``b = e - g``,

    ``|x y - p| <= |g_x| |y| + (|x| + |g_x|) |g_y| + (|e_x| + |g_x|) (|e_y| + |g_y|)``.

The last term is the largest one for most rows: a refined value is off by some hundredth of what the other is.

*Roundings*, of unit roundoff ``u = 2^-24``.  Let ``m = (|x| + |e_x|) (|y| + |e_y|)``.  A value is an integer that is
converted, times two scales, less a bias and what its column is spared: five roundings of at most ``m`` or of the bias.
Edges are moved by the bound with one more, and by what a column is spared, twice, with another.  Of a refined value,
the first sum, times the scales, is at most ``m``, and is converted; the second is at most ``4.2 m``, as ``|b| <= 2.1
|e|``, and carries its conversion, the constant and that product.  The sum of both, the product of the scales and that
with them carry three more of ``5.2 m``, and the difference of the value and a bias, and of an edge and the bound, one
each.  Together these are less than ``42 m u``: less than the ``2^-18 m`` and the ``2^-20`` of the largest bias that are
added to both bounds.

*Compilation.*  The kernels take some seconds to compile.  Blocks are left to float32 until a process beside the workers
has compiled them, which it begins to do when the first block is.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.distances.integers import LARGEST_DIM, IntegerProduct
from reid_dist.engine.distances.screening import Float64, Int64, Screen, Values, consecutive
from reid_dist.engine.policy import Policy
from reid_dist.kernels.quantising import LARGEST_INTEGER, quantise_rows, transpose_integers
from reid_dist.kernels.warmup import lacks_integers

# Smaller blocks are not worth the preparation, nor the import of the library.
_LEAST_QUERIES, _LEAST_ROWS = 256, 1024


class QuantisedRows:
    """Bounds of rows in eight bits, wherever the integers are.

    Attributes
    ----------
    bounds
        Upper bounds of the lengths of rows and of residuals, and of what is left of these where they are in eight bits
        themselves, shape (n, 2) or (n, 3), float64.
    largest
        The largest of each, shape (2,) or (3,), float64.
    """

    def __init__(self, bounds: Float64) -> None:
        self.bounds = bounds
        self.largest: Float64 = bounds.max(axis=0, initial=0.0)

    def error(self, rows: Int64, columns: QuantisedRows, slack: float) -> NDArray[np.float32]:
        """Bound on the errors of the values of some rows against columns, shape (n,), rounded up."""
        length, residual = self.bounds[consecutive(rows), :2].T
        longest, most = columns.largest[:2]
        return _raised(residual * (longest + most) + length * most + self._rounding(rows, columns) + slack)

    def spared(self, rows: Int64, columns: QuantisedRows) -> NDArray[np.float32]:
        """How much less than `error` the values of each column are off at least, shape (n,), rounded down."""
        less = (1.0 - 2.0**-20) * (columns.largest[1] - columns.bounds[:, 1])
        return np.asarray(self.bounds[consecutive(rows), 0].min() * less, np.float32)

    def _rounding(self, rows: Int64, columns: QuantisedRows) -> Float64:
        """Bound on the roundings of values of some rows against columns, shape (n,)."""
        found: Float64 = 2.0**-18 * self.bounds[consecutive(rows), :2].sum(axis=1) * columns.largest[:2].sum()
        return found


class IntegerRows(QuantisedRows):
    """Prepared rows, shape (n, dim), float32, in eight bits, and their residuals in eight bits.

    Attributes
    ----------
    product
        Integer products.
    both
        The integers of rows, and behind them those of residuals, shape (n, 2 dim), int8.
    scale
        Shape (n,), float32.
    shift
        Share of the offset of unsigned rows in products with these rows, shape (n,), int32.
    """

    def __init__(self, prepared: Values, product: IntegerProduct) -> None:
        n, dim = prepared.shape
        self.product = product
        self.both = np.empty((n, 2 * dim), np.int8)
        self.scale, total = np.empty(n, np.float32), np.empty(n, np.int32)
        bounds = np.empty((n, 3))
        quantise_rows(prepared, self.both, self.scale, bounds, total)
        super().__init__(bounds)
        self.shift = np.int32(LARGEST_INTEGER) * total

    @property
    def _dim(self) -> int:
        return int(self.both.shape[1]) // 2

    @cached_property
    def columns(self) -> NDArray[np.int8]:
        """The integers of rows as columns, shape (dim, n)."""
        columns = np.empty((self._dim, len(self.both)), np.int8)
        transpose_integers(self.both[:, : self._dim], columns)
        return columns

    # Of unsigned numbers, sums modulo 256 are those of the integers.
    @cached_property
    def _unsigned(self) -> NDArray[np.uint8]:
        return self.both[:, : self._dim].view(np.uint8) + np.uint8(LARGEST_INTEGER)

    def multiply(self, rows: Int64, other: IntegerRows, out: NDArray[np.int32]) -> None:
        """Write products of some rows, by ascending places, unsigned, with the columns of `other`, shape (n, m)."""
        self.product.multiply(self._unsigned[consecutive(rows)], other.columns, out)

    def refined_error(self, rows: Int64, columns: IntegerRows, slack: float) -> NDArray[np.float32]:
        """Bound on the errors of refined values, shape (n,), rounded up."""
        length, residual, left = self.bounds[consecutive(rows)].T
        longest, most, most_left = columns.largest
        omitted = left * longest + (length + left) * most_left + (residual + left) * (most + most_left)
        return _raised(omitted + self._rounding(rows, columns) + slack)


def _raised(bound: Float64) -> NDArray[np.float32]:
    """A bound that was computed in float64, rounded up."""
    return np.asarray(np.nextafter(((1.0 + 2.0**-20) * bound).astype(np.float32), np.float32(np.inf)))


def slack_of(screen: Screen) -> float:
    """Error of the difference of a value and a bias, and of underflow."""
    return 2.0**-120 + 2.0**-20 * float(screen.largest_bias)


def product_for(screen: Screen, policy: Policy) -> IntegerProduct | None:
    """Integer products for a block pair with a float32 screen; None where these are not available, or not faster.

    Raises `InputError` as `Policy.integer_product`.
    """
    n_query, n_gallery, dim = screen.shape
    small = n_query < _LEAST_QUERIES or n_gallery < _LEAST_ROWS
    if screen.exact or dim > LARGEST_DIM:
        return None
    if policy.forced is None and (small or not policy.may_use_integers or lacks_integers()):
        return None
    return policy.integer_product()
