"""Re-ranking of a few items in memory: a query, which is item 0, and some gallery items."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.distances import Distance
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.engine.tile_loop import run_symmetric_tiles
from reid_dist.kernels.canonical import pair_distances, read_only, squared_norms
from reid_dist.kernels.jaccard import overlap_pairs, row_sums
from reid_dist.kernels.reciprocal import SparseRows
from reid_dist.stages.neighbours import Listed
from reid_dist.stages.neighbours.plan import TILE_ROWS
from reid_dist.stages.neighbours.tasks import own_first
from reid_dist.stages.reranking.scorer import Mix
from reid_dist.stages.reranking.weights import cut_sparse

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class FewItems:
    """Items in memory, numbered from 0; `policy` decides which products they are compared by."""

    block: FeatureBlock
    policy: Policy

    @classmethod
    def of(cls, features: NDArray[np.float32], policy: Policy) -> FewItems:
        """Items with features of shape (n, dim)."""
        rows = read_only(features)
        return cls(FeatureBlock(np.arange(len(rows)), rows, squared_norms(rows)), policy)

    @property
    def n_items(self) -> int:
        """Number of items."""
        return len(self.block)

    def lists(self, distance: Distance, k: int) -> Listed:
        """Lists of the `k` nearest items of each, itself first: those of a neighbour search."""
        k = max(2, k)
        (found,) = run_symmetric_tiles(self.block, None, distance, TILE_ROWS, k - 1, policy=self.policy)
        return own_first(self.block, self.block.numbers, found, distance)

    def pair_distances(self, distance: Distance, one: Int64, other: Int64) -> Float64:
        """Canonical distances of listed pairs, shape (n,)."""
        return pair_distances(pair_rows(distance, self.block, self.block), one, other)

    def distances(self, rows: SparseRows, mix: Mix, graph: Distance, mixed: Distance) -> Float64:
        """Distances of item 0 and each other item, shape (n_items - 1,), from the rows of the last stage of all items.

        `graph` orders the lists, and `mixed` is mixed with what the rows share.
        """
        query, others = np.zeros(self.n_items, np.int64), np.arange(self.n_items)
        near, far = cut_sparse(rows, 0, 1), cut_sparse(rows, 1, self.n_items)
        overlap = overlap_pairs(near, far, query[1:], others[:-1], mix.multiplies)
        farthest = self.pair_distances(graph, query, others).max(keepdims=True)
        plain = self.pair_distances(mixed, query[1:], others[1:])
        return mix.score(mix.scale(farthest)[query[1:]], plain, overlap, row_sums(near)[query[1:]], row_sums(far))
