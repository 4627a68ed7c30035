"""The task graph of a job.

Data flow per block of queries ``q`` and gallery block ``g``::

    relevance(q) ─┬─ relevant(q, g) for every g ── targets(q) ─┬─ tiles(q, g) for every g ── merge in a tree ── final(q)
                  └──────────────────────────────────────────┘

Relevance and targets are there as far as outputs need them.  Where an output is prepared, ``summary(q)`` follows
``targets(q)``, and the tiles follow one task ``prepared`` of the summaries of all blocks.  Tasks exchange labels,
thresholds, counts and lists.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from reid_dist._version import __version__
from reid_dist.core.model import cut_rows
from reid_dist.engine.jobs import EvaluationJob, SearchJob
from reid_dist.engine.outputs.output import Results
from reid_dist.engine.screened_pairs import ScreenedPairs
from reid_dist.engine.task_graph import Execution, TaskGraph, execute
from reid_dist.engine.tasks import (
    finish_task,
    kept_tile_task,
    merge_task,
    piece_task,
    prepare_task,
    relevance_task,
    relevant_task,
    summary_task,
    targets_task,
    tile_task,
)
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.stores import Stage, Workspace
from reid_dist.stores.locks import stage_lock


def _build(job: SearchJob, truth: GroundTruth | None, stage: Stage | None) -> TaskGraph:
    graph = TaskGraph()
    gallery_blocks = list(enumerate(cut_rows(job.plan.gallery.n_rows, job.plan.gallery_block)))
    # One listing for all partial results: on S3, checking each would be a request of its own.
    done = frozenset[str]() if stage is None else stage.done()
    blocks, summaries = [], []
    prepares = any(output.prepares for output in job.outputs)
    for block, rows in enumerate(cut_rows(job.plan.query.n_rows, job.plan.query_block)):
        at = f"{job.token}-{block}"
        relevance = targets = None
        if isinstance(job, EvaluationJob):
            lists = None if truth is None else truth.take(rows)
            relevance = graph.add(f"relevance-{at}", relevance_task, job, rows, lists)
            if any(output.reads_thresholds for output in job.outputs):
                parts = [
                    graph.add(f"relevant-{at}-{place}", relevant_task, job, rows, cut, relevance, stage="pairs")
                    for place, cut in enumerate(cut_rows(job.plan.gallery.n_rows, job.plan.pair_rows))
                ]
                targets = graph.add(f"targets-{at}", targets_task, job, rows, relevance, parts)
        known = [rows, relevance, targets]
        blocks.append((at, rows, known))
        if prepares:
            summaries.append(graph.add(f"summary-{at}", summary_task, job, known, stage="pairs"))
    # The job as those tasks see it that follow its preparation.
    ready = graph.add(f"prepared-{job.token}", prepare_task, job, summaries) if prepares else job
    reads_relevance = any(output.reads_relevance for output in job.outputs)
    for block, (at, rows, known) in enumerate(blocks):
        # Tile tasks depend on the relevance only if a reduction covers queries without positives.
        seen = known if reads_relevance else [rows, None, known[2]]
        partials = []
        for place, cut in gallery_blocks:
            key, part = f"sweep-{at}-{place}", f"sweep-{block:05d}-{place:05d}"
            work = (ready, seen, cut)
            if stage is None:
                graph.add(key, tile_task, *work, stage=job.tile_stage)
            else:
                is_done = part in done
                counted = None if is_done else job.tile_stage
                graph.add(key, kept_tile_task, stage, part, is_done, *work, stage=counted)
            partials.append(key)
        merged = graph.add_tree(f"merge-{at}", merge_task, job, leaves=partials)
        pieces = [
            [
                graph.add(f"piece-{at}-{place}-{number}", piece_task, ready, place, known, merged, cut)
                for number, cut in enumerate(cut_rows(len(rows), output.queries_per_piece))
            ]
            if output.queries_per_piece is not None
            else []
            for place, output in enumerate(job.outputs)
        ]
        graph.finals.append(graph.add(f"final-{at}", finish_task, ready, known, merged, pieces))
    return graph


_Block = tuple[list[Any], ScreenedPairs]


def run_job(job: SearchJob, execution: Execution, truth: GroundTruth | None = None) -> Results:
    """Compute the outputs of a job, in threads of this process or on a cluster; results are in query order.

    `truth` lists relevant gallery rows, for a protocol that does not derive relevance from labels.  With a workspace,
    partial results of block pairs of an evaluation are stored as they are computed; those of an interrupted run are
    reused, and all are removed when the job is done.

    Raises `RunFailedError` if the cluster lost the job; the message gives the cause.
    """
    blocks = _run(job, execution, truth)
    execution.note(screened for _, screened in blocks)
    parts = zip(*(results for results, _ in blocks), strict=True)
    return Results({type(output): output.join(each) for output, each in zip(job.outputs, parts, strict=True)})


def _run(job: SearchJob, execution: Execution, truth: GroundTruth | None) -> list[_Block]:
    """Compute a job; return the results of its blocks of queries, in order."""
    workspace = execution.workspace
    if workspace is None or not isinstance(job, EvaluationJob):
        return _compute(job, execution, truth, None)
    with stage_lock(_partials(job, truth, workspace).path, execution.progress.warn):
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


def _compute(job: SearchJob, execution: Execution, truth: GroundTruth | None, stage: Stage | None) -> list[_Block]:
    return execute(_build(job, truth, stage), execution.client, job.plan.n_threads, execution.progress)


def _partials(job: SearchJob, truth: GroundTruth | None, workspace: Workspace) -> Stage:
    """Stage of the workspace that holds the partial results of a job."""
    lists = None if truth is None else truth.content_digest
    blocks = {"query_block": job.plan.query_block, "gallery_block": job.plan.gallery_block}
    return workspace.stage("partials", [__version__, job.identity, lists], blocks)
