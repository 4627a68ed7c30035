"""Metrics that several runs have, and their values."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.findings import Finding, info
from reid_dist.core.formatting import have, joined
from reid_dist.core.registry import unknown_name
from reid_dist.errors import InputError
from reid_dist.metrics.metric import exact_mean, metric_names, parse_metric, reported_name
from reid_dist.relevance.protocols import ZERO
from reid_dist.reports import Report

Float64 = NDArray[np.float64]


def choose_metrics(
    metrics: str | Sequence[str] | None, runs: Sequence[tuple[str, Report]]
) -> tuple[list[str], list[Finding]]:
    """Names of the metrics that all runs have, and a note for each that only some have.

    `runs` are noun phrases with their reports; `metrics` None is for all.  Errors are those of `compare`.
    """
    known = list(dict.fromkeys(name for _, report in runs for name in (*report.metrics, *report.bounds)))
    chosen, notes = [], []
    for name in known if metrics is None else dict.fromkeys(map(reported_name, metric_names(metrics))):
        having = [run for run, report in runs if _has(report, name)]
        if len(having) == len(runs):
            chosen.append(name)
        elif metrics is None:
            notes.append(info("metric_of_some_runs", metric=name, runs=having))
        elif having:
            lacking = [run for run, report in runs if not _has(report, name)]
            named = joined(lacking)
            raise InputError(f"{named} {have(lacking)} no metric {name!r}; evaluate again with that metric")
        else:
            raise unknown_name("metric", name, known)
    if not chosen:
        raise InputError(f"the runs have no metric in common: {', '.join(known)}; evaluate one of them again")
    return chosen, notes


def metric_value_of(report: Report, name: str) -> float:
    """Return the value of a metric that a report has, NaN where it is known between bounds only."""
    if name in report.metrics or name in report.bounds:
        return report.metrics.get(name, math.nan)
    return mean_of_queries(report, name)


def mean_of_queries(report: Report, name: str) -> float:
    """Return the value of a metric from the values per query, under the protocol of the report."""
    return exact_mean(averaged(report, name, report.per_query[per_query_column(name)]))


def averaged(report: Report, name: str, values: Float64) -> Float64:
    """Return what a metric is the plain mean of, from values per query or differences of them, shape (n_query,)."""
    pids = report.per_query.get("pid", np.zeros(len(values), np.int64))
    return parse_metric(name).averaged(values, pids, zero_for_invalid=zero_for_invalid(report))


def per_query_column(name: str) -> str:
    """Name of the per-query values that a metric is the mean of; empty if it is none."""
    try:
        return parse_metric(name).per_query_name
    except InputError:
        return ""


def has_query_values(report: Report, name: str) -> bool:
    """Whether a metric is the mean of values that every valid query has; lists that were cut give some of them none."""
    column = per_query_column(name)
    if column not in report.per_query or (parse_metric(name).family.macro and "pid" not in report.per_query):
        return False
    return int(np.count_nonzero(~np.isnan(report.per_query[column]))) == int(report.counts["n_valid"])


def zero_for_invalid(report: Report) -> bool:
    """Whether an invalid query counts as 0."""
    return bool(report.protocol.get("invalid_query") == ZERO)


def _has(report: Report, name: str) -> bool:
    return name in report.metrics or name in report.bounds or has_query_values(report, name)
