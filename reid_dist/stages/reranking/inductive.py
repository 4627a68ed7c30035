"""Queries put into the graph of a gallery one by one, each as if there were no other; the gallery knows of none.

The gallery's lists, rows of weights and largest distances are those of the gallery among itself, made once for all
query sets.  A query ranks itself and the gallery.  Whether a gallery item would list it in return is decided by how far
the last item of that frozen list is: the query must be strictly nearer, or find a place that is left.  All queries go
by one and the same number in their own rows of weights, behind all gallery items: a column that no row of the gallery
has, so no two rows ever meet there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import Distance
from reid_dist.engine.reductions import Surroundings, merge_surroundings, pair_rows, run_directed_tiles
from reid_dist.engine.scorers import FeatureScorer, read_block
from reid_dist.kernels.canonical import pair_distances
from reid_dist.kernels.lists import listed_distances
from reid_dist.kernels.reciprocal import SparseRows, binary_rows, gaussian_rows, grown_sets, mean_rows
from reid_dist.stages.reranking.lists import BlockedLists
from reid_dist.stages.reranking.neighbours import NeighbourLists, Table, own_first
from reid_dist.stages.reranking.weights import Weighing, WeightRows, join_rows
from reid_dist.stores import FeatureSet, Stage

__all__ = ["QueryLists", "merge_query_task", "place_task", "query_tile_task"]

# Queries that are put into the graph at once within a block.
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class QueryLists(BlockedLists):
    """Lists of the nearest gallery items of each query, the query first, and how far its farthest is.

    Attributes
    ----------
    stage
        Where they are.
    query, gallery
        The two sides.
    distance
        By what distance.
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
        """The number of each query in its own list."""
        return self.gallery.n_rows

    @property
    def gallery_blocks(self) -> list[RowRange]:
        """Blocks of the gallery."""
        return list(cut_rows(self.gallery.n_rows, self.gallery_rows))


def query_tile_task(lists: QueryLists, block: int, gallery_block: int) -> None:
    """Compare a block of queries with a block of the gallery, and write down what it found there."""
    with one_blas_thread():
        near = read_block(lists.query, lists.rows(block))
        far = read_block(lists.gallery, lists.gallery_blocks[gallery_block])
        found = run_directed_tiles(near, far, lists.distance, lists.tile_rows, lists.k - 1)
    lists.stage.write(
        lists.tile_part(block, gallery_block),
        {"index": found.index.astype(np.int32), "distance": found.distance, "farthest": found.farthest},
    )


def merge_query_task(lists: QueryLists, block: int, _tiles: object = None) -> None:
    """Merge what all blocks of the gallery gave, put each query first in its own list, and write that down."""
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


def place_task(
    means: WeightRows,
    lists: QueryLists,
    gallery: NeighbourLists,
    weights: WeightRows,
    how: Weighing,
    k2: int,
    block: int,
) -> None:
    """Make the rows of weights of a block of queries, after the mean over the first `k2` of each list.

    Parameters
    ----------
    means
        Written to.
    lists
        Of the queries.
    gallery, weights
        Lists of the gallery among itself, and its rows of weights before the mean.
    how, k2
        How rows are made.
    block
        Which block of queries.
    """
    rows = lists.rows(block)
    pieces = []
    for cut in cut_rows(len(rows), _ROWS_AT_ONCE):
        here = RowRange(rows.start + cut.start, rows.start + cut.stop)
        own = _weigh(lists, gallery, how, here)
        first = lists.index(here)[:, : min(k2, how.n_near)].astype(np.int64)
        # Every query's own row of weights is another, so here each has a number of its own.
        first[:, 0] = lists.own + np.arange(len(here))
        needed = np.unique(first[:, 1:])
        needed = needed[needed >= 0]
        source = join_rows([weights.read_items(needed), own])
        pieces.append(mean_rows(first, np.append(needed, first[:, 0]), source))
    means.write(block, join_rows(pieces))


def _weigh(lists: QueryLists, gallery: NeighbourLists, how: Weighing, here: RowRange) -> SparseRows:
    """Rows of weights of some queries before the mean."""
    index, distance = lists.index(here)[:, : how.n_near], lists.distances(here)[:, : how.n_near]
    reciprocal = _reciprocal(index[:, 1:], distance[:, 1:], gallery, how.n_near)
    indptr, member = grown_sets(Table.of(gallery), reciprocal, how.n_half, how.inclusive, lists.own)
    if how.binary:
        return binary_rows(indptr, member)
    known = listed_distances(indptr, member, index, distance)
    owner = np.repeat(np.arange(len(here)), np.diff(indptr))
    missing = np.flatnonzero(np.isnan(known))
    pairs = FeatureScorer(lists.query, lists.gallery, lists.distance)
    known[missing] = pairs.pair_distances(here, owner[missing], member[missing].astype(np.int64))
    return gaussian_rows(indptr, member, how.scaled(known, lists.farthest(here)[owner]), how.normalised)


def _reciprocal(
    index: NDArray[np.int32], distance: NDArray[np.float64], gallery: NeighbourLists, n_near: int
) -> NDArray[np.int32]:
    """Those gallery items of each list that would list the query in return; -1 in place of the others."""
    listed = np.unique(index[index >= 0]).astype(np.int64)
    last = gallery.last_kept(listed, n_near)
    # Places that are not taken (-1) look anything up and are dropped below; where nothing is listed, all are such.
    place = np.minimum(np.searchsorted(listed, index), max(len(listed) - 1, 0))
    returned = distance < last[place] if len(listed) else np.zeros(index.shape, bool)
    return np.where((index >= 0) & returned, index, -1).astype(np.int32)
