"""Numbers that other codes in use give for the same sets.

Codes that differ in the average precision or in invalid queries alone rank alike, so that the values per query serve
both.  Codes that differ in relevant and junk items are ranked in the same pass (`reid_dist.engine.variants`), which
costs at most a tenth more.  Those that rank groups or draw galleries are runs of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.formatting import counted
from reid_dist.core.model import RankedQueries
from reid_dist.evaluation.benchmarks.definition import Benchmark
from reid_dist.evaluation.benchmarks.resolving import benchmark_notes
from reid_dist.metrics.definitions import METRICS, Metric, exact_mean
from reid_dist.relevance.protocols import LEFT_OUT, Protocol
from reid_dist.reports import Report
from reid_dist.reports.words import metric_value
from reid_dist.stores import LabelledSet


def protocols_beside(benchmark: Benchmark) -> list[Protocol]:
    """Protocols of other codes that can be ranked in the pass of a benchmark, and are not by its own ranks."""
    if benchmark.draw is not None:
        return []
    rules = [other.protocol for other in benchmark.others if other.draw is None]
    alone = [each.collapse is not None or each.is_listed for each in (benchmark.protocol, *rules)]
    if alone[0]:
        return []
    return [
        each
        for each, is_alone in zip(rules, alone[1:], strict=True)
        if not is_alone and _ranking(each) != _ranking(benchmark.protocol)
    ]


def under_benchmark(
    report: Report,
    benchmark: Benchmark,
    gallery: LabelledSet,
    beside: Mapping[Protocol, RankedQueries] | None = None,
) -> Report:
    """Add a benchmark to the report of an evaluation by its rules, with remarks on what the numbers stand for.

    `beside` holds the ranks under `protocols_beside`, as far as there are any.
    """
    others = () if report.bounds else other_notes(benchmark, report, beside or {})
    notes = [*benchmark_notes(benchmark, gallery), *others, *report.notes]
    return replace(report, benchmark=benchmark.describe(), notes=notes)


def other_notes(
    benchmark: Benchmark, report: Report | None = None, beside: Mapping[Protocol, RankedQueries] | None = None
) -> Iterator[str]:
    """Values of other codes with their differences, or the command that gives them; without a report, the latter."""
    for other in benchmark.others:
        rules, same_rows = other.protocol, benchmark.draw is None is other.draw
        name = f"{other.name} (as published by {other.source})"
        if report is not None and same_rows and _ranking(rules) == _ranking(benchmark.protocol):
            yield f"the same ranking under {name}: {_difference(report, rules, *_of_report(report, rules))}"
        elif report is not None and same_rows and beside and rules in beside:
            yield f"the same distances under {name}: {_difference(report, rules, *_of_ranks(beside[rules], rules))}"
        else:
            how = "other galleries" if not same_rows else "other items" if rules.collapse is None else "groups"
            yield f"{name} ranks {how}: `--benchmark {other.name}` on the same sets gives its numbers"


def _ranking(rules: Protocol) -> Protocol:
    """A protocol without its name and without what it makes of a ranking."""
    return replace(rules, name="", summary="", source="", invalid_query=LEFT_OUT, ap_family="mAP", reported=())


_Values = tuple[NDArray[np.float64], NDArray[np.float64]]


def _of_report(report: Report, rules: Protocol) -> _Values:
    """Average precision under a protocol and rank of the first match, NaN for invalid queries, both (n_query,)."""
    return report.per_query[METRICS.get(rules.ap_family).per_query_name], report.per_query["first_rank"]


def _of_ranks(ranked: RankedQueries, rules: Protocol) -> _Values:
    """The same from ranks."""
    first = np.where(ranked.n_relevant > 0, ranked.first_rank, np.nan)
    return Metric(METRICS.get(rules.ap_family)).values(ranked), first


def _difference(report: Report, rules: Protocol, precision: NDArray[np.float64], first: NDArray[np.float64]) -> str:
    """Means under another protocol, and how they differ from those of the report."""
    own = report.protocol["ap_family"]
    earlier_precision = report.per_query[METRICS.get(own).per_query_name]
    at_zero = report.protocol["invalid_query"] != LEFT_OUT
    before = _means(own, earlier_precision, report.per_query["first_rank"], at_zero)
    values = _means(rules.ap_family, precision, first, rules.zero_for_invalid)
    found = ", ".join(
        f"{name} {metric_value(name, value)} ({100 * (value - earlier):+.2f} points)"
        for (name, value), earlier in zip(values.items(), before.values(), strict=True)
    )
    n_valid = int((~np.isnan(first)).sum())
    of_others = f"; {counted(n_valid, 'valid query')}" if n_valid != report.counts["n_valid"] else ""
    return found + of_others


def _means(family: str, precision: NDArray[np.float64], first: NDArray[np.float64], at_zero: bool) -> dict[str, float]:
    """Mean average precision and CMC@1."""
    hits = np.where(np.isnan(first), np.nan, first == 1)
    return {
        family: exact_mean(precision, zero_for_invalid=at_zero),
        "CMC@1": exact_mean(hits, zero_for_invalid=at_zero),
    }
