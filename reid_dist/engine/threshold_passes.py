"""Passes over all pairs until every verification threshold is exact: one as a rule, two for the ROC."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries
from reid_dist.engine.graph import run_job
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.outputs import ImpostorBrackets, ImpostorDistances, NearestNegatives, Output, Results
from reid_dist.engine.reductions import BracketCounts, ImpostorHistogram, distance_of, ordered_keys
from reid_dist.engine.task_graph import Execution
from reid_dist.engine.verification import (
    Crossing,
    Level,
    LevelBrackets,
    Pairs,
    ThresholdSearch,
    Verification,
    guesses_of_histogram,
    make_verification,
    n_nearest,
    needs_pairs,
    needs_probes,
    pairs_of,
    refuse_without_unknown,
    verify_pairs,
    wanted_levels,
)
from reid_dist.metrics.definitions import PAIRS, Metric
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
        # The brackets of so many levels would hold too many pairs: those of a histogram are narrower.
        *([ImpostorDistances()] if roc else [LevelBrackets(names)] if names else []),
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
    if any(metric.family.needs_unknown for metric in metrics):
        query, gallery = job.label_sets
        known = gallery.pids[~junk_rows(gallery, job.protocol)]
        refuse_without_unknown(metrics, query.pids, known)


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
        levels = wanted_levels(metrics, roc, pairs.n_genuine, pairs.n_impostor)
        sampled = results.get(LevelBrackets)
        if sampled is None:
            search = _search(job, pairs, results.of(ImpostorDistances), levels)
        else:
            search = ThresholdSearch(sampled.guesses, pairs.genuine)
            search.update(sampled.counts)
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


def verify_by_query(
    job: EvaluationJob,
    ranked: RankedQueries,
    histogram: ImpostorHistogram,
    metrics: Sequence[Metric],
    distances: Float64,
    execution: Execution,
    truth: GroundTruth | None,
) -> tuple[Verification, ImpostorsNearer]:
    """Verify over pairs, and count the impostors of every query nearer than finite `distances` and the thresholds.

    Mostly in one pass; in further ones where very many pairs lie about a threshold, or a guess missed it.  Otherwise
    as `verify`.
    """
    pairs = pairs_of(ranked)
    levels = wanted_levels(metrics, False, pairs.n_genuine, pairs.n_impostor)
    search = _search(job, pairs, histogram, levels, np.unique(distances))
    edges = search.edges
    first = count_impostors(job, edges, execution, truth, by_query=True)
    search.update(first)
    while more := search.edges:
        search.update(count_impostors(job, more, execution, truth))
    found = verify_pairs(metrics, False, pairs, search.found)
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


def _search(
    job: EvaluationJob,
    pairs: Pairs,
    histogram: ImpostorHistogram,
    levels: Sequence[Level],
    beside: Float64 | None = None,
) -> ThresholdSearch:
    scale = job.scorer.falling_scale
    guesses = guesses_of_histogram(levels, pairs.genuine, pairs.n_impostor, histogram, scale)
    return ThresholdSearch(guesses, pairs.genuine, beside)
