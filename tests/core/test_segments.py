"""Sums within segments against plain loops, bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reid_dist.core.segments import order_of_rows, owners, segment_running_sums, segment_suffix_maxima, segment_sums


@given(sizes=st.lists(st.integers(0, 40), max_size=20), seed=st.integers(0, 2**32 - 1))
def test_segments_are_loops(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    values = rng.standard_normal(indptr[-1]) * 10.0 ** rng.integers(-8, 8, indptr[-1])
    counts = rng.integers(0, 1000, indptr[-1])
    sums, running, maxima = [], [], []
    for start, stop in itertools.pairwise(indptr):
        total = 0.0
        for value in values[start:stop].tolist():
            total += value
        sums.append(total)
        running += np.cumsum(counts[start:stop]).tolist()
        maxima += [values[k:stop].max() for k in range(start, stop)]
    assert segment_sums(values, indptr).tobytes() == np.array(sums, float).tobytes()
    assert segment_running_sums(counts, indptr).tolist() == running
    assert segment_suffix_maxima(values, indptr).tobytes() == np.array(maxima, float).tobytes()
    some = np.flatnonzero(rng.random(indptr[-1]) < 0.5)
    within = [[start <= place < stop for start, stop in itertools.pairwise(indptr)] for place in some]
    assert owners(some, indptr).tolist() == [each.index(True) for each in within]


@pytest.mark.parametrize("span", [0, 1, 2**16 - 1, 2**16, 2**40])
def test_order_of_rows_is_stable(span: int) -> None:
    rows = 5 + np.random.default_rng(2).choice([0, span, span // 3], 200)
    assert order_of_rows(rows).tolist() == sorted(range(200), key=lambda at: rows[at])
    assert order_of_rows(rows[:0]).tolist() == []
