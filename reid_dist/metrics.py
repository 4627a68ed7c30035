"""Rank metrics: functions of the ranks of the positives, each under the name of its convention.

After junk is removed, query ``q`` has ``n`` positives at 1-based ranks ``r_1 < ... < r_n``.  A metric is one definition
here: a value per query, and the mean over the valid ones.  The mean is exactly rounded (`math.fsum`), so no order of
merging can show in it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reid_dist.errors import InputError, UnknownNameError
from reid_dist.model import RankedQueries
from reid_dist.registry import Registry, did_you_mean
from reid_dist.segments import segment_suffix_maxima, segment_sums

__all__ = [
    "METRICS",
    "RECALL_LEVELS",
    "Metric",
    "MetricFamily",
    "cmc_curve",
    "default_metrics",
    "exact_mean",
    "mean_precision_recall",
    "parse_metric",
]

Float64 = NDArray[np.float64]

RECALL_LEVELS = 101


@dataclass(frozen=True)
class MetricFamily:
    """A metric, or a family of metrics with one integer parameter.

    Attributes
    ----------
    name
        ``mAP``, or the part before the parameter: ``CMC@k``.
    summary, source
        For people.
    per_query_name
        Name of its per-query values, with ``k`` where the parameter goes.
    per_query
        Values of all queries, shape (n_query,), float64; those of invalid queries are ignored.  Takes the ranks and
        the parameter (0 when there is none).
    """

    name: str
    summary: str
    source: str
    per_query_name: str
    per_query: Callable[[RankedQueries, int], Float64]

    @property
    def has_parameter(self) -> bool:
        """Whether it takes a rank."""
        return "@" in self.name


@dataclass(frozen=True)
class Metric:
    """One metric: a family with its parameter."""

    family: MetricFamily
    parameter: int = 0

    @property
    def name(self) -> str:
        """Name in reports."""
        return self._fill(self.family.name)

    @property
    def per_query_name(self) -> str:
        """Name of its per-query values."""
        return self._fill(self.family.per_query_name)

    def _fill(self, name: str) -> str:
        stem, at, _ = name.partition("@")
        return f"{stem}@{self.parameter}" if at else name

    def values(self, ranked: RankedQueries) -> Float64:
        """Value of every query, NaN for those without positives; shape (n_query,), float64."""
        return np.where(ranked.n_relevant > 0, self.family.per_query(ranked, self.parameter), np.nan)


METRICS: Registry[MetricFamily] = Registry("metric")


def _metric(
    name: str, per_query_name: str, summary: str, source: str
) -> Callable[[Callable[[RankedQueries, int], Float64]], Callable[[RankedQueries, int], Float64]]:
    """Register a per-query function as a metric."""

    def register(function: Callable[[RankedQueries, int], Float64]) -> Callable[[RankedQueries, int], Float64]:
        METRICS.register(MetricFamily(name, summary, source, per_query_name, function))
        return function

    return register


def _number(ranked: RankedQueries) -> NDArray[np.int64]:
    """j of every positive, from 1."""
    return np.arange(1, len(ranked.rank) + 1) - np.repeat(ranked.indptr[:-1], ranked.n_relevant)


def _per_relevant(total: Float64, ranked: RankedQueries) -> Float64:
    return total / np.maximum(ranked.n_relevant, 1)


def _at(ranked: RankedQueries, place: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rank at a place of the flat array; 1 for queries without positives, whose values are not used."""
    valid = ranked.n_relevant > 0
    out = np.ones(len(valid), np.int64)
    out[valid] = ranked.rank[place[valid]]
    return out


def first_rank(ranked: RankedQueries) -> NDArray[np.int64]:
    """Rank of the nearest positive."""
    return _at(ranked, ranked.indptr[:-1])


def last_rank(ranked: RankedQueries) -> NDArray[np.int64]:
    """Rank of the farthest positive."""
    return _at(ranked, ranked.indptr[1:] - 1)


def _hits(ranked: RankedQueries, k: NDArray[np.int64] | int) -> Float64:
    """Positives among the first k."""
    limit = np.repeat(np.broadcast_to(k, len(ranked.n_relevant)), ranked.n_relevant)
    return segment_sums((ranked.rank <= limit).astype(np.float64), ranked.indptr)


@_metric(
    "mAP",
    "AP",
    "(1/n) sum_j j / r_j: rectangle rule, all positives in the denominator",
    "Zheng et al., ICCV 2015, as torchreid and fast-reid compute it; TREC `map`",
)
def _average_precision(ranked: RankedQueries, _: int) -> Float64:
    return _per_relevant(segment_sums(_number(ranked) / ranked.rank, ranked.indptr), ranked)


@_metric(
    "mAP_trapezoid",
    "AP_trapezoid",
    "(1/n) sum_j (j / r_j + p_j) / 2, p_j the precision at rank r_j - 1 (1 at rank 1): trapezoid rule",
    "Philbin et al., CVPR 2007 (Oxford `compute_ap`), the original Market-1501 MATLAB code, revisitop",
)
def _average_precision_trapezoid(ranked: RankedQueries, _: int) -> Float64:
    j, r = _number(ranked), ranked.rank
    before = np.where(r > 1, (j - 1) / np.maximum(r - 1, 1), 1.0)
    return _per_relevant(segment_sums((j / r + before) / 2.0, ranked.indptr), ranked)


