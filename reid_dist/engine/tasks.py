"""Tasks of a job: module functions of handles, row ranges and small values.

A task reads its rows through a scorer and returns relevance, thresholds, counts or lists, never features.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.model import Relevance, RowRange, Thresholds
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.jobs import EvaluationJob, SearchJob
from reid_dist.engine.outputs.output import QueryBlock
from reid_dist.engine.reductions.targets import make_thresholds, relevant_places
from reid_dist.engine.screened_pairs import ScreenedPairs, add_screened, count_screened
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.relevance.assignment import assign_listed_relevance, assign_relevance
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.stores import Stage
from reid_dist.stores.archive import decode, encode

Partials = dict[str, Any]
"""Partial results by the name of their reduction, and `SCREENED`."""

SCREENED = "screened"
"""Pairs by kind of product."""

Block = tuple[RowRange, Relevance | None, Thresholds | None]
"""Rows of a block of queries, their relevance and their thresholds, as far as outputs need them."""

# Name, among kept partial results, of the fingerprint of the outputs, as far as these are prepared.
_PREPARED = "prepared"


def relevance_task(job: EvaluationJob, rows: RowRange, truth: GroundTruth | None) -> Relevance:
    """Assign relevance to a block of queries: by labels, or by the lists of the block."""
    job.policy.load_device(len(rows) * job.plan.gallery_block * job.plan.query.dim)
    if truth is None:
        labels = job.labels
        relevance = assign_relevance(job.protocol, labels.query.take(rows), labels.index)
    else:
        relevance = assign_listed_relevance(job.protocol, truth, job.gallery.n_rows)
    for output in job.outputs:
        relevance = output.relevance(_block(job, (rows, relevance, None)))
    return relevance


def relevant_task(
    job: SearchJob, rows: RowRange, gallery_rows: RowRange, relevance: Relevance
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Positions in the listed pairs and canonical distances of those in a range of gallery rows, both (n,)."""
    place, owner = relevant_places(relevance, gallery_rows)
    if not len(place):
        return place, np.empty(0)
    return place, job.scorer.pair_distances(rows, owner, relevance.listed[1][place])


def targets_task(
    job: EvaluationJob,
    rows: RowRange,
    relevance: Relevance,
    parts: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]],
) -> Thresholds:
    """Compute thresholds from the distances of all listed pairs."""
    distance = np.full(len(relevance.listed[1]), np.nan)
    for place, values in parts:
        distance[place] = values
    thresholds = make_thresholds(relevance, distance)
    for output in job.outputs:
        thresholds = output.thresholds(_block(job, (rows, relevance, thresholds)), distance)
    return thresholds


def _block(job: SearchJob, known: Block, piece: RowRange | None = None) -> QueryBlock:
    return QueryBlock(job.scorer, job.labels, *known, piece, job.plan.bracket_counts)


def summary_task(job: SearchJob, known: Block) -> dict[int, Any]:
    """Summaries of a block of queries, by the places of the outputs that are prepared."""
    block = _block(job, known)
    with one_blas_thread():
        return {place: output.summary(block) for place, output in enumerate(job.outputs) if output.prepares}


def prepare_task(job: SearchJob, summaries: Sequence[Mapping[int, Any]]) -> SearchJob:
    """Return the job with outputs that are prepared from the summaries of all blocks of queries, in order."""
    outputs = (
        output.prepared([of_block[place] for of_block in summaries]) if output.prepares else output
        for place, output in enumerate(job.outputs)
    )
    return replace(job, outputs=tuple(outputs))


def tile_task(job: SearchJob, known: Block, gallery_rows: RowRange) -> Partials:
    """Compute the partial results of a block pair."""
    block = _block(job, known)
    of_outputs = (output.row_groups(block.labels) for output in job.outputs)
    # Groups of the rows of the gallery, for separate counts.
    group_of = next((groups for groups in of_outputs if groups is not None), None)
    wanted = {name: each for output in job.outputs for name, each in output.reductions(block).items()}
    with one_blas_thread(), count_screened() as screened:
        gallery = job.scorer.open_gallery(gallery_rows)
        if group_of is not None:
            gallery = replace(gallery, group=group_of[gallery.numbers])
        query = job.scorer.meet(job.scorer.open_query(block.rows, gallery_rows), gallery)
        found = run_tiles(query, gallery, job.distance, job.plan.tile, [*wanted.values()], job.policy)
    return {SCREENED: screened} | dict(zip(wanted, found, strict=True))


def kept_tile_task(
    stage: Stage, part: str, is_done: bool, job: SearchJob, known: Block, gallery_rows: RowRange
) -> Partials:
    """Compute and store the partial results of a block pair, or read them if an earlier run stored them (`is_done`).

    They are stored already, too, if a worker was lost after writing them and Dask runs the task again.  Those of
    outputs that were prepared otherwise are computed again: they count around other distances.
    """
    made_for = fingerprint(job.outputs)
    if is_done or stage.has(part):
        kept: Partials = decode(stage.read(part), [kind for output in job.outputs for kind in output.stored])
        if kept.pop(_PREPARED) == made_for:
            return kept
    partials = tile_task(job, known, gallery_rows)
    stage.write(part, encode(partials | {_PREPARED: made_for}))
    return partials


def merge_task(job: SearchJob, partials: Sequence[Partials]) -> Partials:
    """Merge partial results of different gallery blocks, by the merges of the outputs."""
    merged = {SCREENED: add_screened(partial[SCREENED] for partial in partials)}
    for output in job.outputs:
        for name, merge in output.merges(job.labels).items():
            parts = [partial[name] for partial in partials]
            merged[name] = parts[0] if len(parts) == 1 else merge(parts)
    return merged


def piece_task(job: SearchJob, place: int, known: Block, merged: Mapping[str, Any], queries: RowRange) -> Any:
    """Finish the output at a place of the job for some queries of a block."""
    return job.outputs[place].finish(_block(job, known, queries), merged)


def finish_task(
    job: SearchJob, known: Block, merged: Mapping[str, Any], pieces: Sequence[Sequence[Any]]
) -> tuple[list[Any], ScreenedPairs]:
    """Finish all outputs for a block of queries; `pieces` are those of each output, mostly none."""
    block = _block(job, known)
    results = [
        output.join(own) if own else output.finish(block, merged)
        for output, own in zip(job.outputs, pieces, strict=True)
    ]
    return results, merged[SCREENED]
