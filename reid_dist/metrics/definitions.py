"""Metrics, each under the name of its convention.

After junk is removed, query ``q`` has ``n`` positives at 1-based ranks ``r_1 < ... < r_n``.  A rank metric is one
definition here: a value per query, and the mean over queries.  The mean is exactly rounded (`math.fsum`), so no order
of merging can show in it.  Metrics that are no function of the ranks alone are named here as well, with what they need;
`reid_dist.engine.verification` and `reid_dist.engine.reductions.single_shot` compute them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from reid_dist.core.model import RankedQueries
from reid_dist.core.registry import Registry, did_you_mean
from reid_dist.core.segments import segment_sums
from reid_dist.errors import InputError, UnknownNameError

__all__ = [
    "LARGEST_RANK",
    "METRICS",
    "Metric",
    "MetricFamily",
    "default_metrics",
    "exact_mean",
    "metric_names",
    "notes_on_metrics",
    "parse_metric",
    "parse_metrics",
    "reported_name",
]

Float64 = NDArray[np.float64]

# What a metric is computed from.
RANKS = "ranks"
SINGLE_SHOT = "single_shot"
PAIRS = "pairs"
PROBES = "probes"

LARGEST_RANK = 2**31 - 1
"""No set has more items, and 32 bits hold it wherever a rank is counted."""


@dataclass(frozen=True)
class MetricFamily:
    """A metric, or a family of metrics with one parameter.

    Attributes
    ----------
    name
        ``mAP``, or with the place of the parameter: ``CMC@k``, ``TAR@FAR=x``.
    summary, source
        For people.
    per_query_name
        Name of its per-query values, with ``k`` where the parameter goes; empty where there are none.
    per_query
        Values of all queries, shape (n_query,), float64; those of invalid queries are ignored.  Takes the ranks and
        the parameter (0 when there is none).  None where ranks alone do not say it.
    needs
        What it is computed from: ``ranks``; ``single_shot`` draws; ``pairs``, all that are not junk; or ``probes``.
    per_found
        Whether its denominator counts the positives among the first k, so that it may rise when a positive moves down.
        All other functions of ranks never do.
    """

    name: str
    summary: str
    source: str
    per_query_name: str = ""
    per_query: Callable[[RankedQueries, int], Float64] | None = None
    needs: str = RANKS
    per_found: bool = False

    @property
    def has_parameter(self) -> bool:
        """Whether it takes a parameter."""
        return "@" in self.name

    @property
    def takes_share(self) -> bool:
        """Whether that is a false accept rate and not a rank."""
        return self.name.endswith("=x")


@dataclass(frozen=True)
class Metric:
    """One metric: a family with its parameter.

    Attributes
    ----------
    family
        What it is one of.
    parameter
        The rank, 0 where it takes none.
    share
        The false accept rate as it was written, such as ``1e-3``; empty where it takes none.
    """

    family: MetricFamily
    parameter: int = 0
    share: str = ""

    @property
    def name(self) -> str:
        """Name in reports."""
        return self._fill(self.family.name)

    @property
    def per_query_name(self) -> str:
        """Name of its per-query values."""
        return self._fill(self.family.per_query_name)

    @property
    def false_accept_rate(self) -> Fraction:
        """The share as an exact number: 0.001 is one in a thousand, not the float beside it."""
        return Fraction(self.share)

    def _fill(self, name: str) -> str:
        if name.endswith("=x"):
            return name.removesuffix("x") + self.share
        stem, at, _ = name.partition("@")
        return f"{stem}@{self.parameter}" if at else name

    def values(self, ranked: RankedQueries) -> Float64:
        """Value of every query, NaN for those without positives; shape (n_query,), float64."""
        if self.family.per_query is None:
            raise AssertionError(f"{self.name} is no function of ranks")
        return np.where(ranked.n_relevant > 0, self.family.per_query(ranked, self.parameter), np.nan)


METRICS: Registry[MetricFamily] = Registry("metric")


def _metric(
    name: str, per_query_name: str, summary: str, source: str, *, per_found: bool = False
) -> Callable[[Callable[[RankedQueries, int], Float64]], Callable[[RankedQueries, int], Float64]]:
    """Register a per-query function as a metric."""

    def register(function: Callable[[RankedQueries, int], Float64]) -> Callable[[RankedQueries, int], Float64]:
        METRICS.register(MetricFamily(name, summary, source, per_query_name, function, per_found=per_found))
        return function

    return register


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


@_metric(
    "mAP",
    "AP",
    "(1/n) sum_j j / r_j: rectangle rule, all positives in the denominator",
    "Zheng et al., ICCV 2015, as torchreid and fast-reid compute it; TREC `map`",
)
def _average_precision(ranked: RankedQueries, _: int) -> Float64:
    return _per_relevant(segment_sums(positive_number(ranked) / ranked.rank, ranked.indptr), ranked)


@_metric(
    "mAP_trapezoid",
    "AP_trapezoid",
    "(1/n) sum_j (j / r_j + p_j) / 2, p_j the precision at rank r_j - 1 (1 at rank 1): trapezoid rule",
    "Philbin et al., CVPR 2007 (Oxford `compute_ap`), the original Market-1501 MATLAB code, revisitop",
)
def _average_precision_trapezoid(ranked: RankedQueries, _: int) -> Float64:
    j, r = positive_number(ranked), ranked.rank
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
    terms = np.where(ranked.rank <= k, positive_number(ranked) / ranked.rank, 0.0)
    return _per_relevant(segment_sums(terms, ranked.indptr), ranked)


@_metric(
    "CMC_allshots@k",
    "CMC_allshots@k",
    "(1/n) sum_j [r_j - j + 1 <= k]: each match ranked among the negatives",
    "open-reid and cluster-contrast, `cmc` without `first_match_break`",
)
def _cumulative_match_allshots(ranked: RankedQueries, k: int) -> Float64:
    among_negatives = ranked.rank - positive_number(ranked) + 1
    return _per_relevant(segment_sums((among_negatives <= k).astype(np.float64), ranked.indptr), ranked)


METRICS.register(
    MetricFamily(
        "CMC_single_shot@k",
        "mean_j P(K_j <= k - 1), K_j the identities of which a random kept item comes before positive j",
        "Li et al., CVPR 2014 (CUHK03); the expectation of torchreid's and open-reid's draws",
        "CMC_single_shot@k",
        needs=SINGLE_SHOT,
    )
)


@_metric(
    "mAP_found@k",
    "AP_found@k",
    "(1/h) sum over r_j <= k of j / r_j, h positives found: cut at k, positives found in the denominator",
    "OML (open-metric-learning) `map@k`",
    per_found=True,
)
def _average_precision_found(ranked: RankedQueries, k: int) -> Float64:
    terms = np.where(ranked.rank <= k, positive_number(ranked) / ranked.rank, 0.0)
    return segment_sums(terms, ranked.indptr) / np.maximum(_hits(ranked, k), 1)


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


@_metric(
    "P_clipped@k",
    "P_clipped@k",
    "#{r_j <= K} / K with K = min(r_n, k): precision up to the last positive at most",
    "Radenovic et al., CVPR 2018 (revisitop)",
)
def _clipped_precision(ranked: RankedQueries, k: int) -> Float64:
    clipped = np.minimum(last_rank(ranked), k)
    return _hits(ranked, clipped) / clipped


METRICS.register(
    MetricFamily(
        "TAR@FAR=x",
        "genuine pairs strictly nearer than the (floor(x N) + 1)-th nearest of N impostors, over all pairs not junk",
        "verification, as scikit-learn's `roc_curve` at its last fpr <= x",
        needs=PAIRS,
    )
)
METRICS.register(
    MetricFamily(
        "EER",
        "where the ROC, drawn with straight lines between its points, has FAR = 1 - TAR",
        "verification; the equal error rate",
        needs=PAIRS,
    )
)
METRICS.register(
    MetricFamily(
        "DIR@FAR=x",
        "mated probes with a mate at rank 1, at a threshold that accepts x of the probes without mate",
        "Phillips et al., Handbook of Face Recognition, 2011 (open-set identification)",
        needs=PROBES,
    )
)


# How the field writes CMC@k; `R@k` is none of these, it is TREC's recall.
_RANK_K = re.compile(r"(?:(?:rank|top|hit)[-_@ ]?|r[-_]?)(?P<rank>[0-9]+)", re.IGNORECASE)
_WITH_PARAMETER = re.compile(r"(?P<stem>[^@]+)@(?P<parameter>.+)")
_RANK = re.compile(r"0*[1-9][0-9]{0,9}")
_DECIMAL = re.compile(r"[0-9]*\.?[0-9]+([eE][+-]?[0-9]{1,3})?|[0-9]+\.")


def parse_metric(text: str) -> Metric:
    """Read a metric's name: ``mAP``, ``CMC@10``.

    ``rank-K``, ``rankK``, ``RK``, ``top-K``, ``topK`` and ``hit@K``, in any case, are other spellings of ``CMC@K``.

    Raises
    ------
    UnknownNameError
        For a name that no metric has; the message holds the nearest known one.
    InputError
        For a parameter that is not a positive integer.
    """
    if (spelled := _RANK_K.fullmatch(text)) is not None:
        return Metric(METRICS.get("CMC@k"), _rank(text, spelled["rank"]))
    match = _WITH_PARAMETER.fullmatch(text)
    if match is None:
        if text in METRICS and not METRICS.get(text).has_parameter:
            return Metric(METRICS.get(text))
        if f"{text}@k" in METRICS:
            raise InputError(f"metric {text!r} needs a rank: {text}@10, for example")
        if f"{text}@FAR=x" in METRICS:
            raise InputError(f"metric {text!r} needs a false accept rate: {text}@FAR=0.001, for example")
        raise UnknownNameError(did_you_mean("metric", text, METRICS.names()))
    stem, parameter = match["stem"], match["parameter"]
    name, equals, share = f"{stem}@k", "", ""
    if f"{stem}@FAR=x" in METRICS:
        name, (before, equals, share) = f"{stem}@FAR=x", parameter.partition("=")
        if before != "FAR" or not equals:
            raise InputError(f"metric {text!r} takes a false accept rate: {stem}@FAR=0.001, for example")
        return Metric(METRICS.get(name), share=_share(text, share))
    if name not in METRICS:
        raise UnknownNameError(did_you_mean("metric", text, METRICS.names()))
    return Metric(METRICS.get(name), _rank(text, parameter))


def _rank(metric: str, text: str) -> int:
    """Validate a rank."""
    if _RANK.fullmatch(text) is None or int(text) > LARGEST_RANK:
        raise InputError(
            f"metric {metric!r}: the rank after @ must be a positive integer, at most 2**31 - 1, found {text!r}"
        )
    return int(text)


def _share(metric: str, text: str) -> str:
    """Validate a false accept rate."""
    if _DECIMAL.fullmatch(text) is None or not 0 <= Fraction(text) <= 1:
        raise InputError(f"metric {metric!r}: the false accept rate must be a number from 0 to 1, found {text!r}")
    return text


def metric_names(given: object) -> list[str]:
    """Return names of metrics as a list: of a list of names, or of one text; commas separate names in either.

    Raises
    ------
    InputError
        If it is neither, or a name is empty.
    """
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise InputError(f"metrics must be a list of names such as 'mAP', found {given!r}")
    names = [name.strip() for text in texts for name in text.split(",")]
    if "" in names:
        raise InputError(f"metrics must be names such as 'mAP', and one of {given!r} is empty")
    return names


def parse_metrics(names: str | Sequence[str]) -> list[Metric]:
    """Read several names; one that is given twice counts once.

    Parameters
    ----------
    names
        As `metric_names` takes them.

    Raises
    ------
    UnknownNameError, InputError
        As `parse_metric` and `metric_names`.
    """
    return list({metric.name: metric for metric in map(parse_metric, metric_names(names))}.values())


def reported_name(name: str) -> str:
    """Return the name under which reports have a metric, whatever its spelling; what is no metric, as it is."""
    try:
        return parse_metric(name).name
    except InputError:
        return name


def notes_on_metrics(metrics: Sequence[Metric]) -> list[str]:
    """Return what a reader may mistake about metrics: that ``R@k`` is not the hit rate that others write so."""
    recall = [metric for metric in metrics if metric.family.name == "R@k"]
    if not recall:
        return []
    names, rates = ", ".join(metric.name for metric in recall), ", ".join(f"CMC@{each.parameter}" for each in recall)
    return [
        f"{names}: recall, the share of all relevant items among the first k; the hit rate (a match among the first k) "
        f"is {rates}"
    ]


def default_metrics(cmc_family: str, ap_family: str, reported: Sequence[str] = ()) -> list[str]:
    """What is reported when nothing is asked for: mAP, mINP, the protocol's AP, its CMC at 1, 5 and 10, and its own."""
    names = ["mAP", "mINP"] + ([ap_family] if ap_family != "mAP" else [])
    return [*names, *(f"{cmc_family}@{k}" for k in (1, 5, 10)), *reported]


def exact_mean(values: Float64, *, zero_for_invalid: bool = False) -> float:
    """Mean of per-query values: their exact sum, rounded once, divided by their number.

    Parameters
    ----------
    values
        Shape (n_query,), NaN for invalid queries.
    zero_for_invalid
        Whether an invalid query counts as 0; otherwise it is left out.
    """
    kept = values[~np.isnan(values)]
    number = len(values) if zero_for_invalid else len(kept)
    return math.fsum(kept.tolist()) / number if number else math.nan
