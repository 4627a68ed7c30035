"""All metric families, one definition each.

Most are functions of ranks: after junk is removed, query ``q`` has ``n`` positives at 1-based ranks
``r_1 < ... < r_n``, and the definition gives a value per query.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries
from reid_dist.core.segments import segment_sums
from reid_dist.metrics.discounts import discounts
from reid_dist.metrics.metric import METRICS, NEAREST, PAIRS, PROBES, SINGLE_SHOT, MetricFamily, rank_metric

Float64 = NDArray[np.float64]


def _per_relevant(total: Float64, ranked: RankedQueries) -> Float64:
    return total / np.maximum(ranked.n_relevant, 1)


def _among_first(ranked: RankedQueries, k: NDArray[np.int64] | int) -> NDArray[np.bool_]:
    """Whether each positive is among the first k."""
    found: NDArray[np.bool_] = ranked.rank <= np.repeat(np.broadcast_to(k, len(ranked.n_relevant)), ranked.n_relevant)
    return found


def _hits(ranked: RankedQueries, k: NDArray[np.int64] | int) -> Float64:
    """Positives among the first k."""
    return segment_sums(_among_first(ranked, k).astype(np.float64), ranked.indptr)


def _precisions(ranked: RankedQueries, k: NDArray[np.int64] | int) -> Float64:
    """Sum of j / r_j over the positives among the first k."""
    return segment_sums(np.where(_among_first(ranked, k), ranked.number / ranked.rank, 0.0), ranked.indptr)


@rank_metric(
    "mAP",
    "AP",
    "(1/n) sum_j j / r_j: rectangle rule, all positives in the denominator",
    "Zheng et al., ICCV 2015, as torchreid and fast-reid compute it; TREC `map`",
    brief="AP: rectangle rule",
    explanation="Rectangle rule: the mean of j / r_j over the relevant items j = 1 … n at ranks r_j; all n are in the "
    "denominator.",
    never_rises=True,
    headline="average",
    in_every_report=True,
)
def _average_precision(ranked: RankedQueries, _: int) -> Float64:
    return _per_relevant(segment_sums(ranked.number / ranked.rank, ranked.indptr), ranked)


@rank_metric(
    "mAP_trapezoid",
    "AP_trapezoid",
    "(1/n) sum_j (j / r_j + p_j) / 2, p_j the precision at rank r_j - 1 (1 at rank 1): trapezoid rule",
    "Philbin et al., CVPR 2007 (Oxford `compute_ap`), the original Market-1501 MATLAB code, revisitop",
    brief="AP: trapezoid rule",
    explanation="Trapezoid rule: the mean of (j / r_j + precision at rank r_j - 1) / 2 over the relevant items "
    "j = 1 … n at ranks r_j; all n are in the denominator.",
    never_rises=True,
    headline="average",
    in_every_report=True,
)
def _average_precision_trapezoid(ranked: RankedQueries, _: int) -> Float64:
    j, r = ranked.number, ranked.rank
    before = np.where(r > 1, (j - 1) / np.maximum(r - 1, 1), 1.0)
    return _per_relevant(segment_sums((j / r + before) / 2.0, ranked.indptr), ranked)


@rank_metric(
    "mINP",
    "INP",
    "n / r_n: how far down the hardest positive lies",
    "Ye et al., TPAMI 2021, eq. 3",
    brief="INP: rank of the last match",
    never_rises=True,
    needs_last=True,
    headline="last",
    in_every_report=True,
)
def _inverse_negative_penalty(ranked: RankedQueries, _: int) -> Float64:
    return ranked.n_relevant / ranked.last_rank


@rank_metric(
    "CMC@k",
    "CMC@k",
    "[r_1 <= k]: a match among the first k",
    "Zheng et al., ICCV 2015; rank-k accuracy; Recall@k of metric learning (SOP, CUB-200, In-Shop)",
    brief="CMC: rank of the first match",
    explanation="CMC@k: the share of queries that have a relevant item among the first k kept items. A list shorter "
    "than k holds its last value.",
    never_rises=True,
    first_alone=True,
    headline="match",
)
def _cumulative_match(ranked: RankedQueries, k: int) -> Float64:
    return (ranked.first_rank <= k).astype(np.float64)


@rank_metric(
    "mAP@k",
    "AP@k",
    "(1/n) sum over r_j <= k of j / r_j: cut at k, all positives in the denominator",
    "TREC `map_cut_k`; pytorch-metric-learning `mean_average_precision` from 1.6.2 on",
    never_rises=True,
    first_k_alone=True,
)
def _average_precision_cut(ranked: RankedQueries, k: int) -> Float64:
    return _per_relevant(_precisions(ranked, k), ranked)


@rank_metric(
    "mAP_min@k",
    "AP_min@k",
    "(1/min(n, k)) sum over r_j <= k of j / r_j: cut at k, at most k in the denominator",
    "Weyand et al., CVPR 2020 (Google Landmarks v2), retrieval mAP@100",
    explanation="mAP_min@k: the sum of j / r_j over the relevant items among the first k, divided by the number of "
    "relevant items that fit there: the smaller of n and k.",
    never_rises=True,
    first_k_alone=True,
)
def _average_precision_of_most(ranked: RankedQueries, k: int) -> Float64:
    return _precisions(ranked, k) / np.clip(ranked.n_relevant, 1, k)


@rank_metric(
    "mAP_R",
    "AP_R",
    "(1/n) sum over r_j <= n of j / r_j: cut at the number of relevant items",
    "MAP@R of Musgrave et al., ECCV 2020 (pytorch-metric-learning `mean_average_precision_at_r`)",
    explanation="mAP_R (MAP@R): the sum of j / r_j over the relevant items among the first n, divided by n, the number "
    "of relevant items of the query.",
    never_rises=True,
)
def _average_precision_at_r(ranked: RankedQueries, _: int) -> Float64:
    return _per_relevant(_precisions(ranked, ranked.n_relevant), ranked)


@rank_metric(
    "CMC_allshots@k",
    "CMC_allshots@k",
    "(1/n) sum_j [r_j - j + 1 <= k]: each match ranked among the negatives",
    "open-reid and cluster-contrast, `cmc` without `first_match_break`",
    brief="CMC: ranks of all matches",
    explanation="CMC_allshots@k: every relevant item counts on its own; it is a hit when fewer than k negatives "
    "come before it. The mean is over the relevant items of a query, then over the queries.",
    never_rises=True,
    headline="match",
)
def _cumulative_match_allshots(ranked: RankedQueries, k: int) -> Float64:
    among_negatives = ranked.rank - ranked.number + 1
    return _per_relevant(segment_sums((among_negatives <= k).astype(np.float64), ranked.indptr), ranked)


@rank_metric(
    "mAP_found@k",
    "AP_found@k",
    "(1/h) sum over r_j <= k of j / r_j, h positives found: cut at k, positives found in the denominator",
    "OML-Team/open-metric-learning oml/functional/metrics.py, calc_map (earlier versions of it: mAP_min@k)",
    per_found=True,
    first_k_alone=True,
)
def _average_precision_found(ranked: RankedQueries, k: int) -> Float64:
    return _precisions(ranked, k) / np.maximum(_hits(ranked, k), 1)


@rank_metric("MRR", "RR", "1 / r_1", "TREC `recip_rank`", never_rises=True, first_alone=True)
def _reciprocal_rank(ranked: RankedQueries, _: int) -> Float64:
    return 1.0 / ranked.first_rank


@rank_metric("Rprec", "Rprec", "#{r_j <= n} / n: precision at rank n", "TREC `Rprec`", never_rises=True)
def _r_precision(ranked: RankedQueries, _: int) -> Float64:
    return _per_relevant(_hits(ranked, ranked.n_relevant), ranked)


@rank_metric(
    "P@k",
    "P@k",
    "#{r_j <= k} / k",
    "TREC `P_k`",
    explanation="Mean precision at each rank k: relevant items in the first k / k.",
    never_rises=True,
    first_k_alone=True,
)
def _precision(ranked: RankedQueries, k: int) -> Float64:
    return _hits(ranked, k) / k


@rank_metric(
    "P_min@k",
    "P_min@k",
    "#{r_j <= k} / min(n, k): precision among the first k, at most n in the denominator",
    "OML-Team/open-metric-learning oml/functional/metrics.py, calc_precision",
    explanation="P_min@k: relevant items among the first k, divided by the number of relevant items that fit there: "
    "the smaller of n and k.",
    never_rises=True,
    first_k_alone=True,
)
def _precision_of_most(ranked: RankedQueries, k: int) -> Float64:
    return _hits(ranked, k) / np.clip(ranked.n_relevant, 1, k)


@rank_metric(
    "R@k",
    "R@k",
    "#{r_j <= k} / n",
    "TREC `recall_k`",
    explanation="Mean recall at each rank k: relevant items in the first k / all of them. What metric learning (SOP, "
    "CUB-200, In-Shop) calls Recall@k is CMC@k.",
    never_rises=True,
    first_k_alone=True,
)
def _recall(ranked: RankedQueries, k: int) -> Float64:
    return _per_relevant(_hits(ranked, k), ranked)


@rank_metric(
    "P_clipped@k",
    "P_clipped@k",
    "#{r_j <= K} / K with K = min(r_n, k): precision up to the last positive at most",
    "Radenovic et al., CVPR 2018 (revisitop)",
    never_rises=True,
    first_k_alone=True,
)
def _clipped_precision(ranked: RankedQueries, k: int) -> Float64:
    clipped = np.minimum(ranked.last_rank, k)
    return _hits(ranked, clipped) / clipped


@rank_metric(
    "nDCG@k",
    "nDCG@k",
    "sum over r_j <= k of 1 / log2(r_j + 1), over the sum of 1 / log2(j + 1) for j = 1 … min(n, k)",
    "Jarvelin and Kekalainen, TOIS 2002, with gains of 0 and 1, as scikit-learn `ndcg_score` and TREC `ndcg_cut_k`",
    explanation="nDCG@k (normalised discounted cumulative gain): every relevant item at rank r among the first k "
    "counts 1 / log2(r + 1); the sum is divided by that of a perfect ranking.",
    never_rises=True,
    first_k_alone=True,
)
def _discounted_gain(ranked: RankedQueries, k: int) -> Float64:
    found = ranked.rank <= k
    gains = np.zeros(len(ranked.rank))
    gains[found] = discounts(ranked.rank[found])
    # A perfect ranking has the positives that fit at the first places.
    fitting = np.clip(ranked.n_relevant, 1, k)
    best = np.cumsum(discounts(np.arange(1, fitting.max(initial=1) + 1)))
    return segment_sums(gains, ranked.indptr) / best[fitting - 1]


@rank_metric(
    "AUC",
    "AUC",
    "1 - (1/(n m)) sum_j (r_j - j), m the number of negatives: pairs of a positive and a negative in the right order",
    "Hanley and McNeil, Radiology 1982; per query as torchmetrics `RetrievalAUROC`",
    explanation="AUC: the area under the ROC of each query, which is the share of its pairs of a relevant and another "
    "kept item of which the relevant item comes first; 1 without another item. The mean is over queries; distances of "
    "different queries are not compared.",
    never_rises=True,
)
def _area_under_roc(ranked: RankedQueries, _: int) -> Float64:
    n = ranked.n_relevant
    wrong = segment_sums((ranked.rank - ranked.number).astype(np.float64), ranked.indptr)
    return 1.0 - wrong / np.maximum(n * (ranked.n_kept - n), 1)


# Metrics that ranks alone do not determine; `reid_dist.engine.reductions.single_shot_counts` and
# `reid_dist.engine.verification` compute them.
for _family in (
    MetricFamily(
        "CMC_single_shot@k",
        "mean_j P(K_j <= k - 1), K_j the identities of which a random kept item comes before positive j",
        "Li et al., CVPR 2014 (CUHK03); the expectation of torchreid's and open-reid's draws",
        brief="CMC: one item of each identity",
        explanation="CMC_single_shot@k: the gallery keeps one item of every identity; a relevant item is a hit when it "
        "is among the first k of that gallery.",
        per_query_name="CMC_single_shot@k",
        needs=SINGLE_SHOT,
        headline="match",
    ),
    MetricFamily(
        "TAR@FAR=x",
        "genuine pairs strictly nearer than the (floor(x N) + 1)-th nearest of N impostors, over all pairs not junk",
        "verification, as scikit-learn's `roc_curve` at its last fpr <= x",
        explanation="TAR (true accept rate): the share of genuine pairs nearer than the threshold.",
        needs=PAIRS,
    ),
    MetricFamily(
        "EER",
        "where the ROC, drawn with straight lines between its points, has FAR = 1 - TAR",
        "verification; the equal error rate",
        explanation="EER (equal error rate): the error where FAR and FRR are equal.",
        needs=PAIRS,
        lower_is_better=True,
    ),
    MetricFamily(
        "DIR@FAR=x",
        "mated probes with a mate at rank 1, at a threshold that accepts x of the probes without mate",
        "Phillips et al., Handbook of Face Recognition, 2011 (open-set identification)",
        explanation="DIR (detection and identification rate): the share of mated queries whose nearest kept row is "
        "relevant and nearer than the threshold; its FAR is the share of non-mated queries whose nearest row is nearer "
        "than the threshold. Non-mated are queries whose identity has no gallery row but those of junk pids.",
        needs=PROBES,
        needs_unknown=True,
    ),
    MetricFamily(
        "GAP",
        "(1/M) sum of c_i / i over the correct of all queries, c_i correct among the first i by nearest distance",
        "Perronnin et al., CVPR 2009; Google Landmarks v2 recognition (uAP)",
        explanation="GAP (global average precision, also uAP): the nearest kept row of every query is its answer, and "
        "its distance the confidence. All answers are in one ranking by distance, then by query; M is the number of "
        "valid queries. Its bounds under ties are over all orders of tied rows and of tied queries.",
        needs=NEAREST,
    ),
    MetricFamily(
        "BAKS@T=x",
        "mean over known identities of the share of queries with a relevant item at rank 1, nearer than distance x",
        "balanced accuracy on known samples: WildlifeDatasets `metrics.BAKS`, AnimalCLEF",
        explanation="BAKS (balanced accuracy on known samples): a query takes the identity of its nearest kept row, or "
        "is called new if that row is not nearer than x; an x beyond all distances accepts every row. The share of "
        "right answers is taken over the valid queries of each identity, then the mean over identities.",
        needs=NEAREST,
    ),
    MetricFamily(
        "BAKS_votes@k",
        "mean over known identities of the share of queries whose identity most of the k nearest kept rows have",
        "balanced accuracy on known samples, by the votes of wildlife-tools `KnnClassifier`",
        explanation="BAKS_votes@k: as BAKS without a threshold, but a query takes the identity that most of its k "
        "nearest kept rows have; of equally many, that of the least mean distance.",
        needs=NEAREST,
        of_one_query=True,
        without_bounds="the order of the rows that are tied at the k-th distance decides which of them vote, and rows "
        "beyond the k-th are not listed",
    ),
    MetricFamily(
        "BAUS@T=x",
        "mean over unknown identities of the share of queries whose nearest kept row is not nearer than distance x",
        "balanced accuracy on unknown samples: WildlifeDatasets `metrics.BAUS`, AnimalCLEF",
        explanation="BAUS (balanced accuracy on unknown samples): the share of queries that are called new, as under "
        "BAKS, is taken over the queries of each identity that no gallery row has, then the mean over identities. Rows "
        "of junk pids are not in the gallery.",
        needs=NEAREST,
        needs_unknown=True,
    ),
):
    METRICS.register(_family)
