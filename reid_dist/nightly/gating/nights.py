"""Values per query of the last nights of a job, and findings over several metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.nightly.history.values import Change, Finding
from reid_dist.reports import Report
from reid_dist.reports.comparison.conditions import differing_conditions
from reid_dist.reports.comparison.paired import query_values, untestable

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Night:
    """Gated metrics of one night, with the number of its run.

    Nights with equal result digests have equal values: by name of metric, shape (n_query,), float64; NaN where a query
    does not count.
    """

    number: int
    digest: str
    values: Mapping[str, Float64]


@dataclass(frozen=True, slots=True)
class Tested:
    """Change of a metric and its description."""

    change: Change
    words: str


def finding_of_metrics(
    gate: str, tested: Sequence[Tested], order: Sequence[str], *, against: str, baseline: int
) -> Finding:
    """Return the finding of the first verdict of `order` that a metric has; the reason names the metrics that have it.

    The changes are those of all metrics.
    """
    verdict = next(each for each in order if any(metric.change.verdict == each for metric in tested))
    decisive = "; ".join(each.words for each in tested if each.change.verdict == verdict)
    changes = tuple(each.change for each in tested)
    return Finding(gate=gate, verdict=verdict, reason=f"{against}: {decisive}", baseline=baseline, changes=changes)


def points(share: float) -> str:
    """Return a share in points of a percentage."""
    return f"{100 * share:.2f}"


def tested_metrics(candidate: Report, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics with values per query, of at least one query that counts."""
    return tuple(
        name
        for name in metrics
        if not untestable(candidate, name) and not np.isnan(query_values(candidate, name)).all()
    )


def night_of(number: int, report: Report, candidate: Report, metrics: Sequence[str]) -> Night | None:
    """Return the values of an earlier night; `metrics` are those of :func:`tested_metrics` of the latest, `candidate`.

    None where the nights do not compare: another protocol, labels, queries, or valid queries, or a missing metric.
    """
    old, new = (each.per_query.get("pid") for each in (report, candidate))
    if any(differing_conditions(report, candidate)) or old is None or new is None or not np.array_equal(old, new):
        return None
    if any(untestable(report, name) for name in metrics):
        return None
    values = {name: query_values(report, name) for name in metrics}
    if any(not np.array_equal(np.isnan(query_values(candidate, name)), np.isnan(values[name])) for name in metrics):
        return None
    return Night(number, report.result_digest, values)


def distinct(nights: Sequence[Night]) -> list[Night]:
    """Return the nights, oldest first, each result once: at the last night that has it."""
    last = {night.digest: place for place, night in enumerate(nights)}
    return [nights[place] for place in sorted(last.values())]
