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
    QueryLists,
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
    """Compute rows of weights, and their means over the first `k2` items of each list.

    Returns
    -------
    Rows before and after the mean; identical if `k2` is 1.

    Raises
    ------
    RunFailedError, StoreError
        If it cannot be done.
    """
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
    """Run all stages of a re-ranking and return its scorer.

    Parameters
    ----------
    query, gallery
        The two sides, readable by all workers.
    distance
        Requested distance.
    spec
        Parameters of the re-ranking.
    where
        Execution, and the workspace of the stages.

    Returns
    -------
    Scorer of the re-ranked distance.

    Raises
    ------
    InputError
        For rows of zeros, if the graph depends on directions and the distance does not.
    RunFailedError, StoreError, PlanError
        If it cannot be done.
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
    query_rows = _place_queries(query_lists, lists, weights, how, spec.k2, where)
    # One additional column: that of every query itself, which no row of the gallery has.
    return RerankedScorer(plain, query_rows, rows, query_lists, 0, items.n_items + 1, mix)


def _place_queries(
    lists: QueryLists, gallery: NeighbourLists, weights: WeightRows, how: Weighing, k2: int, where: Resources
) -> WeightRows:
    """Compute the rows of weights of all queries, each with the gallery alone; finished blocks are reused."""
    identity = [lists.query.content_digest, lists.gallery.content_digest, lists.distance.name, lists.block_rows]
    description = {"lists": _name_of(lists.stage), "gallery_weights": _name_of(weights.stage), "k2": k2}
    means = WeightRows(where.workspace.stage("query_weights", [*identity, how, k2], description), lists)
    _fill(means, "weights", place_task, (means, lists, gallery, weights, how, k2), where)
    return means


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
        inclusive=spec.two_thirds_will_do,
        normalised=rules.normalised,
        binary=spec.weights == "binary",
        factor=2.0 if graph_distance.name == "cosine" else 1.0,
        by_row_maximum=rules.by_row_maximum,
        squares=rules.squares,
    )
