"""Backends of the CPU: products in eight bits, float32 or float64.

Memory is reused from tile to tile, and a tile is computed once for all reductions that read it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import Screen, Values
from reid_dist.engine.distances.integers import IntegerProduct
from reid_dist.engine.distances.quantised import IntegerRows, slack_of
from reid_dist.engine.distances.screening import RescoredScreen
from reid_dist.engine.reductions.backends import Backend
from reid_dist.kernels.tiles import Tile

Int64 = NDArray[np.int64]

_NO_ROWS = np.empty((0, 0), np.int8)
_NO_KNOWN = np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0)


def float_tile(values: Values, bias: Values, queries: Int64, column_start: int) -> Tile:
    """A tile of products in float32 or float64."""
    (n, m), one = values.shape, values.dtype.type
    return Tile(
        products=values,
        shift=np.zeros(m, values.dtype),
        scale=np.full(m, one(1)),
        factor=np.full(n, one(1)),
        extra=np.zeros(n, values.dtype),
        spared=np.zeros(m, values.dtype),
        fine=np.zeros(n, values.dtype),
        near=_NO_ROWS,
        far=_NO_ROWS,
        bias=bias[None],
        bias_of=np.zeros(n, np.int64),
        query=queries,
        column_start=column_start,
        known_indptr=_NO_KNOWN[0],
        known_column=_NO_KNOWN[1],
        known=_NO_KNOWN[2],
        first_known=0,
    )


class FloatProducts(Backend):
    """Products in float32 or float64, with known pairs written into them."""

    def __init__(self, screen: Screen, size: int) -> None:
        super().__init__(screen)
        self._scratch: Values = np.empty(size, screen.dtype)

    def _multiply(self, queries: Int64, columns: RowRange) -> Tile:
        """Products of some queries and columns; the next call overwrites them."""
        n, m = len(queries), len(columns)
        matrix, bias = self.screen.gallery_columns(columns)
        values = self._scratch[: n * m].reshape(n, m)
        self.screen.multiply(queries, matrix, values)
        self.screen.correct(queries, columns.start, bias, values)
        return float_tile(values, bias, queries, columns.start)


class IntegerProducts(Backend):
    """Products of eight-bit integers; see `reid_dist.engine.distances.quantised`.

    `screen` is that of products in float32, whose prepared rows are quantised.
    """

    def __init__(self, screen: Screen, product: IntegerProduct, size: int) -> None:
        super().__init__(screen)
        self.every = np.arange(screen.shape[0])
        # Quantised queries, and rows of the current columns.
        self.own = self.other = IntegerRows(screen.query_rows(self.every), product)
        self._scratch = np.empty(size, np.int32)
        self._columns = RowRange(0, 0)
        self.slack = slack_of(screen)
        self._known = _NO_KNOWN
        self._first_known = 0
        if isinstance(screen, RescoredScreen):
            self._known, self._first_known = screen.known_pairs, screen.first_column

    def _multiply(self, queries: Int64, columns: RowRange) -> Tile:
        """Products of some queries and columns; the next call overwrites them."""
        rows, bias = self.screen.gallery_columns(columns)
        if columns != self._columns:
            self.other, self._columns = IntegerRows(rows, self.own.product), columns
        own, other, n, m = self.own, self.other, len(queries), len(columns)
        products = self._scratch[: n * m].reshape(n, m)
        own.multiply(queries, other, products)
        return Tile(
            products=products,
            shift=other.shift,
            scale=other.scale,
            factor=own.scale[queries],
            extra=own.error(queries, other, self.slack),
            spared=own.spared(queries, other),
            fine=own.refined_error(queries, other, self.slack),
            near=own.both,
            far=other.both,
            bias=bias[None],
            bias_of=np.zeros(n, np.int64),
            query=queries,
            column_start=columns.start,
            known_indptr=self._known[0],
            known_column=self._known[1],
            known=self._known[2],
            first_known=self._first_known,
        )

    def sampled(self, columns: Int64) -> IntegerRows:
        """Some gallery rows."""
        room = np.empty((len(columns), self.screen.shape[2]), np.float32)
        return IntegerRows(self.screen.gallery_tile(columns, room)[0], self.own.product)

    def errors(self, columns: Int64) -> NDArray[np.float32]:
        """Errors of the values of all queries, as some columns show them, shape (n_query,), rounded up."""
        return self.own.error(self.every, self.sampled(columns), self.slack)
