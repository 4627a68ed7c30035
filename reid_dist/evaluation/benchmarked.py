"""Evaluation by the rules of a benchmark, with the numbers of other codes in use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from reid_dist.errors import InputError
from reid_dist.evaluation.benchmarks.benchmark import (
    Benchmark,
    refuse_other_codes,
    refuse_unfit_labels,
    with_benchmark,
)
from reid_dist.evaluation.benchmarks.variants import (
    CMC,
    RunOfCode,
    SamePass,
    Scores,
    extra_run_scores,
    same_pass_protocols,
    under_benchmark,
)
from reid_dist.evaluation.evaluate import evaluate_block, evaluate_once, evaluate_same_pass
from reid_dist.evaluation.options import EvaluationOptions, RankingOptions
from reid_dist.evaluation.splits import SplitJob, run_splits
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
) -> Report:
    """Evaluate under a benchmark by its name; everything as of `reid_dist.evaluate`."""
    refuse_other_codes(other_codes, name)
    chosen, resolved = with_benchmark(str(name), options)
    if chosen.draw is not None:
        raise InputError(
            f"benchmark {name!r} draws galleries, and its numbers are means over the draws: evaluate_splits(query, "
            f"gallery, benchmark={name!r})"
        )
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

    report, same_pass = evaluate_same_pass(session, query, gallery, same_pass_protocols(benchmark), **options)
    others = run if other_codes else None
    return _with_others(session, report, benchmark, options, (query, gallery), others, same_pass)


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
    return _with_others(session, report, benchmark, options, (query, gallery), run if other_codes else None)


def _anew(session: Session) -> Session:
    """Session of another run, with a stopwatch of its own."""
    return session.showing(session.progress)


def _with_others(
    session: Session,
    report: Report,
    benchmark: Benchmark,
    options: Mapping[str, Any],
    sides: tuple[LabelledSet, LabelledSet],
    run: RunOfCode | None,
    same_pass: SamePass | None = None,
) -> Report:
    """Add the benchmark and the numbers of other codes; extra runs are left out where `run` is None."""
    if run is None:
        return under_benchmark(report, benchmark, sides[1], same_pass, None)
    started = time.perf_counter()
    extra_runs = extra_run_scores(session, benchmark, report.spec, options, sides, run, same_pass)
    if extra_runs:
        seconds = time.perf_counter() - started
        stages = {name: each for name, each in report.timing.items() if name != "total"}
        total = report.timing["total"] + seconds
        report = replace(report, timing={**stages, "other_codes": seconds, "total": total})
    return under_benchmark(report, benchmark, sides[1], same_pass, extra_runs)
