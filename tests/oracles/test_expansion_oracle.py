"""The oracle of query expansion against examples worked by hand.  Nothing here looks at the package."""

from __future__ import annotations

import math

import numpy as np
import pytest

from oracles import expansion as oracle


def at_degrees(*angles, lengths=1.0):
    radians = np.radians(angles)
    return np.stack([np.cos(radians), np.sin(radians)], axis=1) * np.reshape(lengths, (-1, 1))


def degrees_of(features):
    return np.degrees(np.arctan2(features[:, 1], features[:, 0])) % 360


def check_unit(features, angles):
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, rtol=1e-14)
    np.testing.assert_allclose(degrees_of(features), angles, rtol=1e-12)


def test_mean_of_the_nearest():
    """The mean of directions 0 and 60 is 30, of 0, 60 and 90 by its components."""
    query, gallery = at_degrees(0, lengths=7), at_degrees(90, 60, 200, lengths=[3, 2, 1])
    check_unit(oracle.aqe(query, gallery, 1)[0], [30])
    sine, cosine = math.sqrt(3) / 2 + 1, 1 + 1 / 2
    check_unit(oracle.aqe(query, gallery, 2)[0], [math.degrees(math.atan2(sine, cosine))])
    np.testing.assert_array_equal(oracle.aqe(query, gallery, 2)[1], gallery)
    np.testing.assert_array_equal(oracle.aqe(query, gallery, 3)[0], oracle.aqe(query, gallery, 99)[0])
    np.testing.assert_array_equal(oracle.aqe(query, gallery, 2)[0], oracle.alpha_qe(query, gallery, 2, alpha=0)[0])


def test_weights_are_powers_of_the_cosine():
    """The cosine of 60 degrees is 1/2; that of 200 is negative and has no weight, unless all have."""
    query, gallery = at_degrees(0), at_degrees(60, 200)
    new = oracle.alpha_qe(query, gallery, 2, alpha=3)[0]
    check_unit(new, [math.degrees(math.atan2(math.sqrt(3) / 2 / 8, 1 + 1 / 16))])
    np.testing.assert_array_equal(new, oracle.alpha_qe(query, gallery, 1, alpha=3)[0])
    assert np.isfinite(oracle.alpha_qe(query, gallery, 2, alpha=0.5)[0]).all()
    total = at_degrees(0)[0] + at_degrees(60)[0] + at_degrees(200)[0]
    check_unit(oracle.alpha_qe(query, gallery, 2, alpha=0)[0], [math.degrees(math.atan2(total[1], total[0]))])


@pytest.mark.parametrize("alpha", [0, 3])
def test_a_query_of_the_gallery_counts_itself(alpha):
    query, gallery = at_degrees(0, 45, lengths=3), at_degrees(60, 0, 200)
    own_rows = [1, -1]
    unchanged, _ = oracle.alpha_qe(query, gallery, 1, alpha, include_self=True, own_rows=own_rows)
    np.testing.assert_array_equal(unchanged, query)
    new, _ = oracle.alpha_qe(query, gallery, 2, alpha, include_self=True, own_rows=own_rows)
    without, _ = oracle.alpha_qe(query[:1], gallery[[0, 2]], 1, alpha)
    np.testing.assert_array_equal(new[:1], without)
    np.testing.assert_array_equal(new[1:], oracle.alpha_qe(query[1:], gallery, 1, alpha)[0])


def test_database_items_are_not_their_own_neighbours():
    query, gallery = at_degrees(5), at_degrees(0, 20, 50, lengths=[1, 2, 3])
    same, new = oracle.dba(query, gallery, 1)
    np.testing.assert_array_equal(same, query)
    check_unit(new, [10, 10, 35])
    np.testing.assert_array_equal(oracle.dba(query, gallery, 2, include_self=True)[1], new)
    np.testing.assert_array_equal(oracle.dba(query, gallery, 1, include_self=True)[1], gallery)
    # Duplicates are neighbours of each other.
    twins = at_degrees(0, 0, 30)
    check_unit(oracle.dba(query, twins, 1)[1] + 0.0, [0, 0, 15])


def test_all_rows_over_all_rows():
    """Lengths count, the sum is divided by k, and a second round starts from the first."""
    query, gallery = at_degrees(0, lengths=4), at_degrees(60, 180, lengths=[2, 1])
    new_query, new_gallery = oracle.fastreid(query, gallery, k=2, alpha=1)
    np.testing.assert_allclose(new_query, (query + gallery[:1] / 2) / 2, rtol=1e-14)
    # 60 degrees is nearest to 0, and 180 is nearest to 60, at a cosine of -1/2.
    np.testing.assert_allclose(new_gallery, [(gallery[0] + query[0] / 2) / 2, gallery[1] / 2], rtol=1e-14)
    once_more = oracle.fastreid(new_query, new_gallery, k=2, alpha=1)
    for one, other in zip(oracle.fastreid(query, gallery, k=2, alpha=1, times=2), once_more, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(oracle.fastreid(query, gallery, k=1, alpha=2.5), (query, gallery), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("expand", ["aqe", "alpha_qe", "dba", "fastreid"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_k_0_returns_every_bit(expand, dtype):
    rng = np.random.default_rng(0)
    query, gallery = rng.normal(size=(3, 5)).astype(dtype), rng.normal(size=(6, 5)).astype(dtype)
    more = {"aqe": {}, "dba": {}}.get(expand, {"alpha": 3})
    for new, old in zip(getattr(oracle, expand)(query, gallery, 0, **more), (query, gallery), strict=True):
        assert new.astype(dtype).tobytes() == old.tobytes()


def test_zero_rows():
    """A zero row has no cosine with anything: its expansion is made of the neighbours alone, and only if all count."""
    query, gallery = np.zeros((1, 2)), at_degrees(0, 90)
    np.testing.assert_array_equal(oracle.alpha_qe(query, gallery, 2, 3)[0], query)
    check_unit(oracle.aqe(query, gallery, 2)[0], [45])
    opposite = oracle.aqe(np.array([[1.0, 0]]), np.array([[-1.0, 0]]), 1)[0]
    np.testing.assert_array_equal(opposite, [[0, 0]])
