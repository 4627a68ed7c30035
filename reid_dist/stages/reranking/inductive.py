"""Inductive mode: queries are placed in the graph of a gallery independently of each other.

The gallery's lists, rows of weights and largest distances are those of the gallery among itself, computed once for all
query sets and not changed by queries.  A query ranks itself and the gallery.  Whether it belongs to the list of a
gallery item depends on the distance of the last item of that list: the query must be strictly nearer, unless the list
is not full.  All queries have the same column in their own rows of weights, after all gallery items: no row of the
gallery has this column, so no query and gallery row share it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.sorted_values import places_among
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.kernels.reciprocal import SparseRows, binary_rows, grown_sets, mean_rows
from reid_dist.stages.neighbours import Listed, NeighbourLists, Table
from reid_dist.stages.reranking.weights import Weighing, WeightRows, gaussian_weights, join_rows, pieces_of

Int64 = NDArray[np.int64]


def place_task(
    means: WeightRows,
    lists: NeighbourLists,
    gallery: NeighbourLists,
    weights: WeightRows,
    how: Weighing,
    k2: int,
    block: int,
) -> None:
    """Compute the rows of weights of a block of queries, after the mean over the first `k2` of each list.

    `lists` are those of the queries; `gallery` and `weights` are the lists of the gallery among itself and its rows of
    weights before the mean.
    """
    pieces = []
    for here in pieces_of(lists, block):
        listed = Listed(lists.index(here), lists.distances(here), lists.farthest(here))
        own = _weigh(lists, listed, gallery, how, here)
        first = listed.index[:, : min(k2, how.n_near)].astype(np.int64)
        needed = np.unique(first[:, 1:])
        needed = needed[needed >= 0]
        # Every query has a row of weights of its own, behind those of the gallery.
        row = places_among(needed, first)
        row[:, 0] = len(needed) + np.arange(len(here))
        pieces.append(mean_rows(row, join_rows([weights.read_items(needed), own])))
    means.write(block, join_rows(pieces))


def _weigh(lists: NeighbourLists, listed: Listed, gallery: NeighbourLists, how: Weighing, here: RowRange) -> SparseRows:
    """Rows of weights of a range of queries before the mean."""
    others = slice(1, how.n_near)
    reciprocal = _reciprocal(listed.index[:, others], listed.distance[:, others], gallery, how.n_near)
    own_number = lists.candidates.n_items
    indptr, member = grown_sets(Table.of(gallery), reciprocal, how.n_half, how.inclusive, own_number)
    if how.binary:
        return binary_rows(indptr, member)
    (query,), (candidates,) = lists.items.sets, lists.candidates.sets
    pairs = FeatureScorer(query, candidates, lists.distance)

    def compute(owner: Int64, member: Int64) -> NDArray[np.float64]:
        return pairs.pair_distances(here, owner, member)

    return gaussian_weights(indptr, member, listed, how, compute)


def _reciprocal(index: Int64, distance: NDArray[np.float64], gallery: NeighbourLists, n_near: int) -> NDArray[np.int32]:
    """Gallery items of each list whose own list would contain the query; -1 in place of the others."""
    listed = np.unique(index[index >= 0]).astype(np.int64)
    last = gallery.last_kept(listed, n_near)
    # Those of empty places, -1, are below all distances.
    returned = distance < np.append(last, -np.inf)[places_among(listed, index)]
    return np.where(returned, index, -1).astype(np.int32)
