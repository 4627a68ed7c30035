"""Ordered keys, counts by key, and falling values of distances."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from reid_dist.engine.distances import DISTANCES
from reid_dist.engine.reductions.key_counts import KeyCounts, ScreenScale, add_key_counts, distance_of, ordered_keys
from reid_dist.kernels.canonical import LOWEST, PLAIN, PairRows, on_screen_scale, read_only

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(values=st.lists(finite | st.sampled_from([0.0, -0.0, 5e-324, -5e-324]), min_size=1, max_size=30))
def test_ordered_keys(values):
    keys = ordered_keys(np.array(values))
    assert np.argsort(keys, kind="stable").tolist() == np.argsort(np.array(values), kind="stable").tolist()
    assert [distance_of(int(key)) for key in keys] == values
    assert len(set(keys.tolist())) == len(set(values)), "-0.0 is 0.0"


def test_neighbouring_numbers_have_neighbouring_keys():
    for value in (0.25, -3.0, 1e300, 0.0):
        keys = ordered_keys(np.array([value, np.nextafter(value, np.inf)]))
        # No number lies between; the key between -5e-324 and 0 belongs to -0.0, which is none of its own.
        assert keys[1] - keys[0] == 1


@given(
    parts=st.lists(st.lists(st.integers(-(2**62), 2**62) | st.integers(-20, 20), max_size=30), min_size=1, max_size=4),
    size=st.integers(2, 9),
)
def test_counts_by_key_lose_bits_and_never_a_count(parts, size):
    whole = add_key_counts([KeyCounts.of(np.array(part, np.int64)) for part in parts])
    every = [key for part in parts for key in part]
    assert whole.key.tolist() == sorted(set(every))
    assert whole.count.tolist() == [every.count(key) for key in sorted(set(every))]
    small = whole.shrunk(size)
    assert len(small) <= size
    assert small.total == len(every)
    assert small.key.tolist() == sorted({key >> small.shift for key in every})
    assert small.shift == 0 or len({key >> (small.shift - 1) for key in every}) > size, "no bit more than it takes"
    # Parts that lost different bits add up to the same.
    shifted = [KeyCounts.of(np.array(part, np.int64)).shrunk(size) for part in parts]
    added = add_key_counts(shifted)
    again = whole.shifted(added.shift)
    assert (added.key.tolist(), added.count.tolist()) == (again.key.tolist(), again.count.tolist())


# ---------------------------------------------------------------------------------------------- falling values


def by_kernel(scale: ScreenScale, distance: float, side: float) -> float:
    """Falling value of a distance as the kernels compute it, for a query whose divisor is that of the scale."""
    rows = read_only(np.zeros((1, 1), np.float32))
    kind = DISTANCES.get("euclidean" if scale.squared else "cosine").kind
    rescoring = PLAIN._replace(
        active=scale.divisor is not None,
        weight=scale.weight,
        apart=scale.apart,
        scale=np.array([1.0 if scale.divisor is None else scale.divisor]),
    )
    return on_screen_scale.py_func(PairRows(kind, rows, rows, np.ones(1), np.ones(1), rescoring), 0, distance, side)


@given(
    distances=st.lists(st.floats(-1e150, 1e150), min_size=1, max_size=10),
    squared=st.booleans(),
    weight=st.sampled_from([1.0, 0.3, 0.7]),
    apart=st.sampled_from([0.0, 1.0]),
    divisor=st.sampled_from([None, 1.0, 0.25, 3.0]),
)
def test_falling_values_are_those_of_the_kernels(distances, squared, weight, apart, divisor):
    scale = ScreenScale(squared, weight, apart, divisor)
    expected = [by_kernel(scale, distance, 0.0) for distance in distances]
    assert scale.falling(np.array(distances)).tolist() == expected
    error = [by_kernel(scale, distance, 1.0) - by_kernel(scale, distance, -1.0) for distance in distances]
    assert np.allclose(scale.error(np.array(distances)), error, rtol=1e-6, atol=0)
    ascending = scale.falling(np.sort(distances))
    assert (ascending[1:] >= ascending[:-1]).all()


@given(
    distances=st.lists(st.floats(0.01, 50), min_size=1, max_size=10),
    squared=st.booleans(),
    weight=st.sampled_from([0.0, 0.3, 1.0]),
    divisor=st.sampled_from([None, 0.25, 3.0]),
)
def test_distances_come_back_from_their_falling_values(distances, squared, weight, divisor):
    scale = ScreenScale(squared and weight > 0, weight, 1.0, divisor)
    again = scale.distance(scale.falling(np.array(distances)))
    assert np.allclose(again, distances, rtol=1e-9)


def test_the_lowest_rescored_distance_is_that_of_no_pair():
    scale = ScreenScale(False, 0.5, 1.0, 3.0)
    (lowest,) = scale.falling(np.array([-np.inf]))
    assert lowest == 3.0 * LOWEST
    assert scale.distance(np.array([lowest])).tolist() == [-np.inf]
