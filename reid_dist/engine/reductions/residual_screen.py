r"""Products with residuals of all pairs of a tile, as a screen beside those of float32.

With integers ``X``, ``Y`` of the rows and ``E``, ``F`` of their residuals, a value is ``s_x s_y (X Y + (X F + E Y) /
254)``: one product of the integers, and one of both kinds side by side.  On processors whose products of integers are
many times faster than those of float32, the two together are faster as well, and the bands are some four times wider.
`reid_dist.engine.distances.quantised` has the bound of the error.

*Roundings*, of unit roundoff ``u = 2^-24``.  Let ``m = (|x| + |e_x|) (|y| + |e_y|)``.  The first product, times the
scales, is at most ``m``, and carries its conversion, a sum, the product of the scales and that with them: ``4 m u``.
The second, with scales that are those of residuals but for a rounding, is at most ``4 m``, as the integers of a
residual times their scale are no longer than twice the residual; it carries three more roundings and that of the scale:
less than ``30 m u``.  Their sum is less than the ``2^-18 m`` that are added to the bound.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import Screen, Values
from reid_dist.engine.distances.quantised import Quantised, QuantisedProducts
from reid_dist.engine.reductions.coarse import slack_of
from reid_dist.kernels.canonical import PairRows
from reid_dist.kernels.coarse import residual_error, residual_values, select_factors
from reid_dist.kernels.transposing import transpose_integers

# Integers of residuals, made unsigned by this.
_OFFSET = 127
# Width of the bands relative to products in float32, whose bands widen with the number of elements, of one element.
_WIDTH_OF_ONE = 2048.0


class ResidualScreen(Screen):
    """Products with residuals of some queries and some gallery rows of a block pair.

    Parameters
    ----------
    products
        Products in eight bits of the block pair, of integers up to 127.
    pairs
        The queries and gallery rows as stored.
    queries
        Places of the queries in the block, shape (n_query,), int64.
    quantised, columns
        Quantised rows, and the place of the gallery rows among them.
    start
        Place of the first gallery row in its block.
    """

    kind = "int8"
    # With 512 elements, on a processor with AMX; this decides only when a crowded tile is screened again.
    cost = 0.6

    def __init__(
        self,
        products: QuantisedProducts,
        pairs: PairRows,
        queries: NDArray[np.int64],
        quantised: Quantised,
        columns: RowRange,
        start: int,
    ) -> None:
        super().__init__(pairs.query, pairs.gallery, pairs.query_norm, pairs.gallery_norm)
        plain, mirrored = products.plain, products.plain.mirrored()
        own = select_factors(products.queries.factors, queries)
        self._product, self._other = products.product, quantised.factors_of(columns)
        self._total = quantised.total[columns.start : columns.stop]
        self._bias = mirrored.column_bias[start : start + len(columns)]
        self.centre, self.slope, self.largest_bias = plain.centre[queries], plain.slope, plain.largest_bias
        self.epsilon = plain.epsilon[queries] + slack_of(mirrored) + residual_error(own, self._other)
        self.width = _WIDTH_OF_ONE / max(1, self._query.shape[1])
        self._scale = own.scale
        # Sums modulo 256 are those of the integers.
        self._both = own.integers.view(np.uint8) + np.array([[products.product.largest], [_OFFSET]], np.uint8)
        self._coarse = np.ascontiguousarray(self._both[:, 0])
        self._memory = np.empty((2, 0), np.int32)
        self._place = slice(0, 0)

    def gallery_tile(self, start: int, stop: int, out: Values) -> tuple[Values, Values]:
        """Write the integers of residuals and of rows, as columns, to the memory of `out`."""
        self._place = slice(start, stop)
        dim, integers = self._query.shape[1], self._other.integers[self._place]
        columns = self._columns(out)
        transpose_integers(integers, 1, columns[:dim])
        transpose_integers(integers, 0, columns[dim:])
        return out, self._bias[self._place]

    @staticmethod
    def _columns(prepared: Values) -> NDArray[np.int8]:
        """Integers in the memory of prepared rows, shape (2 dim, n)."""
        n, dim = prepared.shape
        return prepared.reshape(-1).view(np.int8)[: 2 * dim * n].reshape(2 * dim, n)

    def multiply(self, queries: RowRange, matrix: Values, out: Values) -> None:
        """Write the values of some queries against a prepared tile, bias not yet subtracted."""
        rows, columns, dim = slice(queries.start, queries.stop), self._columns(matrix), self._query.shape[1]
        if self._memory.shape[1] < out.size:
            self._memory = np.empty((2, out.size), np.int32)
        coarse, crossed = (each[: out.size].reshape(out.shape) for each in self._memory)
        self._product.multiply(self._coarse[rows], columns[dim:], coarse)
        self._product.multiply(self._both[rows].reshape(len(queries), 2 * dim), columns, crossed)
        other, total = self._other, self._total[self._place]
        largest = np.int32(self._product.largest)
        shift = other.shift[self._place]
        residual_values(
            coarse,
            crossed,
            self._scale[rows],
            other.scale[self._place],
            shift,
            largest * total[:, 1] + np.int32(_OFFSET) * total[:, 0],
            out,
        )
