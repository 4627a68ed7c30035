"""Tiles of a block pair: products of some queries and some gallery rows, in the precision that a reduction asks for.

A tile is computed when a reduction first reads it, once for all reductions, in memory that is reused from tile to tile.
Precisions differ in cost and in how far their values may be from canonical distances.  Each query of a block pair has a
first one, chosen from a sample of the gallery rows; a reduction that finds too many pairs undecided in a tile reads it
again in the next one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, even_rows
from reid_dist.engine.distances import Distance, Screen, Values
from reid_dist.engine.distances.integers import IntegerProduct
from reid_dist.engine.distances.quantised import IntegerRows, product_for, slack_of
from reid_dist.engine.distances.residuals import ResidualRows
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.engine.reductions.costs import Precision, following
from reid_dist.engine.reductions.screens import RescoredScreen, screen_pairs
from reid_dist.engine.screened_pairs import note_screened
from reid_dist.kernels.residuals import add_residuals
from reid_dist.kernels.tiles import Tile

Int64 = NDArray[np.int64]

_SAMPLED_ROWS = 128
# Products as the report names them.
_KINDS = {
    Precision.INTEGERS: "int8",
    Precision.RESIDUALS: "int8x3",
    Precision.PLAIN: "float32",
    Precision.WIDE: "float64",
}

_NO_ROWS = np.empty((0, 0), np.float32)
_NO_KNOWN = np.zeros(1, np.int64), np.empty(0, np.int64), np.empty(0)


class _Products(ABC):
    """Products of a block pair in one precision."""

    _last: tuple[Int64, RowRange, Tile] | None = None

    def __init__(self, screen: Screen) -> None:
        self.screen = screen

    def tile(self, queries: Int64, columns: RowRange) -> Tile:
        """Products of some queries and columns; valid until others."""
        if self._last is None or self._last[0] is not queries or self._last[1] != columns:
            self._last = queries, columns, self._multiplied(queries, columns)
        return self._last[2]

    @abstractmethod
    def _multiplied(self, queries: Int64, columns: RowRange) -> Tile:
        """Compute a tile in memory that is reused."""

    def errors(self, columns: Int64) -> NDArray[np.float32]:
        """`Tile.extra` of all queries, as some columns show it, shape (n_query,)."""
        return np.zeros(self.screen.shape[0], np.float32)


class _PreparedColumns:
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


class _FloatProducts(_Products):
    """Products in float32 or float64, or none, with known pairs written into them."""

    def __init__(self, prepared: _PreparedColumns, size: int, *, multiplies: bool = True) -> None:
        super().__init__(prepared.screen)
        self._prepared, self._multiplies = prepared, multiplies
        self._scratch: Values = np.empty(size, prepared.screen.dtype)

    def _multiplied(self, queries: Int64, columns: RowRange) -> Tile:
        n, m = len(queries), len(columns)
        matrix, bias = self._prepared.read(columns)
        values = self._scratch[: n * m].reshape(n, m)
        if self._multiplies:
            self.screen.multiply(queries, matrix, values)
        else:
            values[:] = -np.inf
        self.screen.correct(queries, columns.start, bias, values)
        one = values.dtype.type
        return Tile(
            products=values,
            shift=np.zeros(m, values.dtype),
            scale=np.full(m, one(1)),
            factor=np.full(n, one(1)),
            extra=np.zeros(n, values.dtype),
            near=_NO_ROWS,
            far=_NO_ROWS,
            bias=bias[None],
            bias_of=np.zeros(n, np.int64),
            query=queries,
            column_start=columns.start,
            known_indptr=_NO_KNOWN[0],
            known_column=_NO_KNOWN[1],
            known=_NO_KNOWN[2],
            first_known=0,
        )


class _IntegerProducts(_Products):
    """Products of eight-bit integers; see `reid_dist.engine.distances.quantised`.

    `screen` is that of products in float32, whose prepared rows are quantised.
    """

    def __init__(self, prepared: _PreparedColumns, product: IntegerProduct, size: int) -> None:
        screen = prepared.screen
        super().__init__(screen)
        self._prepared = prepared
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

    def _multiplied(self, queries: Int64, columns: RowRange) -> Tile:
        n, m = len(queries), len(columns)
        far, bias = self._prepared.read(columns)
        if columns != self._columns:
            self.other = IntegerRows(far, self.own.product)
            self.right, self._columns = self.other.transposed(), columns
        products = self._scratch[: n * m].reshape(n, m)
        self.own.product.multiply(self.own.unsigned(queries), self.right, products)
        return Tile(
            products=products,
            shift=self.other.shift,
            scale=self.other.scale,
            factor=self.own.scale[queries],
            extra=self.own.error(queries, self.other, self.slack),
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
        """`Tile.extra` of all queries, as some columns show it, shape (n_query,)."""
        return self.own.error(self.every, self.sampled(columns)[1], self.slack)


class _ResidualProducts(_Products):
    """Products of integers with residuals, in float32; see `reid_dist.engine.distances.residuals`."""

    def __init__(self, whole: _IntegerProducts, size: int) -> None:
        super().__init__(whole.screen)
        self._whole = whole
        self._own = self._other = ResidualRows(whole.near, whole.own)
        self._crossed, self._scratch = np.empty(size, np.int32), np.empty(size, np.float32)
        self._right = np.empty((2 * whole.near.shape[1], 0), np.int8)
        self._columns = RowRange(0, 0)

    def _multiplied(self, queries: Int64, columns: RowRange) -> Tile:
        whole, n, m = self._whole.tile(queries, columns), len(queries), len(columns)
        if columns != self._columns:
            self._other = ResidualRows(whole.far, self._whole.other)
            self._right, self._columns = self._other.transposed(self._whole.right), columns
        crossed, values = self._crossed[: n * m].reshape(n, m), self._scratch[: n * m].reshape(n, m)
        self._whole.own.product.multiply(self._own.unsigned(queries), self._right, crossed)
        add_residuals(whole.products, crossed, whole.shift, self._other.shift, whole.factor, whole.scale, values)
        return whole._replace(
            products=values,
            shift=np.zeros(m, np.float32),
            scale=np.ones(m, np.float32),
            factor=np.ones(n, np.float32),
            extra=self._own.error(queries, self._other, self._whole.slack),
        )

    def errors(self, columns: Int64) -> NDArray[np.float32]:
        """`Tile.extra` of all queries, as some columns show it, shape (n_query,)."""
        return self._own.error(self._whole.every, ResidualRows(*self._whole.sampled(columns)), self._whole.slack)


class BlockPair:
    """Products of a block of queries and a gallery block, tile by tile.

    Attributes
    ----------
    query, gallery
        The two blocks.
    rows
        Both as kernels take them.
    query_rows, gallery_rows
        Queries and gallery rows of a tile.
    """

    def __init__(self, query: FeatureBlock, gallery: FeatureBlock, distance: Distance, tile: TileShape) -> None:
        self.query, self.gallery, self.distance = query, gallery, distance
        self.rows = pair_rows(distance, query, gallery)
        # The last tile of a block would be short otherwise, and short products are slow.
        self.query_rows, self.gallery_rows = even_rows(len(query), tile.query), even_rows(len(gallery), tile.gallery)
        self._screens: dict[type, Screen] = {}
        self._prepared: dict[Screen, _PreparedColumns] = {}
        self._products: dict[Precision, _Products] = {}

    @cached_property
    def integers(self) -> IntegerProduct | None:
        """Integer products of the pair; None where float32 is preferred.  InputError where forced ones are missing."""
        # Graph distances that are added to plain ones are added in float32.
        return None if self.rows.rescoring.active and self._is_mixed else product_for(self.screen())

    @property
    def _is_mixed(self) -> bool:
        return self.rows.rescoring.mixed or self.rows.rescoring.weight == 0.0

    def screen(self, precision: Precision = Precision.PLAIN) -> Screen:
        """Screen of a precision: that of all but the widest is the one of float32, up to `Tile.extra`."""
        dtype = np.float64 if precision is Precision.WIDE else np.float32
        if dtype not in self._screens:
            self._screens[dtype] = screen_pairs(self.distance, self.rows, dtype)
        return self._screens[dtype]

    @cached_property
    def sampled_rows(self) -> Int64:
        """Some gallery rows of the block, by which the precision of products is chosen."""
        return np.unique(np.linspace(0, len(self.gallery) - 1, _SAMPLED_ROWS).astype(np.int64))

    def sample(self, columns: Int64) -> Values:
        """Screening values of all queries and some columns in float32, shape (n_query, n)."""
        screen, n_query = self.screen(), len(self.query)
        values, room = np.empty((n_query, len(columns)), screen.dtype), (len(columns), self.gallery.features.shape[1])
        rows, bias = screen.gallery_tile(columns, np.empty(room, screen.dtype))
        screen.multiply(np.arange(n_query), rows, values)
        return values - bias

    def errors(self, precision: Precision, columns: Int64) -> NDArray[np.float32]:
        """`Tile.extra` of all queries in a precision, as some columns show it, shape (n_query,)."""
        return self._in(precision).errors(columns)

    def tile(self, precision: Precision, queries: Int64, columns: RowRange) -> Tile:
        """Products of some queries, by ascending places, and columns; valid until others of this precision."""
        return self._in(precision).tile(queries, columns)

    def _in(self, precision: Precision) -> _Products:
        if precision not in self._products:
            size = self.query_rows * self.gallery_rows
            if precision is Precision.INTEGERS:
                self._products[precision] = self._whole
            elif precision is Precision.RESIDUALS:
                self._products[precision] = _ResidualProducts(self._whole, size)
            else:
                multiplies = precision is not Precision.KNOWN
                self._products[precision] = _FloatProducts(self._columns(precision), size, multiplies=multiplies)
        return self._products[precision]

    @cached_property
    def _whole(self) -> _IntegerProducts:
        """Products of integers, which those with residuals read as well."""
        if self.integers is None:
            raise AssertionError("products of integers are not available")
        return _IntegerProducts(self._columns(Precision.INTEGERS), self.integers, self.query_rows * self.gallery_rows)

    def _columns(self, precision: Precision) -> _PreparedColumns:
        """Prepared gallery rows in a precision."""
        screen = self.screen(precision)
        if screen not in self._prepared:
            self._prepared[screen] = _PreparedColumns(screen, self.gallery_rows)
        return self._prepared[screen]


class Batch:
    """Queries of a block pair that share tiles, and the first precision of these.

    Attributes
    ----------
    queries
        Ascending places in the block, shape (n,), int64.
    precision
        It becomes the next one where too many pairs are left undecided.
    """

    def __init__(self, queries: Int64, precision: Precision) -> None:
        self.queries, self.precision = queries, precision


class TileView:
    """The pairs of a batch of queries and some columns of a block pair, read in any precision.

    Attributes
    ----------
    queries, columns
        Places in their blocks; queries ascend, shape (n,), int64.
    """

    def __init__(self, pair: BlockPair, batch: Batch, columns: RowRange) -> None:
        self.queries, self.columns = batch.queries, columns
        self._pair, self._batch = pair, batch

    @property
    def size(self) -> int:
        """Number of pairs."""
        return len(self.queries) * len(self.columns)

    @property
    def precision(self) -> Precision:
        """The first precision of these queries."""
        return self._batch.precision

    def read(self, precision: Precision, need: str) -> Tile:
        """The tile in a precision, for a need that the report names; biases are those of the columns alone."""
        if precision in _KINDS and not self._pair.screen().exact:
            note_screened(need, _KINDS[precision], self.size)
        return self._pair.tile(precision, self.queries, self.columns)

    def wider(self, precision: Precision) -> Precision | None:
        """The next precision; None behind the last."""
        is_last = precision is Precision.WIDE or precision is Precision.KNOWN
        dim = self._pair.gallery.features.shape[1]
        return None if is_last or self._pair.screen().exact else following(precision, dim)

    def leave(self, precision: Precision) -> None:
        """Read further tiles of these queries in the next precision."""
        if self._batch.precision is precision:
            self._batch.precision = self.wider(precision) or precision
