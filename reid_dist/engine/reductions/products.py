"""Backends of the CPU: tiles of products in memory, in eight bits, float32 or float64, and the kernels that read them.

Memory is reused from tile to tile, and a tile is computed once for all reductions that read it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.engine.distances import Screen, Values
from reid_dist.engine.distances.integers import IntegerProduct
from reid_dist.engine.distances.quantised import IntegerRows, slack_of
from reid_dist.engine.distances.residuals import ResidualRows
from reid_dist.engine.reductions.backends import Advance, Entering, Pairs, Rest, Seen
from reid_dist.engine.reductions.screens import RescoredScreen
from reid_dist.kernels.counting import count_tile
from reid_dist.kernels.deciding import Bands
from reid_dist.kernels.impostors import Brackets, Screened, count_keys, split_tile
from reid_dist.kernels.residuals import add_residuals
from reid_dist.kernels.symmetric import Side, collect_both, collect_rows
from reid_dist.kernels.tiles import Tile

Int64 = NDArray[np.int64]

_NO_ROWS = np.empty((0, 0), np.float32)
_NO_KNOWN = np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0)


class PreparedColumns:
    """Prepared gallery rows of the current columns, for products that read the same ones."""

    def __init__(self, screen: Screen, gallery_rows: int) -> None:
        self.screen = screen
        self._room: Values = np.empty((gallery_rows, screen.shape[2]), screen.dtype)
        self._columns = RowRange(0, 0)
        self._found: tuple[Values, Values] = self._room[:0], self._room[:0, 0]

    def read(self, columns: RowRange) -> tuple[Values, Values]:
        """Prepared rows and bias; the next call overwrites them."""
        if columns != self._columns:
            here, room = slice(columns.start, columns.stop), self._room[: len(columns)]
            self._found, self._columns = self.screen.gallery_tile(here, room), columns
        return self._found


class TileProducts(ABC):
    """A backend whose products are tiles in memory; see `reid_dist.engine.reductions.backends.Backend`."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self._latest: tuple[Int64, RowRange, Tile] | None = None
        # The same without columns that are hidden, for the latest pairs.
        self._shown: tuple[Pairs, Tile] | None = None

    @abstractmethod
    def prepare(self, columns: RowRange) -> None:
        """Prepare gallery rows, unless they are the latest."""

    @abstractmethod
    def _multiply(self, queries: Int64, columns: RowRange) -> Tile:
        """Products of some queries and columns; the next call overwrites them."""

    def tile(self, pairs: Pairs) -> Tile:
        """Products of some pairs, which are valid until others of this backend are read."""
        queries, columns, hidden = pairs
        if self._latest is None or self._latest[0] is not queries or self._latest[1] != columns:
            self.prepare(columns)
            self._latest, self._shown = (queries, columns, self._multiply(queries, columns)), None
        found = self._latest[2]
        if hidden is None:
            return found
        if self._shown is None or self._shown[0] is not pairs:
            bias, bias_of = hidden.bias(found.bias[0], columns, queries)
            self._shown = pairs, found._replace(bias=bias, bias_of=bias_of)
        return self._shown[1]

    def error(self, pairs: Pairs) -> float:
        """Largest error of the values of some pairs, beyond that of the screen."""
        return float(self.tile(pairs).extra.max(initial=0.0))

    def errors(self, columns: Int64) -> NDArray[np.float32]:
        """Errors of the values of all queries, as some columns show them, shape (n_query,), rounded up."""
        return np.zeros(self.screen.shape[0], np.float32)

    def place(
        self, pairs: Pairs, bands: Bands, rest: Rest, counts: NDArray[np.int32], group_of: Int64, many: int | None
    ) -> Advance:
        """Count pairs by place and by group of columns."""
        found: Advance = count_tile(self.tile(pairs), bands, counts, *rest, group_of, many)
        return found

    def enter(self, pairs: Pairs, take: Entering) -> Advance:
        """Give all pairs to `take`."""
        return take(self.tile(pairs))

    def split(
        self, pairs: Pairs, seen: Seen, brackets: Brackets, rest: Rest, below: Int64, tally: NDArray[np.int32]
    ) -> Advance:
        """Count pairs by brackets of distances."""
        found: Advance = split_tile(Screened(self.tile(pairs), *seen), brackets, *rest, below, tally)
        return found

    def nearest(self, pairs: Pairs, side: Side) -> int:
        """Add pairs to the lists of their queries; return the number of refined values."""
        return collect_rows(self.tile(pairs), side)

    def nearest_both_ways(self, pairs: Pairs, near: Side, far: Side) -> int:
        """Add pairs of different items to the lists of both; return the number of refined values."""
        return collect_both(self.tile(pairs), near, far)

    def histogram(self, pairs: Pairs, seen: Seen, counts: Int64, span: NDArray[np.uint32]) -> None:
        """Count pairs by the keys of their values."""
        count_keys(Screened(self.tile(pairs), *seen), counts, span)


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


