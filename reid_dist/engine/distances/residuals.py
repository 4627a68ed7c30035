r"""Products of rows in eight bits with the residuals of both sides, and a bound on how far they are from exact ones.

*Rows.*  A prepared row is ``x = a + b + g``, with ``a = s X``, ``b = (s / 254) E`` and integers ``X`` and ``E`` from
-127 to 127; its residual is ``e = b + g``.  Likewise for the columns.  Upper bounds of the lengths ``|x|``, ``|e|`` and
``|g|`` are measured: see `reid_dist.kernels.residuals`.

*Products.*  The value is ``p = a_x a_y + a_x b_y + b_x a_y``: ``s_x s_y`` times ``X Y + (X F + E Y) / 254``, of which
the second sum is one exact product, of both kinds of integers side by side.  What is left out is

    ``x y - p = g_x y + (a_x + b_x) g_y + b_x b_y``,

and by the inequality of Cauchy and Schwarz, with ``a + b = x - g`` and ``b = e - g``,

    ``|x y - p| <= |g_x| |y| + (|x| + |g_x|) |g_y| + (|e_x| + |g_x|) (|e_y| + |g_y|)``.

Of the columns of a tile, the largest of each length is taken.  The last term is the largest one for most rows: a value
is off by some hundredth of what one without residuals is.

*Roundings*, of unit roundoff ``u = 2^-24``.  Let ``m = (|x| + |e_x|) (|y| + |e_y|)``.  The first sum, times the scales,
is at most ``m``, and is converted; the second is at most ``4.2 m``, as ``|b| <= 2.1 |e|``, and carries its conversion,
the constant and that product.  The sum of both, the product of the scales and that with them carry three more of ``5.2
m``, and the difference of the value and a bias, and of an edge and the bound, one each.  Together these are less than
``42 m u``, and less than the ``2^-18 m`` and the share of the bias that are added as for products without residuals.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.distances.quantised import IntegerRows, raised
from reid_dist.engine.distances.screening import Int64, Values, consecutive
from reid_dist.kernels.quantising import LARGEST_INTEGER
from reid_dist.kernels.residuals import quantise_residuals
from reid_dist.kernels.transposing import transpose_integers


class ResidualRows:
    """Residuals of prepared rows, shape (n, dim), float32, beside the integers `whole` of the rows.

    Attributes
    ----------
    shift
        Share of the offsets of unsigned rows in products with these rows and residuals, shape (n,), int32.
    """

    def __init__(self, prepared: Values, whole: IntegerRows) -> None:
        n = len(prepared)
        self._whole = whole
        self._integers: NDArray[np.int8] = np.empty(prepared.shape, np.int8)
        self._left, total = np.empty(n), np.empty(n, np.int32)
        quantise_residuals(prepared, whole.integers, whole.scale, whole.bounds, self._integers, self._left, total)
        self._most_left = float(self._left.max(initial=0.0))
        self.shift = whole.shift + np.int32(LARGEST_INTEGER) * total

    def transposed(self, whole: NDArray[np.int8]) -> NDArray[np.int8]:
        """The integers as columns, below those of the rows, shapes (2 dim, n) and (dim, n)."""
        columns = np.empty((2 * len(whole), whole.shape[1]), np.int8)
        columns[: len(whole)] = whole
        transpose_integers(self._integers, columns[len(whole) :])
        return columns

    @cached_property
    def _unsigned(self) -> NDArray[np.uint8]:
        both = np.concatenate((self._integers, self._whole.integers), axis=1).view(np.uint8)
        both += np.uint8(LARGEST_INTEGER)
        return both

    def unsigned(self, rows: Int64) -> NDArray[np.uint8]:
        """Integers of the residuals of some rows by ascending places, then of the rows, unsigned, shape (n, 2 dim)."""
        return self._unsigned[consecutive(rows)]

    def error(self, rows: Int64, columns: ResidualRows, slack: float) -> NDArray[np.float32]:
        """Bound on the errors of the values of some rows against columns, shape (n,), rounded up."""
        length, residual = self._whole.bounds[rows].T
        longest, largest = map(float, columns._whole.largest)
        left, most_left = self._left[rows], columns._most_left
        omitted = left * longest + (length + left) * most_left + (residual + left) * (largest + most_left)
        return raised(omitted + self._whole.rounding(rows, columns._whole) + slack)
