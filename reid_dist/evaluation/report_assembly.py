"""From ranks to the report: metrics, curves, counts, tables, and notes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from reid_dist.clusters.versions import other_packages
from reid_dist.core.environment import describe_environment
from reid_dist.core.findings import Finding, caution, info
from reid_dist.core.model import Neighbours, RankedQueries
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.outputs.nearest_rows import NearestNegatives, NearestRows
from reid_dist.engine.outputs.output import Results
from reid_dist.engine.outputs.ranks import Ranks
from reid_dist.engine.policy import Policy
from reid_dist.engine.scorers import BlockScorer
from reid_dist.engine.screened_pairs import ScreenedPairs, screened_words
from reid_dist.engine.task_graph import Execution
from reid_dist.evaluation.chance_level import chance_notes
from reid_dist.evaluation.checked_options import CheckedOptions
from reid_dist.evaluation.projection import has_single_shot
from reid_dist.metrics.confidence import Confidence, bootstrap_intervals, few_units
from reid_dist.metrics.curves import cmc_curve, mean_precision_recall, rank_curves
from reid_dist.metrics.metric import (
    METRICS,
    RANKS,
    Metric,
    exact_mean,
    notes_on_metrics,
)
from reid_dist.relevance.assignment import assign_listed_relevance, assign_relevance, flag_listed
from reid_dist.relevance.ground_truth import GroundTruth
from reid_dist.relevance.groups import Collapse
from reid_dist.relevance.protocols import REASONS, Protocol
from reid_dist.reports import Report, TopK
from reid_dist.reports.item_names import ItemNames
from reid_dist.reports.notes import input_notes, label_notes, own_row_notes, side_notes, threshold_notes
from reid_dist.stores import LabelledSet
from reid_dist.stores.labels import labels_as_given

if TYPE_CHECKING:
    from distributed import Client

    from reid_dist.engine.verification.measures import Verification

Float64 = NDArray[np.float64]

# Of both sides; some tens of megabytes.
_MOST_PATHS = 200_000

_ALWAYS = {family.per_query_name: Metric(family) for family in METRICS if family.in_every_report}


def make_report(
    inputs: tuple[LabelledSet, LabelledSet],
    job: EvaluationJob,
    results: Results,
    checked: CheckedOptions,
    execution: Execution,
    *,
    verification: Verification | None = None,
    drawn: Confidence | None = None,
) -> Report:
    """Report of computed values of two sides; without a valid query, an error holds the reasons.

    `drawn` are intervals of metrics of `verification`.
    """
    query, gallery = inputs
    ranks = RanksOf(results, checked.collapse)
    protocol, ranked, grouped = job.protocol, ranks.ranked, ranks.grouped
    queries = QueryCounts(ranked)
    if not queries.valid.any():
        from reid_dist.evaluation.no_valid_query import explain_no_valid_query

        raise explain_no_valid_query(query, gallery, job.label_sets, protocol, queries.invalid)
    of_items, curves = job.output(Ranks), None
    described = described_protocol(checked)
    if has_single_shot(checked):
        from reid_dist.engine.outputs.single_shot_curves import SingleShotCurves

        curves, output = results.of(SingleShotCurves), job.output(SingleShotCurves)
        described |= {} if output is None else {"single_shot": output.shot.describe()}
    n_nearest = None if of_items is None else of_items.n_nearest
    zero, truth, first_alone = protocol.zero_for_invalid, checked.truth, n_nearest is not None

    values = {
        metric.name: _values(metric, ranks(metric.family.stem), curves)
        for metric in checked.metrics
        if metric.family.has_per_query_values
    }
    singles = {} if verification is None else verification.metrics
    metrics = {
        metric.name: metric.mean(values[metric.name], query.pids, zero_for_invalid=zero)
        if metric.name in values
        else singles[metric.name]
        for metric in checked.metrics
    }
    per_query: dict[str, NDArray[Any]] = {
        **({} if first_alone else {name: each.values(ranks(each.family.stem)) for name, each in _ALWAYS.items()}),
        "first_rank": np.where(queries.valid, ranked.first_rank, np.nan),
        **({} if grouped is None else {"first_group_rank": np.where(queries.valid, grouped.first_rank, np.nan)}),
        **({} if first_alone else {"last_rank": np.where(queries.valid, ranked.last_rank, np.nan)}),
        "n_relevant": ranked.n_relevant,
        "n_kept": ranked.n_kept,
        "reason": queries.reason,
        "pid": query.pids,
        **({} if query.camids is None else {"camid": query.camids}),
        **{metric.per_query_name: values[metric.name] for metric in checked.metrics if metric.name in values},
    }
    confidence = _with_drawn(mean_intervals(values, query, checked), drawn, checked.metrics)
    topk = _topk(job, results.get(NearestRows), truth)
    report = Report(
        metrics=metrics,
        curves={
            **_curves(protocol, ranks, curves, checked.values["max_rank"], n_nearest),
            **({} if verification is None else verification.curves),
        },
        counts=queries.counts(gallery, _junk_rows(gallery, protocol)),
        per_query=per_query,
        protocol=described,
        distance=job.distance.describe(),
        inputs={"query": query.describe(), "gallery": gallery.describe()},
        ties=_ties(ranks, results, curves, checked, query.pids),
        environment=described_environment(execution.client, execution.policy, execution.screened),
        topk=topk,
        names=ItemNames.of(query, gallery, None if topk is None else topk.index),
        definitions={metric.name: _definition(metric, checked.collapse) for metric in checked.metrics},
        confidence=None if confidence is None else confidence.describe(),
        breakdowns=_breakdowns(checked, query, values, queries.valid, results, job),
        verification=verification.describe() if verification is not None and verification.counts else None,
        data_problems=None if topk is None or protocol.is_listed else _data_problems(job, ranked, topk),
        notes=[
            *side_notes(query, gallery, protocol),
            *label_notes(query, gallery, protocol),
            *own_row_notes(query, gallery, protocol, ranked),
            *chance_notes(
                *(query, gallery, ranks("mAP")),
                first_alone=first_alone,
                given=job.scorer.block if isinstance(job.scorer, BlockScorer) else None,
            ),
            *([info("nearest_alone")] if first_alone else []),
            *_threshold_notes(checked.metrics, verification),
            *interval_notes(confidence, protocol),
            *_tie_notes(checked),
            *notes_on_metrics(checked.metrics),
            *input_notes(query, gallery),
        ],
    )
    items = results.get(Ranks)
    return report if items is None else replace(report, hardest=_hardest(report, query, gallery, items))


def _hardest(report: Report, query: LabelledSet, gallery: LabelledSet, items: RankedQueries) -> list[dict[str, Any]]:
    """The hardest queries, each with the nearest of its relevant items."""
    nearest = items.indptr[:-1]
    # Paths are read as a whole: with lists they were already, and without them if they are few.
    with_paths = report.topk is not None or query.n_rows + gallery.n_rows <= _MOST_PATHS
    return [
        {
            "query": row,
            "gallery": int(items.row[nearest[row]]),
            "rank": int(items.rank[nearest[row]]),
            "distance": float(items.distance[nearest[row]]),
            **labels_as_given((query, gallery), (row, int(items.row[nearest[row]])), with_paths=with_paths),
        }
        for row in report.hardest_queries().tolist()
        if items.n_relevant[row]
    ]


def described_environment(
    client: Client | None, policy: Policy, screened: ScreenedPairs | None = None
) -> dict[str, Any]:
    """Versions and machine, other packages of workers, the policy, and the products that screened the pairs."""
    words, workers = screened_words(screened or {}), other_packages(client)
    return {
        **describe_environment(),
        **({"workers": workers} if workers else {}),
        "policy": policy.describe(),
        **({"products": words} if words else {}),
    }


class RanksOf:
    """The ranks that a metric is computed from: of items, or of groups."""

    def __init__(self, results: Results, collapse: Collapse | None) -> None:
        self._collapse, self.grouped = collapse, None
        if collapse is None:
            self.ranked = results.of(Ranks)
            return
        from reid_dist.engine.outputs.group_ranks import GroupRanks

        items, groups = results.get(Ranks), results.of(GroupRanks)
        # Ranks of groups, if every metric ranks these; else, they are beside those of items.
        self.ranked, self.grouped = (groups, None) if items is None else (items, groups)

    def __call__(self, family: str) -> RankedQueries:
        """Ranks for a metric, by its name before the parameter."""
        if self.grouped is None or self._collapse is None or not self._collapse.covers(family):
            return self.ranked
        return self.grouped


def _definition(metric: Metric, collapse: Collapse | None) -> str:
    """Definition of a metric in words, with what it ranks."""
    if collapse is None or metric.family.needs != RANKS or not collapse.covers(metric.family.stem):
        return metric.family.summary
    return f"{metric.family.summary}; items are groups by {collapse.label}"


class QueryCounts:
    """Which queries are valid, (n_query,) bool, why the others are not, (n_query,) str, and how many by reason."""

    def __init__(self, ranked: RankedQueries) -> None:
        self._ranked = ranked
        self.valid = ranked.n_relevant > 0
        self.reason = np.array(REASONS)[ranked.reason]
        self.invalid = dict(Counter(self.reason[~self.valid].tolist()).most_common())

    def counts(self, gallery: LabelledSet, n_junk_rows: int, **more: int) -> dict[str, Any]:
        """Counts of a report; `n_junk_rows` are junk for every query."""
        return {
            "n_query": len(self.valid),
            "n_valid": int(self.valid.sum()),
            "n_gallery": gallery.n_rows,
            "n_junk": int(self._ranked.n_junk.sum()),
            "n_junk_rows": n_junk_rows,
            "n_relevant": int(self._ranked.n_relevant.sum()),
            **more,
            "n_invalid_by_reason": self.invalid,
        }


def described_protocol(checked: CheckedOptions) -> dict[str, Any]:
    """Return the protocol and its ground truth for a report."""
    truth = {} if checked.truth is None else {"ground_truth": checked.truth.describe()}
    return {**checked.protocol.describe(), **truth}


def mean_intervals(values: Mapping[str, Float64], query: LabelledSet, checked: CheckedOptions) -> Confidence | None:
    """Confidence intervals of means of per-query values; None if not requested."""
    level = checked.values["confidence"]
    if level is None or not values:
        return None
    zero = checked.protocol.zero_for_invalid
    averaged = {
        metric.name: metric.averaged(values[metric.name], query.pids, zero_for_invalid=zero)
        for metric in checked.metrics
        if metric.name in values
    }
    return bootstrap_intervals(averaged, query.pids, level=level, seed=checked.values["seed"])


def _with_drawn(of_means: Confidence | None, drawn: Confidence | None, metrics: list[Metric]) -> Confidence | None:
    """Intervals of means and others, drawn alike, in the order of the metrics."""
    if of_means is None or drawn is None:
        return of_means or drawn
    every = {**of_means.intervals, **drawn.intervals}
    return replace(of_means, intervals={each.name: every[each.name] for each in metrics if each.name in every})


def interval_notes(confidence: Confidence | None, protocol: Protocol) -> list[Finding]:
    """Notes on confidence intervals."""
    # Relevance by lists needs no identities, and one pid for all queries is then a placeholder.
    if confidence is None or (protocol.is_listed and confidence.n_units == 1):
        return []
    return few_units(confidence.n_units, confidence.unit)


def _threshold_notes(metrics: list[Metric], verification: Verification | None) -> list[Finding]:
    if verification is None:
        return []
    from reid_dist.engine.verification.measures import ROC_RATES

    rates = ROC_RATES if "ROC_FAR" in verification.curves else ()
    counts = verification.counts
    return threshold_notes(metrics, rates, counts.get("n_impostor"), counts.get("n_non_mated"))


def _values(metric: Metric, ranked: RankedQueries, curves: Float64 | None, rule: int = 0) -> Float64:
    """Values of every query, under one of the rules of ties; `curves` are those of the single-shot CMC."""
    return (
        metric.values(ranked)
        if curves is None or metric.family.needs == RANKS
        else curves[:, metric.parameter - 1, rule]
    )


def _curves(
    protocol: Protocol, ranks: RanksOf, single_shot: Float64 | None, max_rank: int, n_ranked: int | None
) -> dict[str, Float64]:
    """The protocol's CMC first, then precision and recall at every rank, and precision at every recall.

    If only the `n_ranked` nearest positives are ranked, those of them that their ranks determine.
    """
    zero = protocol.zero_for_invalid

    @cache
    def curves(of_groups: bool) -> dict[str, Float64]:
        ranked = ranks.grouped if of_groups and ranks.grouped is not None else ranks.ranked
        return rank_curves(ranked, max_rank, zero_for_invalid=zero)

    def curve(name: str) -> Float64:
        return curves(ranks(name) is ranks.grouped)[name]

    makers: dict[str, Callable[[], Float64]] = {
        "CMC": lambda: cmc_curve(ranks("CMC"), max_rank, zero_for_invalid=zero),
        "CMC_allshots": lambda: curve("CMC_allshots"),
        "CMC_single_shot": lambda: _single_shot_curve(single_shot, max_rank, zero),
    }
    found: dict[str, Float64] = {protocol.cmc_family: makers[protocol.cmc_family]()}
    if n_ranked is None:
        found["precision_recall"] = mean_precision_recall(ranks.ranked, zero_for_invalid=zero)
    if n_ranked is None or n_ranked >= max_rank:
        found |= {name: curve(name) for name in ("P", "R")}
    return found


def _single_shot_curve(curves: Float64 | None, max_rank: int, zero: bool) -> Float64:
    if curves is None:
        raise AssertionError("the curve of the protocol is always computed")
    columns = curves[:, :max_rank, 0].T
    return np.array([exact_mean(column, zero_for_invalid=zero) for column in columns])


def _ties(
    ranks: RanksOf, results: Results, curves: Float64 | None, checked: CheckedOptions, pids: NDArray[np.int64]
) -> dict[str, Any]:
    """The rule, how many positives it settles, and on request what the other two rules would give."""
    ranked = ranks.ranked
    ties: dict[str, Any] = {
        "rule": "distance, then gallery row",
        "n_tied_positives": int((ranked.tied > 0).sum()),
    }
    if checked.values["ties"]:
        from reid_dist.engine.verification.measures import identification_rates
        from reid_dist.metrics.ties import RULES, extreme_ranks

        for place, rule in enumerate(RULES, start=1):
            per_query = [metric for metric in checked.metrics if metric.family.has_per_query_values]
            ties[rule] = {
                metric.name: metric.mean(
                    _values(metric, extreme_ranks(metric, ranks(metric.family.stem), rule), curves, place),
                    pids,
                    zero_for_invalid=checked.protocol.zero_for_invalid,
                )
                for metric in per_query
            }
            # Metrics over all pairs depend on thresholds, not on the order; those of open-set search on rank 1.
            bounded = [metric for metric in checked.metrics if not metric.family.without_bounds]
            ties[rule] |= identification_rates(bounded, ranked, results.get(NearestNegatives), rule)
    return ties


def _tie_notes(checked: CheckedOptions) -> list[Finding]:
    """Notes on metrics that have no bounds over the orders of tied items."""
    unbounded = [metric for metric in checked.metrics if metric.family.without_bounds and checked.values["ties"]]
    return [caution("no_bounds_of_ties", metric=each.name, why=each.family.without_bounds) for each in unbounded]


def _junk_rows(gallery: LabelledSet, protocol: Protocol) -> int:
    """Count rows that are junk for every query; here, for the sorted index of the gallery is the workers'."""
    junk = np.isin(gallery.pids, protocol.junk_pids)
    if protocol.gallery_cameras is not None and gallery.camids is not None:
        junk |= ~np.isin(gallery.camids, protocol.gallery_cameras)
    return int(junk.sum())


