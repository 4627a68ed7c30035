"""k-reciprocal re-ranking: its parameters, its variants under one name in the literature, and its stages.

In the inductive mode, queries are placed in the graph of a gallery independently of each other.  The gallery's lists,
rows of weights and largest distances are those of the gallery among itself, computed once for all query sets and not
changed by queries.  A query ranks itself and the gallery.  Whether it belongs to the list of a gallery item depends on
the distance of the last item of that list: the query must be strictly nearer, unless the list is not full.  All queries
have the same column in their own rows of weights, after all gallery items: no row of the gallery has this column, so no
query and gallery row share it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RowRange
from reid_dist.core.registry import Registry
from reid_dist.core.segments import entry_owners
from reid_dist.core.sorted_values import places_among
from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.errors import InputError
from reid_dist.kernels.reciprocal import (
    SparseRows,
    binary_rows,
    gaussian_rows,
    grown_sets,
    listed_distances,
    mean_rows,
    reciprocal_sets,
)
from reid_dist.stages.items import Items
from reid_dist.stages.neighbour_search import (
    Listed,
    NeighbourLists,
    find_neighbours,
    find_query_neighbours,
    table_of,
)
from reid_dist.stages.parts import Parts, RowStage, join_rows, pieces_of, run
from reid_dist.stages.reranking.reranked_scorer import CandidateList, Mix, RerankedScorer
from reid_dist.stages.reranking.rerankers import Choice, Reranking, RowSizes, parse_rerank, register
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Members = tuple[Int64, NDArray[np.int32]]
"""Members of the sets of some items: where each begins, and the members, ascending."""

# Rows of weights of a block that are computed at once.
_ROWS_AT_ONCE = 4096

# Members of a row of weights, and of its mean over k2 items, per requested neighbour: measured on real and synthetic
# features, rounded up.  They only project the workspace size and cause no refusal.
_MEMBERS_PER_NEIGHBOUR = 1.6
_MEANS_PER_NEIGHBOUR = 4.5


@dataclass(frozen=True)
class Variant(Choice):
    """Variant of k-reciprocal re-ranking: the choices in which published programs differ.

    Attributes
    ----------
    lists_and_self
        Whether lists of k1 hold the item itself besides k1 others, or as one of k1.
    half_lists_and_self
        `lists_and_self` for the half lists.
    on_sphere
        Whether the graph uses squared distances between rows of length 1, whatever the requested distance.
    by_row_maximum
        Whether each row of distances is divided by its maximum.
    squares
        Whether distances are squared a second time.
    normalised
        Whether rows of weights sum to 1.
    inclusive
        Whether an overlap of exactly two thirds is accepted.
    clipped
        Whether negative Jaccard distances are replaced by 0.
    mixes_plain
        Whether the Jaccard distance is mixed with the requested distance instead of the graph's distance.
    """

    lists_and_self: bool = True
    half_lists_and_self: bool = True
    on_sphere: bool = False
    by_row_maximum: bool = True
    squares: bool = False
    normalised: bool = True
    inclusive: bool = False
    clipped: bool = False
    mixes_plain: bool = False


VARIANTS: Registry[Variant] = Registry("variant of re-ranking")

VARIANTS.register(
    Variant(
        name="zhong",
        summary="squared distances divided by the maximum of their row",
        source="Zhong et al., CVPR 2017, the authors' code on features",
    )
)
VARIANTS.register(
    Variant(
        name="zhong_d4",
        summary="as zhong, with distances squared twice",
        source="torchreid, cluster-contrast and layumi's baseline, which hand squared distances to code that squares",
        squares=True,
    )
)
VARIANTS.register(
    Variant(
        name="faiss_k1",
        summary="k1 neighbours with the item itself, rows of length 1, nothing divided by row maxima",
        source="fast-reid, cluster-contrast (faiss)",
        lists_and_self=False,
        on_sphere=True,
        by_row_maximum=False,
        clipped=True,
        mixes_plain=True,
    )
)
VARIANTS.register(
    Variant(
        name="paper",
        summary="the equations as printed: two thirds are enough, weights are not normalised",
        source="Zhong et al., CVPR 2017, eqs. 1 to 12",
        lists_and_self=False,
        half_lists_and_self=False,
        by_row_maximum=False,
        normalised=False,
        inclusive=True,
    )
)


@register
@dataclass(frozen=True)
class KReciprocal(Reranking):
    """k-reciprocal encoding, with its Jaccard distance mixed with the plain distance (Zhong et al., CVPR 2017).

    Attributes
    ----------
    k1
        Number of neighbours that a reciprocal set is taken from.
    k2
        Number of items whose rows of weights are averaged, the item itself included; 1 for no averaging.
    lambda_value
        Weight of the plain distance, from 0 to 1.
    variant
        Name of a `Variant`.
    inclusive
        Whether an overlap of exactly two thirds is accepted (as in the paper, and in no program); None for the value of
        the variant, which replaces it.
    weights
        ``gaussian``, or ``binary`` in the variant ``paper`` (its eq. 6).
    mode
        ``transductive``: the graph holds all queries and the gallery.  ``inductive``: the graph holds the gallery, and
        each query is placed in it separately, so that its result does not depend on the other queries; if the gallery
        contains the query's row as well, both are present.
    """

    name: ClassVar[str] = "k_reciprocal"
    summary: ClassVar[str] = "(1 - lambda) Jaccard distance of k-reciprocal neighbours + lambda distance"
    source: ClassVar[str] = "Zhong et al., Re-ranking person re-identification with k-reciprocal encoding, CVPR 2017"
    choices: ClassVar[Registry[Variant]] = VARIANTS
    kept: ClassVar[tuple[str, ...]] = ("weights", "means", "query_weights")
    # Rows are short: they have the blocks of their lists.
    most_block_rows: ClassVar[int] = 2**31

    k1: int = 20
    k2: int = 6
    lambda_value: float = 0.3
    variant: str = "zhong"
    inclusive: bool | None = None
    weights: Literal["gaussian", "binary"] = "gaussian"
    mode: Literal["transductive", "inductive"] = "transductive"

    def __post_init__(self) -> None:
        super().__post_init__()
        VARIANTS.get(self.variant)
        if self.k2 > self.k1 + 1:
            raise InputError(
                f"k2 of k_reciprocal must not be larger than k1 + 1 = {self.k1 + 1}, found {self.k2}: only neighbours "
                "from the lists of k1 are averaged"
            )
        if self.inclusive is None:
            object.__setattr__(self, "inclusive", self.rules.inclusive)
        if self.rules.inclusive and not self.inclusive:
            raise InputError(
                f"inclusive=false contradicts the variant {self.variant!r} of k_reciprocal, where two thirds are "
                "enough by definition; leave inclusive out, or choose another variant"
            )
        if self.weights == "binary" and self.variant != "paper":
            raise InputError(f"binary weights belong to the variant 'paper', not to {self.variant!r}")

    @property
    def rules(self) -> Variant:
        """Definition of the variant."""
        return VARIANTS.get(self.variant)

    @property
    def n_near(self) -> int:
        """Length of the lists of k1, the item itself counted."""
        return self.k1 + int(self.rules.lists_and_self)

    @property
    def n_half(self) -> int:
        """Length of the half lists, the item itself counted; k1 / 2 is rounded to even."""
        return round(self.k1 / 2) + int(self.rules.half_lists_and_self)

    def graph_distance(self, requested: Distance) -> Distance:
        """Distance that orders lists and determines weights, up to constant factors and a square."""
        return DISTANCES.get("cosine" if self.rules.on_sphere or requested.name == "cosine" else "sqeuclidean")

    def mixed_distance(self, requested: Distance) -> Distance:
        """Distance that is mixed with the Jaccard distance, up to constant factors and a square."""
        return requested if self.rules.mixes_plain else self.graph_distance(requested)

    @property
    def choice(self) -> Choice:
        """Definition of the variant."""
        return self.rules

    @property
    def n_listed(self) -> int:
        """Length of the neighbour lists, the item itself counted."""
        return max(self.n_near, self.n_half)

    @property
    def shared(self) -> tuple[Any, ...]:
        """Values that determine the rows of weights before the mean."""
        return self.k1, self.variant, self.inclusive, self.weights, self.mode

    @property
    def per_query_scale(self) -> str | None:
        """Why distances of different queries have no common scale."""
        if not self.rules.by_row_maximum:
            return None
        even = " and ".join(each.name for each in VARIANTS if not each.by_row_maximum)
        return (
            f"under the variant {self.variant!r} each query has a scale of its own (its largest distance; "
            f"{even} have one scale)"
        )

    @property
    def gallery_alone(self) -> bool:
        """Whether the graph holds the gallery alone."""
        return self.mode == "inductive"

    def row_sizes(self, n_items: int) -> tuple[RowSizes, ...]:
        """Rows of weights, and their means."""
        most = min(n_items, self.n_near * (self.n_half + 1))
        weights = RowSizes("weights", min(n_items, _MEMBERS_PER_NEIGHBOUR * self.k1 + 1), most)
        if self.k2 == 1:
            return (weights,)
        means = min(n_items, _MEANS_PER_NEIGHBOUR * self.k1 + 1)
        return weights, RowSizes("means", means, min(n_items, self.k2 * most))

    def known_pairs(self, n_gallery: int) -> int:
        """Some hundreds of pairs as a rule, some thousand at most."""
        return min(n_gallery, 4 * self.k1 * self.k1)

    def scorer(self, query: FeatureSet, gallery: FeatureSet, distance: Distance, where: Resources) -> RerankedScorer:
        """Run all stages of a re-ranking of two sets and return its scorer."""
        graph_distance = self.graph_distance(distance)
        how, mix = weighing(self, graph_distance), mixing(self, graph_distance)
        plain = FeatureScorer(query, gallery, self.mixed_distance(distance))
        items = Items((gallery,) if self.gallery_alone else (query, gallery))
        lists = find_neighbours(items, graph_distance, max(self.n_near, self.n_half), where)
        weights, rows = make_weights(lists, how, self.k2, where)
        if not self.gallery_alone:
            return RerankedScorer(plain, rows, rows, lists, query.n_rows, items.n_items, mix)
        near = find_query_neighbours(query, gallery, graph_distance, self.n_near, where)
        blocks = near.row_blocks(self.most_block_rows)
        of_queries = QueryWeights(blocks, near, lists, weights, how, min(self.k2, how.n_near))
        # One additional column: that of every query itself, which no row of the gallery has.
        return RerankedScorer(plain, run(of_queries, where), rows, near, 0, items.n_items + 1, mix)

    def candidate_distances(self, items: CandidateList, requested: Distance) -> Float64:
        """Re-ranked distances of the first of a few items in memory and each other item."""
        graph_distance = self.graph_distance(requested)
        how, listed = weighing(self, graph_distance), items.lists(graph_distance, self.n_listed)
        rows = weight_rows(
            how.members(listed.index, RowRange(0, items.n_items)),
            listed,
            how,
            partial(items.pair_distances, graph_distance),
        )
        first = listed.index[:, : min(self.k2, how.n_near)].astype(np.int64)
        means = rows if self.k2 == 1 else mean_rows(first, rows)
        return items.distances(means, mixing(self, graph_distance), graph_distance, self.mixed_distance(requested))


def parse_k_reciprocal(spec: str | KReciprocal, where: str) -> KReciprocal:
    """Parse a re-ranking for a function, named `where`, that takes no other one."""
    found = parse_rerank(spec)
    if not isinstance(found, KReciprocal):
        raise InputError(f"{where} takes only k_reciprocal, found {found.name}; evaluate takes every re-ranking")
    return found


def make_weights(lists: NeighbourLists, how: Weighing, k2: int, where: Resources) -> tuple[Parts, Parts]:
    """Compute rows of weights, and their means over the first `k2` items of each list; equal if `k2` is 1."""
    blocks = lists.row_blocks(KReciprocal.most_block_rows)
    weights = run(Weights(blocks, lists, how), where)
    return weights, weights if k2 == 1 else run(Means(blocks, lists, weights, min(k2, how.n_near)), where)


@dataclass(frozen=True)
class JaccardMix(Mix):
    """Jaccard distance from shared weights, mixed with the plain distance.

    The plain distance is squared with `squares`, then divided by the largest of its query or by `divisor`.  Rows of
    weights sum to 1 if `normalised`; negative Jaccard distances are replaced by 0 if `clipped`.
    """

    by_row_maximum: bool
    divisor: float
    normalised: bool
    clipped: bool

    def scale(self, farthest: Float64) -> Float64:
        """Divisor of the plain distances of each query, shape (n_queries,), float64."""
        if not self.by_row_maximum:
            return np.full(len(farthest), self.divisor)
        return farthest * farthest if self.squares else farthest

    def graph_distances(self, overlap: Float64, near: Float64, far: Float64) -> Float64:
        """Jaccard distances from sums of the smaller weights and the sums of both rows."""
        larger = 2.0 - overlap if self.normalised else near + far - overlap
        distance = 1.0 - overlap / larger
        return np.maximum(distance, 0.0) if self.clipped else distance


def mixing(spec: KReciprocal, graph_distance: Distance) -> JaccardMix:
    """Mix of the Jaccard distance with the plain one in a re-ranking."""
    rules = spec.rules
    return JaccardMix(
        weight=spec.lambda_value,
        squares=rules.squares,
        by_row_maximum=rules.by_row_maximum,
        # Twice a cosine distance is the square of the distance between rows of length 1.
        divisor=1.0 if rules.mixes_plain or graph_distance.name != "cosine" else 0.5,
        normalised=rules.normalised,
        clipped=rules.clipped,
    )


def weighing(spec: KReciprocal, graph_distance: Distance) -> Weighing:
    """Weights of neighbours in a re-ranking."""
    rules = spec.rules
    return Weighing(
        n_near=spec.n_near,
        n_half=spec.n_half,
        inclusive=bool(spec.inclusive),
        normalised=rules.normalised,
        binary=spec.weights == "binary",
        factor=2.0 if graph_distance.name == "cosine" else 1.0,
        by_row_maximum=rules.by_row_maximum,
        squares=rules.squares,
    )


# ---- rows of weights, as stages --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weighing:
    """Definition of rows of weights over neighbour lists; see `reid_dist.stages.reranking.k_reciprocal.Variant`.

    `n_near` and `n_half` are lengths of lists, the item itself counted; canonical distances are multiplied by `factor`.
    """

    n_near: int
    n_half: int
    inclusive: bool
    normalised: bool
    binary: bool
    factor: float
    by_row_maximum: bool
    squares: bool

    def scaled(self, distance: Float64, farthest: Float64) -> Float64:
        """Convert canonical distances, with the maximum of each one's row, to the distances of the definition."""
        value = distance * self.factor
        value = value * value if self.squares else value
        if not self.by_row_maximum:
            return value
        largest = farthest * self.factor
        largest = largest * largest if self.squares else largest
        return np.divide(value, largest, out=np.zeros_like(value), where=largest != 0)

    def members(self, table: NDArray[np.signedinteger], rows: RowRange) -> Members:
        """Members of R*(i) of a range of items; `table`, shape (n_items, k), holds the lists of all items."""
        return reciprocal_sets(table, rows.start, rows.stop, self.n_near, self.n_half, self.inclusive)


