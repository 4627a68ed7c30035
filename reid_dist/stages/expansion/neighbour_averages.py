"""Expansion of sets, step by step: rows averaged with their neighbours, nearest or in graphs, or changed singly.

Graph convolution takes, per round, the neighbour lists of each graph, the sums of the weights of each item as one task
that reads the lists in order, then blocks of rows, whose weights are divided by the roots of these sums.
``exp(cos / beta)`` is taken as ``exp(-(1 - cos) / beta)``: a common factor of all weights cancels in the quotient of a
weight and the roots of two sums, and no weight exceeds 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import UNKNOWN_CAMERA, RowRange, cut_rows
from reid_dist.core.sorted_values import places_among
from reid_dist.engine.distances import DISTANCES
from reid_dist.errors import InputError
from reid_dist.kernels.canonical import read_only
from reid_dist.kernels.exponential import exponentials, similarity_weights
from reid_dist.kernels.normalising import add_rows, unit_rows
from reid_dist.stages.expansion.expansion_steps import Convolution, Expansion, Graph, Step, Treatment
from reid_dist.stages.expansion.learned_maps import map_sets
from reid_dist.stages.expansion.new_features import (
    GATHERED_BYTES,
    UNKNOWN_APART,
    FeatureStage,
    NewSet,
    check_cameras,
    feature_blocks,
    new_sets,
)
from reid_dist.stages.items import Items
from reid_dist.stages.neighbour_search import NeighbourLists, find_neighbours, find_top_lists
from reid_dist.stages.parts import Blocks, Parts, RowStage, run
from reid_dist.stages.session import Resources
from reid_dist.stores import FeatureSet
from reid_dist.stores.labels import join_item_ids, joint_labels

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

COSINE = DISTANCES.get("cosine")

# Lists that are read at once.
_LISTS_AT_ONCE = 65536


def entries_of(index: Int64, weight: Float64) -> tuple[Int64, Int64, Float64]:
    """Entries of lists, shape (n, k), in order: position of the list, item and weight, (m,) each."""
    owner, place = np.nonzero(index >= 0)
    return owner, index[owner, place], weight[owner, place]


def add_listed(total: Float64, owner: Int64, item: Int64, weight: Float64, items: Items, unit: bool) -> None:
    """Add weighted items to the rows of `total`, shape (n, dim), in order; arguments as of `entries_of`."""
    for cut in cut_rows(len(item), max(1, GATHERED_BYTES // (4 * items.dim))):
        piece = slice(cut.start, cut.stop)
        needed, place = np.unique(item[piece], return_inverse=True)
        add_rows(total, owner[piece], place, weight[piece], items.read_rows(needed), unit)


@dataclass(frozen=True)
class Averages(FeatureStage):
    """Averages of the rows of a set with their neighbours; `own_row` are gallery rows that are no neighbours."""

    kind: ClassVar[str] = "averages"

    lists: NeighbourLists
    step: Expansion
    own_row: Int64 | None

    def of_rows(self, rows: RowRange) -> Averages:
        """Without the own rows of other queries."""
        own_row = None if self.own_row is None else self.own_row[rows.start : rows.stop]
        return replace(self, own_row=own_row)

    def new_rows(self, rows: RowRange, listed: RowRange) -> NDArray[np.float32]:
        """Averages of a range of rows."""
        lists, unit = self.lists, self.step.method.unit
        index, distance = self._neighbours(listed)
        weight = similarity_weights(distance, self.step.alpha)
        own = np.arange(len(rows))
        total = np.zeros((len(rows), lists.items.dim))
        add_rows(total, own, own, np.ones(len(rows)), lists.items.read(listed).features, unit)
        add_listed(total, *entries_of(index, weight), lists.candidates, unit)
        new = unit_rows(total) if unit else total / (1 + np.count_nonzero(index >= 0, axis=1))[:, None]
        return new.astype(np.float32)

    def _neighbours(self, rows: RowRange) -> tuple[Int64, Float64]:
        """First `step.n_others` neighbours of some items, the item itself excluded, and their distances."""
        n_others = self.step.n_others
        index, distance = self.lists.others(rows)
        if self.own_row is None:
            return index[:, :n_others], distance[:, :n_others]
        # The query's own row is removed from any rank; a stable sort moves it last and keeps the order of the others.
        own_row = self.own_row[:, None]
        order = np.argsort(index == own_row, axis=1, kind="stable")[:, :n_others]
        kept = np.take_along_axis(index, order, 1)
        absent = kept == own_row
        return np.where(absent, -1, kept), np.where(absent, np.inf, np.take_along_axis(distance, order, 1))


def _own_rows(query: FeatureSet, gallery: FeatureSet) -> Int64:
    """Gallery row of each query by item id, shape (n_queries,), int64; -1 for none."""
    if query.item_ids is None or gallery.item_ids is None:
        raise InputError(
            "include_self finds queries in the gallery by item id, and one of the sets has none; ingest both with "
            "item ids, or leave include_self out"
        )
    wanted, ids = join_item_ids(query.item_ids, gallery.item_ids)
    order = np.argsort(ids, kind="stable")
    own_row = np.append(order, -1)[places_among(ids[order], wanted)]
    if (own_row < 0).all():
        raise InputError(
            f"include_self finds queries in the gallery by item id, and none of the {query.n_rows} item ids is there",
            details=(
                "give each image the same item id on both sides, or omit include_self if no query is in the gallery",
            ),
        )
    return own_row


# ---- graph convolution -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GraphSums(RowStage):
    """Sum of the weights of each item in a graph, of its column or of both: one part, made of all lists in order."""

    kind: ClassVar[str] = "graph_sums"
    progress: ClassVar[str] = "statistics"

    lists: NeighbourLists
    graph: Graph
    symmetric: bool

    @property
    def identity(self) -> Any:
        """Items and weights; the share of the graph plays no part."""
        return [self.lists.items.identity, self.graph.k, self.graph.beta, self.symmetric]

    def compute(self, rows: RowRange) -> dict[str, NDArray[Any]]:
        """Sums of all items."""
        total = np.zeros(len(rows))
        for some in cut_rows(len(rows), _LISTS_AT_ONCE):
            owner, item, weight = entries_of(*self.read(some))
            if self.symmetric:
                # Half of each weight counts for the item that is listed, and half for the one that lists it.
                item = np.stack([item, some.start + owner], axis=1).ravel()
                weight = np.repeat(0.5 * weight, 2)
            np.add.at(total, item, weight)
        return {"sums": total}

    def read(self, rows: RowRange) -> tuple[Int64, Float64]:
        """Items listed by some items, and their weights: (n, k) each; -1 and 0 after the last entry."""
        index, distance = (each[:, : self.graph.k] for each in self.lists.parts.read(rows, "index", "distance"))
        distance = np.where(index >= 0, distance, np.inf)
        return index.astype(np.int64), exponentials(-np.maximum(distance, 0.0) / self.graph.beta)


@dataclass(frozen=True)
class _Weighted:
    """A graph and the sums of its weights."""

    graph: GraphSums
    sums: Parts

    def entries(self, rows: RowRange) -> tuple[Int64, Int64, Float64]:
        """Entries of the normalised rows of some items: position, item and weight, (m,) each, in order of position.

        Each row has the items that it lists, near to far; a symmetric one also those that list it, ascending.
        """
        n_items = self.graph.lists.n_items
        (sums,) = self.sums.read(RowRange(0, n_items), "sums")
        index, weight = self.graph.read(rows)
        owner, item, found = entries_of(index, weight)
        if not self.graph.symmetric:
            return owner, item, self._normalised(found, weight.cumsum(axis=1)[owner, -1], sums[item])
        naming = [self._naming(rows, cut) for cut in cut_rows(n_items, _LISTS_AT_ONCE)]
        owner, item, found = (np.concatenate(each) for each in zip((owner, item, found), *naming, strict=True))
        order = np.argsort(owner, kind="stable")
        owner, item, found = owner[order], item[order], 0.5 * found[order]
        return owner, item, self._normalised(found, sums[rows.start + owner], sums[item])

    def _naming(self, rows: RowRange, others: RowRange) -> tuple[Int64, Int64, Float64]:
        """Entries of some items among the lists of others, in order of those."""
        index, weight = self.graph.read(others)
        here, place = np.nonzero((index >= rows.start) & (index < rows.stop))
        return index[here, place] - rows.start, others.start + here, weight[here, place]

    def _normalised(self, weight: Float64, row: Float64, column: Float64) -> Float64:
        """Weights divided by the roots of both sums, and multiplied by the share of the graph."""
        product = np.sqrt(row * column)
        return self.graph.graph.share * np.divide(weight, product, out=np.zeros_like(weight), where=product > 0)


@dataclass(frozen=True)
class Convolved(FeatureStage):
    """Averages of the rows of a set over all graphs."""

    kind: ClassVar[str] = "convolved"

    weighted: tuple[_Weighted, ...]

    def new_rows(self, rows: RowRange, listed: RowRange) -> NDArray[np.float32]:
        """Averages of a range of rows."""
        items = self.weighted[0].graph.lists.items
        total = np.zeros((len(rows), items.dim))
        for weighted in self.weighted:
            add_listed(total, *weighted.entries(listed), items, unit=True)
        return unit_rows(total).astype(np.float32)


def convolve_sets(
    query: FeatureSet, gallery: FeatureSet, step: Convolution, where: Resources
) -> tuple[FeatureSet, FeatureSet]:
    """Convolve both sets once; finished stores are reused.  `InputError` for sets without cameras, if they count."""
    both = query, gallery
    notes, apart = tuple[str, ...](), None
    if any(graph.exclude is not None for graph in step.graphs):
        instead = "scale=0), which leaves that graph out"
        check_cameras(query, gallery, step, "has a graph across cameras", instead)
        cameras = np.unique(np.concatenate(joint_labels("camid", both)))
        apart = UNKNOWN_CAMERA if UNKNOWN_CAMERA in cameras else None
        if len(cameras) == 1 and apart is None:
            notes = ("all items are of one camera: the graph across cameras links each item only with itself",)
    rules = () if apart is None else (UNKNOWN_APART,)

    def weighted() -> tuple[_Weighted, ...]:
        found = []
        for graph in step.graphs:
            items = Items(both, graph.exclude, apart if graph.exclude else None)
            lists = find_neighbours(items, COSINE, graph.k, where, farthest=False)
            sums = GraphSums(Blocks(items.n_items, items.n_items), lists, graph, step.symmetric)
            found.append(_Weighted(sums, run(sums, where)))
        return tuple(found)

    def convolved(made: NewSet, weighted: tuple[_Weighted, ...]) -> Convolved:
        blocks = feature_blocks(made.features.n_rows, step.row_bytes(query.dim), where.n_threads)
        return Convolved(blocks, made, weighted)

    near, far = new_sets(NewSet.of_both(both, step, rules, notes), weighted, convolved, where)
    return near, far


# ---- treatments ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Treated(FeatureStage):
    """Rows of a set that a treatment changes."""

    kind: ClassVar[str] = "treated"

    step: Treatment

    def new_rows(self, rows: RowRange, listed: RowRange) -> NDArray[np.float32]:
        """Change a range of rows."""
        return self.step.change(read_only(self.made.features.read(rows.start, rows.stop)), rows.start)


def treat_set(features: FeatureSet, step: Treatment, where: Resources) -> FeatureSet:
    """Change every row of a set; a finished store is reused."""
    blocks = feature_blocks(features.n_rows, step.row_bytes(features.dim), where.n_threads)
    (made,) = new_sets(
        [NewSet(features, (features,), step)], lambda: None, lambda made, _: Treated(blocks, made, step), where
    )
    return made


# ---- steps -----------------------------------------------------------------------------------------------------------


def expand_sets(
    query: FeatureSet, gallery: FeatureSet, steps: Sequence[Step], where: Resources
) -> tuple[FeatureSet, FeatureSet]:
    """Apply expansion steps in order, from left to right; finished stores of equal recipe and features are reused.

    Returns stored sets with new features and the original labels; a side that no step changes is returned unchanged.
    Raises `InputError` if `include_self` is set and items have no ids, or no query is in the gallery by item id.
    """
    if any(isinstance(step, Expansion) and step.include_self and not step.changes_nothing for step in steps):
        # Refused before the first step; steps keep item ids.
        _own_rows(query, gallery)
    for step in steps:
        for _ in range(step.times):
            query, gallery = _expand(query, gallery, step, where)
    return query, gallery


def _expand(query: FeatureSet, gallery: FeatureSet, step: Step, where: Resources) -> tuple[FeatureSet, FeatureSet]:
    if isinstance(step, Convolution):
        return convolve_sets(query, gallery, step, where)
    if isinstance(step, Treatment):
        sides = (query, step.method.expands_query), (gallery, step.method.expands_gallery)
        near, far = (treat_set(each, step, where) if changes else each for each, changes in sides)
        return near, far
    if not isinstance(step, Expansion):
        return map_sets(query, gallery, step, where)
    if step.changes_nothing:
        return query, gallery
    own_row = _own_rows(query, gallery) if step.include_self else None

    def averages(made: NewSet, lists: NeighbourLists) -> Averages:
        blocks = feature_blocks(made.features.n_rows, step.row_bytes(query.dim), where.n_threads)
        return Averages(blocks, made, lists, step, own_row)

    def listed(*sets: FeatureSet) -> NeighbourLists:
        return find_neighbours(Items(sets), COSINE, step.n_others + 1, where, farthest=False)

    if step.method.among_all:
        # If one set is given as both, rows have the same neighbours on both sides except for ties, and among tied
        # items each row precedes its copy: hence one store per side.
        both = query, gallery
        query, gallery = new_sets(NewSet.of_both(both, step), lambda: listed(*both), averages, where)
    elif step.method.expands_gallery:
        (gallery,) = new_sets([NewSet(gallery, (gallery,), step)], lambda: listed(gallery), averages, where)
    else:
        wanted = NewSet(query, (query, gallery), step)
        (query,) = new_sets([wanted], lambda: find_top_lists(query, gallery, step.k, where), averages, where)
    return query, gallery