def _breakdowns(
    checked: CheckedOptions,
    query: LabelledSet,
    values: dict[str, NDArray[np.float64]],
    valid: NDArray[np.bool_],
    results: Results,
    job: EvaluationJob,
) -> dict[str, dict[str, Any]]:
    if not checked.breakdowns:
        return {}
    from reid_dist.evaluation.breakdowns import make_breakdowns

    draws: dict[str, Any] = {"level": checked.values["confidence"], "seed": checked.values["seed"]}
    return make_breakdowns(checked.breakdowns, query, values, valid, results, job, **draws)


def _data_problems(job: EvaluationJob, ranked: RankedQueries, topk: TopK) -> dict[str, Any]:
    from reid_dist.evaluation.data_problem_search import data_problems

    return data_problems(job.query, job.gallery, ranked, topk)


def _topk(job: EvaluationJob, neighbours: Neighbours | None, truth: GroundTruth | None) -> TopK | None:
    if neighbours is None:
        return None
    labels = job.labels
    if truth is not None:
        relevance = assign_listed_relevance(job.protocol, truth, job.gallery.n_rows)
    else:
        relevance = assign_relevance(job.protocol, labels.query, labels.index)
    relevant, junk = flag_listed(relevance, labels.index, neighbours.index)
    return TopK(index=neighbours.index, distance=neighbours.distance, junk=junk, relevant=relevant)
