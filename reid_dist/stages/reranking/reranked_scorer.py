"""Scorer of re-ranked distances: pairs that share neighbours are scored singly, all others by the plain distance."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding
from reid_dist.core.model import RowRange, cut_rows
from reid_dist.core.segments import entry_owners
from reid_dist.engine.distances import Distance
from reid_dist.engine.plan import SetShape
from reid_dist.engine.policy import Policy
from reid_dist.engine.reductions.base import FeatureBlock, pair_rows
from reid_dist.engine.reductions.key_counts import ScreenScale
from reid_dist.engine.scorers import FeatureScorer, Scorer
from reid_dist.engine.tile_loop import run_symmetric_tiles
from reid_dist.kernels.canonical import PairRows, Rescoring, pair_distances, read_only, squared_norms
from reid_dist.kernels.jaccard import overlap_block, overlap_pairs, row_sums
from reid_dist.kernels.reciprocal import SparseRows
from reid_dist.kernels.rescoring import mixed_values
from reid_dist.stages.neighbour_search import Listed, NeighbourLists, own_first
from reid_dist.stages.parts import Rows, take_sparse
from reid_dist.stages.search_plan import TILE_ROWS

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Number of pairs that are scored together.
_PAIRS_AT_ONCE = 2**20


class RowSource(Protocol):
    """Sparse rows of items that any worker can read."""

    @property
    def identity(self) -> str:
        """Text that stands for all that the rows depend on."""

    def sparse(self, rows: Rows) -> SparseRows:
        """Read some rows."""


@dataclass(frozen=True)
class Mix(ABC):
    """Distance of two items from what their rows share, and its mix with the plain distance.

    `weight` is the share of the plain distance, which is squared with `squares` before it is divided by `scale`.
    """

    # What two rows share is a sum of products if true, and of the smaller of two values otherwise.
    multiplies: ClassVar[bool] = False
    # Graph distance of items that share nothing.
    disjoint_distance: ClassVar[float] = 1.0

    weight: float
    squares: bool

    @property
    def mix_in_tiles(self) -> bool:
        """Whether graph distances are mixed with cosine distances in tiles: for rows that overlap with most others."""
        return False

    @property
    def needs_plain(self) -> bool:
        """Whether pairs that share something depend on the plain distance."""
        return self.weight != 0.0

    def scale(self, farthest: Float64) -> Float64:
        """Divisor of the plain distances of each query, shape (n_queries,), from its largest distance."""
        return np.ones(len(farthest))

    @abstractmethod
    def graph_distances(self, overlap: Float64, near: Float64, far: Float64) -> Float64:
        """Graph distances from what pairs share and the sums of both rows, all of one shape."""

    def distances(self, scale: Float64, plain: Float64, graph: Float64) -> Float64:
        """Distances of pairs that share something, from plain distances and graph distances, all of one shape."""
        return mixed_values(self.weight, self.squares, scale, plain, graph)

    def score(self, scale: Float64, plain: Float64, overlap: Float64, near: Float64, far: Float64) -> Float64:
        """Distances of any pairs, from the arguments of the methods above, all of one shape."""
        graph = self.graph_distances(overlap, near, far)
        apart = mixed_values(self.weight, self.squares, scale, plain, np.full(len(plain), self.disjoint_distance))
        return np.where(overlap == 0.0, apart, self.distances(scale, plain, graph))


@dataclass(frozen=True)
class ScorerOfFeatures(Scorer):
    """Distances in place of those of `plain`, which reads the rows; they are carried by the blocks of queries."""

    plain: FeatureScorer
    distance: Distance = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "distance", self.plain.distance)

    @property
    def shapes(self) -> tuple[SetShape, SetShape]:
        """Shapes of the two sets."""
        return self.plain.shapes

    def open_query(self, rows: RowRange, gallery_rows: RowRange) -> FeatureBlock:
        """Read a block of query rows."""
        return self.plain.open_query(rows, gallery_rows)

    def open_gallery(self, rows: RowRange) -> FeatureBlock:
        """Read a block of gallery rows."""
        return self.plain.open_gallery(rows)


@dataclass(frozen=True)
class RerankedScorer(ScorerOfFeatures):
    """Distances under a re-ranking.

    `query_lists` hold the largest distance of each query, `first_gallery` is the number of the first gallery item in
    `gallery_rows` (0 where the graph holds no queries), and `n_columns` is that of the rows of weights.
    """

    query_rows: RowSource
    gallery_rows: RowSource
    query_lists: NeighbourLists
    first_gallery: int
    n_columns: int
    mix: Mix
    # Gallery rows that are read at once for listed pairs.
    pair_rows_at_once: ClassVar[int] = 2**31
    # Remarks for the report.
    notes: tuple[Finding, ...] = ()

    @property
    def identity(self) -> tuple[str, ...]:
        """Digests of the two sets and of the rows of weights."""
        return (*self.plain.identity, self.query_rows.identity, self.gallery_rows.identity, repr(self.mix))

    @property
    def falling_scale(self) -> ScreenScale:
        """Falling values of re-ranked distances; they exist unless `Reranking.per_query_scale` holds a reason."""
        (divisor,) = self.mix.scale(np.zeros(1)).tolist()
        if not divisor or self.mix.squares:
            raise AssertionError("distances of different queries have no common scale")
        # Without a share of the plain distance, re-ranked distances are screened as they are.
        squared = self.distance.squared and self.mix.weight != 0.0
        return ScreenScale(squared, self.mix.weight, self.mix.disjoint_distance, divisor)

    def meet(self, query: FeatureBlock, gallery: FeatureBlock) -> FeatureBlock:
        """Score the pairs of two blocks that share neighbours."""
        rows, far_rows = range_of(query), range_of(gallery)
        near = self.query_rows.sparse(rows)
        far = self.gallery_rows.sparse(
            RowRange(self.first_gallery + far_rows.start, self.first_gallery + far_rows.stop)
        )
        shared = overlap_block(near, far, self.n_columns, self.mix.multiplies)
        pairs = PairRows(self.distance.kind, query.features, gallery.features, query.norm, gallery.norm)
        sums = row_sums(near), row_sums(far)
        scale = self._scale(rows)
        owner = entry_owners(shared.indptr)
        value = np.empty(len(owner))
        for start in range(0, len(owner), _PAIRS_AT_ONCE):
            cut = slice(start, start + _PAIRS_AT_ONCE)
            column = shared.column[cut].astype(np.int64)
            graph = self.mix.graph_distances(shared.value[cut], sums[0][owner[cut]], sums[1][column])
            plain = pair_distances(pairs, owner[cut], column) if self.mix.needs_plain else np.zeros(len(column))
            value[cut] = self.mix.distances(scale[owner[cut]], plain, graph)
        return self._known(query, shared.indptr, gallery.numbers[shared.column], value)

    def _known(self, query: FeatureBlock, indptr: Int64, row: Int64, value: Float64) -> FeatureBlock:
        """Add the values of pairs to a block of queries."""
        mix, scale = self.mix, self._scale(range_of(query))
        known = Rescoring(
            True, mix.weight, mix.squares, scale, indptr, row, value, 0, mix.disjoint_distance, mix.mix_in_tiles
        )
        return replace(query, reranked=known)

    def pair_distances(self, rows: RowRange, owner: Int64, gallery_row: Int64) -> Float64:
        """Score listed pairs; see `Scorer.pair_distances`."""
        plain = self.plain.pair_distances(rows, owner, gallery_row)
        wanted, place = np.unique(gallery_row, return_inverse=True)
        near = self.query_rows.sparse(rows)
        overlap, far_sums = np.empty(len(owner)), np.empty(len(owner))
        for cut in cut_rows(len(wanted), self.pair_rows_at_once):
            far = self.gallery_rows.sparse(self.first_gallery + wanted[cut.start : cut.stop])
            here = np.flatnonzero((place >= cut.start) & (place < cut.stop))
            overlap[here] = overlap_pairs(near, far, owner[here], place[here] - cut.start, self.mix.multiplies)
            far_sums[here] = row_sums(far)[place[here] - cut.start]
        scale = self._scale(rows)[owner]
        return self.mix.score(scale, plain, overlap, row_sums(near)[owner], far_sums)

    def _scale(self, rows: RowRange) -> Float64:
        """Divisors of the plain distances of some queries."""
        return self.mix.scale(self.query_lists.farthest(rows))


def range_of(block: FeatureBlock) -> RowRange:
    """Range of the rows of a block."""
    return RowRange(int(block.numbers[0]), int(block.numbers[-1]) + 1)


# ---- few items -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CandidateList:
    """A query, which is item 0, and some gallery items, re-ranked in memory.

    `policy` decides which products they are compared by.
    """

    block: FeatureBlock
    policy: Policy

    @classmethod
    def of(cls, features: NDArray[np.float32], policy: Policy) -> CandidateList:
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
        near, far = take_sparse(rows, slice(0, 1)), take_sparse(rows, slice(1, self.n_items))
        overlap = overlap_pairs(near, far, query[1:], others[:-1], mix.multiplies)
        farthest = self.pair_distances(graph, query, others).max(keepdims=True)
        plain = self.pair_distances(mixed, query[1:], others[1:])
        return mix.score(mix.scale(farthest)[query[1:]], plain, overlap, row_sums(near)[query[1:]], row_sums(far))
