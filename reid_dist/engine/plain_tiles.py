"""The loop over the tiles of a block pair by products of floating-point numbers, each passed to every reduction."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from reid_dist.core.model import cut_rows, even_rows
from reid_dist.engine.distances import Distance, Screen
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions import FeatureBlock, Precision, Products, Reduction, Tile, pair_rows, screen_pairs
from reid_dist.engine.screened_pairs import note_screened


def run_plain_tiles(
    query: FeatureBlock,
    gallery: FeatureBlock,
    distance: Distance,
    tile: TileShape,
    reductions: Sequence[Reduction[Any]],
    *,
    triangle: bool = False,
    screen: Screen | None = None,
) -> list[Any]:
    """Reduce all tiles of a block pair; return the partial result of each reduction, in order.

    `triangle` omits the tiles below the diagonal, for a block against itself in square tiles.  `screen` is that of
    products in float32, unless others are given.
    """
    pairs = pair_rows(distance, query, gallery)
    first = screen_pairs(distance, pairs, np.float32) if screen is None else screen
    accumulators = [reduction.start(query, gallery, first) for reduction in reductions]
    lower_bounds = [
        lower_bound
        for lower_bound in (accumulator.lower_bound for accumulator in accumulators)
        if lower_bound is not None
    ]
    if len(lower_bounds) == len(accumulators):
        first.spare(np.minimum.reduce(lower_bounds))
    n_query, n_gallery = len(query), len(gallery)
    # The last tile of a block would be short otherwise, and short products are slow.
    query_rows, gallery_rows = even_rows(n_query, tile.query), even_rows(n_gallery, tile.gallery)
    size = gallery.features.shape[1], query_rows, gallery_rows

    @cache
    def products(precision: Precision) -> Products:
        if precision is Precision.PLAIN:
            return Products(first, *size)
        dtype = np.float64 if precision is Precision.WIDE else np.float32
        return Products(screen_pairs(distance, pairs, dtype, in_parts=precision is Precision.IN_PARTS), *size)

    if not first.exact:
        note_screened(first.kind, n_query * (n_gallery + 1) // 2 if triangle else n_query * n_gallery)
    for columns in cut_rows(n_gallery, gallery_rows):
        for rows in cut_rows(columns.stop if triangle else n_query, query_rows):
            for accumulator in accumulators:
                accumulator.absorb(Tile(rows, columns, products, len(accumulators) > 1))
    return [accumulator.result() for accumulator in accumulators]
