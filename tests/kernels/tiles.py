"""A tile of queries and gallery rows with its canonical distances, as the tests of kernels over tiles take it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from support.exact_products import InFloat64

from reid_dist.engine.distances import GIVEN_DISTANCE, Distance, Screen
from reid_dist.engine.distances.quantised import IntegerRows, slack_of
from reid_dist.kernels import tiles
from reid_dist.kernels.canonical import PairRows, pair_distances, read_only, squared_norms
from reid_dist.kernels.deciding import Bands

Int64 = NDArray[np.int64]


def few_valued(rng: np.random.Generator, n_rows: int, dim: int, values: int) -> NDArray[np.float32]:
    """Features of whole numbers, (n_rows, dim): few values give many ties, many values hardly any."""
    return read_only(rng.integers(1, values + 1, (n_rows, dim)).astype(np.float32))


def tile_of(
    products: NDArray[Any], bias: NDArray[Any], bias_of: Int64 | None = None, column_start: int = 0
) -> tiles.Tile:
    """Products of floating-point numbers as kernels take them; `bias` has shape (kinds, columns)."""
    n, m = products.shape
    one, nothing = products.dtype.type, np.zeros(1, np.int64)
    return tiles.Tile(
        products, np.zeros(m, products.dtype), np.full(m, one(1)), np.full(n, one(1)), np.zeros(n, products.dtype),
        np.zeros(m, products.dtype), np.zeros(n, products.dtype),
        np.empty((0, 0), np.int8), np.empty((0, 0), np.int8), bias.astype(products.dtype),
        np.zeros(n, np.int64) if bias_of is None else bias_of, np.arange(n), column_start, nothing, nothing[:0],
        np.empty(0), 0,
    )  # fmt: skip


class Tile:
    """Queries against gallery rows, screened by products of a dtype, int32 for those of eight-bit integers.

    `product` is (n_query, n_gallery), without the `bias` (n_gallery,); `exact` are the canonical distances.
    """

    def __init__(self, distance: Distance, query: NDArray[Any], gallery: NDArray[Any], dtype: type) -> None:
        given = distance is GIVEN_DISTANCE
        norms = [np.zeros(len(side)) if given else squared_norms(side) for side in (query, gallery)]
        self.distance, self.query, self.gallery = distance, query, gallery
        self.shape = len(query), len(gallery)
        self.rows = PairRows(distance.kind, query, gallery, *norms)
        i, j = np.divmod(np.arange(len(query) * len(gallery)), len(gallery))
        self.exact = pair_distances(self.rows, i, j).reshape(self.shape)
        screened = np.float32 if dtype is np.int32 else dtype
        self.screen: Screen = distance.screen(self.rows, screened)
        prepared = np.empty(gallery.shape, self.screen.dtype)
        self._matrix, self.bias = self.screen.gallery_tile(slice(0, len(gallery)), prepared)
        self.product = np.empty(self.shape, self.screen.dtype)
        self._queries = np.arange(len(query))
        self._has_integers = dtype is np.int32 and not given
        self.screen.multiply(self._queries, self._matrix, self.product)

    def seen(self, hidden: NDArray[np.bool_], bias_of: Int64 | None = None, *, column_start: int = 0) -> tiles.Tile:
        """What kernels take; columns are `hidden` from every query, of its kind where `hidden` has two axes."""
        bias = np.atleast_2d(np.where(hidden, np.inf, self.bias)).astype(self.bias.dtype)
        found = tile_of(self.product, bias, bias_of, column_start)
        if not self._has_integers:
            return found
        near = self.screen.query_rows(self._queries)
        product = InFloat64()
        own, other = (IntegerRows(rows, product) for rows in (near, self._matrix))
        products = np.empty(self.shape, np.int32)
        own.multiply(self._queries, other, products)
        return found._replace(
            products=products, shift=other.shift, scale=other.scale, factor=own.scale,
            extra=own.error(self._queries, other, slack_of(self.screen)), spared=own.spared(self._queries, other),
            fine=own.crossed_error(self._queries, other, slack_of(self.screen)), near=own.both, far=other.both,
        )  # fmt: skip

    def in_order(self, q: int, columns: Int64) -> Int64:
        """Columns by (distance to a query, column)."""
        return columns[np.lexsort((columns, self.exact[q, columns]))]

    def bands(
        self, positives: Sequence[Int64], hidden: Sequence[Int64], row_of: Int64, *, first_column: int = 0
    ) -> Bands:
        """Bands around the distances of the positives of every query, in ascending order.

        `positives` and `hidden` are columns of the tile by query, `row_of` is the gallery row of every column, and
        `first_column` the place of the tile in its block.
        """
        indptr, thresholds, starts, owner = [0], list[float](), [0], list[int]()
        rows = list[int]()
        for q, columns in enumerate(positives):
            ordered = self.in_order(q, columns)
            values, counts = np.unique(self.exact[q, ordered], return_counts=True)
            thresholds += values.tolist()
            starts += (starts[-1] + np.cumsum(counts)).tolist()
            rows += row_of[ordered].tolist()
            owner += [q] * len(values)
            indptr.append(len(thresholds))
        distances = np.array(thresholds)
        lower, upper = self.screen.edges(np.array(owner, int), distances, self.distance.squared)
        return Bands(
            np.array(indptr), lower, upper, distances, np.array(starts), np.array(rows, np.int64),
            np.cumsum([0, *map(len, hidden)]), np.concatenate(hidden) + first_column,
        )  # fmt: skip
