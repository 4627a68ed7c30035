"""Graph convolution of features: rows averaged over graphs of nearest items, normalised by sums of rows and columns.

Per round: neighbour lists of each graph, sums of the weights of each item as one task that reads the lists in order,
then blocks of rows.  ``exp(cos / beta)`` is taken as ``exp(-(1 - cos) / beta)``: a common factor of all weights cancels
in the quotient of a weight and the roots of two sums, and no weight exceeds 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import UNKNOWN_CAMERA, RowRange, cut_rows
from reid_dist.engine.distances import DISTANCES
from reid_dist.kernels.exponential import exponentials
from reid_dist.kernels.normalising import add_rows, unit_rows
from reid_dist.stages.expansion.expansion_steps import Convolution, Graph
from reid_dist.stages.expansion.new_features import (
    GATHERED_BYTES,
    UNKNOWN_APART,
    FeatureStage,
    NewSet,
    check_cameras,
    feature_blocks,
    new_sets,
)
from reid_dist.stages.neighbours import Items, NeighbourLists, Resources, find_neighbours
from reid_dist.stages.parts import Blocks, Parts, RowStage, run
from reid_dist.stores import FeatureSet
from reid_dist.stores.labels import joint_labels

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

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
            notes = ("all items are of one camera: the graph across cameras links each item with itself alone",)
    rules = () if apart is None else (UNKNOWN_APART,)

    def weighted() -> tuple[_Weighted, ...]:
        found = []
        for graph in step.graphs:
            items = Items(both, graph.exclude, apart if graph.exclude else None)
            lists = find_neighbours(items, DISTANCES.get("cosine"), graph.k, where, farthest=False)
            sums = GraphSums(Blocks(items.n_items, items.n_items), lists, graph, step.symmetric)
            found.append(_Weighted(sums, run(sums, where)))
        return tuple(found)

    def convolved(made: NewSet, weighted: tuple[_Weighted, ...]) -> Convolved:
        blocks = feature_blocks(made.features.n_rows, step.row_bytes(query.dim), where.n_threads)
        return Convolved(blocks, made, query.n_rows if made.side else 0, notes, weighted)

    wanted = [NewSet(features, both, step, side, rules) for side, features in enumerate(both)]
    near, far = new_sets(wanted, weighted, convolved, where)
    return near, far
