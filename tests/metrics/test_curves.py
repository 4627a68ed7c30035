"""Curves over ranks and recall, of ranks that are drawn."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from reid_dist.core.model import RankedQueries
from reid_dist.metrics import curves
from reid_dist.metrics.metric import parse_metric


def drawn(n_query: int, n_kept: int) -> RankedQueries:
    """Ranks of up to seven positives of each query; every fifth query has none."""
    rng = np.random.default_rng(n_query)
    number = np.where(np.arange(n_query) % 5 == 0, 0, rng.integers(1, 8, n_query))
    ranks = [np.sort(rng.choice(n_kept, size, replace=False)) + 1 for size in number]
    flat = np.concatenate(ranks).astype(np.int64)
    nothing, queries = np.zeros(len(flat), np.int64), np.zeros(n_query, np.int64)
    return RankedQueries(
        indptr=np.concatenate([[0], np.cumsum(number)]),
        rank=flat,
        tied=nothing,
        tied_before=nothing,
        row=nothing,
        distance=nothing.astype(np.float64),
        n_kept=queries + n_kept,
        n_junk=queries,
        reason=queries.astype(np.uint8),
    )


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("zero_for_invalid", [False, True])
@pytest.mark.parametrize("values", [1, 100, 2**20])
def test_precision_at_each_recall(monkeypatch: pytest.MonkeyPatch, zero_for_invalid: bool, values: int) -> None:
    """The largest precision among the points whose recall reaches the level, however many levels go together."""
    monkeypatch.setattr(curves, "_MOST_VALUES", values)
    ranked = drawn(23, 40)
    found = curves.mean_precision_recall(ranked, zero_for_invalid=zero_for_invalid)
    of_queries = [ranked.rank[start:end].tolist() for start, end in zip(ranked.indptr, ranked.indptr[1:], strict=False)]
    valid = [ranks for ranks in of_queries if ranks]
    for level in range(101):
        total = sum(
            max(Fraction(j, rank) for j, rank in enumerate(ranks, 1) if Fraction(j, len(ranks)) >= Fraction(level, 100))
            for ranks in valid
        )
        assert found[level] == pytest.approx(float(total / (23 if zero_for_invalid else len(valid))), rel=1e-14)


@pytest.mark.parametrize("zero_for_invalid", [False, True])
def test_curves_over_ranks_are_the_metrics_at_each_rank(zero_for_invalid: bool) -> None:
    ranked = drawn(17, 30)
    found = curves.rank_curves(ranked, 12, zero_for_invalid=zero_for_invalid)
    found["CMC"] = curves.cmc_curve(ranked, 12, zero_for_invalid=zero_for_invalid)
    number = 17 if zero_for_invalid else np.count_nonzero(ranked.n_relevant)
    for name, curve in found.items():
        for rank in range(1, 13):
            values = parse_metric(f"{name}@{rank}").values(ranked)
            assert curve[rank - 1] == pytest.approx(np.nansum(values) / number, rel=1e-14), (name, rank)
