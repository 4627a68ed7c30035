"""Bisection against `bisect` of Python."""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reid_dist.kernels.bisection import first_at_least, first_at_most
from tests.support.compiled import from_python

first_at_least, first_at_most = map(from_python, (first_at_least, first_at_most))

NUMBERS = st.integers(-4, 4)


@given(st.lists(NUMBERS, max_size=12), NUMBERS, st.integers(0, 12), st.integers(0, 12))
def test_places_are_those_of_bisect(numbers: list[int], wanted: int, one: int, other: int) -> None:
    numbers.sort()
    start, stop = sorted(min(each, len(numbers)) for each in (one, other))
    values = np.array(numbers, np.int64)
    assert first_at_least(values, start, stop, wanted) == bisect_left(numbers, wanted, start, stop)
    # Falling values are their negatives in order.
    assert first_at_most(-values, start, stop, -wanted) == bisect_left(numbers, wanted, start, stop)
    halves = values + 0.5
    assert first_at_least(halves, start, stop, wanted + 0.5) == bisect_left(numbers, wanted, start, stop)
