"""Tasks of a job: module functions of handles, row ranges and small values.

A task reads its rows through a scorer and returns relevance, thresholds, counts or lists, never features.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.fingerprint import fingerprint
from reid_dist.core.model import Labels, Neighbours, RankedQueries, Relevance, RowRange, Targets
from reid_dist.engine.blas import one_blas_thread
from reid_dist.engine.distances import Distance
from reid_dist.engine.partitions import GalleryPartitions, Partitions, PartValues, rank_in_partitions
from reid_dist.engine.plan import Plan
from reid_dist.engine.reductions import (
    BracketCounts,
    CollectImpostors,
    CountImpostors,
    CountNearer,
    FeatureBlock,
    Identities,
    ImpostorHistogram,
    KeepNearest,
    ListBefore,
    MergedReduction,
    SingleShot,
    Visibility,
    add_counts,
    make_targets,
    rank,
    relevant_places,
)
from reid_dist.engine.scorers import Scorer
from reid_dist.engine.tile_loop import run_tiles
from reid_dist.kernels.placing import BEFORE, BEHIND
from reid_dist.metrics.definitions import parse_metric
from reid_dist.relevance.assignment import GalleryIndex, assign_listed_relevance, assign_relevance
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.relevance.protocols import REASONS, Protocol
from reid_dist.stores import LabelledSet
from reid_dist.stores.matched_labels import join_item_ids, join_numbers

Partials = dict[str, Any]
"""Partial results by the name of their reduction."""


@dataclass(frozen=True)
class SearchJob:
    """Search for the nearest gallery rows of every query.

    Attributes
    ----------
    query, gallery
        The two sides.
    scorer
        Source of distances.
    plan
        Division into tasks and tiles.
    topk
        Neighbours listed per query, 0 for none.
    """

    query: LabelledSet
    gallery: LabelledSet
    scorer: Scorer
    plan: Plan
    topk: int

    @property
    def distance(self) -> Distance:
        """Distance of the scorer."""
        return self.scorer.distance

    @property
    def tile_stage(self) -> str:
        """Progress stage of the tile tasks."""
        return "sweep"

    @property
    def identity(self) -> str:
        """Identity of the computation: inputs by content and every field of every definition, without the plan."""
        sets = [self.query.content_digest, self.gallery.content_digest, *self.scorer.identity]
        apart = ("query", "gallery", "scorer", "plan")
        rest = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in apart}
        return fingerprint(sets, self.distance, rest, self.plan.bracket_counts)

    @property
    def token(self) -> str:
        """Identity of the job including its plan."""
        return fingerprint(self.identity, self.plan)[:20]


@dataclass(frozen=True, kw_only=True)
class EvaluationJob(SearchJob):
    """Evaluation of a ranking under a protocol.

    Attributes
    ----------
    protocol
        Evaluation protocol that assigns relevance.
    ranks
        Whether the positives are ranked.
    rows_are_items
        Whether row numbers serve as item ids; for a set without ids that is evaluated against itself.
    joined
        Labels (``"pids"``, ``"camids"``, ``"item_ids"``) encoded differently in the two sets and joined.
    parts, part_metrics
        Partitions of the gallery, and metrics computed in every partition.
    probes
        Whether the nearest visible gallery row of every query is computed, for open-set metrics.
    impostors
        Whether a histogram of the distances of all impostors is computed, for verification.
    brackets
        Edges ``lo, hi, lo, hi, …`` of brackets of distances, around which impostors are counted exactly.
    single_shot
        Definition of the single-shot CMC; None if not requested.
    tie_rules
        Whether the single-shot CMC is also computed with every tie decided for, and against, the positives.
    """

    protocol: Protocol
    topk: int = 0
    ranks: bool = True
    rows_are_items: bool = False
    joined: tuple[str, ...] = ()
    parts: Partitions | None = None
    part_metrics: tuple[str, ...] = ()
    probes: bool = False
    impostors: bool = False
    brackets: tuple[float, ...] = ()
    single_shot: SingleShot | None = None
    tie_rules: bool = False

    @property
    def assigns_all(self) -> bool:
        """Whether a result covers all queries, including those without positives."""
        return self.probes or self.impostors or bool(self.brackets)

    @property
    def tile_stage(self) -> str:
        """Progress stage of the tile tasks."""
        return "verification" if self.brackets else "sweep"


@dataclass(frozen=True)
class BlockResult:
    """Results of a block of queries; None for results that were not requested.

    Attributes
    ----------
    ranked
        Ranks of the positives.
    neighbours
        The nearest gallery rows, junk included.
    in_parts
        Metrics in partitions of the gallery.
    nearest_kept
        Distance of the nearest gallery row that is not junk, of queries that are not mated, shape (n_query,), float64;
        infinite without such a row.
    mated
        As in `Relevance`.
    single_shot
        ``CMC_single_shot`` at every rank, shape (n_query, max_rank, rules), float64; NaN for invalid queries.
        The first rule of ties is the usual one; on request the optimistic and the pessimistic one follow.
    impostors
        Histogram of the distances of all impostors.
    bracketed
        Exact counts of impostors around brackets of distances.
    """

    ranked: RankedQueries | None = None
    neighbours: Neighbours | None = None
    in_parts: PartValues | None = None
    nearest_kept: NDArray[np.float64] | None = None
    mated: NDArray[np.bool_] | None = None
    single_shot: NDArray[np.float64] | None = None
    impostors: ImpostorHistogram | None = None
    bracketed: BracketCounts | None = None


# ---- labels of the gallery, sorted once per process ------------------------------------------------------------------


@dataclass(frozen=True)
class _Gallery:
    index: GalleryIndex
    parts: GalleryPartitions | None
    identities: Identities | None


class _GalleryCache:
    """Values derived from the labels of the current gallery, computed once per process instead of once per task."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._key: tuple[Any, ...] | None = None
        self._gallery: _Gallery | None = None

    def get(self, job: EvaluationJob) -> _Gallery:
        names = job.joined and job.query.content_digest
        drawn = job.single_shot is not None
        key = (job.gallery.content_digest, job.rows_are_items, names, job.protocol, job.parts, drawn)
        with self._lock:
            if self._gallery is None or self._key != key:
                labels = set_labels(job, job.gallery)
                index = GalleryIndex(labels, job.protocol)
                parts = None if job.parts is None else GalleryPartitions(job.parts, labels)
                identities = Identities.make(labels.pids, index.mask) if drawn else None
                self._gallery, self._key = _Gallery(index, parts, identities), key
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
    """Labels of one of two sets, with a numbering common to both sets.

    Parameters
    ----------
    features
        The set: `query` or `gallery`.
    query, gallery
        Both sides.
    joined, protocol, rows_are_items
        As in `EvaluationJob`.
    """
    item_ids = np.arange(features.n_rows) if rows_are_items else features.item_ids
    if "item_ids" in joined and query.item_ids is not None and gallery.item_ids is not None:
        item_ids = join_item_ids(query.item_ids, gallery.item_ids)[0 if features is query else 1]
    pids, camids = features.pids, features.camids
    if "pids" in joined:
        pids = join_numbers(pids, features.pid_names, query.pid_names, gallery.pid_names)
    if "camids" in joined and camids is not None:
        camids = join_numbers(camids, features.camid_names, query.camid_names, gallery.camid_names)
    wanted = () if protocol is None else protocol.label_columns
    columns = {name: values for name, values in features.columns.items() if name in wanted} if wanted else {}
    return Labels(pids, camids, item_ids, columns)


