"""Re-ranking as tests run it: sets without labels, stages as the oracle has them, and what may be compared."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from reid_dist import FeatureSet
from reid_dist.core.model import RowRange
from reid_dist.engine.distances import DISTANCES
from reid_dist.stages.items import Items
from reid_dist.stages.neighbour_search import find_neighbours
from reid_dist.stages.reranking.k_reciprocal import KReciprocal, make_weights, weighing
from reid_dist.stages.session import Session
from reid_dist.stores import Workspace

CLOSE = 1e-9


def bare(features):
    """A feature set without labels of use."""
    return FeatureSet.from_arrays(np.asarray(features), np.zeros(len(features), np.int64), allow_zero=True)


def labelled(items):
    """The public form of an oracle's `ItemSet`; zero rows are welcome."""
    return FeatureSet.from_arrays(
        items.features, items.pids, camids=items.camids, item_ids=items.item_ids, allow_zero=True
    )


def resources(workspace, chunk_rows=None, client=None):
    """Where stages run: threads of this process, unless there is a cluster."""
    return Session(client=client, workspace=Workspace.at(workspace), chunk_rows=chunk_rows).resources()


@dataclass(frozen=True)
class Stages:
    """What the package keeps of all items: lists and their distances, R*, rows of weights, and means of those."""

    index: np.ndarray
    distance: np.ndarray
    farthest: np.ndarray
    grown: list[set[int]]
    weights: np.ndarray
    mean_weights: np.ndarray


def stages(query, gallery, distance, spec: KReciprocal, workspace, chunk_rows=None) -> Stages:
    """Run the stages of a re-ranking of two arrays, and read what they wrote."""
    items = Items((bare(query), bare(gallery)))
    graph_distance = spec.graph_distance(DISTANCES.get(distance))
    where = resources(workspace, chunk_rows)
    lists = find_neighbours(items, graph_distance, max(spec.n_near, spec.n_half), where)
    weights, means = make_weights(lists, weighing(spec, graph_distance), spec.k2, where)
    everything = RowRange(0, items.n_items)
    before, after = weights.sparse(everything), means.sparse(everything)
    return Stages(
        index=lists.index(everything),
        distance=lists.distances(everything),
        farthest=lists.farthest(everything),
        grown=[set(row.tolist()) for row in np.split(before.column, before.indptr[1:-1])],
        weights=dense(before, items.n_items),
        mean_weights=dense(after, items.n_items),
    )


def dense(rows, n_columns):
    """Sparse rows as a matrix."""
    matrix = np.zeros((len(rows.indptr) - 1, n_columns))
    matrix[np.repeat(np.arange(len(matrix)), np.diff(rows.indptr)), rows.column] = rows.value
    return matrix


def usable_weight(value):
    """A weight of the plain distance that is not refused for being lost in rounding."""
    return value if value == 0 else max(value, 1e-9)


__all__ = ["CLOSE", "Stages", "bare", "dense", "labelled", "resources", "stages", "usable_weight"]
