"""The oracle against worked examples and scikit-learn, and the sets for which it decides ties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from oracles import rank_metrics
from support import reference


def test_trapezoid_of_the_worked_examples():
    assert rank_metrics.average_precision_trapezoid([1, 4, 5], n=5) == pytest.approx(59 / 150, abs=1e-15)
    assert rank_metrics.average_precision_trapezoid([2, 3, 4], n=5) == pytest.approx(37 / 120, abs=1e-15)


def test_interpolated_precision_of_one_list():
    ranks = [2, 3, 7]
    curve = rank_metrics.interpolated_precision(ranks)
    assert curve[:67] == [2 / 3] * 67  # recall 0.00 to 0.66, best at the second positive
    assert curve[67:] == [3 / 7] * 34


def test_ties_are_ordered_by_gallery_row_and_bracketed():
    # rows 0..4 at one distance, positives in rows 1 and 3; row 5 is nearer, row 6 is junk
    distances = np.array([2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 0.0])
    relevant = np.array([0, 1, 0, 1, 0, 0, 0], dtype=bool)
    junk = np.array([0, 0, 0, 0, 0, 0, 1], dtype=bool)
    ranking = reference.rank_one_query(distances, relevant, junk)
    assert ranking.rows == [5, 0, 1, 2, 3, 4]
    assert ranking.ranks == [3, 5]
    assert ranking.optimistic == [2, 3]
    assert ranking.pessimistic == [5, 6]


def test_distances_by_hand():
    x, y = [[3.0, 4.0]], [[3.0, 4.0], [4.0, 3.0], [0.0, 0.0], [-3.0, -4.0]]
    assert reference.canonical_distances(x, y, "sqeuclidean").tolist() == [[0, 2, 25, 100]]
    assert reference.canonical_distances(x, y, "euclidean").tolist() == [[0, math.sqrt(2), 5, 10]]
    assert reference.canonical_distances(x, y, "cosine").tolist() == [[0, 1 - 24 / 25, 1, 2]]
    assert reference.canonical_distances([[0.0, 0.0]], y, "cosine").tolist() == [[1, 1, 1, 1]]


@pytest.mark.parametrize("distance", reference.DISTANCES)
def test_equal_rows_have_equal_distances(distance):
    rng = np.random.default_rng(1)
    for dim in (1, 3, 17, 130):
        features = rng.normal(size=(9, dim)).astype(np.float32)
        rows = rng.integers(0, 9, 50)
        distances = reference.canonical_distances(features, features[rows], distance)
        assert np.array_equal(distances, reference.canonical_distances(features, features, distance)[:, rows])
        assert not np.diag(reference.canonical_distances(features, features, distance)).any()


def test_exact_sums_are_recognised():
    rng = np.random.default_rng(2)
    whole = rng.integers(-9, 10, (5, 40)).astype(np.float64)
    assert reference.sums_are_exact(whole).all()
    assert reference.sums_are_exact(whole * 2.0**-30).all()
    assert reference.sums_are_exact(np.zeros((2, 3))).all()
    assert reference.sums_are_exact(np.array([[1e300, 0.0]])).all()
    assert not reference.sums_are_exact(np.array([[1.0, 2.0**-60]])).any()
    assert not reference.sums_are_exact(rng.normal(size=(5, 40))).any()
    # 2**52 + 2**52 + 1 needs 54 bits
    assert not reference.sums_are_exact(np.array([[2.0**52, 2.0**52, 1.0]])).any()


@pytest.mark.parametrize("distance", reference.DISTANCES)
def test_sets_whose_order_depends_on_the_last_bit_are_recognised(distance):
    rng = np.random.default_rng(3)
    query, gallery = rng.normal(size=(4, 20)), rng.normal(size=(30, 20))
    assert reference.order_is_unambiguous(query, gallery, distance)
    assert reference.order_is_unambiguous(query, gallery[rng.integers(0, 30, 60)], distance)
    # The same numbers in other columns: equal in exact arithmetic, in the last bit of a sum perhaps not.
    shuffled = rng.permutation(20)
    ambiguous = np.stack([gallery[0], gallery[0][shuffled]])
    assert not reference.order_is_unambiguous(np.ones((1, 20)) / 3, ambiguous, distance)
    whole = rng.integers(-3, 4, (1, 20)) + 10.0
    assert reference.order_is_unambiguous(np.ones((1, 20)), np.stack([whole[0], whole[0][shuffled]]), distance)


@pytest.mark.parametrize("distance", reference.DISTANCES)
def test_nearest_by_hand(distance):
    features = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    index, nearest = reference.reference_topk(features, features, 5, distance)
    assert index.tolist() == [[0, 1, 3, 2, -1], [0, 1, 3, 2, -1], [2, 0, 1, 3, -1], [0, 1, 3, 2, -1]]
    assert np.isinf(nearest[:, 4]).all()
    index, _ = reference.reference_topk(features, features, 3, distance, own_rows=range(4))
    assert index.tolist() == [[0, 1, 3], [1, 0, 3], [2, 0, 1], [3, 0, 1]]