# ---- tasks -----------------------------------------------------------------------------------------------------------


def relevance_task(job: EvaluationJob, rows: RowRange) -> Relevance:
    """Assign relevance to a block of queries by labels."""
    return assign_relevance(job.protocol, set_labels(job, job.query).take(rows), gallery_index(job))


def listed_relevance_task(job: EvaluationJob, truth: GroundTruth) -> Relevance:
    """Assign relevance to a block of queries by its lists."""
    return assign_listed_relevance(job.protocol, truth, job.gallery.n_rows)


def relevant_task(
    job: SearchJob, rows: RowRange, gallery_rows: RowRange, relevance: Relevance
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Positions in the relevance and canonical distances of the positives in a range of gallery rows, both (n,).

    The rows are read singly and unverified; the tile tasks read all of them verified, and compare.
    """
    place, owner = relevant_places(relevance, gallery_rows)
    if not len(place):
        return place, np.empty(0)
    return place, job.scorer.pair_distances(rows, owner, relevance.relevant_row[place])


def targets_task(relevance: Relevance, parts: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]]) -> Targets:
    """Compute thresholds from the distances of all positives."""
    return make_targets(relevance, parts)


def reductions(job: SearchJob, relevance: Relevance | None, targets: Targets | None) -> dict[str, MergedReduction[Any]]:
    """Reductions of the tile tasks, by name."""
    nearest = {"topk": KeepNearest(job.topk, job.distance)} if job.topk else {}
    if not isinstance(job, EvaluationJob):
        return {**nearest}
    wanted: dict[str, MergedReduction[Any]] = {}
    if targets is not None:
        wanted["ranks"] = CountNearer(targets, gallery_index(job).mask, job.distance)
    wanted |= nearest
    if job.probes and relevance is not None:
        wanted["probes"] = KeepNearest(1, job.distance, relevance.hidden, gallery_index(job).mask)
    if targets is not None:
        wanted |= _single_shot(job, targets)
    if relevance is not None and (job.impostors or job.brackets):
        counted = relevance.reason != REASONS.index("camera_not_counted")
        visibility = Visibility(relevance.hidden, gallery_index(job).mask, counted, job.distance)
        if job.impostors:
            wanted["impostors"] = CountImpostors(visibility)
        if job.brackets:
            wanted["bracketed"] = CollectImpostors(visibility, job.brackets, job.plan.bracket_counts)
    return wanted


def _single_shot(job: EvaluationJob, targets: Targets) -> dict[str, ListBefore]:
    """One reduction per rule of ties, the usual one first; none if the single-shot CMC is not requested."""
    gallery, shot = _GALLERY.get(job), job.single_shot
    if gallery.identities is None or shot is None:
        return {}
    rules = {"single_shot": 0}
    if job.tie_rules:
        rules |= {"single_shot, optimistic": BEHIND, "single_shot, pessimistic": BEFORE}
    return {
        name: ListBefore(targets, gallery.index.mask, job.distance, gallery.identities, shot, rule)
        for name, rule in rules.items()
    }


def tile_task(
    job: SearchJob, rows: RowRange, gallery_rows: RowRange, relevance: Relevance | None, targets: Targets | None
) -> Partials:
    """Compute the partial results of a block pair."""
    wanted = reductions(job, relevance, targets)
    with one_blas_thread():
        gallery = job.scorer.open_gallery(gallery_rows)
        query = job.scorer.meet(job.scorer.open_query(rows, gallery_rows), gallery)
        found = [
            run_tiles(query, part, job.distance, job.plan.tile, list(wanted.values())) for part in _split(job, gallery)
        ]
    return {
        name: reduction.combine([partials[place] for partials in found]) if len(found) > 1 else found[0][place]
        for place, (name, reduction) in enumerate(wanted.items())
    }


def _split(job: SearchJob, gallery: FeatureBlock) -> list[FeatureBlock]:
    """Split a block by partition of the gallery, for separate counts."""
    parts = _GALLERY.get(job).parts if isinstance(job, EvaluationJob) else None
    if parts is None:
        return [gallery]
    group = parts.group[gallery.numbers]
    present = np.unique(group).tolist()
    if len(present) == 1:
        return [replace(gallery, group=present[0])]
    return [gallery.take(np.flatnonzero(group == each), each) for each in present]


def merge_task(
    job: SearchJob, relevance: Relevance | None, targets: Targets | None, partials: Sequence[Partials]
) -> Partials:
    """Merge partial results of different gallery blocks."""
    wanted = reductions(job, relevance, targets)
    return {name: reduction.combine([partial[name] for partial in partials]) for name, reduction in wanted.items()}


def curves_task(
    job: EvaluationJob, rows: RowRange, targets: Targets, merged: Mapping[str, Any], queries: RowRange
) -> NDArray[np.float64]:
    """Compute the single-shot CMC of some queries of a block; see `BlockResult`."""
    query_row = np.arange(rows.start, rows.stop)
    each = _single_shot(job, targets).items()
    return np.stack([reduction.finish(merged[name], queries, query_row) for name, reduction in each], axis=-1)


def final_task(
    job: SearchJob,
    relevance: Relevance | None,
    targets: Targets | None,
    merged: Mapping[str, Any],
    curves: Sequence[NDArray[np.float64]],
) -> BlockResult:
    """Compute the final results of a block of queries from merged partial results and pieces of single-shot CMC."""
    result = BlockResult(neighbours=merged.get("topk"))
    if isinstance(job, EvaluationJob) and relevance is not None and targets is not None:
        result = replace(result, ranked=rank(relevance, targets, add_counts(list(merged["ranks"].values()))))
        parts = _GALLERY.get(job).parts
        if job.parts is not None and parts is not None:
            metrics = [parse_metric(name) for name in job.part_metrics]
            in_parts = rank_in_partitions(relevance, targets, merged["ranks"], job.parts, parts, metrics)
            result = replace(result, in_parts=in_parts)
    if "probes" in merged and relevance is not None:
        result = replace(result, nearest_kept=merged["probes"].distance[:, 0], mated=relevance.mated)
    result = replace(result, impostors=merged.get("impostors"), bracketed=merged.get("bracketed"))
    if curves:
        result = replace(result, single_shot=np.concatenate(curves))
    return result
