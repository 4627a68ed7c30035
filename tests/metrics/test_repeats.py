"""Mean, spread and t interval of few values, against SciPy and NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from reid_dist.metrics.repeats import mean_and_spread, mean_interval, t_quantile


@pytest.mark.slow
@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 8, 9, 13, 30, 201])
@pytest.mark.parametrize("probability", [0.5, 0.7, 0.95, 0.975, 0.995, 0.9999])
def test_quantiles_are_those_of_scipy(probability: float, degrees: int) -> None:
    from scipy import stats

    assert t_quantile(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-9, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("n", [2, 3, 10, 31])
@pytest.mark.parametrize("level", [0.5, 0.9, 0.95, 0.999])
def test_intervals_are_those_of_scipy(n: int, level: float) -> None:
    from scipy import stats

    values = np.random.default_rng(n).random(n)
    low, high = stats.t.interval(level, n - 1, values.mean(), stats.sem(values))
    found = mean_interval(values.tolist(), level)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9)
    assert mean_and_spread(values.tolist()) == pytest.approx((values.mean(), values.std(ddof=1)), rel=1e-12)


def test_one_value_has_a_mean_alone() -> None:
    mean, spread = mean_and_spread([0.25])
    assert mean == 0.25
    assert math.isnan(spread)
    assert not mean_interval([0.25], 0.95).is_known


@pytest.mark.parametrize("missing", [math.nan, math.inf])
def test_a_missing_value_leaves_no_mean(missing: float) -> None:
    assert all(map(math.isnan, mean_and_spread([0.25, missing, 0.5])))
    assert not mean_interval([0.25, missing, 0.5], 0.95).is_known


def test_equal_values_have_no_spread() -> None:
    found = mean_interval([0.1] * 10, 0.95)
    assert mean_and_spread([0.1] * 10) == (0.1, 0.0)
    assert (found.low, found.high) == (0.1, 0.1)
