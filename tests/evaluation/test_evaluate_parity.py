"""Every number of a report is the oracle's, for each protocol and distance, ties and duplicates included."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import assert_agrees, evaluate_items
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from oracles import evaluation
from support.reference import DISTANCES, PROTOCOLS, ItemSet, order_is_unambiguous
from support.sampling import examples
from support.strategies import KINDS, Problem, crowded_sets, problems_for, scattered_sets

from reid_dist.errors import InputError

MAX_RANK = 20


def check(problem, protocol, distance, max_rank=MAX_RANK, **options):
    """The report agrees with the oracle; without a valid query, it is refused."""
    query, gallery = problem.query, problem.gallery
    expected = evaluation.evaluate(query, gallery, protocol, distance, max_rank=max_rank)
    if expected is None:
        with pytest.raises(InputError):
            evaluate_items(query, gallery, protocol, distance, max_rank=max_rank, **options)
        return
    assert_agrees(evaluate_items(query, gallery, protocol, distance, max_rank=max_rank, **options), expected)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(25))
@given(data=st.data())
def test_each_kind_of_features(kind, data):
    problem = data.draw(problems_for("no_cameras", kinds=(kind,), max_query=4, max_gallery=60))
    distance = data.draw(st.sampled_from(DISTANCES))
    assume(order_is_unambiguous(problem.query.features, problem.gallery.features, distance))
    check(problem, "no_cameras", distance, chunk_rows=data.draw(st.sampled_from([None, 1, 7])))


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", [1, 15, 16, 33, 70, np.float32, np.float16], ids=str)
def test_larger_sets(protocol, distance, kind):
    """Random rows of some dimension, in tiles; and rows of some type with many duplicates."""
    random = isinstance(kind, int)
    query, gallery = scattered_sets(40, 400, kind, seed=kind) if random else crowded_sets(40, 400, 33, 11, dtype=kind)
    if protocol == "same_set":
        query = gallery.take(np.random.default_rng(3).permutation(400)[:40])
    assume_unambiguous(query, gallery, distance)
    check(Problem(query, gallery, "larger"), protocol, distance, max_rank=50, chunk_rows=64 if random else None)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
def test_thousands_of_duplicates(distance):
    query, gallery = crowded_sets(25, 5000, 21, seed=4, n_distinct=9)
    assume_unambiguous(query, gallery.take(range(200)), distance)
    check(Problem(query, gallery, "crowded"), "market1501", distance)


@pytest.mark.slow
def test_thousands_of_queries():
    query, gallery = crowded_sets(9000, 90, 5, seed=9, n_distinct=20)
    check(Problem(query, gallery, "crowded"), "market1501", "cosine")


@pytest.mark.parametrize("distance", DISTANCES)
def test_mixed_dtypes(distance):
    rng = np.random.default_rng(8)
    query, gallery = scattered_sets(10, 80, 24, seed=8)
    query = query.with_features(query.features.astype(np.float16))
    gallery = gallery.with_features(np.where(rng.random((80, 1)) < 0.3, gallery.features[:1], gallery.features))
    assume_unambiguous(query, gallery, distance)
    check(Problem(query, gallery, "mixed"), "market1501", distance)


def assume_unambiguous(query, gallery, distance):
    """A fixed set whose order hangs on a last bit is a mistake in the test."""
    assert order_is_unambiguous(query.features, gallery.features, distance)


@settings(max_examples=examples(30))
@given(data=st.data())
@example(data=None)
def test_a_list_shorter_than_the_curve_holds_its_last_value(data):
    if data is None:
        gallery = ItemSet(np.ones((1, 2), np.float32), np.array([3]), np.array([1]), np.array([1]))
        problem = Problem(gallery.take([0]), gallery, "one item")
        protocol = "no_cameras"
    else:
        protocol = data.draw(st.sampled_from(PROTOCOLS[:2]))
        problem = data.draw(problems_for(protocol, kinds=("palette",), max_gallery=4))
    check(problem, protocol, "cosine", max_rank=60)
