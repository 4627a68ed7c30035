"""Repeated passes over all pairs until every verification threshold is exact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.engine.graph import count_impostors
from reid_dist.engine.job_labels import set_labels
from reid_dist.engine.jobs import BlockResult, EvaluationJob
from reid_dist.engine.plan import MERGED_AT_ONCE, Besides
from reid_dist.engine.reductions import distance_of, ordered_keys
from reid_dist.engine.task_graph import Execution
from reid_dist.engine.verification import (
    Crossing,
    Level,
    ThresholdSearch,
    Verification,
    make_verification,
    n_nearest,
    needs_pairs,
    needs_probes,
    pairs_of,
    refuse_without_unknown,
    verify_pairs,
    wanted_levels,
)
from reid_dist.metrics.definitions import Metric
from reid_dist.relevance.assignment import junk_rows
from reid_dist.relevance.ground_truth import GroundTruth

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

# Bytes per query and nearest kept row: candidates, and lists that wait to be merged.
_PROBE_BYTES = 1200


def held_by_verification(metrics: Sequence[Metric], roc: bool) -> Besides:
    """Additional memory of a job for verification and open-set metrics and the ROC."""
    per_query = _PROBE_BYTES * max(int(needs_probes(metrics)), n_nearest(metrics))
    return Besides(per_query, pairs=needs_pairs(metrics, roc))


def refuse_early(job: EvaluationJob, metrics: Sequence[Metric]) -> None:
    """Raise `InputError` for open-set metrics where the labels give every query its identity in the gallery."""
    if any(metric.family.needs_unknown for metric in metrics):
        gallery = set_labels(job, job.gallery)
        known = gallery.pids[~junk_rows(gallery, job.protocol)]
        refuse_without_unknown(metrics, set_labels(job, job.query).pids, known)


def verify(
    job: EvaluationJob,
    result: BlockResult,
    metrics: Sequence[Metric],
    roc: bool,
    execution: Execution,
    truth: GroundTruth | None,
) -> Verification | None:
    """Compute verification and open-set metrics, with further passes over all pairs as needed (mostly one).

    `job` and `result` belong to the main pass; metrics of other kinds are ignored.  Returns None if nothing is
    requested or no query is valid.  Raises `InputError` if there are no impostors or no non-mated queries, with a
    remedy, and `RunFailedError` as `reid_dist.engine.graph.rank_queries`.
    """
    is_requested = needs_pairs(metrics, roc) or needs_probes(metrics) or n_nearest(metrics)
    if not is_requested or not len(result.ranked.rank):
        return None
    found: dict[Level, Crossing] = {}
    if result.impostors is not None:
        search = _search(job, result, wanted_levels(metrics, roc, pairs_of(result.ranked)))
        while edges := search.edges:
            search.take(count_impostors(job, edges, execution, truth))
        found = search.found
    return make_verification(metrics, roc, result, found)


@dataclass(frozen=True)
class ImpostorsNearer:
    """Impostors of every query nearer than some distances."""

    # Ascending, shape (n,), float64.
    distance: Float64
    # Shape (n_query, n), int64.
    count: Int64


def verify_by_query(
    job: EvaluationJob,
    result: BlockResult,
    metrics: Sequence[Metric],
    distances: Float64,
    execution: Execution,
    truth: GroundTruth | None,
) -> tuple[Verification, ImpostorsNearer]:
    """Verify over pairs, and count the impostors of every query nearer than finite `distances` and the thresholds.

    Mostly in one pass; where very many pairs lie about a threshold, in one more.  Otherwise as `verify`.
    """
    search = _search(job, result, wanted_levels(metrics, False, pairs_of(result.ranked)), np.unique(distances))
    edges = search.edges
    first = count_impostors(job, edges, execution, truth, by_query=True)
    search.take(first)
    while more := search.edges:
        search.take(count_impostors(job, more, execution, truth))
    found = verify_pairs(metrics, False, pairs_of(result.ranked), search.found)
    crossed = [crossing.distance for crossing in search.found.values()]
    points = np.unique(np.concatenate([distances, np.array(crossed, np.float64)]))
    keys = ordered_keys(points)
    nearer = None if first.by_query is None else first.by_query.nearer(ordered_keys(np.array(edges)), keys)
    if nearer is None:
        narrow = np.stack([keys, keys + 1], axis=1).ravel()
        again = count_impostors(
            job, tuple(distance_of(key) for key in narrow.tolist()), execution, truth, by_query=True
        ).by_query
        nearer = None if again is None else again.nearer(narrow, keys)
    if nearer is None:
        raise AssertionError("brackets of one key have no pairs inside that are not counted")
    return found, ImpostorsNearer(points, nearer)


def held_by_queries(n_points: int) -> Besides:
    """Additional memory of a job for counts of impostors by query at so many distances and thresholds."""
    # A bracket and a gap of four bytes each: being added to, waiting to be merged and in the result.
    return Besides(8 * n_points * (2 * MERGED_AT_ONCE + 4), values_per_query=3 * n_points)


def _search(
    job: EvaluationJob, result: BlockResult, levels: Sequence[Level], beside: Float64 | None = None
) -> ThresholdSearch:
    if result.impostors is None:
        raise AssertionError("thresholds are found from a histogram")
    pairs = pairs_of(result.ranked)
    return ThresholdSearch(levels, pairs.genuine, pairs.n_impostor, result.impostors, job.scorer.falling_scale, beside)
