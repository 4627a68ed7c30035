"""Values per query of the last nights of a job."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.reports import Report
from reid_dist.reports.comparison.conditions import differing_conditions
from reid_dist.reports.comparison.paired import query_values, untestable

Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Night:
    """Gated metrics of one night.

    Attributes
    ----------
    number
        Number of the run.
    digest
        Result digest; nights with equal digests have equal values.
    values
        By name of metric, shape (n_query,), float64; NaN where a query does not count.
    """

    number: int
    digest: str
    values: Mapping[str, Float64]


def tested_metrics(candidate: Report, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics with values per query, of at least one query that counts."""
    return tuple(
        name
        for name in metrics
        if not untestable(candidate, name) and not np.isnan(query_values(candidate, name)).all()
    )


def night_of(number: int, report: Report, candidate: Report, metrics: Sequence[str]) -> Night | None:
    """Return the values of an earlier night.

    Parameters
    ----------
    number
        Number of its run.
    report
        Its report.
    candidate
        Report of the latest night.
    metrics
        Names, as `tested_metrics` returns them for the latest night.

    Returns
    -------
    None where the night does not compare with the latest: another protocol, labels, queries, or valid queries, or a
    missing metric.
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
    return [*_newest_first(nights)][::-1]


def _newest_first(nights: Sequence[Night]) -> Iterator[Night]:
    seen: set[str] = set()
    for night in reversed(nights):
        if night.digest not in seen:
            seen.add(night.digest)
            yield night
