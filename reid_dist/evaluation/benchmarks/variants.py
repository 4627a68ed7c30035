"""Numbers that other codes in use give for the same ranking."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from reid_dist.evaluation.benchmarks.definition import BENCHMARKS, Benchmark
from reid_dist.evaluation.benchmarks.resolving import benchmark_notes
from reid_dist.metrics.definitions import METRICS, exact_mean
from reid_dist.relevance.protocols import LEFT_OUT, Protocol
from reid_dist.reports import Report
from reid_dist.reports.words import metric_value
from reid_dist.stores import LabelledSet


def under_benchmark(report: Report, benchmark: Benchmark, gallery: LabelledSet) -> Report:
    """Add a benchmark to the report of an evaluation by its rules, with remarks on what the numbers stand for."""
    notes = [*benchmark_notes(benchmark, gallery), *_variant_notes(benchmark, report), *report.notes]
    return replace(report, benchmark=benchmark.describe(), notes=notes)


def _variant_notes(benchmark: Benchmark, report: Report) -> Iterator[str]:
    """Values of benchmarks of the same data set that differ in the average precision and in invalid queries alone."""
    if report.bounds or not benchmark.layout:
        return
    own = _averages(benchmark.protocol, report)
    for other in BENCHMARKS:
        rules = other.protocol
        if (other.layout, other.draw) != (benchmark.layout, None) or _ranking(rules) != _ranking(benchmark.protocol):
            continue
        if (rules.ap_family, rules.invalid_query) == (benchmark.protocol.ap_family, benchmark.protocol.invalid_query):
            continue
        values = _averages(rules, report)
        found = ", ".join(
            f"{name} {metric_value(name, value)} ({100 * (value - before):+.2f} points)"
            for (name, value), before in zip(values.items(), own.values(), strict=True)
        )
        yield f"the same ranking under {other.name} (as published by {other.source}): {found}"


def _ranking(rules: Protocol) -> Protocol:
    """A protocol without its name and without what it makes of a ranking."""
    return replace(rules, name="", summary="", source="", invalid_query=LEFT_OUT, ap_family="mAP", reported=())


def _averages(rules: Protocol, report: Report) -> dict[str, float]:
    """Mean average precision and CMC@1 under a protocol, from the values per query."""
    precision = report.per_query[METRICS.get(rules.ap_family).per_query_name]
    first = report.per_query["first_rank"]
    hits = np.where(np.isnan(first), np.nan, first == 1)
    zero = rules.zero_for_invalid
    return {
        rules.ap_family: exact_mean(precision, zero_for_invalid=zero),
        "CMC@1": exact_mean(hits, zero_for_invalid=zero),
    }
