"""Tasks of a job: module functions of handles, row ranges and small values.

A task reads its rows through a scorer and returns relevance, thresholds, counts or lists, never features.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import Labels, Neighbours, Relevance, RowRange, Targets, Thresholds
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.jobs import BlockResult, EvaluationJob, Probes, SearchJob
from reid_dist.engine.partitions import GalleryPartitions, rank_in_partitions
from reid_dist.engine.reductions import (
    PARTIAL_RESULTS,
    CollectImpostors,
    CountGroups,
    CountImpostors,
    CountNearer,
    FeatureBlock,
    Identities,
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
from reid_dist.engine.variants import GalleryVariants, rank_variants
from reid_dist.kernels.deciding import BEFORE, BEHIND
from reid_dist.metrics.definitions import parse_metric
from reid_dist.relevance.assignment import GalleryIndex, assign_listed_relevance, assign_relevance
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.relevance.groups import GroupIndex
from reid_dist.relevance.protocols import REASONS, Protocol
from reid_dist.stores import LabelledSet, Stage
from reid_dist.stores.encoding import decode, encode
from reid_dist.stores.labels import join_item_ids, join_numbers

Partials = dict[str, Any]
"""Partial results by the name of their reduction, and `SCREENED`."""

SCREENED = "screened"
"""Pairs by kind of product."""


# ---- labels of the gallery, sorted once per process ------------------------------------------------------------------


@dataclass(frozen=True)
class _Gallery:
    index: GalleryIndex
    parts: GalleryPartitions | None
    identities: Identities | None
    groups: GroupIndex | None
    variants: GalleryVariants | None


class _GalleryCache:
    """Values derived from the labels of the current gallery, computed once per process instead of once per task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[Any, ...] | None = None
        self._gallery: _Gallery | None = None

    def get(self, job: EvaluationJob) -> _Gallery:
        drawn = job.single_shot is not None
        sets = job.query.content_digest, job.gallery.content_digest
        key = (*sets, job.rows_are_items, job.joined, job.protocol, job.variants, job.parts, drawn)
        with self._lock:
            if self._gallery is None or self._key != key:
                labels = set_labels(job, job.gallery)
                index = GalleryIndex(labels, job.protocol, set_labels(job, job.query).pids)
                parts = None if job.parts is None else GalleryPartitions(job.parts, labels)
                identities = Identities.make(labels.pids, index.mask) if drawn and not job.variants else None
                collapse = job.collapse
                groups = None if collapse is None else GroupIndex(labels, collapse.label, index.mask)
                variants = GalleryVariants(job.variants, index, drawn=drawn) if job.variants else None
                self._gallery, self._key = _Gallery(index, parts, identities, groups, variants), key
            return self._gallery


_GALLERY = _GalleryCache()


def gallery_index(job: EvaluationJob) -> GalleryIndex:
    """Return the sorted labels of the job's gallery."""
    return _GALLERY.get(job).index


def set_labels(job: EvaluationJob, features: LabelledSet) -> Labels:
    """Labels of one of the job's sets, as used by its protocol."""
    return joined_label_set(features, job.query, job.gallery, job.joined, job.protocol, job.rows_are_items)


def joined_label_set(
    features: LabelledSet,
    query: LabelledSet,
    gallery: LabelledSet,
    joined: tuple[str, ...],
    protocol: Protocol | None,
    rows_are_items: bool,
) -> Labels:
    """Labels of `features`, one of two sets, with a numbering common to both; see `EvaluationJob`."""
    item_ids = np.arange(features.n_rows) if rows_are_items else features.item_ids
    if "item_ids" in joined and query.item_ids is not None and gallery.item_ids is not None:
        item_ids = join_item_ids(query.item_ids, gallery.item_ids)[0 if features is query else 1]
    if "image_paths" in joined and not rows_are_items:
        item_ids = features.image_paths
    pids, camids = features.pids, features.camids
    if "pids" in joined:
        pids = join_numbers(pids, features.pid_names, query.pid_names, gallery.pid_names)
    if "camids" in joined and camids is not None:
        camids = join_numbers(camids, features.camid_names, query.camid_names, gallery.camid_names)
    wanted = () if protocol is None else (*protocol.label_columns, *protocol.grouping_columns)
    columns = {name: values for name, values in features.columns.items() if name in wanted} if wanted else {}
    return Labels(pids, camids, item_ids, columns)


# ---- tasks -----------------------------------------------------------------------------------------------------------


def relevance_task(job: EvaluationJob, rows: RowRange) -> Relevance:
    """Assign relevance to a block of queries by labels."""
    labels, gallery = set_labels(job, job.query).take(rows), _GALLERY.get(job)
    if gallery.variants is not None:
        return gallery.variants.assign(labels)
    return _with_groups(job, assign_relevance(job.protocol, labels, gallery.index))


def listed_relevance_task(job: EvaluationJob, truth: GroundTruth) -> Relevance:
    """Assign relevance to a block of queries by its lists."""
    return _with_groups(job, assign_listed_relevance(job.protocol, truth, job.gallery.n_rows))


def _with_groups(job: EvaluationJob, relevance: Relevance) -> Relevance:
    """Add the groups of the positives, if groups of gallery items are ranked."""
    groups = _GALLERY.get(job).groups
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
    variants = _GALLERY.get(job).variants
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
        if (variants := _GALLERY.get(job).variants) is not None:
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
    gallery = _GALLERY.get(job)
    if gallery.groups is None:
        raise AssertionError("thresholds of groups belong to a ranking by group")
    return CountGroups(targets, gallery.index.mask, job.distance, gallery.groups.groups)


def _single_shot(job: EvaluationJob, targets: Thresholds) -> dict[str, ListBefore]:
    """One reduction per rule of ties, the usual one first, or per protocol; none if no such CMC is requested."""
    gallery, shot = _GALLERY.get(job), job.single_shot
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
        gallery = _grouped(job, job.scorer.open_gallery(gallery_rows))
        query = job.scorer.meet(job.scorer.open_query(rows, gallery_rows), gallery)
        found = run_tiles(query, gallery, job.distance, job.plan.tile, list(wanted.values()))
    partials = dict(zip(wanted, found, strict=True))
    _REACH.keep(job, rows, [partials["topk"]] if job.topk else [])
    return {SCREENED: screened} | partials


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


def _grouped(job: SearchJob, gallery: FeatureBlock) -> FeatureBlock:
    """Give the rows of a block their groups, for separate counts."""
    known = _GALLERY.get(job) if isinstance(job, EvaluationJob) else None
    parts = None if known is None else known.parts or known.variants
    return gallery if parts is None else replace(gallery, group=parts.group[gallery.numbers])


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
    parts, variants = _GALLERY.get(job).parts, _GALLERY.get(job).variants
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
