"""The nearest gallery items, by (distance, gallery row), exactly."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.reference import DISTANCES, order_is_unambiguous, reference_topk
from support.sampling import examples
from support.strategies import crowded_sets, problems, scattered_sets

from reid_dist import FeatureSet, nearest

# Distances of the engine are sums in an order of its own, hence close and not equal.
CLOSE = 1e-12


def bare(features):
    """A feature set without labels of use."""
    return FeatureSet.from_arrays(np.asarray(features), np.zeros(len(features), np.int64), allow_zero=True)


def check(query, gallery, k, distance, own_rows=None, **options):
    """Rows are the oracle's; distances too, to the last few bits."""
    requested = bare(query)
    among = requested if own_rows is not None else bare(gallery)
    found = nearest(requested, among, k=k, distance=distance, **options)
    index, nearness = reference_topk(query, gallery, k, distance, own_rows)
    assert found.index.dtype == np.int64
    assert found.distance.dtype == np.float64
    assert np.array_equal(found.index, index)
    assert np.array_equal(np.isinf(found.distance), index == -1)
    there = index != -1
    np.testing.assert_allclose(found.distance[there], nearness[there], rtol=CLOSE, atol=CLOSE)
    return found


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("distance", DISTANCES)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_small_sets(distance, data):
    problem = data.draw(problems())
    query, gallery = problem.query.features, problem.gallery.features
    assume(order_is_unambiguous(query, gallery, distance))
    k = data.draw(st.integers(1, 40))
    check(query, gallery, k, distance, chunk_rows=data.draw(st.sampled_from([None, 1, 5, 13])))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_within_one_set(distance, data):
    features = data.draw(problems(max_query=1, max_gallery=40)).gallery.features
    assume(order_is_unambiguous(features, features, distance))
    k = data.draw(st.integers(1, 45))
    check(features, features, k, distance, range(len(features)), chunk_rows=data.draw(st.sampled_from([None, 1, 5])))


def test_each_item_is_first_even_where_another_one_is_no_farther():
    """Multiples of a row, whose cosine distance may be a negative last bit; and zero rows, at 1 from themselves."""
    rng = np.random.default_rng(53)
    features = (rng.integers(1, 6, (1, 7)) * rng.integers(1, 40, (120, 1))).astype(np.float32)
    features[::10] = 0
    found = check(features, features, 9, "cosine", range(120))
    assert np.array_equal(found.index[:, 0], np.arange(120))


@pytest.mark.parametrize("distance", DISTANCES)
def test_equal_features_are_not_the_same_set(distance):
    """Sets of other labels are other sets: ties go by row, also for a copy of oneself."""
    _, items = crowded_sets(1, 90, 13, seed=54, n_distinct=7)
    query = FeatureSet.from_arrays(items.features, np.arange(90))
    gallery = FeatureSet.from_arrays(items.features, np.arange(90, 180))
    index, _ = reference_topk(items.features, items.features, 12, distance)
    assert np.array_equal(nearest(query, gallery, k=12, distance=distance).index, index)


def test_a_set_made_twice_is_the_same_set():
    """Who is who follows from the content, not from which Python object holds it."""
    _, items = crowded_sets(1, 90, 13, seed=54, n_distinct=7)
    one, again = bare(items.features), bare(items.features.copy())
    assert np.array_equal(nearest(one, again, k=12).index, nearest(one, one, k=12).index)


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("n_gallery", [1, 2, 9])
def test_more_neighbours_than_items(distance, n_gallery):
    query, gallery = scattered_sets(5, n_gallery, 6, seed=55)
    found = check(query.features, gallery.features, 12, distance)
    assert (found.index[:, n_gallery:] == -1).all()
    assert np.isposinf(found.distance[:, n_gallery:]).all()
    check(gallery.features, gallery.features, 12, distance, range(n_gallery))


def test_distances_are_those_of_the_pair_alone():
    """A pair has one distance, whatever rows are beside it."""
    query, gallery = scattered_sets(10, 200, 37, seed=58)
    whole = nearest(bare(query.features), bare(gallery.features), k=5)
    for row in (0, 7):
        for column in range(5):
            neighbour = whole.index[row, column]
            alone = nearest(bare(query.features[[row]]), bare(gallery.features[[neighbour]]), k=1)
            assert alone.distance[0, 0] == whole.distance[row, column]


@pytest.mark.parametrize("distance", DISTANCES)
def test_duplicates_are_at_distance_zero(distance):
    rng = np.random.default_rng(59)
    features = (rng.normal(size=(40, 77)) * 10.0 ** rng.integers(-6, 7, (40, 1))).astype(np.float32)
    query = FeatureSet.from_arrays(features, np.arange(40))
    found = nearest(query, bare(features), k=1, distance=distance)
    assert np.array_equal(found.index[:, 0], np.arange(40))
    assert not found.distance.any()
    assert not np.signbit(found.distance).any()
