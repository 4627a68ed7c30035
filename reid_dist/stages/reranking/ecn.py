"""Expanded cross-neighbourhood re-ranking (Sarfraz et al., CVPR 2018), in whole numbers and sparse rows.

``F_i(b) = max(0, k - position of b in the list of i)``, i itself at position 0, and ``R(a, b) = sum F_a F_b``.
``E(i)`` holds the t nearest of i, without i, and the q nearest of each, without itself, with repetition.  The distance
is ``-[sum of R(a, g) over a in E(q) + sum of R(q, b) over b in E(g)] / (2 (t + t q))``.  Sums over E are sums of rows,
so the bracket is ``P_q F_g + F_q P_g`` with ``P_i`` the sum of ``F_a`` over E(i): one product of two sparse rows.

With ``method=origdist``, the plain distance is in the place of ``-R``.  With unit rows ``x`` and ``p``, the mean of
the unit rows of the items of E, the mean cosine distance is ``1 - (x_q p_g + p_q x_g) / 2``.  That is the cosine
distance of the rows ``[x_q, p_q, r_q, 0]`` and ``[p_g, x_g, 0, r_g]``, where ``r`` makes the squared length 2.  So a
pair costs one product of rows of twice the length instead of ``2 (t + t q)`` distances.  Means are summed in float64 in
the order of E and rounded to float32 once, which changes a distance by some 1e-7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.parameters import Parameter
from reid_dist.core.registry import Registry
from reid_dist.engine.distances import Distance
from reid_dist.engine.reductions.base import pair_rows
from reid_dist.engine.scorers import FeatureScorer, Scorer
from reid_dist.errors import InputError
from reid_dist.kernels.canonical import pair_distances, squared_norms
from reid_dist.kernels.normalising import unit_rows
from reid_dist.kernels.propagation import cross_rows
from reid_dist.stages.expansion.new_features import FeatureStage, NewSet, new_sets
from reid_dist.stages.items import Items
from reid_dist.stages.method_parameters import FROM_1
from reid_dist.stages.neighbour_search import NeighbourLists, find_neighbours, table_of
from reid_dist.stages.parts import Blocks, RowStage, run
from reid_dist.stages.reranking.reranked_scorer import CandidateList, Mix, RerankedScorer
from reid_dist.stages.reranking.rerankers import Choice, Reranking, RowSizes, register
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Features = NDArray[np.float32]

# Entries of a row per list position and per item of E, and pairs of a query per entry; measured, rounded up.
_ENTRIES_PER_POSITION = 0.3
_PAIRS_PER_ENTRY = 24
# Entries of the rows that a task sums.
_SUMMED_ENTRIES = 2**25


@dataclass(frozen=True)
class _Variant(Choice):
    """Variant: whether pairs whose lists do not overlap have the plain distance."""

    falls_back: bool


_VARIANTS: Registry[_Variant] = Registry("variant of ecn")
_VARIANTS.register(
    _Variant(
        "sarfraz",
        "pairs whose lists do not overlap are at distance 0, behind all others, by gallery row",
        "Sarfraz et al., CVPR 2018, the authors' Python code (rankdist) before February 2020",
        False,
    )
)
_VARIANTS.register(
    _Variant(
        "plain_fallback",
        "pairs whose lists do not overlap have the cosine distance, behind all others",
        "the authors' code since February 2020; the ECN of GCN_rerank (Zhang et al., IEEE TMM 2023)",
        True,
    )
)

_MEANS = Choice(
    "origdist",
    "mean cosine distance of each item and the other's expanded neighbourhood, by new features of twice the length",
    "Sarfraz et al., CVPR 2018, the authors' code (origdist)",
)


@register
@dataclass(frozen=True)
class ECN(Reranking):
    """Expanded cross-neighbourhood distance on rank lists (Sarfraz et al., CVPR 2018).

    Attributes
    ----------
    k
        Length of the lists that are compared, the item itself counted.
    t
        Number of nearest items that a neighbourhood begins with.
    q
        Number of nearest items of each of these that are added.
    variant
        Name of a variant.
    method
        ``rankdist``, or ``origdist`` for the mean cosine distance in place of the similarity of rank lists, which takes
        no `k` and has no variants.
    """

    name: ClassVar[str] = "ecn"
    summary: ClassVar[str] = (
        "mean similarity of the rank lists, or mean distance, of each item and the other's expanded neighbourhood"
    )
    source: ClassVar[str] = (
        "Sarfraz et al., A pose-sensitive embedding for person re-identification with expanded cross neighborhood "
        "re-ranking, CVPR 2018"
    )
    choices: ClassVar[Registry[_Variant]] = _VARIANTS
    kept: ClassVar[tuple[str, ...]] = ("ecn",)

    k: Annotated[int, Parameter(limits=FROM_1)] = 25
    t: int = 3
    q: int = 8
    variant: str = "sarfraz"
    method: Literal["rankdist", "origdist"] = "rankdist"

    def __post_init__(self) -> None:
        super().__post_init__()
        _VARIANTS.get(self.variant)
        if self._takes_means and self.variant != "sarfraz":
            raise InputError(f"variant={self.variant} of ecn belongs to method=rankdist; leave one of them out")
        if 2 * self.n_places * self.k**3 >= 2**53:
            raise InputError(f"k={self.k} of ecn is so large that its sums exceed 2^53; take a smaller k")

    @property
    def choice(self) -> Choice:
        """Definition of the variant, or of the method of means."""
        return _MEANS if self._takes_means else _VARIANTS.get(self.variant)

    @property
    def _takes_means(self) -> bool:
        return self.method == "origdist"

    @property
    def n_places(self) -> int:
        """Places of an expanded neighbourhood."""
        return self.t * (1 + self.q)

    @property
    def n_listed(self) -> int:
        """Length of the neighbour lists, the item itself counted."""
        return 1 + max(0 if self._takes_means else self.k - 1, self.t, self.q)

    @property
    def shared(self) -> tuple[Any, ...]:
        """Values that determine the rows."""
        return self.k, self.t, self.q, self.method

    def graph_distance(self, requested: Distance) -> Distance:
        """Cosine; other distances are refused."""
        self._refuse_unless_cosine(requested)
        return requested

    def row_sizes(self, n_items: int) -> tuple[RowSizes, ...]:
        """Rows of list positions, with their sums over expanded neighbourhoods."""
        if self._takes_means:
            return ()
        most = min(self.k, n_items) + min(self.n_places * self.k, n_items)
        return (RowSizes("rank lists", min(most, self.k * (1 + _ENTRIES_PER_POSITION * self.n_places)), most),)

    def known_pairs(self, n_gallery: int) -> int:
        """Pairs whose lists overlap; none for means."""
        return int(min(n_gallery, _PAIRS_PER_ENTRY * sum(each.expected for each in self.row_sizes(n_gallery))))

    def compared_features(self, dim: int) -> int:
        """Features of the rows that the tile loop compares: those of means have their neighbourhoods beside them."""
        return features_of_a_row(dim) if self._takes_means else dim

    def scorer(self, query: FeatureSet, gallery: FeatureSet, distance: Distance, where: Resources) -> Scorer:
        """Find lists, compute rows and return the scorer."""
        if self._takes_means:
            near, far = self._crossed(query, gallery, distance, where)
            return FeatureScorer(near, far, distance)
        items = Items((query, gallery))
        plain = FeatureScorer(query, gallery, distance)
        lists = find_neighbours(items, distance, self.n_listed, where)
        blocks = lists.row_blocks(self.most_block_rows)
        rows = run(CrossRows(blocks, lists, query.n_rows, (self.k, self.t, self.q)), where)
        return RerankedScorer(plain, rows, rows, lists, query.n_rows, 2 * items.n_items, self._mix)

    def _crossed(
        self, query: FeatureSet, gallery: FeatureSet, distance: Distance, where: Resources
    ) -> list[FeatureSet]:
        """Both sets with new features."""
        sets = query, gallery
        block_rows = max(64, _SUMMED_ENTRIES // (self.n_places * query.dim))

        def listed() -> NeighbourLists:
            return find_neighbours(Items(sets), distance, self.n_listed, where)

        def crossed(made: NewSet, lists: NeighbourLists) -> Crossed:
            return Crossed(Blocks(made.features.n_rows, block_rows), made, lists, (self.t, self.q))

        return new_sets(NewSet.of_both(sets, self), listed, crossed, where)

    def candidate_distances(self, items: CandidateList, requested: Distance) -> Float64:
        """Re-ranked distances of the first of a few items in memory and each other item."""
        listed = items.lists(requested, self.n_listed)
        if not self._takes_means:
            rows = cross_rows(listed.index, 0, items.n_items, 1, (self.k, self.t, self.q))
            return items.distances(rows, self._mix, requested, requested)
        place = neighbourhoods(listed.index, np.arange(items.n_items), (self.t, self.q))
        features = items.block.features.astype(np.float32, copy=False)
        query, gallery = (
            CandidateList.of(cross_features(features[own], place[own], features, side), items.policy).block
            for side, own in enumerate((slice(0, 1), slice(1, None)))
        )
        owner, others = np.zeros(len(gallery), np.int64), np.arange(len(gallery))
        return pair_distances(pair_rows(requested, query, gallery), owner, others)

    @property
    def _mix(self) -> _RankListMix:
        return _RankListMix(float(_VARIANTS.get(self.variant).falls_back), False, self.n_places)


@dataclass(frozen=True)
class _RankListMix(Mix):
    """Similarity of rank lists, negated; with weight 1, pairs without one have the plain distance."""

    multiplies: ClassVar[bool] = True
    disjoint_distance: ClassVar[float] = 0.0

    n_places: int

    @property
    def needs_plain(self) -> bool:
        """Whether pairs that share something depend on the plain distance."""
        return False

    def graph_distances(self, overlap: Float64, near: Float64, far: Float64) -> Float64:
        """Mean similarities, negated."""
        return -overlap / (2.0 * self.n_places)

    def distances(self, scale: Float64, plain: Float64, graph: Float64) -> Float64:
        """Graph distances, not mixed."""
        return graph


@dataclass(frozen=True)
class CrossRows(RowStage):
    """Rows of list positions, with their sums over expanded neighbourhoods; `lengths` are k, t and q."""

    kind: ClassVar[str] = "ecn"
    progress: ClassVar[str] = "weights"

    lists: NeighbourLists
    n_query: int
    lengths: tuple[int, int, int]

    def compute(self, rows: RowRange) -> dict[str, NDArray[Any]]:
        """Rows of a block."""
        return cross_rows(table_of(self.lists), rows.start, rows.stop, self.n_query, self.lengths)._asdict()


# ---- mean distances, as new features ---------------------------------------------------------------------------------


def features_of_a_row(dim: int) -> int:
    """Features of a new row."""
    return 2 * dim + 2


def neighbourhoods(table: NDArray[np.integer], rows: NDArray[np.integer], lengths: tuple[int, int]) -> Int64:
    """E of some items, shape (n, t + t q): the t nearest of each, then the q nearest of each of these; -1 for none.

    `table`, shape (n_items, k), holds the lists of all items, each item first in its own; `lengths` are t and q.
    """
    t, q = lengths
    near = table[rows, 1 : 1 + t].astype(np.int64)
    far = np.where(near[:, :, None] >= 0, table[near, 1 : 1 + q], -1)
    places = near.shape[1] + far.shape[1] * far.shape[2]
    return np.concatenate([near, far.reshape(len(near), places - near.shape[1])], axis=1)


def cross_features(own: Features, place: Int64, rows: Features, side: int) -> Features:
    """New features of queries (`side` 0) or gallery items (1), shape (n, 2 dim + 2).

    `own` are their features, and `place`, shape (n, places), their E by position in `rows`, -1 for none.
    """
    n, dim = own.shape
    unit = np.concatenate([unit_rows(rows), np.zeros((1, dim))])
    mean = np.zeros((n, dim))
    for column in place.T:
        mean += unit[column]
    mean /= np.maximum(np.count_nonzero(place >= 0, axis=1), 1)[:, None]
    new = np.zeros((n, features_of_a_row(dim)), np.float32)
    first, second = (unit_rows(own), mean) if side == 0 else (mean, unit_rows(own))
    new[:, :dim], new[:, dim:-2] = first, second
    new[:, 2 * dim + side] = np.sqrt(np.maximum(2.0 - squared_norms(new), 0.0))
    return new


@dataclass(frozen=True)
class Crossed(FeatureStage):
    """New features of one of two sets; `lengths` are t and q."""

    kind: ClassVar[str] = "crossed"

    lists: NeighbourLists
    lengths: tuple[int, int]

    @property
    def dim(self) -> int:
        """Number of new features."""
        return features_of_a_row(self.made.features.dim)

    def new_rows(self, rows: RowRange, listed: RowRange) -> Features:
        """New features of a range of rows."""
        items = self.lists.items
        places = neighbourhoods(table_of(self.lists), np.arange(listed.start, listed.stop), self.lengths)
        needed = np.unique(places[places >= 0])
        place = np.where(places >= 0, np.searchsorted(needed, places), -1)
        own = items.read(listed).features
        gathered = items.read_rows(needed) if len(needed) else own[:0]
        return cross_features(own, place, gathered, self.made.side)
