"""k-reciprocal re-ranking without an N x N matrix: sparse graphs, computed in stages that the workspace keeps.

The published algorithm (Zhong et al., CVPR 2017) holds some six dense matrices of all N queries and gallery items.
The required entries are sparse::

    lists of the nearest items, largest distance of each        every pair of blocks once; each serves both its sides
      -> R*(i), and a weight for each member                    neighbours of neighbours; distances of what is unlisted
      -> mean of the weights over k2 items                      rows of neighbours
      -> pairs of a query and a gallery item that share weight  one by one
      -> ranks under (1 - lambda) d_J + lambda D                the counting tile loop, for pairs that share none

A pair that shares no weight has the Jaccard distance 1 exactly, so its re-ranked distance increases with the plain one,
and the tile loop that counts plain distances below a threshold counts these pairs as well, below another threshold.
The result is that of the dense algorithm.  It does not depend on blocks, workers or their number: lists and weights
are computed from canonical distances in a fixed order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reid_dist.core.lazy import lazy_names

if TYPE_CHECKING:
    from reid_dist.stages.reranking.k_reciprocal import (
        KReciprocal,
        make_weights,
        parse_k_reciprocal,
        weighing,
    )
    from reid_dist.stages.reranking.neighbour_graph import KeptRows, NeighbourGraph, jaccard_distances
    from reid_dist.stages.reranking.precomputed import rerank_blocks
    from reid_dist.stages.reranking.rerankers import RERANKERS, Reranking, make_rerank, parse_rerank, rerank_scorer

__all__ = [
    "RERANKERS",
    "KReciprocal",
    "KeptRows",
    "NeighbourGraph",
    "Reranking",
    "jaccard_distances",
    "make_rerank",
    "make_weights",
    "parse_k_reciprocal",
    "parse_rerank",
    "rerank_blocks",
    "rerank_scorer",
    "weighing",
]

_NAMES = {
    "rerankers": ("RERANKERS", "Reranking", "make_rerank", "parse_rerank", "rerank_scorer"),
    "precomputed": ("rerank_blocks",),
    "neighbour_graph": ("KeptRows", "NeighbourGraph", "jaccard_distances"),
    "k_reciprocal": ("KReciprocal", "make_weights", "parse_k_reciprocal", "weighing"),
}

__getattr__, __dir__ = lazy_names(__name__, _NAMES)
