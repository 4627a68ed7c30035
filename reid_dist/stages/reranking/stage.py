"""Stages of re-rankings: rows that are computed by blocks and kept; finished parts are reused."""

from __future__ import annotations

from typing import Any

from reid_dist.core.fingerprint import fingerprint
from reid_dist.engine.checks import check_sets
from reid_dist.engine.distances import Distance
from reid_dist.engine.scorers import Scorer
from reid_dist.engine.task_graph import TaskGraph
from reid_dist.stages.neighbours import Resources
from reid_dist.stages.reranking.definition import Reranking
from reid_dist.stages.reranking.weights import WeightRows
from reid_dist.stores import FeatureSet, Stage


def name_of(stage: Stage) -> str:
    """Name of a stage in its workspace, independent of the location of the workspace."""
    return stage.path.rpartition("/")[2]


def fill(rows: WeightRows, stage: str, task: Any, arguments: tuple[Any, ...], where: Resources) -> None:
    """Compute the missing blocks of rows; `task` is called with the arguments and the number of a block."""
    graph = TaskGraph()
    at = fingerprint(rows.stage.path)[:12]
    for block in range(rows.n_blocks):
        if not rows.stage.has(rows.part(block)):
            graph.finals.append(graph.add(f"{stage}-{at}-{rows.part(block)}", task, *arguments, block, stage=stage))
    where.run(graph)


def rerank_scorer(
    query: FeatureSet, gallery: FeatureSet, distance: Distance, spec: Reranking, where: Resources
) -> Scorer:
    """Run all stages of a re-ranking of two sets, readable by all workers, and return its scorer.

    Raises `InputError` for rows of zeros, if the graph depends on directions and the distance does not.
    """
    check_sets(query, gallery, spec.graph_distance(distance))
    return spec.scorer(query, gallery, distance, where)
