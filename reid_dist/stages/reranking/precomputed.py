"""k-reciprocal re-ranking of precomputed distances, in memory: for small sets.

The kernels are those for features, applied to rows of the given blocks.  The workspace is not used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from reid_dist.core.formatting import byte_size
from reid_dist.core.model import RowRange, cut_rows
from reid_dist.core.segments import entry_owners
from reid_dist.engine.distances import DISTANCES, GIVEN_DISTANCE, Distance
from reid_dist.engine.plan import TileShape
from reid_dist.engine.reductions.base import FeatureBlock
from reid_dist.engine.reductions.surroundings import KeepNearest
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.errors import InputError, PlanError
from reid_dist.kernels.jaccard import overlap_block, row_sums
from reid_dist.kernels.reciprocal import SparseRows, mean_rows
from reid_dist.kernels.rescoring import mixed_values
from reid_dist.stages.neighbour_search import Listed
from reid_dist.stages.parts import join_rows, take_sparse
from reid_dist.stages.reranking.k_reciprocal import (
    KReciprocal,
    Weighing,
    mixing,
    parse_k_reciprocal,
    weighing,
    weight_rows,
)

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

_MOST_ITEMS = 20_000
# Rows of the full distance matrix in memory at once.
_ROWS_AT_ONCE = 1024


def rerank_blocks(
    query_gallery: ArrayLike,
    query_query: ArrayLike,
    gallery_gallery: ArrayLike,
    *,
    rerank: str | KReciprocal = "k_reciprocal",
    distance: str = "euclidean",
) -> Float64:
    """Re-rank precomputed distances between all pairs, of at most 20,000 queries and gallery items together.

    Larger sets are re-ranked from their features, by `evaluate` and `reranked_distances`, without such a matrix.

    Parameters
    ----------
    query_gallery, query_query, gallery_gallery
        Distances, shapes (Q, G), (Q, Q) and (G, G), finite and not negative.  Symmetry is not required: the distances
        of item i are row i, and the distance of a gallery item to a query is that in `query_gallery`.
    rerank
        Parameters of the re-ranking, with ``mode=transductive``.
    distance
        Kind of the distances, which determines their conversion to the distances of the definition: ``cosine`` ones are
        doubled, ``euclidean`` ones are squared, ``sqeuclidean`` ones are unchanged.  The variant ``faiss_k1`` treats
        Euclidean ones as those of rows of length 1.  Lists are in the order of (given distance, item), queries before
        gallery items, each item first in its own.

    Returns
    -------
    numpy.ndarray
        The re-ranked distances, shape (Q, G), float64.

    Raises
    ------
    InputError, UnknownNameError
        For invalid or mismatched blocks, or an invalid re-ranking or distance.
    PlanError
        For more than 20,000 items.

    Examples
    --------
    >>> import numpy as np
    >>> from reid_dist import DistanceBlock, LabelledRows, evaluate_distances, rerank_blocks
    >>> at = np.array([0.0, 5.0, 0.4, 5.5, 9.0])  # two queries and three gallery items on a line
    >>> every = np.abs(at[:, None] - at)
    >>> block = rerank_blocks(every[:2, 2:], every[:2, :2], every[2:, 2:], rerank="k_reciprocal(k1=2,k2=1)")
    >>> block.argmin(axis=1).tolist()
    [0, 1]
    >>> query, gallery = LabelledRows([1, 2]), LabelledRows([1, 2, 3])
    >>> report = evaluate_distances(DistanceBlock.from_array(block), query, gallery, protocol="no_cameras")
    >>> report.metrics["mAP"]
    1.0
    """
    spec, measure = parse_k_reciprocal(rerank, "rerank_blocks"), DISTANCES.get(distance)
    if spec.mode != "transductive":
        raise InputError(
            "given distances can be re-ranked only with mode=transductive; the inductive mode takes features "
            "(evaluate, reranked_distances)"
        )
    items = _GivenItems.of(query_gallery, query_query, gallery_gallery)
    index, farthest = items.neighbours(max(spec.n_near, spec.n_half, 2))
    # The graph's distances are those of features: given Euclidean distances are squared.
    is_root = measure.name == "euclidean"
    largest = farthest * farthest if is_root else farthest
    # Euclidean distances do not determine the normalised features: they are used unchanged in their place.
    how = replace(weighing(spec, measure), factor=2.0 if measure.name == "cosine" else 1.0)
    weights = _weights(items, index, how, largest, is_root)
    if spec.k2 > 1:
        first = index[:, : min(spec.k2, how.n_near)].astype(np.int64)
        weights = mean_rows(first, weights)
    return _mixed(items, weights, spec, measure, largest)


@dataclass(frozen=True)
class _GivenItems:
    """Items with precomputed distances between all pairs, queries first."""

    query_gallery: NDArray[Any]
    query_query: NDArray[Any]
    gallery_gallery: NDArray[Any]

    @classmethod
    def of(cls, query_gallery: ArrayLike, query_query: ArrayLike, gallery_gallery: ArrayLike) -> _GivenItems:
        """Check three blocks of distances and combine them."""
        blocks = {
            "query_gallery": _as_block("query_gallery", query_gallery),
            "query_query": _as_block("query_query", query_query),
            "gallery_gallery": _as_block("gallery_gallery", gallery_gallery),
        }
        n_query, n_gallery = blocks["query_gallery"].shape
        if not n_query or not n_gallery:
            raise InputError(
                f"query_gallery must hold a query and a gallery item at least, found {n_query} x {n_gallery}"
            )
        for name, n in (("query_query", n_query), ("gallery_gallery", n_gallery)):
            if blocks[name].shape != (n, n):
                found = " x ".join(map(str, blocks[name].shape))
                raise InputError(
                    f"{name} must be {n} x {n}, as query_gallery is {n_query} x {n_gallery}; found {found}"
                )
        n_items = n_query + n_gallery
        if n_items > _MOST_ITEMS:
            raise PlanError(
                f"distances of {n_items} items take {byte_size(8 * n_items**2)}, and at most {_MOST_ITEMS} items are "
                "re-ranked so; use evaluate(..., rerank=...)",
                details=("it re-ranks features, and holds no such matrix",),
            )
        for name, block in blocks.items():
            _refuse_values(name, block)
        return cls(**blocks)

    @property
    def n_query(self) -> int:
        """Number of queries."""
        return int(self.query_gallery.shape[0])

    @property
    def n_items(self) -> int:
        """Number of queries and gallery items."""
        return int(sum(self.query_gallery.shape))

    def read(self, rows: RowRange) -> Float64:
        """Distances of some items to all, shape (len(rows), n_items), float64."""
        near = slice(min(rows.start, self.n_query), min(rows.stop, self.n_query))
        far = slice(max(rows.start - self.n_query, 0), max(rows.stop - self.n_query, 0))
        found = np.empty((len(rows), self.n_items))
        n_near = near.stop - near.start
        found[:n_near, : self.n_query] = self.query_query[near]
        found[:n_near, self.n_query :] = self.query_gallery[near]
        found[n_near:, : self.n_query] = self.query_gallery[:, far].T
        found[n_near:, self.n_query :] = self.gallery_gallery[far]
        return found

    def neighbours(self, k: int) -> tuple[NDArray[np.int32], Float64]:
        """Lists of the k nearest items of each, itself first, -1 after the last entry; and the largest distances."""
        n = self.n_items
        index, farthest = np.full((n, k), -1, np.int32), np.empty(n)
        keep = KeepNearest(min(k, n))
        places = FeatureBlock.of_places(RowRange(0, n))
        for rows in cut_rows(n, _ROWS_AT_ONCE):
            here = slice(rows.start, rows.stop)
            values = self.read(rows)
            block = FeatureBlock.of_distances(rows, values)
            (found,) = run_tiles(block, places, GIVEN_DISTANCE, TileShape(_ROWS_AT_ONCE, _ROWS_AT_ONCE), [keep])
            own = block.numbers[:, None]
            # The item itself need not be the nearest, nor in its list at all: at most k - 1 others follow it.
            others = np.argsort(found.index == own, axis=1, kind="stable")[:, : keep.k - 1]
            index[here, : keep.k] = np.concatenate([own, np.take_along_axis(found.index, others, 1)], axis=1)
            farthest[here] = values.max(axis=1)
        return index, farthest


def _as_block(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        block = np.asarray(values)
    except ValueError as error:
        raise InputError(f"{name} must be a matrix of distances: {error}") from None
    if block.ndim != 2 or block.dtype.kind not in "fiu":
        raise InputError(f"{name} must be a matrix of distances, found {block.dtype} {block.shape}")
    return block


def _refuse_values(name: str, block: NDArray[Any]) -> None:
    """Refuse NaN, infinity and negative numbers."""
    for rows in cut_rows(len(block), _ROWS_AT_ONCE):
        piece = block[rows.start : rows.stop]
        wrong = ~np.isfinite(piece) | (piece < 0)
        if wrong.any():
            row, column = np.argwhere(wrong)[0]
            raise InputError(
                f"{name} holds {piece[row, column]} at row {rows.start + row}, column {column}; distances must be "
                "finite and not negative (numpy.maximum(block, 0) clips what rounding left below 0)"
            )


def _weights(
    items: _GivenItems, index: NDArray[np.int32], how: Weighing, largest: Float64, is_root: bool
) -> SparseRows:
    """Rows of weights of all items before the mean."""

    def piece(rows: RowRange) -> SparseRows:
        def compute(owner: Int64, member: Int64) -> Float64:
            given = items.read(rows)[owner, member]
            return given * given if is_root else given

        # Without listed distances: all are looked up.
        listed = Listed(np.empty((len(rows), 0), np.int32), np.empty((len(rows), 0)), largest[rows.start : rows.stop])
        return weight_rows(how.members(index, rows), listed, how, compute)

    return join_rows(map(piece, cut_rows(items.n_items, _ROWS_AT_ONCE)))


def _mixed(
    items: _GivenItems,
    weights: SparseRows,
    spec: KReciprocal,
    measure: Distance,
    largest: Float64,
) -> Float64:
    """Mix Jaccard distances with the given ones."""
    n_query, n_items = items.n_query, items.n_items
    mix = mixing(spec, measure)
    gallery = take_sparse(weights, slice(n_query, n_items))
    far_sums, scale = row_sums(gallery), mix.scale(largest[:n_query])
    squared = measure.name == "euclidean" and not spec.rules.mixes_plain
    result = np.empty((n_query, n_items - n_query))
    for rows in cut_rows(n_query, _ROWS_AT_ONCE):
        near = take_sparse(weights, slice(rows.start, rows.stop))
        shared = overlap_block(near, gallery, n_items, mix.multiplies)
        owner = entry_owners(shared.indptr)
        # Items that share no weight have a Jaccard distance of exactly 1.
        jaccard = np.ones((len(rows), result.shape[1]))
        jaccard[owner, shared.column] = mix.graph_distances(
            shared.value, row_sums(near)[owner], far_sums[shared.column]
        )
        plain = items.query_gallery[rows.start : rows.stop].astype(np.float64)
        plain = plain * plain if squared else plain
        every = np.repeat(scale[rows.start : rows.stop], result.shape[1])
        mixed = mixed_values(mix.weight, mix.squares, every, plain.ravel(), jaccard.ravel())
        result[rows.start : rows.stop] = mixed.reshape(plain.shape)
    return result
