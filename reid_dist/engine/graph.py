"""The task graph of an evaluation.

Data flow per block of queries ``q`` and gallery block ``g``::

    relevance(q) ─┬─ relevant(q, g) for every g ── targets(q) ─┬─ tiles(q, g) for every g ── merge in a tree ── final(q)
                  └──────────────────────────────────────────┘

A neighbour search has the same graph without targets.  Tasks exchange labels, thresholds, counts and lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from reid_dist._version import __version__
from reid_dist.core.model import Neighbours, RankedQueries, cut_rows
from reid_dist.engine.job_labels import set_labels
from reid_dist.engine.jobs import BlockResult, EvaluationJob, Probes, SearchJob
from reid_dist.engine.outputs.partitions import PartValues
from reid_dist.engine.reductions import BracketCounts, add_bracket_counts, add_histograms, join_queries
from reid_dist.engine.screened_pairs import add_screened
from reid_dist.engine.task_graph import Execution, TaskGraph, execute
from reid_dist.engine.tasks import (
    curves_task,
    kept_tile_task,
    listed_relevance_task,
    merge_task,
    ranking_task,
    read_partials_task,
    relevance_task,
    relevant_task,
    select_task,
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
            if not job.brackets:
                parts = [
                    graph.add(f"relevant-{at}-{place}", relevant_task, job, rows, cut, relevance, stage="pairs")
                    for place, cut in enumerate(cut_rows(job.plan.gallery.n_rows, pair_rows_per_task))
                ]
                targets = graph.add(f"targets-{at}", targets_task, job, relevance, parts)
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
        if not isinstance(job, EvaluationJob):
            final = graph.add(f"final-{at}", select_task, "topk", merged)
        elif job.brackets:
            final = graph.add(f"final-{at}", select_task, "bracketed", merged)
        else:
            # Single-shot curves are expensive after the merge, and are split over several tasks.
            pieces = list(enumerate(cut_rows(len(rows), _CURVES_AT_ONCE))) if job.single_shot is not None else []
            curves = [
                graph.add(f"curves-{at}-{place}", curves_task, job, rows, targets, merged, cut) for place, cut in pieces
            ]
            final = graph.add(f"final-{at}", ranking_task, job, relevance, targets, merged, curves)
        graph.finals.append(final)
    return graph


def find_nearest(job: SearchJob, execution: Execution) -> Neighbours:
    """Run a search; its partial results are not kept.  Errors as of `rank_queries`."""
    blocks: list[Neighbours] = _run(job, replace(execution, workspace=None), None)
    return _join_neighbours(blocks)


def count_impostors(
    job: EvaluationJob,
    brackets: tuple[float, ...],
    execution: Execution,
    truth: GroundTruth | None,
    *,
    by_query: bool = False,
) -> BracketCounts:
    """Count the impostors of a job around brackets of distances exactly.  Arguments and errors as of `rank_queries`."""
    counting = replace(
        job,
        topk=0,
        parts=None,
        probes=False,
        nearest_negatives=0,
        impostors=False,
        single_shot=None,
        brackets=brackets,
        brackets_by_query=by_query,
    )
    blocks: list[BracketCounts] = _run(counting, execution, truth)
    found = add_bracket_counts(blocks, job.plan.bracket_counts)
    own = [block.by_query for block in blocks if block.by_query is not None]
    return replace(found, by_query=join_queries(own)) if own else found


def rank_queries(job: EvaluationJob, execution: Execution, truth: GroundTruth | None = None) -> BlockResult:
    """Compute an evaluation, in threads of this process or on a cluster; results are in query order.

    `truth` lists relevant gallery rows, for a protocol that does not derive relevance from labels.  With a workspace,
    partial results of block pairs are stored as they are computed; those of an interrupted run are reused, and all are
    removed when the job is done.

    Raises `RunFailedError` if the cluster lost the job; the message gives the cause.
    """
    blocks: list[BlockResult] = _run(job, execution, truth)
    neighbours = [block.neighbours for block in blocks if block.neighbours is not None]
    in_parts = [block.in_parts for block in blocks if block.in_parts is not None]
    probes = [block.probes for block in blocks if block.probes is not None]
    grouped = [block.grouped for block in blocks if block.grouped is not None]
    impostors = [block.impostors for block in blocks if block.impostors is not None]
    return BlockResult(
        ranked=RankedQueries.concatenate([block.ranked for block in blocks]),
        neighbours=_join_neighbours(neighbours) if neighbours else None,
        in_parts=PartValues(_join(in_parts, "by_camera"), _join(in_parts, "by_size")) if in_parts else None,
        probes=_join_probes(job, probes) if probes else None,
        single_shot=_join(blocks, "single_shot"),
        impostors=add_histograms(impostors) if impostors else None,
        grouped=RankedQueries.concatenate(grouped) if grouped else None,
        variants=tuple(
            RankedQueries.concatenate(list(each)) for each in zip(*(block.variants for block in blocks), strict=True)
        ),
        screened=add_screened(block.screened for block in blocks),
    )


def _join(blocks: Sequence[Any], name: str) -> Any:
    """Concatenate an array of all blocks; None if it was not requested."""
    pieces = [getattr(block, name) for block in blocks]
    return None if pieces[0] is None else np.concatenate(pieces)


def _join_probes(job: EvaluationJob, probes: list[Probes]) -> Probes:
    pids = set_labels(job, job.query).pids, set_labels(job, job.gallery).pids
    return Probes(_join_neighbours([each.nearest for each in probes]), _join(probes, "mated"), pids)


def _join_neighbours(blocks: list[Neighbours]) -> Neighbours:
    return Neighbours(_join(blocks, "index"), _join(blocks, "distance"))


def _run(job: SearchJob, execution: Execution, truth: GroundTruth | None) -> list[Any]:
    """Compute a job; return the results of its blocks of queries, in order."""
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


def _compute(job: SearchJob, execution: Execution, truth: GroundTruth | None, stage: Stage | None) -> list[Any]:
    return execute(_build(job, truth, stage), execution.client, job.plan.n_threads, execution.progress)


def _partials(job: SearchJob, truth: GroundTruth | None, workspace: Workspace) -> Stage:
    """Stage of the workspace that holds the partial results of a job."""
    lists = None if truth is None else truth.content_digest
    blocks = {"query_block": job.plan.query_block, "gallery_block": job.plan.gallery_block}
    return workspace.stage("partials", [__version__, job.identity, lists], blocks)