@dataclass(frozen=True)
class _WeightStage(RowStage):
    """Rows of weights of the items of `lists`, in pieces of bounded memory."""

    lists: NeighbourLists

    @abstractmethod
    def piece(self, rows: RowRange) -> SparseRows:
        """Rows of a piece of a block."""

    def compute(self, rows: RowRange) -> dict[str, NDArray[Any]]:
        """Rows of a block."""
        return join_rows(map(self.piece, pieces_of(rows, _ROWS_AT_ONCE)))._asdict()


@dataclass(frozen=True)
class Weights(_WeightStage):
    """Rows of weights of items among themselves: R*(i), and a weight for each member."""

    kind: ClassVar[str] = "weights"
    progress: ClassVar[str] = "weights"

    how: Weighing

    def piece(self, rows: RowRange) -> SparseRows:
        """Rows of a range of items."""
        lists = self.lists

        def compute(owner: Int64, member: Int64) -> Float64:
            return lists.items.pair_distances(lists.distance, rows.start + owner, member)

        return weight_rows(self.how.members(table_of(lists), rows), lists.listed(rows), self.how, compute)


@dataclass(frozen=True)
class Means(_WeightStage):
    """Means of the rows of weights of the first `n_averaged` items of each list."""

    kind: ClassVar[str] = "means"
    progress: ClassVar[str] = "means"

    weights: Parts
    n_averaged: int

    def piece(self, rows: RowRange) -> SparseRows:
        """Rows of a range of items."""
        first = self.lists.index(rows)[:, : self.n_averaged].astype(np.int64)
        needed = np.unique(first[first >= 0])
        return mean_rows(places_among(needed, first), self.weights.sparse(needed))


