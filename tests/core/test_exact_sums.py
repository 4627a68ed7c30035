"""Exact sums against `math.fsum`."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reid_dist.core.exact_sums import exact_sum

_COUNTS = st.sampled_from([0, 1, 2, 255, 256, 257, 1000, 4096, 5000])


@given(
    n=_COUNTS,
    seed=st.integers(0, 2**32 - 1),
    kind=st.sampled_from(["ratios", "spread", "cancelling", "equal", "half units"]),
    scale=st.sampled_from([0, -1074, -900, -300, 300, 1010]),
)
def test_equals_the_sum_rounded_once(n: int, seed: int, kind: str, scale: int) -> None:
    rng = np.random.default_rng(seed)
    values = {
        "ratios": rng.integers(0, 50, n) / rng.integers(1, 30_000, n),
        "spread": rng.standard_normal(n) * 10.0 ** rng.integers(-30, 3, n),
        "cancelling": np.concatenate([rng.random(n - n // 2), -rng.random(n // 2)]),
        "equal": np.full(n, rng.random()),
        # Sums that lie halfway between two numbers, or next to there.
        "half units": rng.choice([1.0, -1.0, 2.0**-53, -(2.0**-53), 2.0**-100], n),
    }[kind]
    with np.errstate(under="ignore"):
        values = np.ldexp(values, scale)
    assert exact_sum(values) == math.fsum(values.tolist())
    assert exact_sum(values[::-1]) == exact_sum(values)
    assert exact_sum(np.stack([values, values], axis=1)[:, 0]) == exact_sum(values)


def test_values_that_are_no_numbers() -> None:
    values = np.ones(1000)
    values[[3, 5]] = np.inf, np.nan
    assert math.isnan(exact_sum(values))
    assert exact_sum(values[:5]) == math.inf
    values[5] = 1.0
    assert exact_sum(values) == math.inf
    values[7] = -np.inf
    with pytest.raises(ValueError, match="inf"):
        exact_sum(values)
