"""Operating points of a search: error rates at distance thresholds, and the match probability at a distance.

One pass ranks and finds the nearest kept row of every query and the thresholds; another counts impostors by query,
exactly, at the thresholds and at the edges of the histograms.  Everything else is made of these counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding
from reid_dist.core.formatting import short_digests
from reid_dist.core.model import RankedQueries
from reid_dist.core.numeric import is_number
from reid_dist.engine.checks import check_sets
from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.graph import run_job
from reid_dist.engine.jobs import EvaluationJob
from reid_dist.engine.outputs.impostor_distances import held_by_queries
from reid_dist.engine.outputs.nearest_rows import NearestNegatives
from reid_dist.engine.outputs.output import Output
from reid_dist.engine.outputs.ranks import Positives
from reid_dist.engine.scorers import Scorer
from reid_dist.engine.task_graph import Execution
from reid_dist.engine.threshold_passes import impostors_nearer, refuse_early, verification_outputs, verify
from reid_dist.engine.verification.measures import Verification
from reid_dist.errors import InputError
from reid_dist.evaluation.checked_options import CheckedOptions, options_of, ranking_spec
from reid_dist.evaluation.counted_rows import CountedRows
from reid_dist.evaluation.evaluate import scored_sets, stage_notes
from reid_dist.evaluation.no_valid_query import explain_no_valid_query
from reid_dist.evaluation.operating_values import (
    MOST_EDGES,
    Bins,
    Counted,
    Intervals,
    calibrated,
    even_edges,
    histograms,
    identities_of_tops,
    point_table,
    quantile_edges,
    with_intervals,
)
from reid_dist.evaluation.options import OPTIONS, POINTS, EvaluationOptions, complete, refuse_options
from reid_dist.evaluation.projection import most_relevant, planned_job
from reid_dist.evaluation.report_assembly import QueryCounts, described_environment, described_protocol
from reid_dist.evaluation.sessions import Shown, begin_session, lists_options
from reid_dist.evaluation.sides import Sides
from reid_dist.metrics.confidence import few_units
from reid_dist.metrics.metric import PAIRS, PROBES, Metric, parse_metrics
from reid_dist.relevance.groups import Collapse
from reid_dist.relevance.protocols import NOT_COUNTED
from reid_dist.reports import Report, described_run
from reid_dist.reports.notes import threshold_notes
from reid_dist.reports.operating_points import OperatingPoints
from reid_dist.stages.expansion.lengths import refuse_unlike_lengths
from reid_dist.stages.reranking.rerankers import parse_rerank
from reid_dist.stores import FeatureSet, FeatureSource, Role, as_feature_set
from reid_dist.stores.opening import recorded_place

if TYPE_CHECKING:
    from distributed import Client

    from reid_dist.evaluation.pipelines import PipelineJob

Float64 = NDArray[np.float64]

DEFAULT_FAR: Final = ("1e-6", "1e-5", "1e-4", "1e-3", "1e-2", "1e-1")
DEFAULT_FPIR: Final = ("1e-3", "1e-2", "1e-1")


@dataclass(frozen=True)
class RequestedPoints:
    """The requested points: rates as they are written, None for the usual ones that the sets support."""

    far: tuple[str, ...] | None
    fpir: tuple[str, ...] | None
    thresholds: tuple[float, ...]
    prior: float | None

    @classmethod
    def of(
        cls,
        far: Sequence[str | float] | None,
        fpir: Sequence[str | float] | None,
        thresholds: Sequence[float],
        prior: float | None,
    ) -> RequestedPoints:
        """Check the requested points."""
        for threshold in thresholds:
            if not is_number(threshold) or not np.isfinite(threshold):
                raise InputError(f"thresholds are distances, finite numbers, found {threshold!r}")
        if prior is not None and (not is_number(prior) or not 0 < prior < 1):
            raise InputError(f"prior is the share of matches, between 0 and 1, found {prior!r}")
        wanted = cls(
            None if far is None else tuple(map(str, far)),
            None if fpir is None else tuple(map(str, fpir)),
            tuple(map(float, thresholds)),
            None if prior is None else float(prior),
        )
        for name, rates in (("FAR", wanted.far), ("FPIR", wanted.fpir)):
            for rate in rates or ():
                try:
                    wanted.metrics([rate], ())
                except InputError:
                    raise InputError(f"{name} is a number from 0 to 1, found {rate!r}") from None
        return wanted

    @staticmethod
    def metrics(far: Sequence[str], fpir: Sequence[str]) -> list[Metric]:
        """The metrics whose thresholds are those of the rates."""
        return parse_metrics(["EER", *(f"TAR@FAR={rate}" for rate in far), *(f"DIR@FAR={rate}" for rate in fpir)])


@lists_options(evaluation=POINTS)
def operating_points(
    query: FeatureSource,
    gallery: FeatureSource,
    *,
    far: Sequence[str | float] | None = None,
    fpir: Sequence[str | float] | None = None,
    thresholds: Sequence[float] = (),
    prior: float | None = None,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Shown = None,
    **options: Unpack[EvaluationOptions],
) -> OperatingPoints:
    """Compute exact FAR, TAR, FPIR and FNIR at distance thresholds, and the match probability at a distance.

    Parameters
    ----------
    query, gallery
        The two feature sets, of equal dimension; or paths of stores, or of files that `ingest` reads.
    far
        False accept rates over pairs whose thresholds are reported, such as ``["1e-4", "1e-3"]``.  None for 1e-6 to
        1e-1, as far as the number of impostors allows.
    fpir
        False positive identification rates, over the top matches of queries whose identity the gallery lacks.  None for
        1e-3 to 1e-1.
    thresholds
        Further thresholds, as distances.
    prior
        Share of matches among pairs at deployment, between 0 and 1; adds match probabilities for this share.
    client, workspace, progress
        As in `reid_dist.evaluate`.
    **options
        As in `reid_dist.evaluate`; options on which operating points do not depend are refused.

    Returns
    -------
    OperatingPoints
        The table of thresholds, histograms and calibrations.

    Raises
    ------
    InputError
        For rates, thresholds and priors out of range, for re-rankings without one scale for all queries, and as in
        `reid_dist.evaluate`.
    PlanError, RunFailedError
        As `reid_dist.evaluate` does.

    Notes
    -----
    The calling process holds about 4 kB per query.
    """
    started = time.perf_counter()
    wanted = RequestedPoints.of(far, fpir, thresholds, prior)
    given = complete(options)
    refuse_options(
        options,
        POINTS,
        "has no effect on operating points, which are of single pairs and of top matches; leave it out",
    )
    given["metrics"] = [metric.name for metric in RequestedPoints.metrics((), wanted.fpir or ())]
    measure = DISTANCES.get(given["distance"])
    rerank = None if given["rerank"] is None else parse_rerank(given["rerank"])
    if rerank is not None and rerank.per_query_scale is not None:
        raise InputError(
            "operating points compare the re-ranked distances of all queries with one threshold, and "
            f"{rerank.per_query_scale}; evaluate with another re-ranking, or with none"
        )
    near, far_side = as_feature_set(query, "query"), as_feature_set(gallery, "gallery")
    check_sets(near, far_side, measure)
    checked = CheckedOptions.of(given, near, far_side)
    refuse_unlike_lengths(near, far_side, checked.expand, measure)
    spec = ranking_spec(checked, near, far_side, metrics=None, **asdict(wanted))
    rows = CountedRows.of(checked, near, far_side) if checked.expand or checked.rerank is not None else None
    if rows is not None:
        near, far_side = rows.sides
    with begin_session(client, workspace, progress, checked.values["chunk_rows"]) as session:

        def attempt() -> OperatingPoints:
            with scored_sets((near, far_side), measure, checked.expand, checked.rerank, session) as (
                visible,
                scorer,
                execution,
            ):
                opened = time.perf_counter()
                counts = _count(checked, wanted, visible, scorer, execution)
                counted_at = time.perf_counter()
                found = _report(checked, wanted, (near, far_side), counts, execution)
                timing = session.progress.timing(started, (opened, opened), counted_at)
                return replace(
                    found, timing=timing, notes=[*found.notes, *stage_notes((near, far_side), visible), *scorer.notes]
                )

        found = session.retried(attempt)
    if rows is not None:
        found = replace(found, inputs=rows.inputs, counts=rows.counts(found.counts), notes=[*found.notes, rows.note])
    return replace(found, distance=measure.describe(), spec=spec)


def points_of_run(
    report: Report, sides: tuple[FeatureSet, FeatureSet], options: EvaluationOptions, command: str, **points: Any
) -> OperatingPoints:
    """Operating points that belong to a run, with its name; `points` are those of `operating_points`.

    Of its `options`, those that only other results depend on are left out.
    """
    collapse = None if options["collapse"] is None else Collapse.parse(options["collapse"])
    if collapse is not None and not collapse.families:
        raise InputError(
            f"the run ranks groups of items by {collapse.label}, and operating points are of single items; evaluate "
            "without collapse, and give that run"
        )
    ranking = {name: value for name, value in options.items() if POINTS not in OPTIONS[name].refused_by}
    found = operating_points(*sides, **points, **cast("EvaluationOptions", ranking))
    name = report.run.get("name", "")
    run = described_run(name, description=report.run.get("description", ""), command=command)
    return replace(found, evaluated=report.result_digest, run=run)


@dataclass(frozen=True)
class _Counts:
    """What both passes counted: thresholds by name of point, counts of pairs, and edges of bins."""

    found: Counted
    points: dict[str, float]
    verification: Verification
    metrics: list[Metric]
    bins: Bins


def _count(
    checked: CheckedOptions,
    wanted: RequestedPoints,
    visible: tuple[FeatureSet, FeatureSet],
    scorer: Scorer,
    execution: Execution,
) -> _Counts:
    """Both passes."""
    job = _job(checked, wanted, visible, scorer, execution)
    refuse_early(job, checked.metrics)
    results = run_job(job, execution, checked.truth)
    ranked, probes = results.of(Positives), results.of(NearestNegatives)
    if not len(ranked.rank):
        raise explain_no_valid_query(*visible, job.label_sets, job.protocol, QueryCounts(ranked).invalid)
    counted = ranked.reason != NOT_COUNTED
    metrics = RequestedPoints.metrics(
        _supported(DEFAULT_FAR, int((ranked.n_kept - ranked.n_relevant)[counted].sum()), wanted.far),
        _supported(DEFAULT_FPIR, int((~probes.mated & counted).sum()), wanted.fpir),
    )
    bins = _bins(ranked, probes.nearest_kept[counted])
    verification = verify(job, ranked, results, metrics, False, execution, checked.truth)
    if verification is None:
        raise AssertionError("an equal error rate is always computed")
    named = np.array([*verification.thresholds.values(), *wanted.thresholds], np.float64)
    distances = np.concatenate([bins.all_pairs, named[np.isfinite(named)]])
    nearer = impostors_nearer(job, distances, execution, checked.truth)
    points = {_point_name(metric): verification.thresholds[metric.name] for metric in metrics}
    points |= {f"T={threshold!r}": threshold for threshold in wanted.thresholds}
    found = Counted(ranked, counted, job.query.pids, probes, nearer)
    return _Counts(found, points, verification, metrics, bins)


def _bins(ranked: RankedQueries, nearest: Float64) -> Bins:
    """Bins of pairs and of top matches; `nearest` are the distances of the nearest negatives, some infinite."""
    genuine = np.sort(ranked.distance)
    # Other impostors lie beyond the nearest of each query.
    pairs = even_edges(np.concatenate([genuine, nearest]), times=2.0)
    # Of mated queries these hold the top match and one farther pair.
    first = ranked.distance[ranked.indptr[:-1][ranked.n_relevant > 0]]
    tops = np.sort(np.concatenate([first, nearest[np.isfinite(nearest)]]))
    even_tops = even_edges(tops)
    return Bins(
        pairs, np.union1d(pairs, quantile_edges(genuine)), even_tops, np.union1d(even_tops, quantile_edges(tops, 100))
    )


def _job(
    checked: CheckedOptions,
    wanted: RequestedPoints,
    visible: tuple[FeatureSet, FeatureSet],
    scorer: Scorer,
    execution: Execution,
) -> EvaluationJob:
    per_query = most_relevant(checked, *visible)
    n_points = MOST_EDGES + len(wanted.thresholds) + len(wanted.metrics(DEFAULT_FAR, DEFAULT_FPIR))
    n_points += len(wanted.far or ()) + len(wanted.fpir or ())
    # Of ranks, only the first is needed: whether the nearest relevant row comes before the nearest negative.
    outputs: tuple[Output[Any], ...] = (
        Positives(),
        NearestNegatives(1),
        *verification_outputs(wanted.metrics(DEFAULT_FAR if wanted.far is None else wanted.far, ()), roc=False),
    )
    return planned_job(
        visible,
        scorer,
        execution,
        outputs,
        # Single items are compared, whatever is ranked.
        protocol=replace(checked.protocol, collapse=None),
        rerank=checked.rerank,
        per_query=per_query,
        rows_are_items=checked.rows_are_items,
        joined=checked.joined,
        extra=held_by_queries(n_points),
    )


def _supported(usual: Sequence[str], number: int, given: Sequence[str] | None) -> Sequence[str]:
    """The given rates; without any, the usual ones that come to one false accept at least."""
    return [rate for rate in usual if float(rate) * number >= 1] if given is None else given


def _point_name(metric: Metric) -> str:
    """Name of the point of a metric's threshold: ``FAR=x`` over pairs, ``FPIR=x`` over probes, ``EER``."""
    kinds = {PAIRS: "FAR", PROBES: "FPIR"}
    return f"{kinds[metric.family.needs]}={metric.written}" if metric.written else metric.name


