"""The tile loop: each product is passed to every reduction; memory is reused from tile to tile."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Neighbours, RowRange, cut_rows, even_rows
from reid_dist.engine.distances import Distance
from reid_dist.engine.distances.integers import forced_screen
from reid_dist.engine.distances.quantised import quantise
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions import (
    CountNearer,
    FeatureBlock,
    GroupedCounts,
    KeepNearest,
    Precision,
    Products,
    Reduction,
    Seed,
    SurroundBoth,
    Surroundings,
    SurroundQueries,
    Tile,
    merge_surroundings,
    pair_rows,
    screen_pairs,
)
from reid_dist.engine.reductions.coarse import CoarseQueries, CoarseSurroundings
from reid_dist.engine.reductions.coarse_counts import PLAIN_QUERIES, CoarseCounts
from reid_dist.engine.screened_pairs import note_screened

Float64 = NDArray[np.float64]

# Rows and columns of a tile of integers, which is read while it is in the cache of a core.
_COARSE_ROWS, _COARSE_COLUMNS = 256, 1024

# Gallery rows for which integers are tried for the counts of a query, and those until the next decision; the largest
# share of queries in float32 with which integers pay for the others.
_TRIED_ROWS, _RECONSIDERED_ROWS, _MOST_PLAIN = 128, 16384, 0.8
# The largest share with which lists and counts, which take products of their own in eight bits, are computed apart.
_MOST_APART = 0.1

# Gallery rows that bound the distances of a query's nearest ones, at least, and per row of its list; and how many times
# as many the gallery has at least.
_FIRST_ROWS, _FIRST_PER_NEIGHBOUR, _LEAST_TIMES = 1024, 16, 16


def run_tiles(
    query: FeatureBlock,
    gallery: FeatureBlock,
    distance: Distance,
    tile: TileShape,
    reductions: Sequence[Reduction[Any]],
    *,
    triangle: bool = False,
    reach: Float64 | None = None,
) -> list[Any]:
    """Reduce all tiles of a block pair; return the partial result of each reduction, in order.

    `triangle` omits the tiles below the diagonal, for a block against itself in square tiles.  `reach`, (n_query,),
    holds canonical distances within which each query has as many gallery rows as its list holds, in this block or in
    others: rows beyond may be missing in lists.
    """
    lists = [each for each in reductions if isinstance(each, KeepNearest | SurroundQueries)]
    counts = [each for each in reductions if isinstance(each, CountNearer)]
    crowded = [PLAIN_QUERIES.share_of(each.targets) for each in counts]
    if (
        len(lists) > 1
        or len(counts) > 1
        or len(lists) + len(counts) < len(reductions)
        # One product of float32 for both takes less time than that and one of integers.
        or (lists and max(crowded, default=0.0) > _MOST_APART)
    ):
        return _run_plain_tiles(query, gallery, distance, tile, reductions, triangle=triangle)
    found: dict[int, Any] = {}
    for nearest in lists:
        found[id(nearest)] = _run_coarse_queries(query, gallery, distance, tile, nearest, reach)
    # Without lists by integers, the products of float32 that these take serve the counts as well.
    if None not in found.values():
        for ranks in counts:
            found[id(ranks)] = _run_coarse_counts(query, gallery, distance, tile, ranks)
    left = [each for each in reductions if found.get(id(each)) is None]
    if left:
        plain = _run_plain_tiles(query, gallery, distance, tile, left, triangle=triangle)
        found |= {id(each): one for each, one in zip(left, plain, strict=True)}
    return [found[id(each)] for each in reductions]


def _run_plain_tiles(
    query: FeatureBlock,
    gallery: FeatureBlock,
    distance: Distance,
    tile: TileShape,
    reductions: Sequence[Reduction[Any]],
    *,
    triangle: bool = False,
) -> list[Any]:
    """Do as `run_tiles` does by products of floating-point numbers."""
    pairs = pair_rows(distance, query, gallery)
    screen = screen_pairs(distance, pairs, np.float32)
    accumulators = [reduction.start(query, gallery, screen) for reduction in reductions]
    lower_bounds = [
        lower_bound
        for lower_bound in (accumulator.lower_bound for accumulator in accumulators)
        if lower_bound is not None
    ]
    if len(lower_bounds) == len(accumulators):
        screen.spare(np.minimum.reduce(lower_bounds))
    n_query, n_gallery = len(query), len(gallery)
    # The last tile of a block would be short otherwise, and short products are slow.
    query_rows, gallery_rows = even_rows(n_query, tile.query), even_rows(n_gallery, tile.gallery)
    size = gallery.features.shape[1], query_rows, gallery_rows

    @cache
    def products(precision: Precision) -> Products:
        if precision is Precision.PLAIN:
            return Products(screen, *size)
        dtype = np.float64 if precision is Precision.WIDE else np.float32
        return Products(screen_pairs(distance, pairs, dtype, in_parts=precision is Precision.IN_PARTS), *size)

    if not screen.exact:
        note_screened("float32", n_query * (n_gallery + 1) // 2 if triangle else n_query * n_gallery)
    for columns in cut_rows(n_gallery, gallery_rows):
        for rows in cut_rows(columns.stop if triangle else n_query, query_rows):
            for accumulator in accumulators:
                accumulator.absorb(Tile(rows, columns, products, len(accumulators) > 1))
    return [accumulator.result() for accumulator in accumulators]


def run_symmetric_tiles(
    first: FeatureBlock,
    second: FeatureBlock | None,
    distance: Distance,
    tile_rows: int,
    k: int,
    seeds: tuple[Seed, Seed] | None = None,
) -> list[Surroundings]:
    """Find the nearest and farthest items of two blocks of one set, for both; or of one block, if the second is None.

    Tiles have `tile_rows` rows and columns; see `SurroundBoth` for the other parameters and the result.
    """
    if second is not None and seeds is not None:
        coarse = _run_coarse_tiles(first, second, distance, tile_rows, k, seeds)
        if coarse is not None:
            return coarse
    gallery, tile = first if second is None else second, TileShape(tile_rows, tile_rows)
    (found,) = run_tiles(first, gallery, distance, tile, [SurroundBoth(k, distance, seeds)], triangle=second is None)
    return list(found)


def _run_coarse_tiles(
    first: FeatureBlock,
    second: FeatureBlock,
    distance: Distance,
    tile_rows: int,
    k: int,
    seeds: tuple[Seed, Seed],
) -> list[Surroundings] | None:
    """Do as `run_symmetric_tiles` does by products of eight-bit integers; None where those of float32 are preferred."""
    products = quantise(screen_pairs(distance, pair_rows(distance, first, second), np.float32))
    if products is None:
        return None
    reduction = CoarseSurroundings(first, second, distance, k, seeds, products)
    n_rows, n_columns = _coarse_shape(first, second, TileShape(tile_rows, tile_rows))
    for columns in cut_rows(len(second), n_columns):
        for rows in cut_rows(len(first), n_rows):
            reduction.absorb(rows, columns)
            note_screened("int8", len(rows) * len(columns))
            if reduction.is_crowded:
                return None
    return reduction.result()


def _run_coarse_queries(
    query: FeatureBlock,
    gallery: FeatureBlock,
    distance: Distance,
    tile: TileShape,
    reduction: KeepNearest | SurroundQueries,
    reach: Float64 | None,
) -> Any | None:
    """Partial result of lists of queries by products of eight-bit integers; None where those of float32 are preferred.

    Without a known `reach`, the first gallery rows are compared by products of float32, and give bounds for the others.
    """
    if reach is not None and isinstance(reduction, KeepNearest) and reduction.hidden is None:
        return _run_reaching_queries(query, gallery, distance, tile, reduction, reach)
    n_first = max(_FIRST_ROWS, _FIRST_PER_NEIGHBOUR * reduction.k)
    surrounds = isinstance(reduction, SurroundQueries)
    hides = isinstance(reduction, KeepNearest) and reduction.hidden is not None
    least = n_first * (_LEAST_TIMES if forced_screen() is None else 1)
    if hides or query.reranked is not None or len(gallery) <= least:
        return None
    rest = gallery.part(slice(n_first, None))
    products = quantise(screen_pairs(distance, pair_rows(distance, query, rest), np.float32))
    if products is None:
        return None
    (head,) = _run_plain_tiles(query, gallery.part(slice(n_first)), distance, tile, [reduction])
    unknown = np.full(len(query), np.inf)
    reach = head.distance[:, reduction.k - 1] if head.distance.shape[1] >= reduction.k else unknown
    seed = Seed(reach, head.farthest if surrounds else -unknown)
    coarse = CoarseQueries(query, rest, distance, reduction.k, seed, products, farthest=surrounds)
    if not _absorb_all(coarse, query, rest, tile):
        return None
    found = coarse.result()
    if isinstance(reduction, SurroundQueries):
        return merge_surroundings(head, found, reduction.k)
    return reduction.combine([head, Neighbours(found.index, found.distance)])


def _run_reaching_queries(
    query: FeatureBlock,
    gallery: FeatureBlock,
    distance: Distance,
    tile: TileShape,
    reduction: KeepNearest,
    reach: Float64,
) -> Neighbours | None:
    """Lists of the gallery rows within a known reach by products of eight-bit integers; None as above."""
    if query.reranked is not None:
        return None
    products = quantise(screen_pairs(distance, pair_rows(distance, query, gallery), np.float32))
    if products is None:
        return None
    seed = Seed(reach, np.full(len(query), -np.inf))
    coarse = CoarseQueries(query, gallery, distance, reduction.k, seed, products, farthest=False)
    if not _absorb_all(coarse, query, gallery, tile):
        return None
    found = coarse.result()
    return Neighbours(*_padded(found.index, found.distance, reduction.k))


def _padded(index: NDArray[np.int64], distance: Float64, k: int) -> tuple[NDArray[np.int64], Float64]:
    """Lists of length `k`, with absent entries at the end."""
    missing = ((0, 0), (0, k - index.shape[1]))
    return np.pad(index, missing, constant_values=-1), np.pad(distance, missing, constant_values=np.inf)


def _absorb_all(coarse: CoarseQueries, query: FeatureBlock, gallery: FeatureBlock, tile: TileShape) -> bool:
    """Add all tiles; return whether products of float32 would not have been faster."""
    n_rows, n_columns = _coarse_shape(query, gallery, tile)
    for columns in cut_rows(len(gallery), n_columns):
        coarse.absorb(columns, n_rows)
        note_screened("int8", len(query) * len(columns))
        if coarse.is_crowded:
            return False
    return True


def _run_coarse_counts(
    query: FeatureBlock, gallery: FeatureBlock, distance: Distance, tile: TileShape, reduction: CountNearer
) -> GroupedCounts | None:
    """Counts for ranks by products of eight-bit integers; None where those of float32 are preferred.

    Queries for which integers decide too little are left to float32 for the rest of the block.
    """
    own = reduction.targets.indptr
    if query.reranked is not None or own[-1] == own[0]:
        return None
    known = PLAIN_QUERIES.of(reduction.targets)
    if PLAIN_QUERIES.share_of(reduction.targets) > _MOST_PLAIN:
        return None
    products = quantise(screen_pairs(distance, pair_rows(distance, query, gallery), np.float32))
    if products is None:
        return None
    counts = CoarseCounts(reduction, query, gallery, products)
    n_rows, n_columns = _coarse_shape(query, gallery, tile)
    coarse = np.flatnonzero(own[1:] > own[:-1])
    few = _MOST_PLAIN * len(coarse)
    plain = coarse[:0] if known is None else coarse[known[coarse]]
    coarse = np.setdiff1d(coarse, plain)

    def count_plain(queries: NDArray[np.int64], start: int, stop: int) -> None:
        if len(queries) and stop > start:
            near, rest = query.take(queries, 0), gallery.part(slice(start, stop))
            (found,) = _run_plain_tiles(near, rest, distance, tile, [reduction.take(queries)])
            counts.add(queries, found)

    for chunk in cut_rows(len(gallery), _RECONSIDERED_ROWS):
        tried = chunk.start
        if known is None or chunk.start:
            # A few rows show which queries are left to float32.
            tried = min(chunk.stop, chunk.start + _TRIED_ROWS)
            products.select(coarse)
            crowded = counts.absorb(coarse, RowRange(chunk.start, tried), n_rows, limited=True)
            coarse, plain = np.setdiff1d(coarse, crowded), np.union1d(plain, crowded)
            PLAIN_QUERIES.keep(reduction.targets, plain)
        if len(plain) > few:
            count_plain(plain, chunk.start, tried)
            count_plain(np.union1d(coarse, plain), tried, len(gallery))
            break
        count_plain(plain, chunk.start, chunk.stop)
        products.select(coarse)
        for columns in cut_rows(chunk.stop - tried, n_columns):
            counts.absorb(coarse, RowRange(tried + columns.start, tried + columns.stop), n_rows, limited=False)
    return counts.result()


def _coarse_shape(query: FeatureBlock, gallery: FeatureBlock, tile: TileShape) -> tuple[int, int]:
    """Queries and gallery rows of a tile of integers."""
    most_rows, most_columns = min(tile.query, _COARSE_ROWS), min(tile.gallery, _COARSE_COLUMNS)
    return even_rows(len(query), most_rows), even_rows(len(gallery), most_columns)
