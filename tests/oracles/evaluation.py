"""A whole report, one query at a time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from support.reference import Ranking, canonical_distances, rank_one_query

from oracles.protocols import CMC_FAMILY, INVALID_COUNTS_AS_ZERO, assign_relevance, true_reasons
from oracles.rank_metrics import (
    ALL_METRICS,
    RECALL_LEVELS,
    all_shots_at,
    average_precision,
    average_precision_trapezoid,
    cmc_at,
    interpolated_precision,
    inverse_negative_penalty,
    precision_at,
    recall_at,
    value,
)
from oracles.single_shot import ORDERS, expected_curve


@dataclass(frozen=True)
class Expected:
    """What an evaluation must answer; `reasons` holds the admissible ones of each query, {""} for a valid one.

    `curves` are those that every report has, `more_curves` those on request; `ties` holds the
    metrics once more with all ties settled for the positives, "optimistic", and against them, "pessimistic".
    """

    metrics: dict[str, float]
    ties: dict[str, dict[str, float]]
    curves: dict[str, np.ndarray]
    more_curves: dict[str, np.ndarray]
    per_query: dict[str, np.ndarray]
    counts: dict[str, int]
    reasons: list[set[str]]
    distances: np.ndarray = field(repr=False)
    relevant: np.ndarray = field(repr=False)
    junk: np.ndarray = field(repr=False)
    rankings: list[Ranking] = field(repr=False)


def mean_over(values, n):
    """The sum of what the valid queries have, by a number of queries."""
    return math.fsum(values) / n


def ranks_of(ranking, order):
    """The ranks of a `Ranking` under one order of ties."""
    return {"default": ranking.ranks, "optimistic": ranking.optimistic, "pessimistic": ranking.pessimistic}[order]


def evaluate(
    query,
    gallery,
    protocol="market1501",
    distance="cosine",
    metrics=ALL_METRICS,
    max_rank=50,
    *,
    distances=None,
    ground_truth=None,
    ties=False,
    absent=None,
):
    """Evaluate two `ItemSet`; None when no query has a relevant item.

    `distances` are the canonical ones, if known.  `absent` marks pairs (n_query, n_gallery) to be left out as if the
    item were not in the gallery.  Metrics are those of `rank_metrics` and ``CMC_single_shot@k``.
    """
    if distances is None:
        distances = canonical_distances(query.features, gallery.features, distance)
    relevant, junk = assign_relevance(query, gallery, protocol, ground_truth)
    invisible = junk if absent is None else junk | absent
    rankings = [
        rank_one_query(row, mask & ~hidden, hidden)
        for row, mask, hidden in zip(distances, relevant, invisible, strict=True)
    ]
    valid = [i for i, ranking in enumerate(rankings) if ranking.ranks]
    if not valid:
        return None
    n = len(query) if protocol in INVALID_COUNTS_AS_ZERO else len(valid)

    def mean_curve(one, length):
        return np.array([mean_over([one(rankings[i].ranks, k) for i in valid], n) for k in range(1, length + 1)])

    @cache  # several metrics and the curve are read off the same fractions
    def single_shot(order):
        longest = max([max_rank, *(int(name.partition("@")[2]) for name in metrics if name.startswith("CMC_single"))])
        curves = [
            expected_curve(distances[i], relevant[i] & ~invisible[i], invisible[i], gallery.pids, longest, order)
            for i in valid
        ]
        return np.array([mean_over(map(float, values), n) for values in zip(*curves, strict=True)])

    found = {}
    for order in ORDERS if ties else ORDERS[:1]:
        found[order] = {}
        for name in metrics:
            if name.startswith("CMC_single_shot@"):
                found[order][name] = single_shot(order)[int(name.partition("@")[2]) - 1]
            else:
                found[order][name] = mean_over([value(name, ranks_of(rankings[i], order)) for i in valid], n)

    columns = {
        "AP": average_precision,
        "AP_trapezoid": average_precision_trapezoid,
        "INP": inverse_negative_penalty,
        "first_rank": lambda ranks: ranks[0],
        "n_relevant": len,
    }
    family = CMC_FAMILY.get(protocol, "CMC")
    if family == "CMC_single_shot":
        cmc = single_shot("default")[:max_rank]
    else:
        cmc = mean_curve(all_shots_at if family == "CMC_allshots" else cmc_at, max_rank)
    interpolated = [interpolated_precision(rankings[i].ranks) for i in valid]
    return Expected(
        metrics=found.pop("default"),
        ties=found,
        curves={
            family: cmc,
            "precision_recall": np.array(
                [mean_over([curve[level] for curve in interpolated], n) for level in range(RECALL_LEVELS)]
            ),
        },
        more_curves={"P": mean_curve(precision_at, max_rank), "R": mean_curve(recall_at, max_rank)},
        per_query={
            name: np.array([float(column(ranking.ranks)) if ranking.ranks else math.nan for ranking in rankings])
            for name, column in columns.items()
        },
        counts={
            "n_query": len(query),
            "n_valid": len(valid),
            "n_gallery": len(gallery),
            "n_junk": int(junk.sum()),
        },
        reasons=[true_reasons(query, gallery, protocol, i, relevant[i], junk[i]) for i in range(len(query))],
        distances=distances,
        relevant=relevant,
        junk=junk,
        rankings=rankings,
    )
