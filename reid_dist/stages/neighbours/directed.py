"""Exact lists of the nearest gallery items of each query, kept in the workspace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions import Surroundings, SurroundQueries, merge_surroundings, pair_rows
from reid_dist.engine.scorers import read_block
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.kernels.canonical import pair_distances
from reid_dist.stages.neighbours.lists import BlockedLists, own_first
from reid_dist.stores import FeatureSet, Stage


@dataclass(frozen=True)
class QueryLists(BlockedLists):
    """Lists of the nearest gallery items of each query, the query first, and its largest distance.

    Attributes
    ----------
    stage
        Stage of the workspace.
    query, gallery
        Feature sets of both sides.
    distance
        Distance between rows.
    k
        Length of a list, the query counted.
    block_rows, gallery_rows
        Rows of a block of queries, and of the gallery.
    tile_rows
        Rows and columns of a tile.
    """

    stage: Stage
    query: FeatureSet
    gallery: FeatureSet
    distance: Distance
    k: int
    block_rows: int
    gallery_rows: int
    tile_rows: int

    @property
    def n_items(self) -> int:
        """Rows that have a list."""
        return self.query.n_rows

    @property
    def own(self) -> int:
        """Item number of each query in its own list: the number of gallery rows."""
        return self.gallery.n_rows

    @property
    def gallery_blocks(self) -> list[RowRange]:
        """Blocks of the gallery."""
        return list(cut_rows(self.gallery.n_rows, self.gallery_rows))


def query_tile_task(lists: QueryLists, block: int, gallery_block: int) -> None:
    """Compare a block of queries with a block of the gallery, and write the lists of this pair."""
    with one_blas_thread():
        near = read_block(lists.query, lists.rows(block))
        far = read_block(lists.gallery, lists.gallery_blocks[gallery_block])
        tile = TileShape(lists.tile_rows, lists.tile_rows)
        (found,) = run_tiles(near, far, lists.distance, tile, [SurroundQueries(lists.k - 1, lists.distance)])
    lists.stage.write(
        lists.tile_part(block, gallery_block),
        {"index": found.index.astype(np.int32), "distance": found.distance, "farthest": found.farthest},
    )


def merge_query_task(lists: QueryLists, block: int, _tiles: object = None) -> None:
    """Merge the lists of all gallery blocks, put each query first in its own list, and write the lists."""
    merged: Surroundings | None = None
    for gallery_block in range(len(lists.gallery_blocks)):
        part = lists.stage.read(lists.tile_part(block, gallery_block), "index", "distance", "farthest")
        found = Surroundings(part["index"].astype(np.int64), part["distance"], part["farthest"])
        merged = found if merged is None else merge_surroundings(merged, found, lists.k - 1)
    if merged is None:
        raise AssertionError("there is at least one block")
    features = read_block(lists.query, lists.rows(block))
    place = np.arange(len(features))
    own = pair_distances(pair_rows(lists.distance, features, features), place, place)
    numbers = np.full(len(features), lists.own)
    lists.stage.write(lists.block_part(block), own_first(numbers, own, merged, lists.k))
