"""Tiles: screening values of some queries against some gallery rows, in the requested precision.

A tile is computed when a reduction first reads it, once for all reductions, in memory that is reused from tile to tile.
Most tiles are read in float32.  If bands are too crowded, a reduction reads the same tile as a sum of products of parts
of the rows, with bands a few times narrower, or in float64, with bands some 2^29 times narrower; if all reductions do,
the plain product in float32 is never computed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

import numpy as np

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import Screen, Values


class Precision(Enum):
    """Precision of the values of a tile, from the fastest to the one with the narrowest bands."""

    PLAIN = "float32"
    IN_PARTS = "float32, in parts"
    WIDE = "float64"


class Products:
    """Products of two blocks, tile by tile; a tile has at most `query_rows` and `gallery_rows` rows."""

    def __init__(self, screen: Screen, dim: int, query_rows: int, gallery_rows: int) -> None:
        self.screen = screen
        self._prepared: Values = np.empty((gallery_rows, dim), screen.dtype)
        self._scratch: Values = np.empty(query_rows * gallery_rows, screen.dtype)
        self._columns = RowRange(0, 0)
        self._gallery: tuple[Values, Values] = self._prepared[:0], self._scratch[:0]
        self._place = self._columns, self._columns
        self._values: Values = self._scratch[:0]

    def tile(self, queries: RowRange, columns: RowRange) -> tuple[Values, Values]:
        """Screening values, bias not yet subtracted, shape (n_query, n_column), and the bias, shape (n_column,).

        The next call overwrites both arrays.
        """
        if columns != self._columns:
            prepared = self._prepared[: len(columns)]
            self._gallery = self.screen.gallery_tile(columns.start, columns.stop, prepared)
            self._columns = columns
        matrix, bias = self._gallery
        if (queries, columns) != self._place:
            values = self._scratch[: len(queries) * len(columns)].reshape(len(queries), len(columns))
            self.screen.multiply(queries, matrix, values)
            self.screen.correct(queries, columns.start, bias, values)
            self._values, self._place = values, (queries, columns)
        return self._values, bias


class Tile:
    """Screening values of some queries against some gallery rows, as positions in their blocks.

    `products` returns the products of both blocks in a precision; `shared` is whether several reductions read the tile.
    """

    def __init__(
        self, queries: RowRange, columns: RowRange, products: Callable[[Precision], Products], shared: bool
    ) -> None:
        self.queries = queries
        self.columns = columns
        self.shared = shared
        self._products = products

    @property
    def size(self) -> int:
        """Number of pairs of the tile."""
        return len(self.queries) * len(self.columns)

    @property
    def values(self) -> Values:
        """Shape (n_query, n_column), in the dtype of the screen; larger is nearer, after subtraction of the bias."""
        return self.read(Precision.PLAIN)[1]

    @property
    def bias(self) -> Values:
        """Bias of each column, shape (n_column,), in the dtype of the screen."""
        return self.read(Precision.PLAIN)[2]

    def read(self, precision: Precision) -> tuple[Screen, Values, Values]:
        """Return the screen of both blocks in a precision, and values and bias of the tile under it."""
        products = self._products(precision)
        return products.screen, *products.tile(self.queries, self.columns)
