"""The k-th of some values, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reid_dist.kernels.selection import select
from tests.support.compiled import from_python

select = from_python(select)

# Few different values, so that many are equal; and some beyond all others.
VALUES = st.lists(st.sampled_from([-np.inf, -1.0, 0.0, 0.5, 1.0, 2.0, np.inf]) | st.floats(-3, 3), min_size=1)


@given(VALUES, st.data())
def test_select(values: list[float], data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(values) - 1))
    assert select(np.array(values), place) == np.sort(values)[place]


@pytest.mark.parametrize("n", [2, 63, 64, 65, 1000])
@pytest.mark.parametrize("made", ["ascending", "descending", "equal", "sawtooth"])
def test_select_from_values_in_some_order(n: int, made: str) -> None:
    values = {
        "ascending": np.arange(n),
        "descending": np.arange(n)[::-1],
        "equal": np.zeros(n),
        "sawtooth": np.arange(n) % 7,
    }[made].astype(np.float32)
    assert [select(values.copy(), place) for place in range(n)] == sorted(values)
