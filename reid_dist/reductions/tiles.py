"""Tiles: screening values of some queries against some gallery rows, in the precision that is wanted of them.

A tile is computed when a reduction reads it, once for all of them, in memory that is reused from tile to tile.  Most
are read in float32.  Where bands are too crowded for that, a reduction reads the same tile in float64, with bands that
are some 2^29 times narrower; if all reductions do, the product in float32 is never computed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from reid_dist.distances import Screen, Values
from reid_dist.model import RowRange

__all__ = ["Products", "Tile"]


class Products:
    """Products of two blocks, tile by tile.

    Parameters
    ----------
    screen
        Of the two blocks.
    dim
        Features of a row.
    query_rows, gallery_rows
        The most rows of a tile.
    """

    def __init__(self, screen: Screen, dim: int, query_rows: int, gallery_rows: int) -> None:
        self.screen = screen
        self._prepared: Values = np.empty((gallery_rows, dim), screen.dtype)
        self._scratch: Values = np.empty(query_rows * gallery_rows, screen.dtype)
        self._columns = RowRange(0, 0)
        self._gallery: tuple[Values, Values] = self._prepared[:0], self._scratch[:0]
        self._place = self._columns, self._columns
        self._values: Values = self._scratch[:0]

    def tile(self, queries: RowRange, columns: RowRange) -> tuple[Values, Values]:
        """Screening values, bias not yet taken off, shape (n_query, n_column), and the bias, shape (n_column,).

        They are good until the next tile is computed.
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
    """Screening values of some queries against some gallery rows.

    Parameters
    ----------
    queries
        Positions in the block of queries.
    columns
        Positions in the gallery block.
    products
        What computes it.
    wide
        Gives what computes it in float64.

    Attributes
    ----------
    queries, columns
        As given.
    """

    def __init__(self, queries: RowRange, columns: RowRange, products: Products, wide: Callable[[], Products]) -> None:
        self.queries = queries
        self.columns = columns
        self._products = products
        self._wide = wide

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.queries) * len(self.columns)

    @property
    def values(self) -> Values:
        """Shape (n_query, n_column), in the type of the screen; larger is nearer, once the bias is taken off."""
        return self._products.tile(self.queries, self.columns)[0]

    @property
    def bias(self) -> Values:
        """Shape (n_column,)."""
        return self._products.tile(self.queries, self.columns)[1]

    def wide(self) -> tuple[Screen, Values, Values]:
        """The screen of both blocks in float64, and values and bias of the tile under it."""
        products = self._wide()
        return products.screen, *products.tile(self.queries, self.columns)
