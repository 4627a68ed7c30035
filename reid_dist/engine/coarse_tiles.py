"""The loop over the tiles of a block pair by products of eight-bit integers.

Lists and rank counts read the same products.  Queries for which integers decide too little are counted by products with
residuals where these are fast, and otherwise by products of float32, as are whole block pairs where these are
preferred.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Neighbours, RowRange, cut_rows, even_rows
from reid_dist.engine.crowded_lists import CROWDED_LISTS, are_listed, kind_of, pay_for_lists
from reid_dist.engine.distances import Distance, Screen
from reid_dist.engine.distances.integers import COST_OF_COUNTS, COST_OF_LISTS, residuals_pay
from reid_dist.engine.distances.quantised import Quantised, QuantisedProducts, quantise
from reid_dist.engine.plain_tiles import run_plain_tiles
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions import (
    CountNearer,
    FeatureBlock,
    KeepNearest,
    Reduction,
    Seed,
    Surroundings,
    SurroundQueries,
    pair_rows,
    screen_pairs,
)
from reid_dist.engine.reductions.coarse import CoarseQueries, CoarseSurroundings
from reid_dist.engine.reductions.coarse_counts import PLAIN_QUERIES, CoarseCounts
from reid_dist.engine.reductions.residual_screen import ResidualScreen
from reid_dist.engine.screened_pairs import note_screened
from reid_dist.kernels.canonical import PairRows
from reid_dist.kernels.coarse import make_upper_ends

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]

# Rows and columns of a tile: each one costs two calls, which together take as long as some 30,000 pairs.
_COARSE_ROWS, _COARSE_COLUMNS = 1024, 1024

# Gallery rows for which integers are tried for the counts of a query, and elements of those until the next decision,
# which are kept in eight bits; the largest share of queries in float32 with which integers pay for the others.
_TRIED_ROWS, _RECONSIDERED_ELEMENTS, _MOST_PLAIN = 128, 1 << 23, 0.6
# Mean share of opened pairs of queries that are left to other products, and mean number of thresholds of all queries,
# up to which these are products with residuals.
_MOST_OPENED_WITH_RESIDUALS, _MOST_THRESHOLDS_WITH_RESIDUALS = 0.6, 100


def run_coarse_tiles(
    query: FeatureBlock,
    gallery: FeatureBlock,
    distance: Distance,
    tile: TileShape,
    lists: KeepNearest | SurroundQueries | None,
    counts: CountNearer | None,
) -> dict[int, Any]:
    """Reduce all tiles of a block pair; return partial results by the `id` of their reduction.

    Reductions for which products of float32 are preferred are left out.
    """
    known = query.reranked
    if known is not None and (lists is not None or known.mixed or known.weight == 0.0):
        return {}
    wants_counts = counts is not None and counts.targets.indptr[-1] > counts.targets.indptr[0]
    plain_share = PLAIN_QUERIES.share_of(counts.targets) if counts is not None and wants_counts else 0.0
    if plain_share > _MOST_PLAIN and counts is not None and _take_residuals(query, counts):
        plain_share = 0.0
    kind = None if lists is None else kind_of(distance, gallery, lists.k)
    wants_lists = lists is not None and are_listed(lists, gallery) and not CROWDED_LISTS.are_expected(kind)
    if lists is not None and counts is not None and (not wants_lists or plain_share > _MOST_PLAIN):
        # The products of float32 that one of them takes serve the other as well.
        return {}
    wants_counts = wants_counts and plain_share <= _MOST_PLAIN
    if not wants_lists and not wants_counts:
        return {}
    cost = COST_OF_COUNTS if wants_counts else COST_OF_LISTS
    plain = pair_rows(distance, replace(query, reranked=None), gallery)
    products = quantise(screen_pairs(distance, plain, np.float32, multiplied=False), cost)
    if products is None:
        return {}
    loop = _Loop(query, gallery, distance, tile, products)
    listed = _Lists(loop, lists) if lists is not None and wants_lists else None
    counted = _Counts(loop, counts) if counts is not None and wants_counts else None
    for chunk in cut_rows(len(gallery), max(1, _RECONSIDERED_ELEMENTS // max(1, gallery.features.shape[1]))):
        start = chunk.start
        loop.open(chunk)
        if counted is not None and not counted.is_complete:
            start = counted.begin(chunk, listed)
        loop.add(RowRange(start, chunk.stop), listed, counted)
        if listed is not None and listed.is_crowded:
            # The products of float32 that lists then take serve counts as well.
            CROWDED_LISTS.note(kind)
            return {}
    found: dict[int, Any] = {}
    if listed is not None:
        found[id(lists)] = listed.result()
    if counted is not None:
        found[id(counts)] = counted.result()
    return found


class _Loop:
    """Tiles of a block pair."""

    def __init__(
        self,
        query: FeatureBlock,
        gallery: FeatureBlock,
        distance: Distance,
        tile: TileShape,
        products: QuantisedProducts,
    ) -> None:
        self.query, self.gallery, self.distance, self.tile, self.products = query, gallery, distance, tile, products
        self.n_rows, self._n_columns = _shape(query, gallery, tile)
        self._chunk = RowRange(0, 0)
        self._quantised: Quantised | None = None

    def open(self, chunk: RowRange) -> None:
        """Begin a chunk of gallery rows."""
        self._chunk, self._quantised = chunk, None

    def quantised(self, columns: RowRange) -> tuple[Quantised, RowRange]:
        """Quantised gallery rows of the chunk, and the place of some of them."""
        if self._quantised is None:
            self._quantised = self.products.columns(self._chunk)
        start = self._chunk.start
        return self._quantised, RowRange(columns.start - start, columns.stop - start)

    def residual_screen(self, queries: Int64, columns: RowRange, pairs: PairRows) -> Screen:
        """Screen of some queries and gallery rows of the chunk by products with residuals."""
        return ResidualScreen(self.products, pairs, queries, *self.quantised(columns), columns.start)

    def add(self, columns: RowRange, listed: _Lists | None, counted: _Counts | None) -> None:
        """Add some gallery rows to lists and to counts."""
        if counted is not None and counted.is_complete:
            counted = None
        counts = None if counted is None else counted.coarse
        for part in cut_rows(len(columns), self._n_columns):
            here = RowRange(columns.start + part.start, columns.start + part.stop)
            if listed is not None and not listed.is_crowded:
                # Those that are counted are among them.
                self.absorb(here, listed.queries, listed.coarse, counts)
            elif counted is not None:
                self.absorb(here, counted.queries, None, counts)

    def absorb(
        self, columns: RowRange, queries: Int64, lists: CoarseQueries | None, counts: CoarseCounts | None
    ) -> None:
        """Add the products of some queries and some gallery rows to their lists and counts."""
        products = self.products
        products.select(queries)
        quantised, place = self.quantised(columns)
        factors = quantised.factors_of(place)
        for reduction in (lists, counts):
            if reduction is not None:
                reduction.open(columns, factors)
        ends = of_lists = make_upper_ends(self.n_rows, len(columns))
        if lists is not None and counts is not None and not _hide_equally(lists, counts):
            of_lists = make_upper_ends(self.n_rows, len(columns))
        for rows in cut_rows(len(queries), self.n_rows):
            tile, some = products.tile(rows, quantised, place), queries[rows.start : rows.stop]
            if counts is not None:
                counts.absorb(tile, some, ends)
            if lists is not None:
                lists.absorb(tile, some, of_lists)
        note_screened("int8", len(queries) * len(columns))


class _Lists:
    """Lists of all queries, of some by other products than those of integers alone.

    Attributes
    ----------
    queries
        Queries whose lists are found by integers, int64, ascending.
    """

    def __init__(self, loop: _Loop, reduction: KeepNearest | SurroundQueries) -> None:
        self._reduction = reduction
        self.queries = np.arange(len(loop.query))
        unknown = np.full(len(loop.query), np.inf)
        reach = reduction.reach if isinstance(reduction, KeepNearest) else None
        self._reach = unknown if reach is None else reach.copy()
        self._others: list[Neighbours] = []
        farthest = isinstance(reduction, SurroundQueries) and reduction.farthest
        hidden = reduction.hidden_columns(loop.gallery) if isinstance(reduction, KeepNearest) else None
        blocks, seed = (loop.query, loop.gallery), Seed(self._reach, -unknown)
        self.coarse = CoarseQueries(
            *blocks, loop.distance, reduction.k, seed, loop.products, farthest=farthest, hidden=hidden
        )

    @property
    def is_crowded(self) -> bool:
        """Whether products of float32 are faster."""
        return self.coarse.is_crowded

    def leave_out(self, queries: Int64) -> None:
        """Leave the lists of some queries, and of those that were left before, to other products."""
        kept = np.ones(len(self._reach), np.bool_)
        kept[queries] = False
        left = self.queries[kept[self.queries]]
        # Selections are compared by identity.
        self.queries = left if len(left) < len(self.queries) else self.queries

    def of_plain(self, queries: Int64) -> KeepNearest:
        """Reduction of the lists of some queries."""
        if not isinstance(self._reduction, KeepNearest):
            raise AssertionError("largest distances are not found beside counts")
        return self._reduction.take(queries, self._reach)

    def add(self, queries: Int64, found: Neighbours) -> None:
        """Add lists of some queries."""
        shape = len(self._reach), found.index.shape[1]
        lists = Neighbours(np.full(shape, -1), np.full(shape, np.inf))
        lists.index[queries], lists.distance[queries] = found.index, found.distance
        self._others.append(lists)
        if shape[1] >= self._reduction.k:
            self._reach[queries] = np.minimum(self._reach[queries], found.distance[:, self._reduction.k - 1])

    def result(self) -> Any:
        """Return the partial result of the reduction."""
        found, reduction = self.coarse.result(), self._reduction
        if isinstance(reduction, SurroundQueries):
            return found
        lists = Neighbours(*_padded(found.index, found.distance, reduction.k))
        return reduction.combine([lists, *self._others])


class _Counts:
    """Rank counts, of some queries by products with residuals or of float32, and of those that need no products.

    Attributes
    ----------
    queries
        Queries that are counted by integers, int64, ascending.
    is_complete
        Whether all gallery rows are counted.
    """

    def __init__(self, loop: _Loop, reduction: CountNearer) -> None:
        self._loop, self._reduction = loop, reduction
        self.coarse = CoarseCounts(reduction, loop.query, loop.gallery, loop.products)
        own, known = reduction.targets.indptr, PLAIN_QUERIES.of(reduction.targets)
        with_thresholds = np.setdiff1d(np.flatnonzero(own[1:] > own[:-1]), self.coarse.spared)
        self._takes_residuals = _take_residuals(loop.query, reduction)
        self._n_queries, self._is_known = len(with_thresholds), known is not None
        self._plain = with_thresholds[:0] if known is None else with_thresholds[known[with_thresholds]]
        self.queries = np.setdiff1d(with_thresholds, self._plain)
        self.coarse.count_only(self.queries)
        self.is_complete = False
        self._count_plain(self.coarse.spared, RowRange(0, len(loop.gallery)), None)

    def begin(self, chunk: RowRange, listed: _Lists | None) -> int:
        """Choose the queries that are counted by integers in a chunk; return the first row that is left to them.

        Queries that are counted by other products are listed by these.
        """
        tried = chunk.start
        if not self._is_known or chunk.start:
            # A few rows show which queries are left to other products.
            tried = min(chunk.stop, chunk.start + _TRIED_ROWS)
            self.coarse.is_limited = True
            self._loop.absorb(RowRange(chunk.start, tried), self.queries, None, self.coarse)
            self.coarse.is_limited = False
            crowded, n_opened = self.coarse.take_crowded()
            self.queries, self._plain = np.setdiff1d(self.queries, crowded), np.union1d(self._plain, crowded)
            self.coarse.count_only(self.queries)
            if not self._is_known and not chunk.start:
                most = _MOST_OPENED_WITH_RESIDUALS * len(crowded) * (tried - chunk.start)
                self._takes_residuals = self._takes_residuals and n_opened <= most
            PLAIN_QUERIES.keep(self._reduction.targets, self._plain, residuals=self._takes_residuals)
        if listed is not None:
            listed.leave_out(self._plain)
            # Lists and the few rows that are tried are not worth a common product.
            self._loop.add(RowRange(chunk.start, tried), listed, None)
        if len(self._plain) > _MOST_PLAIN * self._n_queries and not self._takes_residuals:
            self._count_plain(self._plain, RowRange(chunk.start, tried), listed)
            every = np.union1d(self.queries, self._plain)
            if listed is not None:
                listed.leave_out(every)
            self._count_plain(every, RowRange(tried, len(self._loop.gallery)), listed)
            self.is_complete = True
        else:
            self._count_plain(self._plain, chunk, listed)
        return tried

    def _count_plain(self, queries: Int64, rows: RowRange, listed: _Lists | None) -> None:
        """Count some queries by products with residuals or of float32, and list them."""
        if not len(queries) or not len(rows):
            return
        loop = self._loop
        near, rest = loop.query.take(queries, 0), loop.gallery.part(slice(rows.start, rows.stop))
        wanted: list[Reduction[Any]] = [self._reduction.take(queries)]
        if listed is not None:
            wanted.append(listed.of_plain(queries))
        screen = None
        if self._takes_residuals:
            screen = loop.residual_screen(queries, rows, pair_rows(loop.distance, near, rest))
        counts, *lists = run_plain_tiles(near, rest, loop.distance, loop.tile, wanted, screen=screen)
        self.coarse.add(queries, counts)
        if listed is not None and lists:
            listed.add(queries, lists[0])

    def result(self) -> Any:
        """Return the partial result of the reduction."""
        return self.coarse.result()


def run_coarse_tiles_both_ways(
    first: FeatureBlock,
    second: FeatureBlock,
    distance: Distance,
    tile_rows: int,
    k: int,
    seeds: tuple[Seed, Seed],
    *,
    farthest: bool = True,
) -> list[Surroundings] | None:
    """Find the nearest and farthest items of two blocks of one set, for both; None where float32 is preferred."""
    kind = kind_of(distance, first, k)
    if CROWDED_LISTS.are_expected(kind):
        return None
    products = quantise(screen_pairs(distance, pair_rows(distance, first, second), np.float32, multiplied=False))
    if products is None:
        return None
    reduction = CoarseSurroundings(first, second, distance, k, seeds, products, farthest=farthest)
    n_rows, n_columns = _shape(first, second, TileShape(tile_rows, tile_rows))
    for columns in cut_rows(len(second), n_columns):
        for rows in cut_rows(len(first), n_rows):
            reduction.absorb(rows, columns)
            note_screened("int8", len(rows) * len(columns))
            if reduction.is_crowded:
                CROWDED_LISTS.note(kind)
                return None
    return reduction.result()


def run_coarse_tiles_within(
    block: FeatureBlock, distance: Distance, tile_rows: int, k: int, *, farthest: bool = True
) -> list[Surroundings] | None:
    """Find the nearest and farthest items of a block among itself, as the only result; None where float32 is preferred.

    Tiles on the diagonal come first: they bound the lists of all items.
    """
    kind = kind_of(distance, block, k)
    if not pay_for_lists(block, 0.5, k) or CROWDED_LISTS.are_expected(kind):
        return None
    products = quantise(screen_pairs(distance, pair_rows(distance, block, block), np.float32, multiplied=False))
    if products is None:
        return None
    unknown = np.full(len(block), np.inf)
    seed = Seed(unknown, -unknown)
    reduction = CoarseSurroundings(block, block, distance, k, (seed, seed), products, farthest=farthest)
    tiles = [*cut_rows(len(block), even_rows(len(block), min(tile_rows, _COARSE_ROWS)))]
    note_screened("int8", reduction.begin(tiles))
    for later, columns in enumerate(tiles):
        for rows in tiles[:later]:
            if reduction.is_crowded:
                break
            reduction.absorb(rows, columns)
            note_screened("int8", len(rows) * len(columns))
    if reduction.is_crowded:
        CROWDED_LISTS.note(kind)
        return None
    return reduction.result()


def _take_residuals(query: FeatureBlock, counts: CountNearer) -> bool:
    """Whether products with residuals, which are not made for known distances, may replace those of float32."""
    indptr = counts.targets.indptr
    most = _MOST_THRESHOLDS_WITH_RESIDUALS * int((np.diff(indptr) > 0).sum())
    return (
        query.reranked is None
        and indptr[-1] - indptr[0] <= most
        and PLAIN_QUERIES.take_residuals(counts.targets)
        and residuals_pay(query.features.shape[1])
    )


def _hide_equally(lists: CoarseQueries, counts: CoarseCounts) -> bool:
    """Whether both have the same biases, and so the same ends."""
    return all(np.array_equal(one, other) for one, other in zip(lists.biases, counts.biases, strict=True))


def _padded(index: Int64, distance: Float64, k: int) -> tuple[Int64, Float64]:
    """Lists of length `k`, with absent entries at the end."""
    if index.shape[1] == k:
        return index, distance
    missing = ((0, 0), (0, k - index.shape[1]))
    return np.pad(index, missing, constant_values=-1), np.pad(distance, missing, constant_values=np.inf)


def _shape(query: FeatureBlock, gallery: FeatureBlock, tile: TileShape) -> tuple[int, int]:
    """Queries and gallery rows of a tile of integers."""
    most_rows, most_columns = min(tile.query, _COARSE_ROWS), min(tile.gallery, _COARSE_COLUMNS)
    return even_rows(len(query), most_rows), even_rows(len(gallery), most_columns)