def _few_identities(found: Counted, n_units: int) -> list[Finding]:
    """Notes on intervals from few identities, of those that count, or of those that a rate of top matches rests on."""
    rates: dict[int, list[str]] = {}
    for name, number in identities_of_tops(found).items():
        if number < n_units:
            rates.setdefault(number, []).append(name)
    of_rates = (few_units(number, rates=names) for number, names in rates.items())
    return [*few_units(n_units), *chain.from_iterable(of_rates)]


def _report(
    checked: CheckedOptions,
    wanted: RequestedPoints,
    sides: tuple[FeatureSet, FeatureSet],
    counts: _Counts,
    execution: Execution,
) -> OperatingPoints:
    """Values of what both passes counted."""
    found, seed = counts.found, checked.values["seed"]
    intervals = Intervals(checked.values["confidence"], seed, len(found.identities))
    table, ends = point_table(found, counts.points, intervals)
    distributions = histograms(found, counts.bins, intervals)
    calibration = calibrated(found, counts.bins, wanted.prior, seed, intervals)
    queries = QueryCounts(found.ranked)
    numbers = counts.verification.counts
    of_kinds = {f"n_{name}": int(queries.sum()) for name, (queries, _) in found.top_matches().items()}
    confidence = intervals.describe()
    notes = [] if confidence is None else _few_identities(found, confidence["n_units"])
    n_non_mated = of_kinds["n_non_mated"] or None
    notes += threshold_notes(counts.metrics, (), numbers["n_impostor"], n_non_mated, name_of=_point_name)
    return OperatingPoints(
        table=table,
        intervals=with_intervals(ends),
        histograms=with_intervals(distributions),
        calibration=with_intervals(calibration),
        counts={
            **queries.counts(sides[1], 0),
            **{name: numbers[name] for name in ("n_genuine", "n_impostor")},
            "n_mated": of_kinds["n_mated_correct"] + of_kinds["n_mated_wrong"],
            "n_non_mated": of_kinds["n_non_mated"],
        },
        confidence=confidence,
        protocol=described_protocol(checked),
        distance={},
        **checked.described_stages,
        inputs={"query": sides[0].describe(), "gallery": sides[1].describe()},
        options={**asdict(wanted), "confidence": checked.values["confidence"], "seed": seed},
        environment=described_environment(execution.client, execution.policy, execution.screened),
        notes=notes,
    )


