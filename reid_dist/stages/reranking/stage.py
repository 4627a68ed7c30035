"""Stages of re-ranking in order: neighbour lists, rows of weights and their means; finished parts are reused."""

from __future__ import annotations

from typing import Any

from reid_dist.core.fingerprint import fingerprint
from reid_dist.engine.checks import check_sets
from reid_dist.engine.distances import Distance
from reid_dist.engine.scorers import FeatureScorer
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.stages.neighbours import (
    Items,
    NeighbourLists,
    Resources,
    find_neighbours,
    find_query_neighbours,
)
from reid_dist.stages.reranking.definition import KReciprocal
from reid_dist.stages.reranking.inductive import place_task
from reid_dist.stages.reranking.scorer import Mix, RerankedScorer
from reid_dist.stages.reranking.weights import Weighing, WeightRows, mean_task, weigh_task
from reid_dist.stores import FeatureSet, Stage


def make_weights(lists: NeighbourLists, how: Weighing, k2: int, where: Resources) -> tuple[WeightRows, WeightRows]:
    """Compute rows of weights, and their means over the first `k2` items of each list; equal if `k2` is 1."""
    identity: list[Any] = [lists.items.identity, lists.distance.name, lists.block_rows, how]
    weights = WeightRows(where.workspace.stage("weights", identity, {"lists": _name_of(lists.stage)}), lists)
    _fill(weights, "weights", weigh_task, (weights, lists, how), where)
    if k2 == 1:
        return weights, weights
    means = WeightRows(
        where.workspace.stage("means", [*identity, k2], {"weights": _name_of(weights.stage), "k2": k2}), lists
    )
    _fill(means, "means", mean_task, (means, weights, k2, how.n_near), where)
    return weights, means


def _name_of(stage: Stage) -> str:
    """Name of a stage in its workspace, independent of the location of the workspace."""
    return stage.path.rpartition("/")[2]


def _fill(rows: WeightRows, stage: str, task: Any, arguments: tuple[Any, ...], where: Resources) -> None:
    """Compute the missing blocks of rows."""
    graph = TaskGraph()
    at = fingerprint(rows.stage.path)[:12]
    for block in range(rows.lists.n_blocks):
        if not rows.stage.has(rows.part(block)):
            graph.finals.append(graph.add(f"{stage}-{at}-{block}", task, *arguments, block, stage=stage))
    where.run(graph)


def rerank_scorer(
    query: FeatureSet, gallery: FeatureSet, distance: Distance, spec: KReciprocal, where: Resources
) -> RerankedScorer:
    """Run all stages of a re-ranking of two sets, readable by all workers, and return its scorer.

    Raises `InputError` for rows of zeros, if the graph depends on directions and the distance does not.
    """
    graph_distance = spec.graph_distance(distance)
    check_sets(query, gallery, graph_distance)
    how, mix = weighing(spec, graph_distance), mixing(spec, graph_distance)
    plain = FeatureScorer(query, gallery, spec.mixed_distance(distance))
    inductive = spec.mode == "inductive"
    items = Items((gallery,) if inductive else (query, gallery))
    lists = find_neighbours(items, graph_distance, max(spec.n_near, spec.n_half), where)
    weights, rows = make_weights(lists, how, spec.k2, where)
    if not inductive:
        return RerankedScorer(plain, rows, rows, lists, query.n_rows, items.n_items, mix)
    query_lists = find_query_neighbours(query, gallery, graph_distance, spec.n_near, where)
    identity = [query.content_digest, gallery.content_digest, graph_distance.name, query_lists.block_rows, how, spec.k2]
    description = {"lists": _name_of(query_lists.stage), "gallery_weights": _name_of(weights.stage), "k2": spec.k2}
    query_rows = WeightRows(where.workspace.stage("query_weights", identity, description), query_lists)
    _fill(query_rows, "weights", place_task, (query_rows, query_lists, lists, weights, how, spec.k2), where)
    # One additional column: that of every query itself, which no row of the gallery has.
    return RerankedScorer(plain, query_rows, rows, query_lists, 0, items.n_items + 1, mix)


def mixing(spec: KReciprocal, graph_distance: Distance) -> Mix:
    """Mix of the Jaccard distance with the plain one in a re-ranking."""
    rules = spec.rules
    return Mix(
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
