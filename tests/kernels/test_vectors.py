"""Sums of rows against loops over their elements, in Python's numbers and in exact ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import examples

from reid_dist.kernels.settings import kernel
from reid_dist.kernels.vectors import (
    LANES,
    dot,
    single_dot,
    squared_difference,
    two_dots,
    two_single_dots,
)

Rows = np.ndarray


@kernel
def sums(x: Any, y: Any, z: Any) -> Any:
    """Every sum of float32 rows."""
    first, second = two_dots(x, y, z)
    third, fourth = two_single_dots(x, y, z)
    return dot(x, y), first, second, single_dot(x, y), third, fourth, squared_difference(x, y)


def in_order(x: Rows, y: Rows, term: Callable[[Any, Any], Any], number: type[np.floating]) -> float:
    """Sum of terms: element ``i`` in lane ``i mod 32``, and lanes in halves."""
    lanes = [number(0)] * LANES
    for place, (a, b) in enumerate(zip(x, y, strict=True)):
        lanes[place % LANES] = lanes[place % LANES] + term(number(a), number(b))
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[k] + lanes[k + half] for k in range(half)]
    return float(lanes[0])


def expected(x: Rows, y: Rows, z: Rows) -> list[float]:
    doubles = [in_order(x, each, lambda a, b: a * b, np.float64) for each in (y, z)]
    singles = [in_order(x, each, lambda a, b: a * b, np.float32) for each in (y, z)]
    difference = in_order(x, y, lambda a, b: (a - b) * (a - b), np.float64)
    return [doubles[0], *doubles, singles[0], *singles, difference]


@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(0, 140), scale=st.sampled_from([1e-30, 1e-3, 1.0, 1e15]))
@settings(max_examples=examples(60), deadline=None)
def test_sums_are_in_the_documented_order_bit_for_bit(seed: int, dim: int, scale: float) -> None:
    rows = np.random.default_rng(seed).standard_normal((3, dim)).astype(np.float32) * np.float32(scale)
    with np.errstate(over="ignore", under="ignore"):
        assert [*sums(*rows)] == expected(*rows) == [*sums.py_func(*rows)]


@pytest.mark.parametrize("first", [0, 1, 3])
def test_rows_may_begin_anywhere_in_memory(first: int) -> None:
    memory = np.random.default_rng(1).standard_normal(3 * 70 + 8).astype(np.float32)
    rows = memory[first : first + 210].reshape(3, 70)
    assert [*sums(*rows)] == expected(*rows)


def test_numbers_that_are_not_finite_stay_so() -> None:
    rows = np.ones((3, 75), np.float32)
    rows[1, 74], rows[2, 3] = np.nan, np.inf
    found = sums(*rows)
    assert np.isnan([found[0], found[1], found[3], found[4], found[6]]).all()
    assert found[2] == found[5] == np.inf


def test_rows_that_are_not_together_in_memory_are_refused() -> None:
    every_second = np.ones((3, 8), np.float32)[:, ::2]
    with pytest.raises(TypeError, match="C order"):
        sums(*every_second)
