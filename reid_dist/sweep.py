"""The sweep over tiles: one product, fed to every reduction, in memory that is reused from tile to tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reid_dist.distances import Distance
from reid_dist.model import cut_rows
from reid_dist.plan import TileShape
from reid_dist.reductions import FeatureBlock, Reduction, Tile, make_screen

__all__ = ["sweep"]


def sweep(
    query: FeatureBlock,
    gallery: FeatureBlock,
    distance: Distance,
    tile: TileShape,
    reductions: Sequence[Reduction[Any]],
) -> list[Any]:
    """Reduce all tiles of a block pair.

    Parameters
    ----------
    query, gallery
        The two blocks.
    distance
        What the tiles screen.
    tile
        Rows of a tile, of query and of gallery.
    reductions
        What is computed from the tiles.

    Returns
    -------
    The partial result of each reduction.
    """
    screen = make_screen(distance, query, gallery)
    accumulators = [reduction.start(query, gallery, screen) for reduction in reductions]
    floors = [floor for floor in (accumulator.floor for accumulator in accumulators) if floor is not None]
    if len(floors) == len(accumulators):
        screen.spare(np.minimum.reduce(floors))
    n_query, n_gallery = len(query), len(gallery)
    query_rows, gallery_rows = min(tile.query, n_query), min(tile.gallery, n_gallery)
    prepared = np.empty((gallery_rows, gallery.features.shape[1]), screen.dtype)
    scratch = np.empty(query_rows * gallery_rows, screen.dtype)
    for column in range(0, n_gallery, gallery_rows):
        stop = min(column + gallery_rows, n_gallery)
        matrix, bias = screen.gallery_tile(column, stop, prepared[: stop - column])
        for rows in cut_rows(n_query, query_rows):
            values = scratch[: len(rows) * len(matrix)].reshape(len(rows), len(matrix))
            screen.multiply(rows, matrix, values)
            screen.correct(rows, column, bias, values)
            for accumulator in accumulators:
                accumulator.absorb(Tile(values, bias, rows.start, column))
    return [accumulator.result() for accumulator in accumulators]
