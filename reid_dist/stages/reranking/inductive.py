"""Queries put into the graph of a gallery one by one, each as if there were no other; the gallery knows of none.

The gallery's lists, rows of weights and largest distances are those of the gallery among itself, made once for all
query sets.  A query ranks itself and the gallery.  Whether a gallery item would list it in return is decided by how far
the last item of that frozen list is: the query must be strictly nearer, or find a place that is left.  All queries go
by one and the same number in their own rows of weights, behind all gallery items: a column that no row of the gallery
has, so no two rows ever meet there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange, cut_rows
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.kernels.lists import listed_distances
from reid_dist.kernels.reciprocal import SparseRows, binary_rows, gaussian_rows, grown_sets, mean_rows
from reid_dist.stages.neighbours import NeighbourLists, QueryLists, Table
from reid_dist.stages.reranking.weights import Weighing, WeightRows, join_rows

# Queries that are put into the graph at once within a block.
_ROWS_AT_ONCE = 4096


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