class FloatProducts(TileProducts):
    """Products in float32 or float64, or none, with known pairs written into them."""

    def __init__(self, prepared: PreparedColumns, size: int, *, multiplies: bool = True) -> None:
        super().__init__(prepared.screen)
        self.prepared, self._multiplies = prepared, multiplies
        self._scratch: Values = np.empty(size, prepared.screen.dtype)

    def prepare(self, columns: RowRange) -> None:
        """Prepare gallery rows, unless they are the latest."""
        self.prepared.read(columns)

    def _multiply(self, queries: Int64, columns: RowRange) -> Tile:
        """Products of some queries and columns; the next call overwrites them."""
        n, m = len(queries), len(columns)
        matrix, bias = self.prepared.read(columns)
        values = self._scratch[: n * m].reshape(n, m)
        if self._multiplies:
            self.screen.multiply(queries, matrix, values)
        else:
            values[:] = -np.inf
        self.screen.correct(queries, columns.start, bias, values)
        return float_tile(values, bias, queries, columns.start)


class IntegerProducts(TileProducts):
    """Products of eight-bit integers; see `reid_dist.engine.distances.quantised`.

    `screen` is that of products in float32, whose prepared rows are quantised.
    """

    def __init__(self, prepared: PreparedColumns, product: IntegerProduct, size: int) -> None:
        super().__init__(prepared.screen)
        self.prepared, screen = prepared, self.screen
        n_query, _, dim = screen.shape
        self.every = np.arange(n_query)
        # Prepared queries, and quantised ones; quantised rows of the current columns.
        self.near = screen.query_rows(self.every)
        self.own = self.other = IntegerRows(self.near, product)
        self._scratch = np.empty(size, np.int32)
        self.right = np.empty((dim, 0), np.int8)
        self._columns = RowRange(0, 0)
        self.slack = slack_of(screen)
        self._known = _NO_KNOWN
        self._first_known = 0
        if isinstance(screen, RescoredScreen):
            self._known, self._first_known = screen.known_pairs, screen.first_column

    def prepare(self, columns: RowRange) -> None:
        """Prepare gallery rows, unless they are the latest."""
        if columns != self._columns:
            self.other = IntegerRows(self.prepared.read(columns)[0], self.own.product)
            self.right, self._columns = self.other.transposed(), columns

    def _multiply(self, queries: Int64, columns: RowRange) -> Tile:
        """Products of some queries and columns; the next call overwrites them."""
        n, m = len(queries), len(columns)
        far, bias = self.prepared.read(columns)
        products = self._scratch[: n * m].reshape(n, m)
        self.own.product.multiply(self.own.unsigned(queries), self.right, products)
        return Tile(
            products=products,
            shift=self.other.shift,
            scale=self.other.scale,
            factor=self.own.scale[queries],
            extra=self.own.error(queries, self.other, self.slack),
            spared=self.own.spared(queries, self.other),
            near=self.near,
            far=far,
            bias=bias[None],
            bias_of=np.zeros(n, np.int64),
            query=queries,
            column_start=columns.start,
            known_indptr=self._known[0],
            known_column=self._known[1],
            known=self._known[2],
            first_known=self._first_known,
        )

    def sampled(self, columns: Int64) -> tuple[Values, IntegerRows]:
        """Some prepared gallery rows, and quantised ones."""
        rows, _ = self.screen.gallery_tile(columns, np.empty((len(columns), self.near.shape[1]), np.float32))
        return rows, IntegerRows(rows, self.own.product)

    def errors(self, columns: Int64) -> NDArray[np.float32]:
        """Errors of the values of all queries, as some columns show them, shape (n_query,), rounded up."""
        return self.own.error(self.every, self.sampled(columns)[1], self.slack)


class ResidualProducts(TileProducts):
    """Products of integers with residuals, in float32; see `reid_dist.engine.distances.residuals`."""

    def __init__(self, whole: IntegerProducts, size: int) -> None:
        super().__init__(whole.screen)
        self.prepared, self._whole = whole.prepared, whole
        self._own = self._other = ResidualRows(whole.near, whole.own)
        self._crossed, self._scratch = np.empty(size, np.int32), np.empty(size, np.float32)
        self._right = np.empty((2 * whole.near.shape[1], 0), np.int8)
        self._columns = RowRange(0, 0)

    def prepare(self, columns: RowRange) -> None:
        """Prepare gallery rows, unless they are the latest."""
        if columns != self._columns:
            self._whole.prepare(columns)
            self._other = ResidualRows(self.prepared.read(columns)[0], self._whole.other)
            self._right, self._columns = self._other.transposed(self._whole.right), columns

    def _multiply(self, queries: Int64, columns: RowRange) -> Tile:
        """Products of some queries and columns; the next call overwrites them."""
        whole, n, m = self._whole.tile(Pairs(queries, columns)), len(queries), len(columns)
        crossed, values = self._crossed[: n * m].reshape(n, m), self._scratch[: n * m].reshape(n, m)
        self._whole.own.product.multiply(self._own.unsigned(queries), self._right, crossed)
        add_residuals(whole.products, crossed, whole.shift, self._other.shift, whole.factor, whole.scale, values)
        return whole._replace(
            products=values,
            shift=np.zeros(m, np.float32),
            scale=np.ones(m, np.float32),
            factor=np.ones(n, np.float32),
            extra=self._own.error(queries, self._other, self._whole.slack),
            spared=np.zeros(m, np.float32),
        )

    def errors(self, columns: Int64) -> NDArray[np.float32]:
        """Errors of the values of all queries, as some columns show them, shape (n_query,), rounded up."""
        return self._own.error(self._whole.every, ResidualRows(*self._whole.sampled(columns)), self._whole.slack)