@_metric("mINP", "INP", "n / r_n: how far down the hardest positive lies", "Ye et al., TPAMI 2021, eq. 3")
def _inverse_negative_penalty(ranked: RankedQueries, _: int) -> Float64:
    return ranked.n_relevant / last_rank(ranked)


@_metric("CMC@k", "CMC@k", "[r_1 <= k]: a match among the first k", "Zheng et al., ICCV 2015; rank-k accuracy")
def _cumulative_match(ranked: RankedQueries, k: int) -> Float64:
    return (first_rank(ranked) <= k).astype(np.float64)


@_metric(
    "mAP@k",
    "AP@k",
    "(1/n) sum over r_j <= k of j / r_j: cut at k, all positives in the denominator",
    "TREC `map_cut_k`",
)
def _average_precision_cut(ranked: RankedQueries, k: int) -> Float64:
    terms = np.where(ranked.rank <= k, _number(ranked) / ranked.rank, 0.0)
    return _per_relevant(segment_sums(terms, ranked.indptr), ranked)


@_metric("MRR", "RR", "1 / r_1", "TREC `recip_rank`")
def _reciprocal_rank(ranked: RankedQueries, _: int) -> Float64:
    return 1.0 / first_rank(ranked)


@_metric("Rprec", "Rprec", "#{r_j <= n} / n: precision at rank n", "TREC `Rprec`")
def _r_precision(ranked: RankedQueries, _: int) -> Float64:
    return _per_relevant(_hits(ranked, ranked.n_relevant), ranked)


@_metric("P@k", "P@k", "#{r_j <= k} / k", "TREC `P_k`")
def _precision(ranked: RankedQueries, k: int) -> Float64:
    return _hits(ranked, k) / k


@_metric("R@k", "R@k", "#{r_j <= k} / n", "TREC `recall_k`")
def _recall(ranked: RankedQueries, k: int) -> Float64:
    return _per_relevant(_hits(ranked, k), ranked)


_WITH_PARAMETER = re.compile(r"(?P<stem>[^@]+)@(?P<parameter>.+)")


def parse_metric(text: str) -> Metric:
    """Read a metric's name: ``mAP``, ``CMC@10``.

    Raises
    ------
    UnknownNameError
        For a name that no metric has; the message holds the nearest known one.
    InputError
        For a parameter that is not a positive integer.
    """
    match = _WITH_PARAMETER.fullmatch(text)
    if match is None:
        if text in METRICS and not METRICS.get(text).has_parameter:
            return Metric(METRICS.get(text))
        if f"{text}@k" in METRICS:
            raise InputError(f"metric {text!r} needs a rank: {text}@10, for example")
        raise UnknownNameError(did_you_mean("metric", text, METRICS.names()))
    name = f"{match['stem']}@k"
    if name not in METRICS:
        raise UnknownNameError(did_you_mean("metric", text, METRICS.names()))
    parameter = match["parameter"]
    if not (parameter.isascii() and parameter.isdigit() and int(parameter) >= 1):
        raise InputError(f"metric {text!r}: the rank after @ must be a positive integer, found {parameter!r}")
    return Metric(METRICS.get(name), int(parameter))


def default_metrics(cmc_family: str, ap_family: str) -> list[str]:
    """What is reported when nothing is asked for: mAP, mINP, the protocol's AP, its CMC at 1, 5 and 10."""
    names = ["mAP", "mINP"] + ([ap_family] if ap_family != "mAP" else [])
    return names + [f"{cmc_family}@{k}" for k in (1, 5, 10)]


def exact_mean(values: Float64) -> float:
    """Mean of the values that are not NaN: their exact sum, rounded once, divided by their number."""
    kept = values[~np.isnan(values)]
    return math.fsum(kept.tolist()) / len(kept) if len(kept) else math.nan


def cmc_curve(ranked: RankedQueries, max_rank: int) -> Float64:
    """CMC@1 to CMC@max_rank over the valid queries; a short ranking holds its last value.  Shape (max_rank,)."""
    valid = ranked.n_relevant > 0
    first = first_rank(ranked)[valid]
    found = np.bincount(first[first <= max_rank], minlength=max_rank + 1)[1:]
    return np.cumsum(found) / max(int(valid.sum()), 1)


def mean_precision_recall(ranked: RankedQueries) -> Float64:
    """Mean over the valid queries of the interpolated precision at recall 0.00, 0.01, ..., 1.00; shape (101,).

    The precision at a level is the largest over all points (j / n, j / r_j) whose recall reaches it; the comparison is
    made in integers, ``100 j >= level n``.
    """
    best = segment_suffix_maxima(_number(ranked) / ranked.rank, ranked.indptr)
    valid = ranked.n_relevant > 0
    n, start = ranked.n_relevant[valid], ranked.indptr[:-1][valid]
    curve = np.empty(RECALL_LEVELS)
    for level in range(RECALL_LEVELS):
        j = np.maximum(-(-level * n // (RECALL_LEVELS - 1)), 1)
        curve[level] = exact_mean(best[start + j - 1])
    return curve