@dataclass(frozen=True)
class QueryWeights(_WeightStage):
    """Rows of weights of queries, after the mean over the first `n_averaged` of each list.

    `lists` are those of the queries; `gallery` and `weights` are the lists of the gallery among itself and its rows of
    weights before the mean.
    """

    kind: ClassVar[str] = "query_weights"
    progress: ClassVar[str] = "weights"

    gallery: NeighbourLists
    weights: Parts
    how: Weighing
    n_averaged: int

    def piece(self, rows: RowRange) -> SparseRows:
        """Rows of a range of queries."""
        listed = self.lists.listed(rows)
        own = self._own_rows(listed, rows)
        first = listed.index[:, : self.n_averaged].astype(np.int64)
        needed = np.unique(first[:, 1:])
        needed = needed[needed >= 0]
        # Every query has a row of weights of its own, behind those of the gallery.
        row = places_among(needed, first)
        row[:, 0] = len(needed) + np.arange(len(rows))
        return mean_rows(row, join_rows([self.weights.sparse(needed), own]))

    def _own_rows(self, listed: Listed, rows: RowRange) -> SparseRows:
        """Rows of weights of a range of queries before the mean."""
        how, others = self.how, slice(1, self.how.n_near)
        reciprocal = self._reciprocal(listed.index[:, others], listed.distance[:, others])
        (query,), (candidates,) = self.lists.items.sets, self.lists.candidates.sets
        members = grown_sets(table_of(self.gallery), reciprocal, how.n_half, how.inclusive, candidates.n_rows)
        pairs = FeatureScorer(query, candidates, self.lists.distance)
        return weight_rows(members, listed, how, partial(pairs.pair_distances, rows))

    def _reciprocal(self, index: Int64, distance: Float64) -> NDArray[np.int32]:
        """Gallery items of each list whose own list would contain the query; -1 in place of the others."""
        listed = np.unique(index[index >= 0]).astype(np.int64)
        last = self.gallery.last_kept(listed, self.how.n_near)
        # Those of empty places, -1, are below all distances.
        returned = distance < np.append(last, -np.inf)[places_among(listed, index)]
        return np.where(returned, index, -1).astype(np.int32)


def weight_rows(
    members: Members, listed: Listed, how: Weighing, compute: Callable[[Int64, Int64], Float64]
) -> SparseRows:
    """Rows of weights of some items whose members are given.

    `compute` returns the distances of pairs that are not listed, by row of `listed` and member.
    """
    if how.binary:
        return binary_rows(*members)
    indptr, member = members
    distance = listed_distances(indptr, member, listed.index, listed.distance)
    owner = entry_owners(indptr)
    missing = np.flatnonzero(np.isnan(distance))
    distance[missing] = compute(owner[missing], member[missing].astype(np.int64))
    return gaussian_rows(indptr, member, how.scaled(distance, listed.farthest[owner]), how.normalised)
