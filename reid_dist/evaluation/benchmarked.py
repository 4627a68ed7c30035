"""Evaluation by the rules of a benchmark, with the numbers of other codes in use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from reid_dist.errors import InputError
from reid_dist.evaluation.benchmarks.definition import Benchmark
from reid_dist.evaluation.benchmarks.resolving import refuse_other_codes, refuse_unfit_labels, with_benchmark
from reid_dist.evaluation.benchmarks.variants import (
    CMC,
    Beside,
    RunOfCode,
    Scores,
    protocols_beside,
    scores_apart,
    under_benchmark,
)
from reid_dist.evaluation.evaluate import evaluate_beside, evaluate_block, evaluate_once
from reid_dist.evaluation.options import EvaluationOptions, RankingOptions
from reid_dist.evaluation.splits.repeated import SplitJob, run_splits
from reid_dist.evaluation.splits.report import SplitReport
from reid_dist.reports import Report
from reid_dist.stages.session import Session
from reid_dist.stores import DistanceBlock, FeatureSet, FeatureSource, LabelledSet, as_feature_set


def evaluate_benchmark(
    session: Session,
    query: FeatureSource,
    gallery: FeatureSource,
    name: str | None,
    options: Mapping[str, Any],
    *,
    other_codes: bool,
) -> Report | SplitReport:
    """Evaluate under a benchmark by its name; everything as of `reid_dist.evaluate`."""
    refuse_other_codes(other_codes, name)
    chosen, resolved = with_benchmark(str(name), options)
    if chosen.draw is not None:
        job = SplitJob.of(query, gallery, {**options, "benchmark": name, "other_codes": other_codes})
        # Its progress is that of finished splits.
        return run_splits(session, job)
    near, far = as_feature_set(query, "query"), as_feature_set(gallery, "gallery")
    refuse_unfit_labels(chosen, near, far)
    given = cast("EvaluationOptions", resolved)
    return evaluate_published(session, near, far, chosen, given, other_codes=other_codes)


def evaluate_published(
    session: Session,
    query: FeatureSet,
    gallery: FeatureSet,
    benchmark: Benchmark,
    options: EvaluationOptions,
    *,
    other_codes: bool,
) -> Report:
    """Evaluate features, and with `other_codes` also by codes that need runs of their own."""

    def run(other: Benchmark, given: dict[str, Any]) -> Report | Scores:
        if other.draw is None:
            return evaluate_once(_anew(session), query, gallery, **with_benchmark(other.name, given)[1])
        splits = run_splits(_anew(session), SplitJob.of(query, gallery, {**given, "benchmark": other.name}))
        family = other.protocol.ap_family
        return Scores(family, splits.metrics[family], splits.metrics[CMC], n_draws=splits.n_splits)

    report, beside = evaluate_beside(session, query, gallery, protocols_beside(benchmark), **options)
    return _with_others(report, benchmark, options, (query, gallery), run if other_codes else None, beside)


def evaluate_published_distances(
    session: Session,
    distances: DistanceBlock,
    query: LabelledSet,
    gallery: LabelledSet,
    benchmark: Benchmark,
    options: RankingOptions,
    *,
    other_codes: bool,
) -> Report:
    """Evaluate given distances; parameters as of `evaluate_published`."""

    def run(other: Benchmark, given: dict[str, Any]) -> Report:
        if other.draw is not None:
            raise InputError("galleries are drawn from features")
        rules = with_benchmark(other.name, given)[1]
        return evaluate_block(_anew(session), distances, query, gallery, **rules)

    report = evaluate_block(session, distances, query, gallery, **options)
    return _with_others(report, benchmark, options, (query, gallery), run if other_codes else None)


def _anew(session: Session) -> Session:
    """Session of another run, with a stopwatch of its own."""
    return session.showing(session.progress)


def _with_others(
    report: Report,
    benchmark: Benchmark,
    options: Mapping[str, Any],
    sides: tuple[LabelledSet, LabelledSet],
    run: RunOfCode | None,
    beside: Beside | None = None,
) -> Report:
    """Add the benchmark and the numbers of other codes; runs of their own are left out where `run` is None."""
    if run is None:
        return under_benchmark(report, benchmark, sides[1], beside, None)
    started = time.perf_counter()
    apart = scores_apart(benchmark, options, *sides, run, beside)
    if apart:
        seconds = time.perf_counter() - started
        stages = {name: each for name, each in report.timing.items() if name != "total"}
        total = report.timing["total"] + seconds
        report = replace(report, timing={**stages, "other_codes": seconds, "total": total})
    return under_benchmark(report, benchmark, sides[1], beside, apart)
