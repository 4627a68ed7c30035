"""Evaluation: open, plan, assign relevance, distances of relevant pairs, counts over tiles, ranks, metrics, report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from reid_dist.engine.checks import check_client, check_sets
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.graph import run
from reid_dist.engine.plan import Plan, make_plan
from reid_dist.engine.reductions import SingleShot
from reid_dist.engine.scorers import BlockScorer, FeatureScorer, Scorer
from reid_dist.engine.task_graph import Stopwatch
from reid_dist.engine.tasks import Job
from reid_dist.engine.threshold_passes import refuse_early, verify
from reid_dist.engine.verification import needs_pairs, needs_probes
from reid_dist.errors import InputError
from reid_dist.evaluation.options import CheckedOptions, Options, Source
from reid_dist.evaluation.progress_bars import Shown, shown_progress
from reid_dist.evaluation.projection import held_besides, make_resources, most_relevant, part_metrics, plan_for
from reid_dist.evaluation.summary import make_report
from reid_dist.evaluation.visibility import visible_to, workspace_folder
from reid_dist.metrics.definitions import SINGLE_SHOT
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.relevance.protocols import Protocol
from reid_dist.reports import Report
from reid_dist.stages.expansion import Expansion, describe_expansion, expand_sets, refuse_unlike_lengths
from reid_dist.stages.reranking import KReciprocal, rerank_scorer
from reid_dist.stores import (
    DistanceBlock,
    FeatureSet,
    FeatureSource,
    LabelledSet,
    LabelSource,
    Workspace,
    as_feature_set,
    as_labelled_set,
)
from reid_dist.stores.remaking import with_remade_parts

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["evaluate", "evaluate_distances", "plan_job"]


def evaluate(
    query: FeatureSource,
    gallery: FeatureSource,
    *,
    protocol: str | Protocol = "market1501",
    distance: str = "cosine",
    metrics: str | Sequence[str] | None = None,
    max_rank: int = 50,
    ground_truth: Source | GroundTruth | None = None,
    topk: int | None = None,
    ties: bool = False,
    breakdowns: Sequence[str] | None = (),
    gallery_sizes: Sequence[float] | None = None,
    gallery_order: str = "stored",
    single_shot_draws: int | None = None,
    roc: bool = False,
    confidence: float | None = 0.95,
    seed: int = 0,
    expand: str | Sequence[Expansion] | None = None,
    rerank: str | KReciprocal | None = None,
    chunk_rows: int | None = None,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Shown = None,
) -> Report:
    """Evaluate queries against a gallery, exactly.

    Parameters
    ----------
    query, gallery
        The two feature sets, of equal dimension; or paths of stores, or of files that `ingest` reads.
    protocol
        Which items are relevant and which are junk: a name from `reid-dist list protocols`, or a `Protocol` made by
        `compose_protocol`.
    distance
        A name from `reid-dist list distances`.
    metrics
        Names such as ``"mAP"`` or ``"CMC@10"`` (also written ``"rank-10"``, ``"R10"``, ``"top-10"``, ``"hit@10"``); one
        text with commas between names is taken as well.  None for mAP, mINP, the protocol's own AP and its CMC at 1, 5,
        10.
    max_rank
        Length of the curves over ranks.
    ground_truth
        Lists of gallery rows per query, for protocols by lists; see
        `reid_dist.relevance.ground_truth.read_ground_truth`.
    topk
        List this many nearest gallery items of every query in the report, junk included and flagged.
    ties
        Also give every rank metric with all ties settled for, and against, the positives.
    breakdowns
        Tables: ``"camera"``, ``"camera_pair"``, ``"identity"``, ``"gallery_size"``, or label columns of the query set;
        None for none.
    gallery_sizes
        Sizes of the distractor curve, as numbers of rows or as shares up to 1.0; None for ten equal steps.
    gallery_order
        Whether gallery rows enter it as they are ``"stored"``, or in a ``"random"`` order that the seed fixes.
    single_shot_draws
        Estimate the single-shot CMC from this many seeded draws per query; None for the exact expectation.
    roc
        Also give the ROC at fixed false accept rates, each point exact.
    confidence
        Level of the bootstrap intervals of all means (by identity); None for none.
    seed
        Of draws, random orders and intervals; 0 to 2**64 - 1.
    expand
        Expand queries or augment the gallery first, such as ``"alpha_qe(k=5,alpha=3)"`` or ``"dba(k=5)+aqe(k=3)"``.
        Under a Euclidean distance, what gives rows of length 1 on one side alone is refused, unless the other side has
        length 1 already.
    rerank
        Rank by a re-ranked distance, such as ``"k_reciprocal(k1=20,k2=6,lambda_value=0.3,variant=zhong)"``.
    chunk_rows
        Rows of a tile on both sides.  The answer does not depend on it.
    client
        Cluster to run on; None for threads of this process.  The answer does not depend on it either.
    workspace
        Directory that every worker sees, or an ``s3://`` URI.  Sets in memory are put there for the workers, stages of
        expansion and re-ranking are kept and found there, and what is finished of the sweep until all of it is: a run
        that was cut short goes on from there.  None for a temporary one.
    progress
        True for bars in the terminal or the notebook, None or False for none, or a `Progress` that is told of finished
        tasks.

    Returns
    -------
    The report; `Report.save` writes it.

    Raises
    ------
    UnknownNameError
        For a protocol, distance, metric or breakdown that does not exist.
    InputError
        For sets that cannot be evaluated so; the message says why and what to do.
    PlanError
        If the job cannot fit, before any work is done.
    RunFailedError
        If a cluster lost the job.
    """
    started = time.perf_counter()
    measure = DISTANCES.get(distance)
    options = Options(
        protocol=protocol,
        metrics=metrics,
        max_rank=max_rank,
        ground_truth=ground_truth,
        topk=topk,
        ties=ties,
        breakdowns=breakdowns,
        gallery_sizes=gallery_sizes,
        gallery_order=gallery_order,
        single_shot_draws=single_shot_draws,
        roc=roc,
        confidence=confidence,
        seed=seed,
        chunk_rows=chunk_rows,
        rerank=rerank,
        expand=expand,
    )
    check_client(client)
    query, gallery = as_feature_set(query, "query"), as_feature_set(gallery, "gallery")
    check_sets(query, gallery, measure)
    question = CheckedOptions.of(options, query, gallery)
    refuse_unlike_lengths(query, gallery, question.expand, measure)
    with shown_progress(progress) as shown:
        watch = Stopwatch(shown)

        def attempt() -> Report:
            with contextlib.ExitStack() as stack:
                near, far = stack.enter_context(visible_to(client, workspace, query, gallery))
                if question.expand or question.rerank is not None:
                    where = make_resources(
                        client, workspace_folder(stack, workspace), question.options.chunk_rows, watch
                    )
                    near, far = expand_sets(near, far, question.expand, where)
                scorer: Scorer = FeatureScorer(near, far, measure)
                if question.rerank is not None:
                    scorer = rerank_scorer(near, far, measure, question.rerank, where)
                return _answer(question, (query, gallery), (near, far), scorer, client, watch, started, workspace)

        report = with_remade_parts(attempt, _kept(workspace), watch.warn)
    return replace(report, distance=measure.describe())


def evaluate_distances(
    distances: DistanceBlock,
    query: LabelSource,
    gallery: LabelSource,
    *,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Shown = None,
    **options: Any,
) -> Report:
    """Evaluate a block of distances that was computed elsewhere, exactly and without holding it in memory.

    Parameters
    ----------
    distances
        Shape (n_query, n_gallery), smaller is nearer: `DistanceBlock.open` maps a `.npy` file,
        `DistanceBlock.from_array` takes an array.
    query, gallery
        Labels of its rows and of its columns: `LabelledRows`, feature sets, whose features are not read, or paths.
    client, workspace, progress
        As in `evaluate`.
    **options
        Whatever else `evaluate` takes, but for `expand` and `rerank`, which need features.

    Returns
    -------
    The report, with the distance named ``given``.

    Raises
    ------
    InputError, UnknownNameError, PlanError, RunFailedError
        As in `evaluate`, and if the block has another shape than the labels.
    """
    started = time.perf_counter()
    if not isinstance(distances, DistanceBlock):
        raise InputError(
            f"distances must be a DistanceBlock, found {type(distances).__name__}; use DistanceBlock.open for a .npy "
            "file, or .from_array"
        )
    query, gallery = as_labelled_set(query, "query"), as_labelled_set(gallery, "gallery")
    if distances.shape != (query.n_rows, gallery.n_rows):
        raise InputError(
            f"the distance block is {distances.shape[0]} x {distances.shape[1]}, and there are labels of "
            f"{query.n_rows} queries and {gallery.n_rows} gallery rows; its rows are queries, its columns gallery rows"
        )
    check_client(client)
    asked = Options.of(options)
    asked.refuse_what_needs_features("distances")
    question = CheckedOptions.of(asked, query, gallery)
    sides = (query, gallery)
    with contextlib.ExitStack() as stack:
        block = distances
        if client is not None and not distances.is_stored:
            block = distances.save(
                Workspace.at(workspace_folder(stack, workspace)).place(f"distances-{distances.content_digest[:16]}.npy")
            )
        watch = Stopwatch(stack.enter_context(shown_progress(progress)))

        def attempt() -> Report:
            return _answer(question, sides, sides, BlockScorer(block), client, watch, started, workspace)

        report = with_remade_parts(attempt, _kept(workspace), watch.warn)
    return replace(report, inputs={**report.inputs, "distances": distances.describe()})


def plan_job(
    query: FeatureSet,
    gallery: FeatureSet,
    *,
    n_threads: int,
    memory_per_thread: int,
    distance: str = "cosine",
    **options: Any,
) -> Plan:
    """Plan an evaluation for given resources, from shapes and labels alone.

    Parameters
    ----------
    query, gallery
        The two feature sets; their features are not read.
    n_threads
        Threads of all workers together.
    memory_per_thread
        Bytes that one task may fill.
    distance, **options
        As `evaluate` takes them.

    Raises
    ------
    InputError, UnknownNameError, PlanError
        As `evaluate`.
    """
    scorer = FeatureScorer(query, gallery, DISTANCES.get(distance))
    check_sets(query, gallery, scorer.distance)
    question = CheckedOptions.of(Options.of(options), query, gallery)
    per_query = most_relevant(question, query, gallery)
    return make_plan(
        *scorer.shapes,
        n_threads=n_threads,
        memory_per_thread=memory_per_thread,
        chunk_rows=question.options.chunk_rows,
        relevant_per_query=per_query,
        k=int(question.options.topk or 0),
        besides=held_besides(question, gallery, scorer, per_query, _single_shot(question)),
    )


# ---- the work --------------------------------------------------------------------------------------------------------


def _answer(
    question: CheckedOptions,
    inputs: tuple[LabelledSet, LabelledSet],
    visible: tuple[LabelledSet, LabelledSet],
    scorer: Scorer,
    client: Client | None,
    watch: Stopwatch,
    started: float,
    workspace: str | PathLike[str] | None,
) -> Report:
    """Plan, run and report."""
    asked, options = question.asked, question.options
    opened = time.perf_counter()
    topk = int(options.topk or 0)
    per_query = most_relevant(question, *visible)
    shot = _single_shot(question)
    job = Job(
        *visible,
        scorer,
        plan_for(
            scorer,
            client,
            options.chunk_rows,
            per_query,
            topk,
            besides=held_besides(question, visible[1], scorer, per_query, shot),
        ),
        protocol=question.protocol,
        ranks=True,
        topk=topk,
        rows_are_items=question.rows_are_items,
        joined=question.joined,
        parts=question.parts,
        part_metrics=part_metrics(asked),
        probes=needs_probes(asked.metrics),
        single_shot=shot,
        tie_rules=asked.ties,
        impostors=needs_pairs(asked.metrics, options.roc),
    )
    refuse_early(job, asked.metrics)
    planned = time.perf_counter()
    keep = _kept(workspace)
    result = run(job, client, watch, question.truth, keep)
    verification = verify(job, result, asked.metrics, options.roc, client, watch, question.truth, keep)
    ranked_at = time.perf_counter()
    report = make_report(
        inputs,
        job,
        result,
        asked,
        truth=question.truth,
        verification=verification,
        single_shot=None if shot is None else shot.describe(),
    )
    timing = watch.timing(started, (opened, planned), ranked_at)
    rerank = None if question.rerank is None else question.rerank.describe()
    expand = describe_expansion(question.expand) if question.expand else None
    return replace(report, timing=timing, options=options.describe(), rerank=rerank, expand=expand)


def _kept(workspace: str | PathLike[str] | None) -> Workspace | None:
    """The workspace in which what is finished is kept; None for none."""
    return None if workspace is None else Workspace.at(workspace)


def _single_shot(question: CheckedOptions) -> SingleShot | None:
    """How the single-shot CMC is computed, where a metric or the protocol's curve asks for it."""
    draws, protocol = question.options.single_shot_draws, question.protocol
    needed = [metric.parameter for metric in question.asked.metrics if metric.family.needs == SINGLE_SHOT]
    if not needed and protocol.cmc_family != "CMC_single_shot":
        if draws is not None:
            raise InputError(
                f"single_shot_draws are for the single-shot CMC, which neither protocol {protocol.name!r} nor a metric "
                "asks for; use a protocol such as cuhk03, or ask for CMC_single_shot@1"
            )
        return None
    if protocol.is_listed:
        raise InputError(
            f"CMC_single_shot needs identities, and protocol {protocol.name!r} goes by lists; use a protocol by labels"
        )
    max_rank = max([question.asked.max_rank, *needed])
    return SingleShot(max_rank) if draws is None else SingleShot(max_rank, int(draws), question.asked.seed)
