"""Properties of ranking metrics on any set."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import (
    assert_agrees,
    assert_same_scores,
    evaluate_items,
    rows_of,
    summary_of,
)
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import evaluation
from oracles.protocols import PID_PROTOCOLS
from support.reference import DISTANCES, PROTOCOLS, ItemSet, order_is_unambiguous
from support.sampling import examples
from support.strategies import crowded_sets, problems_for, same_set_problems, whole_numbers

from reid_dist.errors import InputError

distances = st.sampled_from(DISTANCES)


def evaluate_or_skip(query, gallery, *arguments, **options):
    """A report; sets without a valid query are skipped."""
    try:
        return evaluate_items(query, gallery, *arguments, **options)
    except InputError:
        assume(False)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
@settings(max_examples=examples(20))
@given(data=st.data())
def test_junk_never_changes_a_score(protocol, data):
    problem = data.draw(problems_for(protocol))
    distance = data.draw(distances)
    report = evaluate_or_skip(problem.query, problem.gallery, protocol, distance, metrics=None)
    rows = data.draw(st.lists(st.integers(0, len(problem.gallery) - 1), min_size=1, max_size=9))
    copies = problem.gallery.take(rows)
    junk = ItemSet(copies.features, np.full(len(rows), -1), copies.camids, np.arange(5000, 5000 + len(rows)))
    n_junk = report.counts["n_junk"] + len(rows) * len(problem.query)
    for larger in (problem.gallery + junk, junk + problem.gallery):
        with_junk = evaluate_items(problem.query, larger, protocol, distance, metrics=None)
        assert_same_scores(with_junk, report)
        assert with_junk.counts["n_junk"] == n_junk


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
def test_the_order_of_queries(protocol, data):
    problem = data.draw(problems_for(protocol))
    distance = data.draw(distances)
    report = evaluate_or_skip(problem.query, problem.gallery, protocol, distance)
    order = data.draw(st.permutations(range(len(problem.query))))
    permuted = evaluate_items(problem.query.take(order), problem.gallery, protocol, distance, chunk_rows=3)
    assert summary_of(permuted) == summary_of(report)
    assert rows_of(permuted) == rows_of(report, np.array(order))
    assert [str(name) for name in permuted.per_query["reason"]] == [str(report.per_query["reason"][i]) for i in order]


def test_cosine_does_not_depend_on_a_power_of_two_in_each_row():
    query, gallery = crowded_sets(20, 300, 23, seed=15)
    powers = np.random.default_rng(16).integers(-25, 25, (320, 1))
    factors = (2.0**powers).astype(np.float32)
    scaled = evaluate_items(
        query.with_features(query.features * factors[:20]), gallery.with_features(gallery.features * factors[20:])
    )
    assert scaled.result_digest == evaluate_items(query, gallery).result_digest


@given(problem=same_set_problems(), data=st.data())
def test_items_of_one_set_that_disagree(problem, data):
    """Queries that are not in the gallery, and queries whose own gallery row bears another identity, or none."""
    distance = data.draw(distances)
    n = len(problem.query)
    absent = np.array(data.draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    pids = data.draw(whole_numbers(n, -1, 3))
    query = ItemSet(
        problem.query.features, pids, None, np.where(absent, problem.query.item_ids + 100_000, problem.query.item_ids)
    )
    gallery = ItemSet(problem.gallery.features, problem.gallery.pids, None, problem.gallery.item_ids)
    assume(order_is_unambiguous(query.features, gallery.features, distance))
    report = evaluate_or_skip(query, gallery, "same_set", distance)
    assert_agrees(report, evaluation.evaluate(query, gallery, "same_set", distance))
