"""Repeated passes over all pairs until every verification threshold is exact."""

from __future__ import annotations

from collections.abc import Sequence

from reid_dist.engine.graph import count_impostors
from reid_dist.engine.jobs import BlockResult, EvaluationJob
from reid_dist.engine.plan import Besides
from reid_dist.engine.task_graph import Execution
from reid_dist.engine.tasks import set_labels
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
    wanted_levels,
)
from reid_dist.metrics.definitions import Metric
from reid_dist.relevance.ground_truth import GroundTruth

# Bytes per query and nearest kept row: candidates, and lists that wait to be merged.
_PROBE_BYTES = 1200


def held_by_verification(metrics: Sequence[Metric], roc: bool) -> Besides:
    """Additional memory of a job for verification and open-set metrics and the ROC."""
    per_query = _PROBE_BYTES * max(int(needs_probes(metrics)), n_nearest(metrics))
    return Besides(per_query, pairs=needs_pairs(metrics, roc))


def refuse_early(job: EvaluationJob, metrics: Sequence[Metric]) -> None:
    """Raise `InputError` for open-set metrics where the labels give every query its identity in the gallery."""
    if any(metric.family.needs_unknown for metric in metrics):
        refuse_without_unknown(metrics, set_labels(job, job.query).pids, set_labels(job, job.gallery).pids)


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
        pairs = pairs_of(result.ranked)
        levels = wanted_levels(metrics, roc, pairs)
        scale = job.scorer.falling_scale
        search = ThresholdSearch(levels, pairs.genuine, pairs.n_impostor, result.impostors, scale)
        while edges := search.edges:
            search.take(count_impostors(job, edges, execution, truth))
        found = search.found
    return make_verification(metrics, roc, result, found)
