"""Outputs of a job that options request, and the memory that it needs: the numbers that its plan is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.segments import segment_offsets
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.outputs.nearest_rows import NearestRows
from reid_dist.engine.outputs.output import JobSizes, Output
from reid_dist.engine.outputs.ranks import Ranks
from reid_dist.engine.plan import NO_EXTRA_MEMORY, ExtraMemory, Plan, make_plan
from reid_dist.engine.scorers import Scorer
from reid_dist.engine.task_graph import Execution
from reid_dist.errors import InputError
from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.metrics.metric import METRICS, PAIRS, RANKS, SINGLE_SHOT, Metric
from reid_dist.relevance.assignment import rows_with_pids
from reid_dist.relevance.ground_truth import RowLists
from reid_dist.relevance.protocols import Protocol
from reid_dist.stores import LabelledSet

if TYPE_CHECKING:
    from reid_dist.engine.reductions.single_shot_counts import SingleShot
    from reid_dist.stages.reranking.rerankers import Reranking


def job_memory(
    protocol: Protocol,
    rerank: Reranking | None,
    gallery: LabelledSet,
    scorer: Scorer,
    per_query: float,
    outputs: Sequence[Output[Any]],
) -> ExtraMemory:
    """Memory of a job besides ranks: that of its outputs and of the re-ranking."""
    sizes = JobSizes(gallery, protocol, per_query, scorer.shapes[1])
    held = sum((output.extra_memory(sizes) for output in outputs), NO_EXTRA_MEMORY)
    if rerank is not None:
        held += rerank.held(sum(shape.n_rows for shape in scorer.shapes), gallery.n_rows)
    return held


def interval_memory(checked: CheckedOptions) -> ExtraMemory:
    """Memory of the intervals of an evaluation."""
    if not draws_equal_errors(checked.metrics, checked.values["confidence"]):
        return NO_EXTRA_MEMORY
    from reid_dist.engine.outputs.impostor_distances import held_by_queries
    from reid_dist.evaluation.verification_intervals import N_AROUND

    return held_by_queries(N_AROUND)


def draws_equal_errors(metrics: Sequence[Metric], level: float | None) -> bool:
    """Whether intervals of equal error rates are requested, for which one more pass is made."""
    return level is not None and any(each.family.needs == PAIRS and not each.family.takes_share for each in metrics)


def most_relevant(checked: CheckedOptions, query: LabelledSet, gallery: LabelledSet) -> float:
    """Relevant pairs of a query, mean over the fullest thousand queries in a row.

    Where groups are ranked, these are the items of the groups that hold relevant items.
    """
    group = None
    if checked.collapse is not None:
        from reid_dist.engine.outputs.group_ranks import group_numbers

        group = group_numbers(checked.collapse.label, gallery)
    if checked.truth is not None:
        counts = [_of_lists(lists, group) for lists in checked.truth.lists.values()]
        return _fullest(np.sum(counts, axis=0))
    return most_matches(query, gallery, group)


def _of_lists(lists: RowLists, group: NDArray[np.int64] | None) -> NDArray[np.int64]:
    """Rows of every list, shape (n_query,), or the rows of their groups."""
    if group is None:
        return np.diff(lists.indptr)
    return np.diff(segment_offsets(np.bincount(group)[group[lists.rows]])[lists.indptr])


def most_matches(query: LabelledSet, gallery: LabelledSet, group: NDArray[np.int64] | None = None) -> float:
    """Gallery items with the query's pid or of their groups, mean over the fullest thousand queries in a row."""
    pids, of_query = np.unique(query.pids, return_inverse=True)
    rows = rows_with_pids(gallery.pids, pids)
    code = np.searchsorted(pids, gallery.pids[rows])
    counts = np.bincount(code, minlength=len(pids))
    if group is not None:
        size = np.bincount(group)
        pairs = np.unique(code * len(size) + group[rows])
        counts = np.bincount(pairs // len(size), size[pairs % len(size)], len(pids)).astype(np.int64)
    return _fullest(counts[of_query])


def _fullest(counts: NDArray[np.int64]) -> float:
    starts = np.arange(0, len(counts), 1024)
    sums = np.add.reduceat(counts, starts)
    return float((sums / np.diff(np.append(starts, len(counts)))).max())


def plan_for(scorer: Scorer, execution: Execution, per_query: float, extra: ExtraMemory) -> Plan:
    """Plan a job with `per_query` relevant pairs of a query."""
    return make_plan(
        *scorer.shapes,
        n_threads=execution.n_threads,
        memory_per_thread=execution.memory_per_thread,
        chunk_rows=execution.chunk_rows,
        relevant_per_query=per_query,
        extra=extra + ExtraMemory(bytes_per_pair=scorer.bytes_per_pair),
        policy=execution.policy,
    )


def planned_job(
    visible: tuple[LabelledSet, LabelledSet],
    scorer: Scorer,
    execution: Execution,
    outputs: Sequence[Output[Any]],
    *,
    protocol: Protocol,
    rerank: Reranking | None,
    per_query: float,
    rows_are_items: bool,
    joined: tuple[str, ...],
    extra: ExtraMemory = NO_EXTRA_MEMORY,
) -> EvaluationJob:
    """A job with its plan; `extra` is memory besides that of outputs and re-ranking, `per_query` as of `plan_for`."""
    held = job_memory(protocol, rerank, visible[1], scorer, per_query, outputs)
    return EvaluationJob(
        *visible,
        scorer,
        plan_for(scorer, execution, per_query, held + extra),
        tuple(outputs),
        protocol=protocol,
        rows_are_items=rows_are_items,
        joined=joined,
        policy=execution.policy,
    )


# ---- requested outputs -----------------------------------------------------------------------------------------------

RANKS_OF_ITEMS = frozenset({Ranks, NearestRows})
"""Outputs that several protocols can share a pass for."""


def requested_outputs(checked: CheckedOptions, *, all_ranks: bool = False) -> tuple[Output[Any], ...]:
    """Outputs of an evaluation; with `all_ranks`, also ranks that no requested metric needs are computed.

    Most evaluations rank items alone, and import no other output.
    """
    topk, collapse, others = checked.values["topk"], checked.collapse, list[Output[Any]]()
    if collapse is not None:
        from reid_dist.engine.outputs.group_ranks import GroupRanks

        others.append(GroupRanks(collapse.label, _first_alone(collapse.families)))
    if checked.partitions is not None:
        from reid_dist.engine.outputs.partitions import PartitionMetrics

        others.append(PartitionMetrics(checked.partitions, _partition_metrics(checked)))
    if (shot := _single_shot(checked)) is not None:
        from reid_dist.engine.outputs.single_shot_curves import SingleShotCurves

        others.append(SingleShotCurves(shot, checked.values["ties"]))
    if verifies(checked):
        from reid_dist.engine.threshold_passes import verification_outputs

        others += verification_outputs(checked.metrics, checked.values["roc"])
    ranks_items = collapse is None or bool(collapse.families)
    n_nearest = None if all_ranks or others or checked.truth is not None else _n_nearest(checked)
    return (*([Ranks(n_nearest)] if ranks_items else []), *others, *([NearestRows(topk)] if topk else []))


def verifies(checked: CheckedOptions) -> bool:
    """Whether anything requested compares distances of all queries with thresholds, or is of open-set search."""
    return checked.values["roc"] or not {each.family.needs for each in checked.metrics} <= {RANKS, SINGLE_SHOT}


def has_single_shot(checked: CheckedOptions) -> bool:
    """Whether a metric or the curve of the protocol is the single-shot CMC."""
    needs = {each.family.needs for each in checked.metrics}
    return SINGLE_SHOT in needs or checked.protocol.cmc_family == "CMC_single_shot"


def _n_nearest(checked: CheckedOptions) -> int | None:
    """Number of the nearest positives of every query whose ranks determine all that is requested; None for all."""
    # A comparison with the plain distance is one of average precision, too.
    if checked.protocol.cmc_family != "CMC" or checked.values["against_plain"]:
        return None
    needed = [metric.n_positives for metric in checked.metrics]
    return max((n for n in needed if n is not None), default=None) if None not in needed else None


def _first_alone(stems: Sequence[str]) -> bool:
    """Whether the metrics that rank groups need the rank of the first relevant group only."""
    return bool(stems) and all(family.first_alone for family in METRICS if family.stem in stems)


def _partition_metrics(checked: CheckedOptions) -> tuple[str, ...]:
    """Metrics of the tables over partitions of the gallery: the rank metrics of the report, with mAP and CMC@1."""
    return tuple(dict.fromkeys([*(metric.name for metric in checked.rank_metrics), "mAP", "CMC@1"]))


def _single_shot(checked: CheckedOptions) -> SingleShot | None:
    """Definition of the single-shot CMC; None unless a metric or the protocol's curve needs it."""
    draws, protocol = checked.values["single_shot_draws"], checked.protocol
    if not has_single_shot(checked):
        if draws is not None:
            raise InputError(
                f"single_shot_draws are for the single-shot CMC, which neither protocol {protocol.name!r} nor a metric "
                "requests; use a protocol such as cuhk03, or request CMC_single_shot@1"
            )
        return None
    if protocol.is_listed:
        raise InputError(
            f"CMC_single_shot needs identities, and protocol {protocol.name!r} goes by lists; use a protocol by labels"
        )
    from reid_dist.engine.reductions.single_shot_counts import SingleShot

    needed = [metric.parameter for metric in checked.metrics if metric.family.needs == SINGLE_SHOT]
    max_rank = max([checked.values["max_rank"], *needed])
    return SingleShot(max_rank) if draws is None else SingleShot(max_rank, draws, checked.values["seed"])
