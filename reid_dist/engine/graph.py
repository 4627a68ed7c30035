"""The task graph of an evaluation.

Data flow per block of queries ``q`` and gallery block ``g``::

    relevance(q) ─┬─ relevant(q, g) for every g ── targets(q) ─┬─ tiles(q, g) for every g ── merge in a tree ── final(q)
                  └──────────────────────────────────────────┘

A neighbour search has the same graph without targets.  Tasks exchange labels, thresholds, counts and lists.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from reid_dist._version import __version__
from reid_dist.core.model import Neighbours, RankedQueries, cut_rows
from reid_dist.engine.jobs import BlockResult, EvaluationJob, SearchJob
from reid_dist.engine.partitions import PartValues
from reid_dist.engine.reductions import add_bracket_counts, add_histograms
from reid_dist.engine.task_graph import Execution, TaskGraph, execute
from reid_dist.engine.tasks import (
    curves_task,
    final_task,
    kept_tile_task,
    listed_relevance_task,
    merge_task,
    read_partials_task,
    relevance_task,
    relevant_task,
    targets_task,
    tile_task,
)
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.stores import Stage, Workspace
from reid_dist.stores.locks import in_turn

# Queries per task of single-shot curves.
_CURVES_AT_ONCE = 256


def _build(job: SearchJob, truth: GroundTruth | None, stage: Stage | None) -> TaskGraph:
    graph = TaskGraph()
    gallery_blocks = list(enumerate(cut_rows(job.plan.gallery.n_rows, job.plan.gallery_block)))
    # Relevant pairs are few: each of their tasks takes several gallery blocks, with enough tasks for all threads.
    tasks_per_block = -(-2 * job.plan.n_threads // job.plan.n_query_blocks)
    blocks_per_task = -(-len(gallery_blocks) // tasks_per_block)
    pair_rows_per_task = blocks_per_task * job.plan.gallery_block
    # One listing for all partial results: on S3, checking each would be a request of its own.
    done = frozenset[str]() if stage is None else stage.done()
    for block, rows in enumerate(cut_rows(job.plan.query.n_rows, job.plan.query_block)):
        at = f"{job.token}-{block}"
        relevance = targets = seen = None
        if isinstance(job, EvaluationJob):
            if truth is not None:
                relevance = graph.add(f"relevance-{at}", listed_relevance_task, job, truth.take(rows))
            else:
                relevance = graph.add(f"relevance-{at}", relevance_task, job, rows)
            # Tile tasks depend on the relevance only if a reduction covers queries without positives.
            seen = relevance if job.assigns_all else None
        if isinstance(job, EvaluationJob) and job.ranks:
            parts = [
                graph.add(f"relevant-{at}-{place}", relevant_task, job, rows, cut, relevance, stage="pairs")
                for place, cut in enumerate(cut_rows(job.plan.gallery.n_rows, pair_rows_per_task))
            ]
            targets = graph.add(f"targets-{at}", targets_task, relevance, parts)
        partials = []
        for place, cut in gallery_blocks:
            key, part = f"sweep-{at}-{place}", f"sweep-{block:05d}-{place:05d}"
            work = (job, rows, cut, seen, targets)
            if stage is None:
                graph.add(key, tile_task, *work, stage=job.tile_stage)
            elif part in done:
                graph.add(key, read_partials_task, stage, part)
            else:
                graph.add(key, kept_tile_task, stage, part, *work, stage=job.tile_stage)
            partials.append(key)
        merged = graph.add_tree(f"merge-{at}", merge_task, job, seen, targets, leaves=partials)
        # Single-shot curves are expensive after the merge, and are split over several tasks.
        drawn = isinstance(job, EvaluationJob) and job.single_shot is not None
        pieces = list(enumerate(cut_rows(len(rows), _CURVES_AT_ONCE))) if drawn else []
        curves = [
            graph.add(f"curves-{at}-{place}", curves_task, job, rows, targets, merged, cut) for place, cut in pieces
        ]
        graph.finals.append(graph.add(f"final-{at}", final_task, job, relevance, targets, merged, curves))
    return graph


def run(job: SearchJob, execution: Execution, truth: GroundTruth | None = None) -> BlockResult:
    """Compute a job, in threads of this process or on a cluster; results are in query order.

    `truth` lists relevant gallery rows, for a protocol that does not derive relevance from labels.  With a workspace,
    partial results of block pairs are stored as they are computed; those of an interrupted run are reused, and all are
    removed when the job is done.

    Raises `RunFailedError` if the cluster lost the job; the message gives the cause.
    """
    workspace = execution.workspace
    if workspace is None:
        return _compute(job, execution, truth, None)
    with in_turn(_partials(job, truth, workspace).path, execution.progress.warn):
        # Opened again: a run that has finished meanwhile has removed it.
        stage = _partials(job, truth, workspace)
        # An interrupted run may have used another plan; its plan is adopted, so that its partial results are reused.
        cut = stage.description
        plan = replace(job.plan, query_block=cut["query_block"], gallery_block=cut["gallery_block"])
        try:
            result = _compute(replace(job, plan=plan), execution, truth, stage)
        except BaseException:
            if stage.is_empty:
                # No partial result to resume from: the empty stage is removed.
                workspace.remove(stage)
            raise
        workspace.remove(stage)
        return result


def _compute(job: SearchJob, execution: Execution, truth: GroundTruth | None, stage: Stage | None) -> BlockResult:
    graph = _build(job, truth, stage)
    return _concatenate(job, execute(graph, execution.client, job.plan.n_threads, execution.progress))


def find_nearest(job: SearchJob, execution: Execution) -> Neighbours:
    """Run a search; its partial results are not kept."""
    found = run(job, replace(execution, workspace=None)).neighbours
    if found is None:
        raise AssertionError("a search lists neighbours")
    return found


def _partials(job: SearchJob, truth: GroundTruth | None, workspace: Workspace) -> Stage:
    """Stage of the workspace that holds the partial results of a job."""
    lists = None if truth is None else truth.content_digest
    blocks = {"query_block": job.plan.query_block, "gallery_block": job.plan.gallery_block}
    return workspace.stage("partials", [__version__, job.identity, lists], blocks)


def _concatenate(job: SearchJob, blocks: list[BlockResult]) -> BlockResult:
    """Concatenate the results of blocks of queries, in order."""

    def parts(name: str) -> list[Any]:
        return [getattr(block, name) for block in blocks if getattr(block, name) is not None]

    def join(of: list[Any], name: str) -> Any:
        pieces = [getattr(each, name) for each in of]
        return None if pieces[0] is None else np.concatenate(pieces)

    ranked, nearest, in_parts = parts("ranked"), parts("neighbours"), parts("in_parts")
    flat = {name: parts(name) for name in ("nearest_kept", "mated", "single_shot")}
    impostors, bracketed = parts("impostors"), parts("bracketed")
    return BlockResult(
        ranked=RankedQueries.concatenate(ranked) if ranked else None,
        neighbours=Neighbours(join(nearest, "index"), join(nearest, "distance")) if nearest else None,
        in_parts=PartValues(join(in_parts, "by_camera"), join(in_parts, "by_size")) if in_parts else None,
        **{name: np.concatenate(pieces) if pieces else None for name, pieces in flat.items()},
        impostors=add_histograms(impostors) if impostors else None,
        bracketed=add_bracket_counts(bracketed, job.plan.bracket_counts) if bracketed else None,
    )
