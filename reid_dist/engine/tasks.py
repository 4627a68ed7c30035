"""Tasks of a job: module functions of handles, row ranges and small values.

A task reads its rows through a scorer and returns relevance, thresholds, counts or lists, never features.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Neighbours, Relevance, RowRange, Targets, Thresholds
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.job_labels import GALLERY_LABELS, gallery_index, set_labels
from reid_dist.engine.jobs import BlockResult, EvaluationJob, Probes, SearchJob
from reid_dist.engine.outputs.partitions import rank_in_partitions
from reid_dist.engine.outputs.protocol_ranks import rank_variants
from reid_dist.engine.reductions import (
    PARTIAL_RESULTS,
    CollectImpostors,
    CountGroups,
    CountImpostors,
    CountNearer,
    FeatureBlock,
    KeepNearest,
    ListBefore,
    MergedReduction,
    PartialCounts,
    Visibility,
    add_counts,
    make_thresholds,
    rank,
    rank_groups,
    relevant_places,
    with_others,
)
from reid_dist.engine.screened_pairs import add_screened, count_screened
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.kernels.deciding import BEFORE, BEHIND
from reid_dist.metrics.definitions import parse_metric
from reid_dist.relevance.assignment import assign_listed_relevance, assign_relevance
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.relevance.protocols import REASONS
from reid_dist.stores import Stage
from reid_dist.stores.encoding import decode, encode

Partials = dict[str, Any]
"""Partial results by the name of their reduction, and `SCREENED`."""

SCREENED = "screened"
"""Pairs by kind of product."""


# ---- tasks -----------------------------------------------------------------------------------------------------------


def relevance_task(job: EvaluationJob, rows: RowRange) -> Relevance:
    """Assign relevance to a block of queries by labels."""
    labels, gallery = set_labels(job, job.query).take(rows), GALLERY_LABELS.get(job)
    if gallery.variants is not None:
        return gallery.variants.assign(labels)
    return _with_groups(job, assign_relevance(job.protocol, labels, gallery.index))


def listed_relevance_task(job: EvaluationJob, truth: GroundTruth) -> Relevance:
    """Assign relevance to a block of queries by its lists."""
    return _with_groups(job, assign_listed_relevance(job.protocol, truth, job.gallery.n_rows))


def _with_groups(job: EvaluationJob, relevance: Relevance) -> Relevance:
    """Add the groups of the positives, if groups of gallery items are ranked."""
    groups = GALLERY_LABELS.get(job).groups
    return relevance if groups is None else groups.with_members(relevance, listed=job.protocol.is_listed)


def relevant_task(
    job: SearchJob, rows: RowRange, gallery_rows: RowRange, relevance: Relevance
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Positions in the listed pairs and canonical distances of those in a range of gallery rows, both (n,)."""
    place, owner = relevant_places(relevance, gallery_rows)
    if not len(place):
        return place, np.empty(0)
    return place, job.scorer.pair_distances(rows, owner, relevance.listed[1][place])


def targets_task(
    job: EvaluationJob, relevance: Relevance, parts: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]]
) -> Thresholds:
    """Compute thresholds from the distances of all listed pairs."""
    first = job.first_group_alone
    thresholds = make_thresholds(relevance, parts, n_counted=job.n_ranked, first_group_alone=first)
    variants = GALLERY_LABELS.get(job).variants
    return thresholds if variants is None else variants.with_own_targets(relevance, thresholds)


def reductions(
    job: SearchJob,
    relevance: Relevance | None,
    targets: Thresholds | None,
    reach: NDArray[np.float64] | None = None,
) -> dict[str, MergedReduction[Any]]:
    """Reductions of the tile tasks, by name; `reach` is that of `KeepNearest`."""
    nearest = {"topk": KeepNearest(job.topk, job.distance, reach=reach)} if job.topk else {}
    if not isinstance(job, EvaluationJob):
        return {**nearest}
    wanted: dict[str, MergedReduction[Any]] = {}
    if targets is not None:
        if job.ranks_items and job.counts_negatives:
            wanted["ranks"] = CountNearer(targets.counted, gallery_index(job).mask, job.distance)
        if targets.groups is not None:
            wanted["groups"] = _group_reduction(job, targets.groups)
        if (variants := GALLERY_LABELS.get(job).variants) is not None:
            wanted |= variants.own_counts(targets, job.distance)
    wanted |= nearest
    if job.probes and relevance is not None:
        wanted["probes"] = KeepNearest(
            max(1, job.nearest_negatives),
            job.distance,
            relevance.hidden,
            gallery_index(job).mask,
            strikes=job.nearest_negatives > 0,
        )
    if targets is not None:
        wanted |= _single_shot(job, targets)
    if relevance is not None and (job.impostors or job.brackets):
        counted = relevance.reason != REASONS.index("camera_not_counted")
        visibility = Visibility(
            relevance.hidden, gallery_index(job).mask, counted, job.distance, job.scorer.falling_scale
        )
        if job.impostors:
            wanted["impostors"] = CountImpostors(visibility)
        if job.brackets:
            wanted["bracketed"] = CollectImpostors(
                visibility, job.brackets, job.plan.bracket_counts, job.brackets_by_query
            )
    return wanted


