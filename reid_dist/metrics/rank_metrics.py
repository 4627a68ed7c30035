"""Metrics that are functions of the ranks of the positives.

After junk is removed, query ``q`` has ``n`` positives at 1-based ranks ``r_1 < ... < r_n``.  A metric is one definition
here: a value per query.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries
from reid_dist.core.segments import segment_sums
from reid_dist.metrics.families import rank_metric

Float64 = NDArray[np.float64]


def positive_number(ranked: RankedQueries) -> NDArray[np.int64]:
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


@rank_metric(
    "mAP",
    "AP",
    "(1/n) sum_j j / r_j: rectangle rule, all positives in the denominator",
    "Zheng et al., ICCV 2015, as torchreid and fast-reid compute it; TREC `map`",
    explanation="Rectangle rule: the mean of j / r_j over the relevant items j = 1 … n at ranks r_j; all n are in the "
    "denominator.",
    never_rises=True,
    headline="average",
    in_every_report=True,
)
def _average_precision(ranked: RankedQueries, _: int) -> Float64:
    return _per_relevant(segment_sums(positive_number(ranked) / ranked.rank, ranked.indptr), ranked)


@rank_metric(
    "mAP_trapezoid",
    "AP_trapezoid",
    "(1/n) sum_j (j / r_j + p_j) / 2, p_j the precision at rank r_j - 1 (1 at rank 1): trapezoid rule",
    "Philbin et al., CVPR 2007 (Oxford `compute_ap`), the original Market-1501 MATLAB code, revisitop",
    explanation="Trapezoid rule: the mean of (j / r_j + precision at rank r_j - 1) / 2 over the relevant items "
    "j = 1 … n at ranks r_j; all n are in the denominator.",
    never_rises=True,
    headline="average",
    in_every_report=True,
)
def _average_precision_trapezoid(ranked: RankedQueries, _: int) -> Float64:
    j, r = positive_number(ranked), ranked.rank
    before = np.where(r > 1, (j - 1) / np.maximum(r - 1, 1), 1.0)
    return _per_relevant(segment_sums((j / r + before) / 2.0, ranked.indptr), ranked)


@rank_metric(
    "mINP",
    "INP",
    "n / r_n: how far down the hardest positive lies",
    "Ye et al., TPAMI 2021, eq. 3",
    never_rises=True,
    needs_last=True,
    headline="last",
    in_every_report=True,
)
def _inverse_negative_penalty(ranked: RankedQueries, _: int) -> Float64:
    return ranked.n_relevant / last_rank(ranked)


@rank_metric(
    "CMC@k",
    "CMC@k",
    "[r_1 <= k]: a match among the first k",
    "Zheng et al., ICCV 2015; rank-k accuracy",
    explanation="CMC@k: the share of queries that have a relevant item among the first k kept items. A list shorter "
    "than k holds its last value.",
    never_rises=True,
    headline="match",
)
def _cumulative_match(ranked: RankedQueries, k: int) -> Float64:
    return (first_rank(ranked) <= k).astype(np.float64)


@rank_metric(
    "mAP@k",
    "AP@k",
    "(1/n) sum over r_j <= k of j / r_j: cut at k, all positives in the denominator",
    "TREC `map_cut_k`",
    never_rises=True,
)
def _average_precision_cut(ranked: RankedQueries, k: int) -> Float64:
    terms = np.where(ranked.rank <= k, positive_number(ranked) / ranked.rank, 0.0)
    return _per_relevant(segment_sums(terms, ranked.indptr), ranked)


@rank_metric(
    "CMC_allshots@k",
    "CMC_allshots@k",
    "(1/n) sum_j [r_j - j + 1 <= k]: each match ranked among the negatives",
    "open-reid and cluster-contrast, `cmc` without `first_match_break`",
    explanation="CMC_allshots@k: every relevant item counts on its own; it is a hit when fewer than k negatives "
    "come before it. The mean is over the relevant items of a query, then over the queries.",
    never_rises=True,
    headline="match",
)
def _cumulative_match_allshots(ranked: RankedQueries, k: int) -> Float64:
    among_negatives = ranked.rank - positive_number(ranked) + 1
    return _per_relevant(segment_sums((among_negatives <= k).astype(np.float64), ranked.indptr), ranked)


@rank_metric(
    "mAP_found@k",
    "AP_found@k",
    "(1/h) sum over r_j <= k of j / r_j, h positives found: cut at k, positives found in the denominator",
    "OML (open-metric-learning) `map@k`",
    per_found=True,
)
def _average_precision_found(ranked: RankedQueries, k: int) -> Float64:
    terms = np.where(ranked.rank <= k, positive_number(ranked) / ranked.rank, 0.0)
    return segment_sums(terms, ranked.indptr) / np.maximum(_hits(ranked, k), 1)


@rank_metric(
    "MRR",
    "RR",
    "1 / r_1",
    "TREC `recip_rank`",
    never_rises=True,
)
def _reciprocal_rank(ranked: RankedQueries, _: int) -> Float64:
    return 1.0 / first_rank(ranked)


@rank_metric(
    "Rprec",
    "Rprec",
    "#{r_j <= n} / n: precision at rank n",
    "TREC `Rprec`",
    never_rises=True,
)
def _r_precision(ranked: RankedQueries, _: int) -> Float64:
    return _per_relevant(_hits(ranked, ranked.n_relevant), ranked)


@rank_metric(
    "P@k",
    "P@k",
    "#{r_j <= k} / k",
    "TREC `P_k`",
    explanation="Mean precision at each rank k: relevant items in the first k / k.",
    never_rises=True,
)
def _precision(ranked: RankedQueries, k: int) -> Float64:
    return _hits(ranked, k) / k


@rank_metric(
    "R@k",
    "R@k",
    "#{r_j <= k} / n",
    "TREC `recall_k`",
    explanation="Mean recall at each rank k: relevant items in the first k / all of them.",
    never_rises=True,
)
def _recall(ranked: RankedQueries, k: int) -> Float64:
    return _per_relevant(_hits(ranked, k), ranked)


@rank_metric(
    "P_clipped@k",
    "P_clipped@k",
    "#{r_j <= K} / K with K = min(r_n, k): precision up to the last positive at most",
    "Radenovic et al., CVPR 2018 (revisitop)",
    never_rises=True,
)
def _clipped_precision(ranked: RankedQueries, k: int) -> Float64:
    clipped = np.minimum(last_rank(ranked), k)
    return _hits(ranked, clipped) / clipped
