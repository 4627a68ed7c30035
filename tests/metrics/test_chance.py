"""Metrics of random orders, against all orders of few items and against draws."""

from __future__ import annotations

from itertools import combinations
from math import fsum

import numpy as np
import pytest

from reid_dist.metrics.chance import chance_average_precision, chance_cmc


def average_precision(ranks) -> float:
    return sum(j / r for j, r in enumerate(ranks, start=1)) / len(ranks)


@pytest.mark.parametrize("n_kept", range(1, 9))
def test_all_orders_of_few_items(n_kept: int) -> None:
    """Orders differ in the ranks of the relevant items alone."""
    for n in range(1, n_kept + 1):
        orders = list(combinations(range(1, n_kept + 1), n))
        values = [average_precision(ranks) for ranks in orders]
        found = chance_average_precision(np.array([n]), np.array([n_kept]))
        np.testing.assert_allclose(found.mean, np.mean(values), rtol=1e-13)
        np.testing.assert_allclose(found.variance, np.var(values), atol=1e-14)
        for k in range(1, n_kept + 3):
            matches = [ranks[0] <= k for ranks in orders]
            found = chance_cmc(np.array([n]), np.array([n_kept]), k)
            np.testing.assert_allclose(found.mean, np.mean(matches), rtol=1e-13)
            np.testing.assert_allclose(found.variance, np.var(matches), atol=1e-14)


def test_random_orders_of_many_items() -> None:
    rng = np.random.default_rng(0)
    shapes = [(5, 500), (15, 5000), (200, 1500)]
    found = chance_average_precision(*np.array(shapes).T)
    for place, (n, n_kept) in enumerate(shapes):
        values = [average_precision(np.sort(rng.choice(n_kept, n, replace=False)) + 1) for _ in range(4000)]
        spread = np.std(values)
        assert abs(np.mean(values) - found.mean[place]) < 4 * spread / np.sqrt(len(values))
        np.testing.assert_allclose(np.sqrt(found.variance[place]), spread, rtol=0.2)


@pytest.mark.parametrize("n_kept", [1024, 1025, 3000, 2_000_000])
def test_one_relevant_item_of_many(n_kept: int) -> None:
    """AP is 1 / r, at every rank alike."""
    mean = fsum(1 / r for r in range(1, n_kept + 1)) / n_kept
    square = fsum(1 / r**2 for r in range(1, n_kept + 1)) / n_kept
    found = chance_average_precision(np.array([1]), np.array([n_kept]))
    np.testing.assert_allclose(found.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(found.variance, square - mean**2, rtol=1e-12)