def _group_reduction(job: EvaluationJob, targets: Targets) -> CountGroups:
    gallery = GALLERY_LABELS.get(job)
    if gallery.groups is None:
        raise AssertionError("thresholds of groups belong to a ranking by group")
    return CountGroups(targets, gallery.index.mask, job.distance, gallery.groups.groups)


def _single_shot(job: EvaluationJob, targets: Thresholds) -> dict[str, ListBefore]:
    """One reduction per rule of ties, the usual one first, or per protocol; none if no such CMC is requested."""
    gallery, shot = GALLERY_LABELS.get(job), job.single_shot
    if gallery.variants is not None and shot is not None:
        return gallery.variants.single_shot(targets, job.distance, shot)
    if gallery.identities is None or shot is None:
        return {}
    rules = {"single_shot": 0}
    if job.tie_rules:
        rules |= {"single_shot, optimistic": BEHIND, "single_shot, pessimistic": BEFORE}
    return {
        name: ListBefore(targets.items, gallery.index.mask, job.distance, gallery.identities, shot, rule)
        for name, rule in rules.items()
    }


class _Reach:
    """Distances within which queries have as many gallery rows as their lists hold, from finished blocks of a job.

    Lists of other blocks may lack rows beyond: these are not among the nearest.  So the lists of a block depend on what
    this process has finished, and the merged lists do not.
    """

    _MOST_BLOCKS: ClassVar[int] = 16

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int], NDArray[np.float64]] = {}

    def of(self, job: SearchJob, rows: RowRange, targets: Thresholds | None) -> NDArray[np.float64] | None:
        """Distances for a block of queries, also from their positives, shape (n_query,); None if most are unknown."""
        if not job.topk:
            return None
        with self._lock:
            known = self._known.get((job.token, rows.start))
        reach = np.full(len(rows), np.inf) if known is None else known
        if targets is not None:
            reach = np.minimum(reach, targets.items.reach(job.topk))
        return reach if np.isinf(reach).sum() <= _MOST_UNKNOWN * len(reach) else None

    def keep(self, job: SearchJob, rows: RowRange, lists: Sequence[Neighbours]) -> None:
        """Note the farthest entry of full lists of the block."""
        if not lists:
            return
        key, found = (job.token, rows.start), np.min([each.distance[:, -1] for each in lists], axis=0)
        with self._lock:
            if key in self._known:
                found = np.minimum(found, self._known.pop(key))
            while len(self._known) >= self._MOST_BLOCKS:
                del self._known[next(iter(self._known))]
            self._known[key] = found


_REACH = _Reach()
# Largest share of queries without a known distance; all rows enter their lists at first.
_MOST_UNKNOWN = 0.05


def tile_task(
    job: SearchJob, rows: RowRange, gallery_rows: RowRange, relevance: Relevance | None, targets: Thresholds | None
) -> Partials:
    """Compute the partial results of a block pair."""
    wanted = reductions(job, relevance, targets, _REACH.of(job, rows, targets))
    with one_blas_thread(), count_screened() as screened:
        gallery = job.scorer.open_gallery(gallery_rows)
        query = job.scorer.meet(job.scorer.open_query(rows, gallery_rows), gallery)
        found = [
            run_tiles(query, part, job.distance, job.plan.tile, list(wanted.values())) for part in _split(job, gallery)
        ]
        _REACH.keep(job, rows, [partials[[*wanted].index("topk")] for partials in found] if job.topk else [])
    return {SCREENED: screened} | {
        name: reduction.combine([partials[place] for partials in found]) if len(found) > 1 else found[0][place]
        for place, (name, reduction) in enumerate(wanted.items())
    }


