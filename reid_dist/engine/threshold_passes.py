"""Passes over all pairs until every verification threshold is exact: one as a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries
from reid_dist.engine.graph import run_job
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.outputs.impostor_distances import ImpostorBrackets
from reid_dist.engine.outputs.nearest_rows import NearestNegatives
from reid_dist.engine.outputs.output import Output, Results
from reid_dist.engine.reductions.impostor_counts import BracketCounts
from reid_dist.engine.task_graph import Execution
from reid_dist.engine.verification.crossings import Crossing, Level, ThresholdSearch
from reid_dist.engine.verification.measures import (
    Verification,
    make_verification,
    n_nearest,
    needs_pairs,
    needs_probes,
    no_unknown,
    pairs_of,
    wanted_levels,
)
from reid_dist.engine.verification.sampling import LevelBrackets
from reid_dist.metrics.metric import PAIRS, Metric
from reid_dist.relevance.assignment import junk_rows
from reid_dist.relevance.ground_truth import GroundTruth

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]


def verification_outputs(metrics: Sequence[Metric], roc: bool) -> tuple[Output[Any], ...]:
    """Outputs of the main pass for verification and open-set metrics and the ROC."""
    probes = needs_probes(metrics) or n_nearest(metrics) > 0
    names = tuple(metric.name for metric in metrics if metric.family.needs == PAIRS)
    return (
        *([NearestNegatives(n_nearest(metrics))] if probes else []),
        *([LevelBrackets(names=names, roc=roc)] if names or roc else []),
    )


def count_impostors(
    job: EvaluationJob,
    edges: tuple[float, ...],
    execution: Execution,
    truth: GroundTruth | None,
    *,
    by_query: bool = False,
) -> BracketCounts:
    """Count the impostors of a job around brackets of distances exactly, in a pass of their own."""
    brackets = ImpostorBrackets(edges, by_query)
    return run_job(replace(job, outputs=(brackets,), tile_stage="verification"), execution, truth).of(ImpostorBrackets)


def refuse_early(job: EvaluationJob, metrics: Sequence[Metric]) -> None:
    """Raise `InputError` for open-set metrics where the labels give every query its identity in the gallery."""
    refused = [metric for metric in metrics if metric.family.needs_unknown]
    if refused:
        query, gallery = job.label_sets
        if np.isin(query.pids, gallery.pids[~junk_rows(gallery, job.protocol)]).all():
            raise no_unknown(refused[0])


def verify(
    job: EvaluationJob,
    ranked: RankedQueries,
    results: Results,
    metrics: Sequence[Metric],
    roc: bool,
    execution: Execution,
    truth: GroundTruth | None,
) -> Verification | None:
    """Compute verification and open-set metrics, with further passes over all pairs as needed.

    `job` and `results` belong to the main pass, and `ranked` are its ranks; metrics of other kinds are ignored.
    Returns None if nothing is requested or no query is valid.  Raises `InputError` if there are no impostors or no
    non-mated queries, with a remedy, and `RunFailedError` as `reid_dist.engine.graph.run_job`.
    """
    if not verification_outputs(metrics, roc) or not len(ranked.rank):
        return None
    found: dict[Level, Crossing] = {}
    if needs_pairs(metrics, roc):
        pairs = pairs_of(ranked)
        search = ThresholdSearch(wanted_levels(metrics, roc, pairs.n_genuine, pairs.n_impostor), pairs.genuine)
        search.update(results.of(LevelBrackets))
        while edges := search.edges:
            search.update(count_impostors(job, edges, execution, truth))
        found = search.found
    return make_verification(metrics, roc, ranked, results.get(NearestNegatives), found)


@dataclass(frozen=True)
class ImpostorsNearer:
    """Impostors of every query nearer than some distances."""

    # Ascending, shape (n,), float64.
    distance: Float64
    # Shape (n_query, n), int64.
    count: Int64


def impostors_nearer(
    job: EvaluationJob, distances: Float64, execution: Execution, truth: GroundTruth | None
) -> ImpostorsNearer:
    """Count the impostors of every query nearer than finite distances, in a pass of their own; errors as `verify`."""
    points = np.unique(distances)
    # A bracket of one number at each, so that no pair inside needs to be kept.
    edges = np.stack([points, np.nextafter(points, np.inf)], axis=1).ravel()
    found = count_impostors(job, tuple(edges.tolist()), execution, truth, by_query=True).by_query
    if found is None:
        raise AssertionError("counts by query were requested")
    return ImpostorsNearer(points, np.cumsum(found, axis=1, dtype=np.int64)[:, ::2])
