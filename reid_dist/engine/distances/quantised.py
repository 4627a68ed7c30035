r"""Products of rows in eight bits, exact as integers, and a bound on how far they are from the products of the rows.

*Rows.*  A prepared row (of length 1, or centred) is ``x = s X + e`` with integers ``X`` from -127 to 127; likewise
``y``.  Upper bounds of the lengths ``|x|`` and ``|e|`` are measured: see `reid_dist.kernels.quantising`.

*Products.*  By the inequality of Cauchy and Schwarz,

    ``|x y - s_x s_y X Y| = |e_x (s_y Y) + x e_y| <= |e_x| (|y| + |e_y|) + |x| |e_y|``.

The integers themselves are exact: those of the left rows are made unsigned by adding 127, a term is at most ``2 * 127 *
127``, and rows with more than 2^31 / (4 * 127 * 127) elements are not quantised: the sums of two products are exact as
well.  Of the columns of a tile, the largest lengths are taken, so that there is one bound per query and tile.  A column
``y`` is *spared* the difference of the largest ``|e_y|`` and its own, times the shortest ``|x|`` of the tile: lists,
which take one value in hundreds, compare it with the narrower bound.

*Roundings*, of unit roundoff ``u = 2^-24``.  A value is an integer, converted, times two scales, less a bias: four
roundings of at most ``m = (|x| + |e_x|) (|y| + |e_y|)`` or of the bias.  Edges are moved by the bound with one more,
from which what a column is spared is subtracted with another.  Together these are less than the ``2^-18 m`` and the
``2^-20`` of the largest bias that are added to the bound.

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
from reid_dist.kernels.quantising import LARGEST_INTEGER, quantise_rows
from reid_dist.kernels.transposing import transpose_integers
from reid_dist.kernels.warmup import lacks_integers

# Smaller blocks are not worth the preparation, nor the import of the library.
_LEAST_QUERIES, _LEAST_ROWS = 256, 2048


class QuantisedRows:
    """Bounds of rows in eight bits, wherever the integers are.

    Attributes
    ----------
    bounds
        Upper bounds of the lengths of rows and residuals, shape (n, 2), float64.
    largest
        The largest of either, shape (2,), float64.
    """

    def __init__(self, bounds: Float64) -> None:
        self.bounds = bounds
        self.largest: Float64 = bounds.max(axis=0, initial=0.0)

    def error(self, rows: Int64, columns: QuantisedRows, slack: float) -> NDArray[np.float32]:
        """Bound on the errors of the values of some rows against columns, shape (n,), rounded up."""
        length, residual = self.bounds[rows].T
        span = columns.largest.sum()
        return raised(residual * span + length * columns.largest[1] + self.rounding(rows, columns) + slack)

    def spared(self, rows: Int64, columns: QuantisedRows) -> NDArray[np.float32]:
        """How much less than `error` the values of each column are off at least, shape (n,), rounded down."""
        less = (1.0 - 2.0**-20) * (columns.largest[1] - columns.bounds[:, 1])
        return np.asarray(self.bounds[rows, 0].min() * less, np.float32)

    def rounding(self, rows: Int64, columns: QuantisedRows) -> Float64:
        """Bound on the roundings of values of some rows against columns, shape (n,)."""
        found: Float64 = 2.0**-18 * self.bounds[rows].sum(axis=1) * columns.largest.sum()
        return found


class IntegerRows(QuantisedRows):
    """Prepared rows, shape (n, dim), float32, in eight bits.

    Attributes
    ----------
    product
        Integer products.
    integers
        Shape (n, dim), int8.
    scale
        Shape (n,), float32.
    shift
        Share of the offset of unsigned rows in products with these rows, shape (n,), int32.
    """

    def __init__(self, prepared: Values, product: IntegerProduct) -> None:
        n = len(prepared)
        self.product = product
        self.integers = np.empty(prepared.shape, np.int8)
        self.scale, total = np.empty(n, np.float32), np.empty(n, np.int32)
        bounds = np.empty((n, 2))
        quantise_rows(prepared, self.integers, self.scale, bounds, total)
        super().__init__(bounds)
        self.shift = np.int32(LARGEST_INTEGER) * total

    def transposed(self) -> NDArray[np.int8]:
        """The integers as columns, shape (dim, n)."""
        columns = np.empty(self.integers.shape[::-1], np.int8)
        transpose_integers(self.integers, columns)
        return columns

    @cached_property
    def _unsigned(self) -> NDArray[np.uint8]:
        # Sums modulo 256 are those of the integers.
        return self.integers.view(np.uint8) + np.uint8(LARGEST_INTEGER)

    def unsigned(self, rows: Int64) -> NDArray[np.uint8]:
        """The integers of some rows by ascending places, made unsigned, shape (n, dim)."""
        return self._unsigned[consecutive(rows)]


def raised(bound: Float64) -> NDArray[np.float32]:
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