def kept_tile_task(
    stage: Stage,
    part: str,
    job: SearchJob,
    rows: RowRange,
    gallery_rows: RowRange,
    relevance: Relevance | None,
    targets: Thresholds | None,
) -> Partials:
    """Compute and store the partial results of a block pair, or read them if they are stored.

    They are stored already if a worker was lost after writing them and Dask runs the task again.
    """
    if stage.has(part):
        return read_partials_task(stage, part)
    partials = tile_task(job, rows, gallery_rows, relevance, targets)
    stage.write(part, encode(partials))
    return partials


def read_partials_task(stage: Stage, part: str) -> Partials:
    """Read the partial results of a block pair that an earlier run stored."""
    partials: Partials = decode(stage.read(part), PARTIAL_RESULTS)
    return partials


def _split(job: SearchJob, gallery: FeatureBlock) -> list[FeatureBlock]:
    """Split a block by partition of the gallery, for separate counts."""
    known = GALLERY_LABELS.get(job) if isinstance(job, EvaluationJob) else None
    parts = None if known is None else known.parts or known.variants
    if parts is None:
        return [gallery]
    group = parts.group[gallery.numbers]
    present = np.unique(group).tolist()
    if len(present) == 1:
        return [replace(gallery, group=present[0])]
    return [gallery.take(np.flatnonzero(group == each), each) for each in present]


def merge_task(
    job: SearchJob, relevance: Relevance | None, targets: Thresholds | None, partials: Sequence[Partials]
) -> Partials:
    """Merge partial results of different gallery blocks."""
    wanted = reductions(job, relevance, targets)
    merged = {name: reduction.combine([partial[name] for partial in partials]) for name, reduction in wanted.items()}
    return {SCREENED: add_screened(partial[SCREENED] for partial in partials)} | merged


def curves_task(
    job: EvaluationJob, rows: RowRange, targets: Thresholds, merged: Mapping[str, Any], queries: RowRange
) -> NDArray[np.float64]:
    """Compute the single-shot CMC of some queries of a block; see `BlockResult`."""
    query_row = np.arange(rows.start, rows.stop)
    each = _single_shot(job, targets).items()
    return np.stack([reduction.finish(merged[name], queries, query_row) for name, reduction in each], axis=-1)


def select_task(name: str, merged: Mapping[str, Any]) -> Any:
    """Select one of the merged partial results."""
    return merged[name]


def ranking_task(
    job: EvaluationJob,
    relevance: Relevance,
    targets: Thresholds,
    merged: Mapping[str, Any],
    curves: Sequence[NDArray[np.float64]],
) -> BlockResult:
    """Rank a block of queries from merged partial results and pieces of single-shot CMC."""
    parts, variants = GALLERY_LABELS.get(job).parts, GALLERY_LABELS.get(job).variants
    metrics = [parse_metric(name) for name in job.part_metrics]
    nearest, items, counts = merged.get("probes"), targets.items, merged.get("ranks")
    if not job.counts_negatives:
        counts = {0: PartialCounts.zeros(len(items.distance))}
    ranked = None
    if counts is not None:
        ranked = rank(relevance, targets.counted, add_counts(list(counts.values())))
        if job.n_ranked is not None:
            ranked = with_others(ranked, items, job.n_ranked)
    grouped = None
    if targets.groups is not None:
        found = _group_reduction(job, targets.groups).finish(merged["groups"])
        grouped = rank_groups(relevance, targets.groups, found)
    if ranked is None:
        ranked, grouped = grouped, None
    if ranked is None:
        raise AssertionError("an evaluation ranks items, groups, or both")
    return BlockResult(
        ranked=ranked,
        grouped=grouped,
        neighbours=merged.get("topk"),
        in_parts=None if parts is None else rank_in_partitions(relevance, items, counts or {}, parts, metrics),
        probes=None if nearest is None else Probes(nearest, relevance.mated),
        single_shot=np.concatenate(curves) if curves else np.empty((relevance.n_query, 0, 1)),
        impostors=merged.get("impostors"),
        variants=() if variants is None else rank_variants(relevance, targets, merged, variants),
        screened=merged[SCREENED],
    )
