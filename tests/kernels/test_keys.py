"""Keys of distances, by which pairs are counted."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reid_dist.kernels.impostors import LARGEST_KEY, falling_keys, key_edges

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(values=st.lists(finite | st.floats(-2, 2) | st.sampled_from([0.0, -0.0]), min_size=2, max_size=40))
def test_keys_are_in_the_order_of_the_values(values: list[float]) -> None:
    ascending = np.sort(np.array(values))
    keys = falling_keys(ascending)
    assert (np.diff(keys) >= 0).all()
    assert (np.abs(keys) <= LARGEST_KEY).all()
    assert falling_keys(-ascending[::-1]).tolist() == (-keys[::-1]).tolist()


@given(values=st.lists(st.floats(-3e38, 3e38), min_size=1, max_size=40))
def test_a_value_lies_between_the_edges_of_its_key(values: list[float]) -> None:
    array = np.array(values)
    low, high = key_edges(falling_keys(array))
    held = array.astype(np.float32)
    assert (low <= held).all()
    assert (held <= high).all()
    normal = np.abs(held) > 1e-37
    assert ((high - low)[normal] <= np.abs(array[normal]) / 4000).all()
