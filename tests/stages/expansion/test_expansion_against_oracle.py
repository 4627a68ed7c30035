"""Expanded features against the oracle, row by row."""

from __future__ import annotations

import numpy as np
import pytest
from expansion_runs import assert_close, bare, expanded, expanded_arrays, features_of
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import expansion as oracle
from support.sampling import examples

from reid_dist.errors import InputError


def random_rows(n_rows, dim=8, seed=0, n_copies=0, dtype=np.float32):
    """Random rows, some of them copies of others."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n_rows, dim)).astype(dtype)
    if n_copies:
        rows[rng.integers(0, n_rows, n_copies)] = rows[rng.integers(0, n_rows, n_copies)]
    return rows


def two_sets(n_query=9, n_gallery=40, dim=8, seed=0, dtype=np.float32):
    """Two sets with copies within the gallery and of it among the queries."""
    query, gallery = random_rows(n_query, dim, seed), random_rows(n_gallery, dim, seed + 1, n_gallery // 3)
    query[: n_query // 3] = gallery[: n_query // 3]
    return query.astype(dtype), gallery.astype(dtype)


CASES = {
    "aqe(k={k})": lambda q, g, k: oracle.aqe(q, g, k),
    "alpha_qe(k={k})": lambda q, g, k: oracle.alpha_qe(q, g, k, 3),
    "alpha_qe(k={k},alpha=0)": lambda q, g, k: oracle.alpha_qe(q, g, k, 0),
    "alpha_qe(k={k},alpha=0.5)": lambda q, g, k: oracle.alpha_qe(q, g, k, 0.5),
    "alpha_qe(k={k},alpha=2.7)": lambda q, g, k: oracle.alpha_qe(q, g, k, 2.7),
    "dba(k={k})": lambda q, g, k: oracle.dba(q, g, k),
    "dba(k={k},alpha=1.5)": lambda q, g, k: oracle.dba(q, g, k, 1.5),
    "fastreid(k={k})": lambda q, g, k: oracle.fastreid(q, g, k, 3),
    "fastreid(k={k},alpha=0)": lambda q, g, k: oracle.fastreid(q, g, k, 0),
    "fastreid(k={k},alpha=0.5)": lambda q, g, k: oracle.fastreid(q, g, k, 0.5),
}


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("k", [1, 2, 5, 39, 40, 1000])
@pytest.mark.parametrize("spec", CASES)
def test_every_method(spec, k, tmp_path):
    """Also where lists hold all there is: k as large as the gallery, and larger."""
    query, gallery = two_sets()
    found = expanded_arrays(query, gallery, spec.format(k=k), tmp_path)
    for side, expected in zip(found, CASES[spec](query, gallery, k), strict=True):
        assert_close(side, expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_every_dtype(dtype, tmp_path):
    """What is averaged are the numbers that are stored."""
    query, gallery = two_sets(seed=3, dtype=dtype)
    near, far = bare(query), bare(gallery)
    for spec, method in CASES.items():
        expected = method(features_of(near), features_of(far), 4)
        for side, rows in zip(expanded(near, far, spec.format(k=4), tmp_path), expected, strict=True):
            assert_close(features_of(side), rows)


@pytest.mark.parametrize("spec", ["aqe(k=0)", "alpha_qe(k=0)", "dba(k=0)", "fastreid(k=0)", "dba(k=0)+aqe(k=0)"])
def test_no_neighbours_leave_everything_as_it_is(spec, tmp_path):
    """Not even scaled, nor written anywhere."""
    near, far = map(bare, two_sets())
    assert expanded(near, far, spec, tmp_path) == (near, far)
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=examples(25))
@given(
    seed=st.integers(0, 2**32 - 1),
    k=st.integers(1, 12),
    alpha=st.one_of(st.just(0.0), st.floats(0.01, 8)),
    n_gallery=st.integers(1, 30),
    dim=st.integers(2, 9),
)
def test_random_sets(tmp_path_factory, seed, k, alpha, n_gallery, dim):
    """Weights of any exponent; many similarities are negative."""
    query, gallery = random_rows(5, dim, seed), random_rows(n_gallery, dim, seed + 1, n_gallery // 4)
    folder = tmp_path_factory.mktemp("random")
    for spec, expected in (
        (f"alpha_qe(k={k},alpha={alpha})", oracle.alpha_qe(query, gallery, k, alpha)),
        (f"dba(k={k},alpha={alpha})", oracle.dba(query, gallery, k, alpha)),
        (f"fastreid(k={k},alpha={alpha})", oracle.fastreid(query, gallery, k, alpha)),
    ):
        for side, rows in zip(expanded_arrays(query, gallery, spec, folder), expected, strict=True):
            assert_close(side, rows)


def test_weights_of_opposite_neighbours_are_zero(tmp_path):
    """A negative similarity to a power that is no whole number is neither negative nor NaN."""
    query = np.array([[1, 0], [0, 2]], np.float32)
    gallery = np.array([[-1, 0.1], [-3, 0], [-1, -1]], np.float32)
    for alpha in (0.5, 1, 2, 2.5):
        found, _ = expanded_arrays(query, gallery, f"alpha_qe(k=3,alpha={alpha})", tmp_path)
        assert_close(found, oracle.alpha_qe(query, gallery, 3, alpha)[0])
        # All neighbours of the first query are on the other side of it: it is alone, and of length 1.
        np.testing.assert_array_equal(found[0], [1, 0])


def test_averages_that_cancel_are_rows_of_zeros(tmp_path):
    query = np.array([[3, 0], [0, 2]], np.float32)
    gallery = np.array([[-2, 0]], np.float32)
    near, _ = expanded(bare(query), bare(gallery), "aqe(k=1)", tmp_path)
    np.testing.assert_array_equal(features_of(near)[0], [0, 0])
    assert near.n_zero_rows == 1
    assert near.allow_zero
    again, _ = expanded(near, bare(gallery), "aqe(k=1)", tmp_path)
    assert_close(features_of(again), oracle.aqe(features_of(near), gallery, 1)[0])


def test_rows_of_zeros_are_neighbours_without_a_direction(tmp_path):
    query = np.array([[1, 1], [0, 0]], np.float32)
    gallery = np.array([[0, 0], [1, 0], [-1, -1]], np.float32)
    for spec, expected in (
        ("aqe(k=2)", oracle.aqe(query, gallery, 2)),
        ("dba(k=2)", oracle.dba(query, gallery, 2)),
        ("fastreid(k=3,alpha=1)", oracle.fastreid(query, gallery, 3, 1)),
    ):
        for side, rows in zip(expanded_arrays(query, gallery, spec, tmp_path), expected, strict=True):
            assert_close(side, rows)


# ------------------------------------------------------------------------------------------------- include_self


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("alpha", [0, 1.5])
@pytest.mark.parametrize("k", [2, 3, 7, 30, 31, 100])
def test_include_self(k, alpha, tmp_path):
    """Own rows that are there, that are not, and that have other features than the query."""
    gallery = random_rows(30, seed=5, n_copies=8)
    own_rows = np.array([4, -1, 17, 29, -1, 0])
    query = np.where(own_rows[:, None] >= 0, gallery[own_rows], random_rows(6, seed=6))
    query[2] = random_rows(1, seed=7)[0]
    query[4] = gallery[11]  # a copy of a row that it is not
    gallery_ids = np.arange(100, 130)
    query_ids = np.where(own_rows >= 0, gallery_ids[own_rows], 900 + np.arange(6))
    near, _ = expanded(
        bare(query, query_ids), bare(gallery, gallery_ids), f"alpha_qe(k={k},alpha={alpha},include_self=true)", tmp_path
    )
    expected, _ = oracle.alpha_qe(query, gallery, k, alpha, include_self=True, own_rows=own_rows)
    assert_close(features_of(near), expected)


def test_include_self_with_one_changes_nothing(tmp_path):
    query, gallery = two_sets()
    near, far = bare(query, np.arange(9)), bare(gallery, np.arange(40))
    assert expanded(near, far, "aqe(k=1,include_self=true)", tmp_path) == (near, far)


def test_include_self_by_texts(tmp_path):
    gallery = random_rows(12, seed=8)
    names = np.array([f"image_{row:02}" for row in range(12)])
    near, _ = expanded(bare(gallery[3:6], names[3:6]), bare(gallery, names), "aqe(k=4,include_self=true)", tmp_path)
    expected, _ = oracle.aqe(gallery[3:6], gallery, 4, include_self=True, own_rows=[3, 4, 5])
    assert_close(features_of(near), expected)


@pytest.mark.parametrize(
    ("query_ids", "gallery_ids", "words"),
    [
        (None, np.arange(40), "one of the sets has none"),
        (np.arange(9), None, "one of the sets has none"),
        (np.array(list("abcdefghi")), np.arange(40), "give both the same kind"),
    ],
)
def test_include_self_needs_item_ids(query_ids, gallery_ids, words, tmp_path):
    query, gallery = two_sets()
    with pytest.raises(InputError, match=words):
        expanded(bare(query, query_ids), bare(gallery, gallery_ids), "aqe(k=3,include_self=true)", tmp_path)


# ------------------------------------------------------------------------------------------- several steps, rounds


def rounded(sides):
    """What the next step reads: a store of float32."""
    return tuple(np.asarray(side, np.float32) for side in sides)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("alpha", [0, 1, 3])
def test_fastreid_in_rounds(times, alpha, tmp_path):
    query, gallery = random_rows(7, seed=9), random_rows(33, seed=10)
    found = expanded_arrays(query, gallery, f"fastreid(k=4,alpha={alpha},times={times})", tmp_path)
    expected = query, gallery
    for _ in range(times):
        expected = rounded(oracle.fastreid(*expected, 4, alpha))
    whole = oracle.fastreid(query, gallery, 4, alpha, times)
    for side, rows, exact in zip(found, expected, whole, strict=True):
        assert_close(side, rows)
        np.testing.assert_allclose(side, exact, rtol=0, atol=1e-5)


def test_one_set_twice_keeps_its_sides_apart(tmp_path):
    """Rows in one direction are at one distance; each row comes before its twin on its own side alone."""
    items = np.array([[1, 0], [2, 0], [0, 1], [0, 3]], np.float32)
    both = bare(items)
    sides = expanded(both, both, "fastreid(k=2,alpha=1,times=2)", tmp_path)
    expected = items, items
    for _ in range(2):
        expected = rounded(oracle.fastreid(*expected, 2, 1))
    for side, rows in zip(sides, expected, strict=True):
        assert_close(features_of(side), rows)


@pytest.mark.slow
def test_steps_are_done_from_left_to_right(tmp_path):
    query, gallery = random_rows(8, seed=11), random_rows(25, seed=12)
    steps = {
        "dba(k=3)": lambda q, g: oracle.dba(q, g, 3),
        "aqe(k=2)": lambda q, g: oracle.aqe(q, g, 2),
        "alpha_qe(k=4,alpha=2)": lambda q, g: oracle.alpha_qe(q, g, 4, 2),
        "fastreid(k=3,alpha=1)": lambda q, g: oracle.fastreid(q, g, 3, 1),
    }
    for spec in (
        "dba(k=3)+aqe(k=2)",
        "dba(k=3)+dba(k=3)+alpha_qe(k=4,alpha=2)",
        "aqe(k=2)+alpha_qe(k=4,alpha=2)",
        "aqe(k=2)+fastreid(k=3,alpha=1)+aqe(k=2)",
        "dba(k=3)+fastreid(k=3,alpha=1)",
    ):
        expected = query, gallery
        for step in spec.split("+"):
            expected = rounded(steps[step](*expected))
        for side, rows in zip(expanded_arrays(query, gallery, spec, tmp_path), expected, strict=True):
            assert_close(side, rows)
