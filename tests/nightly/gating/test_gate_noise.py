"""The noise floor: its spread, and how sure it is of it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reid_dist.nightly.gating.ratios import degrees_of_freedom, noise_floor, spread


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 20, 40])
def test_spread_of_normal_values_is_their_standard_deviation(n: int) -> None:
    values = np.random.default_rng(n).standard_normal((6000, n))
    found = np.array([spread(row) for row in values])
    assert found.mean() == pytest.approx(1, abs=0.06 if n > 3 else 0.35)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("n", [7, 10, 15, 20, 30, 60])
def test_degrees_of_freedom_match_the_variance_of_the_spread(n: int) -> None:
    values = np.random.default_rng(n).standard_normal((6000, n))
    found = np.array([spread(row) for row in values])
    known = 1 / (2 * np.var(found / found.mean()))
    assert degrees_of_freedom(n) <= 1.1 * known
    assert degrees_of_freedom(n) >= 0.6 * known


def test_spread_is_that_of_most_when_a_third_are_odd() -> None:
    rng = np.random.default_rng(0)
    plain = rng.standard_normal((500, 21))
    odd = plain.copy()
    odd[:, :7] += 1000
    ratios = [spread(with_odd) / spread(without) for with_odd, without in zip(odd, plain, strict=True)]
    assert np.median(ratios) < 3


@pytest.mark.slow
@pytest.mark.parametrize("n", [7, 12, 20])
@pytest.mark.parametrize("rate", [0.005, 0.05])
def test_noise_exceeds_its_floor_at_the_given_rate(n: int, rate: float) -> None:
    from scipy import stats

    rng = np.random.default_rng(n)
    n_nights = 8000
    past, tonight = 5 + 0.1 * rng.standard_normal((n_nights, n)), 5 + 0.1 * rng.standard_normal(n_nights)
    beyond = sum(new - np.median(logs) > noise_floor(logs, rate) for logs, new in zip(past, tonight, strict=True))
    assert stats.binomtest(int(beyond), n_nights, 1.3 * rate, alternative="greater").pvalue > 0.001


def test_equal_runs_have_no_noise_and_few_runs_a_wide_floor() -> None:
    assert noise_floor(np.full(9, 3.0), 0.01) == 0
    few, many = (noise_floor(np.linspace(0, 1, n), 0.01) for n in (5, 40))
    assert few > 3 * many > 0
    assert noise_floor(np.array([0.0, 0.1, 0.2]), 0.5) == pytest.approx(0, abs=1e-12)
    assert math.isfinite(noise_floor(np.array([0.0, 0.1]), 1e-9))