# ---- points of a finished run ----------------------------------------------------------------------------------------

_SIDES: Final[tuple[Role, Role]] = ("query", "gallery")
_AGAIN = "evaluate again, and give the new run"


@dataclass(frozen=True)
class RecordedRanking:
    """Spec of a run, the sources of its two sets, and the options of its ranking."""

    spec: Mapping[str, Any]
    sides: Sides
    options: EvaluationOptions

    @classmethod
    def of(cls, report: Report, job: PipelineJob | None = None) -> RecordedRanking:
        """Read the spec of a report; a ground truth and fused models come from the `job` of its pipeline.

        Raises
        ------
        InputError
            If the run has no features, or its sources or ground truth are not known.
        """
        spec = report.spec
        if not spec:
            raise InputError(f"the run is of an earlier version, which did not store its options; {_AGAIN}")
        given = [name for name in ("distances", "lists") if spec.get(name)]
        if given:
            raise InputError(f"the run was made from {given[0]}, and thresholds are found from feature stores")
        options = options_of(spec)
        if spec["ground_truth"] is not None:
            if job is None or job.ground_truth is None:
                raise InputError("the run has a ground truth; give the pipeline that names it (--pipeline)")
            options["ground_truth"] = job.ground_truth
        places = [recorded_place(report.inputs[side], side) for side in _SIDES]
        if job is None and any("labels_uri" in report.inputs[side] for side in _SIDES):
            raise InputError("the run is of fused models; give the pipeline that names them (--pipeline)")
        if job is None and None in places:
            side = _SIDES[places.index(None)]
            raise InputError(
                f"the {side} of the run was in memory ({report.inputs[side]['uri']}) and cannot be read again",
                details=(
                    "give the same arrays to reid_dist.operating_points(query, gallery)",
                    "or save the sets (FeatureSet.save) and evaluate their stores",
                ),
            )
        if job is not None:
            return cls(spec, job.sides, options)
        left_out = {name: spec[name] for name in ("exclude", "drop_duplicates") if name in spec}
        return cls(spec, Sides(str(places[0]), str(places[1]), **left_out), options)

    def refuse_changed(self, query: FeatureSet, gallery: FeatureSet) -> None:
        """Refuse sets with another content than those of the run."""
        for side, opened in (("query", query), ("gallery", gallery)):
            if opened.content_digest != self.spec[side]:
                now, before = short_digests(opened.content_digest, self.spec[side])
                lists = " (or a list of rows that it leaves out)" if "exclude" in self.spec else ""
                raise InputError(
                    f"{side} {opened.describe()['uri']}{lists} has changed since the run; {_AGAIN}",
                    details=(f"content digest: {now}", f"recorded in the run: {before}"),
                )
