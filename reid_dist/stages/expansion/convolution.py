"""Graph convolution of features: rows averaged over graphs of nearest items, normalised by sums of rows and columns.

Per round: neighbour lists of each graph, sums of the weights of each item as one task that reads the lists in order,
then blocks of rows.  ``exp(cos / beta)`` is taken as ``exp(-(1 - cos) / beta)``: a common factor of all weights cancels
in the quotient of a weight and the roots of two sums, and no weight exceeds 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.model import UNKNOWN_CAMERA, RowRange, cut_rows
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.checks import check_excluded
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.errors import InputError
from reid_dist.kernels.exponential import exponentials
from reid_dist.kernels.normalising import add_rows, unit_rows
from reid_dist.stages.expansion.definition import Convolution, Graph
from reid_dist.stages.expansion.output import UNKNOWN_APART, Output, RowWork
from reid_dist.stages.expansion.plan import GATHERED_BYTES, convolved_rows
from reid_dist.stages.neighbours import Items, NeighbourLists, Resources, find_neighbours
from reid_dist.stores import FeatureSet, Stage
from reid_dist.stores.labelled import joint_labels

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Part of a stage that holds the sums.
_SUMS = "sums"

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
class _Weighted:
    """A graph with its lists, and the stage with the sum of the weights of each item: of its column, or of both."""

    graph: Graph
    lists: NeighbourLists
    sums: Stage
    symmetric: bool

    def read(self, rows: RowRange) -> tuple[Int64, Float64]:
        """Items listed by some items, and their weights: (n, k) each; -1 and 0 after the last entry."""
        index = self.lists.index(rows)[:, : self.graph.k].astype(np.int64)
        distance = np.where(index >= 0, self.lists.distances(rows)[:, : self.graph.k], np.inf)
        return index, exponentials(-np.maximum(distance, 0.0) / self.graph.beta)

    def entries(self, rows: RowRange) -> tuple[Int64, Int64, Float64]:
        """Entries of the normalised rows of some items: position, item and weight, (m,) each, in order of position.

        Each row has the items that it lists, near to far; a symmetric one also those that list it, ascending.
        """
        sums = self.sums.read(_SUMS, _SUMS)[_SUMS]
        index, weight = self.read(rows)
        owner, item, found = entries_of(index, weight)
        if not self.symmetric:
            return owner, item, self._normalised(found, weight.cumsum(axis=1)[owner, -1], sums[item])
        naming = [self._naming(rows, cut) for cut in cut_rows(self.lists.n_items, _LISTS_AT_ONCE)]
        owner, item, found = (np.concatenate(each) for each in zip((owner, item, found), *naming, strict=True))
        order = np.argsort(owner, kind="stable")
        owner, item, found = owner[order], item[order], 0.5 * found[order]
        return owner, item, self._normalised(found, sums[rows.start + owner], sums[item])

    def _naming(self, rows: RowRange, others: RowRange) -> tuple[Int64, Int64, Float64]:
        """Entries of some items among the lists of others, in order of those."""
        index, weight = self.read(others)
        here, place = np.nonzero((index >= rows.start) & (index < rows.stop))
        return index[here, place] - rows.start, others.start + here, weight[here, place]

    def _normalised(self, weight: Float64, row: Float64, column: Float64) -> Float64:
        """Weights divided by the roots of both sums, and multiplied by the share of the graph."""
        product = np.sqrt(row * column)
        return self.graph.share * np.divide(weight, product, out=np.zeros_like(weight), where=product > 0)


@dataclass(frozen=True)
class _Convolving(RowWork):
    """Convolution of the rows of one set, whose first row is item `first`."""

    weighted: tuple[_Weighted, ...]
    first: int
    one_camera: bool

    @property
    def notes(self) -> list[str]:
        """Whether a graph links no items."""
        found = "all items are of one camera: the graph across cameras links each item with itself alone"
        return [found] if self.one_camera else []


def sum_task(weighted: _Weighted, _block: int = 0) -> None:
    """Sum the weights of each item over all lists in order, and write the sums to the stage."""
    total = np.zeros(weighted.lists.n_items)
    for rows in cut_rows(weighted.lists.n_items, _LISTS_AT_ONCE):
        owner, item, weight = entries_of(*weighted.read(rows))
        if weighted.symmetric:
            # Half of each weight counts for the item that is listed, and half for the one that lists it.
            item = np.stack([item, rows.start + owner], axis=1).ravel()
            weight = np.repeat(0.5 * weight, 2)
        np.add.at(total, item, weight)
    weighted.sums.write(_SUMS, {_SUMS: total})


def convolve_task(work: _Convolving, block: int, _own: object = None) -> None:
    """Average a block of rows over all graphs, and write the result to the stage."""
    rows = work.rows(block)
    listed = RowRange(work.first + rows.start, work.first + rows.stop)
    items = work.weighted[0].lists.items
    total = np.zeros((len(rows), items.dim))
    with one_blas_thread():
        for weighted in work.weighted:
            add_listed(total, *weighted.entries(listed), items, unit=True)
        new = unit_rows(total).astype(np.float32)
    work.stage.write(work.part(block), {"features": new})


def convolve_sets(
    query: FeatureSet, gallery: FeatureSet, step: Convolution, where: Resources
) -> tuple[FeatureSet, FeatureSet]:
    """Convolve both sets once; finished stores are reused.  `InputError` for sets without cameras, if they count."""
    both = query, gallery
    one_camera, apart = False, None
    if any(graph.exclude is not None for graph in step.graphs):
        _check_cameras(query, gallery, step)
        cameras = np.unique(np.concatenate(joint_labels("camid", both)))
        apart = UNKNOWN_CAMERA if UNKNOWN_CAMERA in cameras else None
        one_camera = len(cameras) == 1 and apart is None
    rules = () if apart is None else (UNKNOWN_APART,)
    outputs = [Output(features, both, step, where, side, rules) for side, features in enumerate(both)]
    near, far = (output.ready() for output in outputs)
    if near is not None and far is not None:
        return near, far
    weighted = tuple(
        _weighted(Items(both, graph.exclude, apart if graph.exclude else None), graph, step.symmetric, where)
        for graph in step.graphs
    )
    made = []
    for output, ready, first in zip(outputs, (near, far), (0, query.n_rows), strict=True):
        made.append(ready or _convolved(output, weighted, first, one_camera))
    return made[0], made[1]


def _check_cameras(query: FeatureSet, gallery: FeatureSet, step: Convolution) -> None:
    for features, side in ((query, "query"), (gallery, "gallery")):
        if features.camids is None:
            raise InputError(
                f"{step.name} has a graph across cameras, and the {side} set has no cameras; ingest it with camera "
                f"labels, or use {step.name}(scale=0), which leaves that graph out"
            )
    check_excluded("camid", query, gallery)


def _weighted(items: Items, graph: Graph, symmetric: bool, where: Resources) -> _Weighted:
    """Find the lists of a graph, and sum its weights."""
    lists = find_neighbours(items, DISTANCES.get("cosine"), graph.k, where, farthest=False)
    identity = fingerprint(items.identity, graph.k, graph.beta, symmetric)
    description = {"k": graph.k, "beta": graph.beta, "symmetric": symmetric}
    found = _Weighted(graph, lists, where.workspace.stage("graph_sums", identity, description), symmetric)
    if not found.sums.has(_SUMS):
        tasks = TaskGraph()
        tasks.finals.append(tasks.add(f"graph-sums-{identity[:12]}", sum_task, found, stage="statistics"))
        where.run(tasks)
    return found


def _convolved(output: Output, weighted: tuple[_Weighted, ...], first: int, one_camera: bool) -> FeatureSet:
    features = output.features
    block_rows = convolved_rows(features.n_rows, features.dim, output.where.n_threads)
    return output.made("convolved", _Convolving, (weighted, first, one_camera), block_rows, convolve_task)
