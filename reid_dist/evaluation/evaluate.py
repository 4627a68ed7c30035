"""Evaluation: open, plan, assign relevance, distances of relevant pairs, counts over tiles, ranks, metrics, report."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from reid_dist.core.findings import Finding
from reid_dist.core.model import RankedQueries
from reid_dist.engine.checks import check_labels, check_sets, joined_labels
from reid_dist.engine.distances import DISTANCES, Distance
from reid_dist.engine.graph import run_job
from reid_dist.engine.outputs.nearest_rows import NearestRows
from reid_dist.engine.outputs.output import Output
from reid_dist.engine.outputs.ranks import Ranks
from reid_dist.engine.plan import Plan, make_plan, with_rows
from reid_dist.engine.policy import Policy
from reid_dist.engine.scorers import BlockScorer, FeatureScorer, Scorer
from reid_dist.engine.task_graph import Execution, Stopwatch
from reid_dist.errors import InputError
from reid_dist.evaluation.checked_options import CheckedOptions, ranking_spec
from reid_dist.evaluation.options import (
    EvaluationOptions,
    RankingOptions,
    complete,
    headline_only,
    recorded,
    refuse_options_of_features,
)
from reid_dist.evaluation.projection import (
    RANKS_OF_ITEMS,
    interval_memory,
    job_memory,
    most_matches,
    most_relevant,
    planned_job,
    requested_outputs,
    verifies,
)
from reid_dist.evaluation.report_assembly import RanksOf, make_report
from reid_dist.evaluation.sessions import Shown, begin_session, lists_options
from reid_dist.relevance.protocols import Protocol
from reid_dist.reports import Report
from reid_dist.reports.notes import input_notes
from reid_dist.stages.session import Session
from reid_dist.stores import (
    DistanceSource,
    FeatureSet,
    FeatureSource,
    LabelledSet,
    LabelSource,
    as_distance_block,
    as_feature_set,
    as_labelled_set,
)

if TYPE_CHECKING:
    from distributed import Client

    from reid_dist.stages.expansion.expansion_steps import Step
    from reid_dist.stages.reranking.rerankers import Reranking

SamePass = dict[Protocol, RankedQueries]
"""Ranks under other protocols than that of a report, from its pass."""


def evaluate_once(
    session: Session, query: FeatureSource, gallery: FeatureSource, **options: Unpack[EvaluationOptions]
) -> Report:
    """Evaluate once; everything as of `reid_dist.evaluate` without a benchmark."""
    return evaluate_same_pass(session, query, gallery, None, **options)[0]


def evaluate_same_pass(
    session: Session,
    query: FeatureSource,
    gallery: FeatureSource,
    protocols: Sequence[Protocol] | None,
    **options: Unpack[EvaluationOptions],
) -> tuple[Report, SamePass]:
    """Evaluate once, and rank under other protocols by labels in the same pass.

    Protocols that the sets do not fit are left out, and all of them where an option needs more than ranks of items.
    With None, ranks that no metric requested needs are not computed.
    """
    started = time.perf_counter()
    given = complete(options)
    measure = DISTANCES.get(given["distance"])
    query, gallery = as_feature_set(query, "query"), as_feature_set(gallery, "gallery")
    check_sets(query, gallery, measure)
    checked = CheckedOptions.of(given, query, gallery)
    spec = ranking_spec(checked, query, gallery)
    if checked.expand or checked.rerank is not None:
        from reid_dist.evaluation.counted_rows import CountedRows
        from reid_dist.stages.expansion.lengths import refuse_unlike_lengths

        refuse_unlike_lengths(query, gallery, checked.expand, measure)
        if (counted := CountedRows.of(checked, query, gallery)) is not None:
            report, same_pass = evaluate_same_pass(session, *counted.sides, protocols, **options)
            return replace(counted.restored(report), spec=spec), same_pass
    session = replace(session, chunk_rows=checked.values["chunk_rows"])

    def unranked(expand: Any, visible: tuple[FeatureSet, FeatureSet], execution: Execution) -> Report:
        """Headline metrics without the re-ranking."""
        metrics = [checked.protocol.ap_family, f"{checked.protocol.cmc_family}@1"]
        options = headline_only(given, expand=expand, rerank=None, metrics=metrics)
        plain, scorer = CheckedOptions.of(options, query, gallery), FeatureScorer(*visible, measure)
        return _evaluate(plain, (query, gallery), visible, scorer, execution, session.progress, started)[0]

    def attempt() -> tuple[Report, SamePass]:
        with scored_sets((query, gallery), measure, checked.expand, checked.rerank, session) as (
            visible,
            scorer,
            execution,
        ):
            found, same_pass = _evaluate(
                checked, (query, gallery), visible, scorer, execution, session.progress, started, protocols
            )
            changes = None
            notes = [*found.notes, *stage_notes((query, gallery), visible), *scorer.notes]
            if checked.values["against_plain"]:
                from reid_dist.evaluation.rerank_effect import stage_changes

                plainer = [unranked(given["expand"], visible, execution)]
                if checked.expand:
                    with session.visible(query, gallery) as plain:
                        plainer.append(unranked(None, plain, execution))
                changes = stage_changes(plainer, found, list(plainer[0].metrics))
            return replace(found, notes=notes, stage_changes=changes), same_pass

    report, same_pass = session.retried(attempt)
    return replace(report, distance=measure.describe(), spec=spec), same_pass


@contextlib.contextmanager
def scored_sets(
    sides: tuple[FeatureSet, FeatureSet],
    measure: Distance,
    expand: Sequence[Step],
    rerank: Reranking | None,
    session: Session,
) -> Iterator[tuple[tuple[FeatureSet, FeatureSet], Scorer, Execution]]:
    """The sets as workers read them, expanded, with their distances after re-ranking, and what computes these."""
    with session.visible(*sides) as visible, contextlib.ExitStack() as stack:
        shared: dict[str, Any] = {}
        if expand or rerank is not None:
            where = stack.enter_context(session.placed()).resources()
            shared = {"policy": where.policy, "screened": where.screened}
            from reid_dist.stages.expansion.neighbour_averages import expand_sets

            visible = expand_sets(*visible, expand, where)
        scorer: Scorer = FeatureScorer(*visible, measure)
        if rerank is not None:
            from reid_dist.stages.reranking.rerankers import rerank_scorer

            scorer = rerank_scorer(*visible, measure, rerank, where)
        # Measured after the stages, as workers may have joined or left meanwhile.
        yield visible, scorer, replace(session.execution(), **shared)


def stage_notes(inputs: Sequence[LabelledSet], made: Sequence[LabelledSet]) -> list[Finding]:
    """Notes on the features that stages have made, without those of the sets that they are made of."""
    known = input_notes(*inputs)
    return [note for note in input_notes(*made) if note not in known]


@lists_options(RankingOptions)
def evaluate_distances(
    distances: DistanceSource,
    query: LabelSource,
    gallery: LabelSource,
    *,
    similarity: bool = False,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Shown = None,
    **options: Unpack[RankingOptions],
) -> Report:
    """Evaluate a given distance matrix exactly, without holding it in memory.

    Parameters
    ----------
    distances
        (n_query, n_gallery) floats, smaller is nearer: an array, a `DistanceBlock`, the path of a `.npy` file, which is
        memory-mapped, or of another file with one matrix, which is loaded.
    query, gallery
        Labels of the rows and columns: `LabelledRows`, tuples ``(pids, camids)``, paths, or feature sets, whose
        features are not read.
    similarity
        Whether larger values are nearer, as in a matrix of cosine similarities.
    client, workspace, progress
        As in `evaluate`.
    **options
        As listed in `reid_dist.evaluation.options.RankingOptions`; options that need features are refused.

    Returns
    -------
    Report
        The report, with the distance named ``given``.

    Raises
    ------
    InputError, UnknownNameError, PlanError, RunFailedError
        As in `evaluate`; also if the shape does not match the labels.
    """
    with begin_session(client, workspace, progress) as session:
        return evaluate_block(session, as_distance_block(distances, similarity=similarity), query, gallery, **options)


def evaluate_block(
    session: Session,
    distances: DistanceSource,
    query: LabelSource,
    gallery: LabelSource,
    **options: Unpack[RankingOptions],
) -> Report:
    """Evaluate a block of distances; everything as of `evaluate_distances`."""
    started = time.perf_counter()
    distances = as_distance_block(distances)
    query, gallery = as_labelled_set(query, "query"), as_labelled_set(gallery, "gallery")
    if distances.shape != (query.n_rows, gallery.n_rows):
        raise InputError(
            f"the distance block is {distances.shape[0]} x {distances.shape[1]}, and there are labels of "
            f"{query.n_rows} queries and {gallery.n_rows} gallery rows; its rows are queries, its columns gallery rows"
        )
    refuse_options_of_features(options, "distances")
    checked = CheckedOptions.of(complete(options), query, gallery)
    sides, session = (query, gallery), replace(session, chunk_rows=checked.values["chunk_rows"])

    def attempt() -> Report:
        with session.visible_distances(distances) as block:
            execution = session.execution()
            return _evaluate(checked, sides, sides, BlockScorer(block), execution, session.progress, started)[0]

    report = session.retried(attempt)
    spec = ranking_spec(checked, *sides, distance=None, distances=distances.content_digest)
    return replace(report, inputs={**report.inputs, "distances": distances.describe()}, spec=spec)


def plan_job(
    query: FeatureSet,
    gallery: FeatureSet,
    *,
    n_threads: int,
    memory_per_thread: int,
    rows: tuple[int, int] | None = None,
    policy: Policy | None = None,
    **options: Unpack[EvaluationOptions],
) -> Plan:
    """Plan an evaluation for given threads and bytes per task, from shapes and labels; errors as of `evaluate`.

    `rows` are numbers of rows of query and gallery, for parts of the sets; `policy` is as of `make_plan`.
    """
    given = complete(options)
    scorer = FeatureScorer(query, gallery, DISTANCES.get(given["distance"]))
    check_sets(query, gallery, scorer.distance)
    checked = CheckedOptions.of(given, query, gallery)
    per_query, outputs = most_relevant(checked, query, gallery), requested_outputs(checked)
    held = job_memory(checked.protocol, checked.rerank, gallery, scorer, per_query, outputs)
    near, far = scorer.shapes if rows is None else map(with_rows, scorer.shapes, rows)
    if checked.rerank is not None:
        near, far = (replace(each, dim=checked.rerank.compared_features(each.dim)) for each in (near, far))
    return make_plan(
        near,
        far,
        n_threads=n_threads,
        memory_per_thread=memory_per_thread,
        chunk_rows=checked.values["chunk_rows"],
        relevant_per_query=per_query,
        extra=held + interval_memory(checked),
        policy=policy,
    )


# ---- the work --------------------------------------------------------------------------------------------------------


def _evaluate(
    checked: CheckedOptions,
    inputs: tuple[LabelledSet, LabelledSet],
    visible: tuple[LabelledSet, LabelledSet],
    scorer: Scorer,
    execution: Execution,
    watch: Stopwatch,
    started: float,
    others: Sequence[Protocol] | None = None,
) -> tuple[Report, SamePass]:
    """Plan, run and report; `inputs` are described, `visible` are read; ranks under `others` as they can be had."""
    options = checked.values
    opened = time.perf_counter()
    per_query = most_relevant(checked, *visible)
    outputs = requested_outputs(checked, all_ranks=others is not None)
    is_shared = checked.truth is None and {type(output) for output in outputs} <= RANKS_OF_ITEMS
    fitting = _fitting(others or (), *visible) if is_shared else {}
    several: list[Output[Any]] = []
    if fitting:
        # Benchmarks alone have other codes.
        from reid_dist.engine.outputs.protocol_ranks import EVERY_ROW, ProtocolRanks

        per_query = most_matches(*visible) + 1
        several = [ProtocolRanks((checked.protocol, *fitting))]
    job = planned_job(
        visible,
        scorer,
        execution,
        [*several, *outputs],
        protocol=checked.protocol,
        rerank=checked.rerank,
        per_query=per_query,
        rows_are_items=checked.rows_are_items,
        joined=tuple(dict.fromkeys([*checked.joined, *(kind for kinds in fitting.values() for kind in kinds)])),
        extra=interval_memory(checked),
    )
    if verifies(checked):
        from reid_dist.engine.threshold_passes import refuse_early, verify

        refuse_early(job, checked.metrics)
    planned = time.perf_counter()
    ranks: SamePass = {}
    if fitting:
        lists = [output for output in outputs if isinstance(output, NearestRows)]
        results = run_job(replace(job, protocol=EVERY_ROW, outputs=(*several, *lists)), execution)
        own, *further = results.of(ProtocolRanks)
        ranks = dict(zip(fitting, further, strict=True))
        results = replace(results, values={**results.values, Ranks: own})
    else:
        results = run_job(job, execution, checked.truth)
    verification, drawn = None, None
    if verifies(checked):
        ranked = RanksOf(results, checked.collapse).ranked
        verification = verify(job, ranked, results, checked.metrics, options["roc"], execution, checked.truth)
        if verification is not None:
            from reid_dist.evaluation.verification_intervals import verification_intervals

            drawn = verification_intervals(checked, job, ranked, verification, execution)
    ranked_at = time.perf_counter()
    report = make_report(inputs, job, results, checked, execution, verification=verification, drawn=drawn)
    timing = watch.timing(started, (opened, planned), ranked_at)
    return replace(report, timing=timing, options=recorded(options), **checked.described_stages), ranks


def _fitting(
    protocols: Sequence[Protocol], query: LabelledSet, gallery: LabelledSet
) -> dict[Protocol, tuple[str, ...]]:
    """Protocols that two sets have the labels for, with the kinds of labels that are to be joined."""
    found = {}
    for protocol in protocols:
        with contextlib.suppress(InputError):
            check_labels(query, gallery, protocol)
            found[protocol] = joined_labels(query, gallery, protocol, camids=False)
    return found
