"""Evaluation by the rules of a benchmark on whole galleries, with the numbers of other codes in use."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from reid_dist.errors import InputError
from reid_dist.evaluation.benchmarks.definition import Benchmark
from reid_dist.evaluation.benchmarks.resolving import with_benchmark
from reid_dist.evaluation.benchmarks.variants import CMC, Beside, Scores, protocols_beside, under_benchmark
from reid_dist.evaluation.evaluate import evaluate, evaluate_beside, evaluate_distances
from reid_dist.evaluation.options import EvaluationOptions, RankingOptions
from reid_dist.evaluation.other_codes import Run, scores_apart
from reid_dist.evaluation.progress_bars import Shown
from reid_dist.evaluation.splits import evaluate_splits
from reid_dist.reports import Report
from reid_dist.stores import DistanceBlock, FeatureSet, LabelledSet

if TYPE_CHECKING:
    from distributed import Client


def evaluate_published(
    query: FeatureSet,
    gallery: FeatureSet,
    benchmark: Benchmark,
    options: EvaluationOptions,
    *,
    alone: bool,
    client: Client | None = None,
    workspace: str | PathLike[str] | None = None,
    progress: Shown = None,
) -> Report:
    """Evaluate features; `alone` without other codes that need runs of their own."""
    where: dict[str, Any] = {"client": client, "workspace": workspace, "progress": progress}

    def run(other: Benchmark, given: dict[str, Any]) -> Report | Scores:
        if other.draw is None:
            return evaluate(query, gallery, **where, **with_benchmark(other.name, given)[1])
        splits = evaluate_splits(query, gallery, benchmark=other.name, benchmark_alone=True, **where, **given)
        family = other.protocol.ap_family
        return Scores(family, splits.metrics[family], splits.metrics[CMC], n_draws=splits.n_splits)

    report, beside = evaluate_beside(query, gallery, protocols_beside(benchmark), **where, **options)
    return _with_others(report, benchmark, options, (query, gallery), None if alone else run, beside)


def evaluate_published_distances(
    distances: DistanceBlock,
    query: LabelledSet,
    gallery: LabelledSet,
    benchmark: Benchmark,
    options: RankingOptions,
    *,
    alone: bool,
    **where: Any,
) -> Report:
    """Evaluate given distances; parameters as of `evaluate_published`, and `where` as of `evaluate_distances`."""

    def run(other: Benchmark, given: dict[str, Any]) -> Report:
        if other.draw is not None:
            raise InputError("galleries are drawn from features")
        return evaluate_distances(distances, query, gallery, **where, **with_benchmark(other.name, given)[1])

    report = evaluate_distances(distances, query, gallery, **where, **options)
    return _with_others(report, benchmark, options, (query, gallery), None if alone else run)


def _with_others(
    report: Report,
    benchmark: Benchmark,
    options: Mapping[str, Any],
    sides: tuple[LabelledSet, LabelledSet],
    run: Run | None,
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
