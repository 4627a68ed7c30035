"""Properties of ranking metrics on any set."""

from __future__ import annotations

import numpy as np
import pytest
from agreement import (
    SCORES,
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
from reference import DISTANCES, PROTOCOLS, ItemSet, order_is_unambiguous
from sampling import examples
from strategies import crowded_sets, problems, problems_for, same_set_problems, scattered_sets, whole_numbers

from reid_dist.errors import InputError

distances = st.sampled_from(DISTANCES)


def evaluate_or_skip(query, gallery, *arguments, **options):
    """A report; sets without a valid query are skipped."""
    try:
        return evaluate_items(query, gallery, *arguments, **options)
    except InputError:
        assume(False)


def listed(*positions, n, camera=1, first_id=0):
    """A gallery on a line with pid 1 at some 1-based positions and pid 2 elsewhere."""
    pids = np.full(n, 2)
    pids[np.array(positions) - 1] = 1
    line = np.arange(1, n + 1, dtype=np.float32)[:, None]
    return ItemSet(line, pids, np.full(n, camera), np.arange(first_id, first_id + n))


ORIGIN = ItemSet(np.zeros((1, 1), np.float32), np.array([1]), np.array([0]), np.array([999]))


def test_the_worked_example():
    # hit, miss, miss, hit, hit, then two more relevant items at 40 and 50
    gallery = listed(1, 4, 5, 40, 50, n=60)
    metrics = ["mAP", "mAP_trapezoid", "mINP", "CMC@1", "P@5", "R@5", "MRR", "Rprec"]
    report = evaluate_items(ORIGIN, gallery, "market1501", "euclidean", metrics)
    assert report.metrics["mAP"] == pytest.approx(0.42 + (4 / 40 + 5 / 50) / 5, abs=1e-15)
    tail = ((4 / 40 + 3 / 39) / 2 + (5 / 50 + 4 / 49) / 2) / 5
    assert report.metrics["mAP_trapezoid"] == pytest.approx(59 / 150 + tail, abs=1e-15)
    assert report.metrics["mINP"] == 5 / 50
    assert report.metrics["CMC@1"] == 1
    assert report.metrics["P@5"] == report.metrics["R@5"] == report.metrics["Rprec"] == 3 / 5
    assert report.metrics["MRR"] == 1


def test_the_worked_example_cut_at_five():
    gallery = listed(1, 4, 5, 40, 50, n=60)
    report = evaluate_items(ORIGIN, gallery, "market1501", "euclidean", ["mAP@5", "mAP@45"])
    assert report.metrics["mAP@5"] == pytest.approx(0.42, abs=1e-15)
    assert report.metrics["mAP@45"] == pytest.approx(0.42 + 4 / 40 / 5, abs=1e-15)


def test_the_cmc_of_the_worked_example():
    # one query finds its first item at rank 2, the other one at rank 1
    gallery = ItemSet(
        np.array([[1], [2], [3], [4], [5]], np.float32), np.array([2, 1, 1, 2, 1]), np.ones(5, int), np.arange(5)
    )
    query = ItemSet(np.zeros((2, 1), np.float32), np.array([1, 2]), np.zeros(2, int), np.array([8, 9]))
    report = evaluate_items(query, gallery, "market1501", "euclidean", ["mAP"], max_rank=5)
    assert report.curves["CMC"].tolist() == [0.5, 1, 1, 1, 1]
    assert report.per_query["first_rank"].tolist() == [2, 1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
def test_bounds_and_monotony(protocol, data):
    problem = data.draw(problems_for(protocol))
    report = evaluate_or_skip(problem.query, problem.gallery, protocol, data.draw(distances))
    assert all(0 <= value <= 1 for value in report.metrics.values())
    cmc, precision = report.curves["CMC"], report.curves["precision_recall"]
    assert (np.diff(cmc) >= 0).all()
    assert 0 <= cmc[0] <= cmc[-1] <= 1
    assert (np.diff(precision) <= 0).all()
    assert 0 <= precision[-1] <= precision[0] <= 1
    valid = report.per_query["reason"] == ""
    assert valid.sum() == report.counts["n_valid"]
    for name in SCORES:
        values = report.per_query[name]
        assert np.array_equal(np.isnan(values), ~valid)
        assert (values[valid] > 0).all()
        assert (values[valid] <= 1).all()
    assert (report.per_query["first_rank"][valid] >= 1).all()
    assert (report.per_query["n_relevant"][valid] >= 1).all()
    # j / r_j is half of a term of the trapezoid, and the other half is at most 1.
    gap = report.per_query["AP_trapezoid"][valid] - report.per_query["AP"][valid] / 2
    assert (gap >= 0).all()
    assert (gap <= 0.5 + 1e-12).all()
    assert report.metrics["CMC@1"] == cmc[0] == report.metrics["P@1"]
    assert sum(report.counts["n_invalid_by_reason"].values()) == (~valid).sum()
    assert report.counts["n_query"] == len(problem.query)


@pytest.mark.quick_cases(3)
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


@given(problem=problems(), distance=distances)
def test_same_camera_junk_never_changes_a_score(problem, distance):
    """Gallery copies of a query, seen by its own camera, at every distance from it."""
    query = problem.query.take([0])
    report = evaluate_or_skip(query, problem.gallery, "market1501", distance)
    rows = np.arange(len(problem.gallery))
    junk = problem.gallery.take(rows)
    junk = ItemSet(junk.features, np.full(len(rows), query.pids[0]), np.full(len(rows), query.camids[0]), rows + 5000)
    assert_same_scores(evaluate_items(query, problem.gallery + junk, "market1501", distance), report)
    assert_same_scores(evaluate_items(query, junk + problem.gallery, "market1501", distance), report)


@pytest.mark.parametrize("distance", DISTANCES)
def test_a_perfect_ranking_scores_one(distance):
    rng = np.random.default_rng(0)
    centres = np.eye(6, dtype=np.float32) * 10
    pids = rng.integers(0, 6, 90)
    gallery = ItemSet(
        centres[pids] + rng.normal(size=(90, 6)).astype(np.float32) / 10, pids, np.ones(90, int), np.arange(90)
    )
    query = ItemSet(centres, np.arange(6), np.zeros(6, int), np.arange(100, 106))
    metrics = ["mAP", "mAP_trapezoid", "mINP", "CMC@1", "P@1", "MRR", "Rprec", "R@90"]
    for protocol in ("market1501", "no_cameras"):
        report = evaluate_items(query, gallery, protocol, distance, metrics)
        assert report.metrics == dict.fromkeys(metrics, 1.0)
        assert (report.curves["CMC"] == 1).all()
        assert (report.curves["precision_recall"] == 1).all()


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


@given(data=st.data())
def test_a_query_does_not_depend_on_other_queries(data):
    problem = data.draw(problems())
    distance = data.draw(distances)
    report = evaluate_or_skip(problem.query, problem.gallery, "market1501", distance)
    row = int(np.flatnonzero(report.per_query["reason"] == "")[0])
    alone = evaluate_items(problem.query.take([row]), problem.gallery, "market1501", distance)
    assert rows_of(alone) == rows_of(report, [row])
    assert alone.metrics["mAP"] == alone.per_query["AP"][0]


@given(problem=problems(), distance=distances)
def test_queries_twice(problem, distance):
    query = problem.query
    report = evaluate_or_skip(query, problem.gallery, "market1501", distance)
    twice = evaluate_items(query + query, problem.gallery, "market1501", distance)
    assert summary_of(twice) == summary_of(report)
    n = len(query)
    assert rows_of(twice, slice(None, n)) == rows_of(twice, slice(n, None)) == rows_of(report)
    assert twice.counts["n_valid"] == 2 * report.counts["n_valid"]
    assert twice.counts["n_junk"] == 2 * report.counts["n_junk"]


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_order_of_a_gallery_without_ties(protocol, distance):
    query, gallery = scattered_sets(30, 200, 19, seed=12)
    if protocol == "same_set":
        query = gallery.take(range(0, 200, 7))
    assert order_is_unambiguous(query.features, gallery.features, distance)
    report = evaluate_items(query, gallery, protocol, distance)
    order = np.random.default_rng(13).permutation(200)
    assert_same_scores(evaluate_items(query, gallery.take(order), protocol, distance, chunk_rows=37), report)


def test_the_order_of_a_gallery_with_ties_stays_within_the_bounds():
    query, gallery = crowded_sets(20, 300, 9, seed=14)
    expected = evaluation.evaluate(query, gallery, "no_cameras", "cosine")
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(300)
        first = evaluate_items(query, gallery.take(order), "no_cameras").per_query["first_rank"]
        for row, ranking in enumerate(expected.rankings):
            assert ranking.optimistic[0] <= first[row] <= ranking.pessimistic[0]


@given(problem=problems(kinds=("palette", "few_valued", "scaled", "random")), power=st.integers(-30, 30))
def test_cosine_does_not_depend_on_a_power_of_two(problem, power):
    report = evaluate_or_skip(problem.query, problem.gallery, "market1501", "cosine")
    factor = np.float32(2.0**power)
    query = problem.query.with_features(problem.query.features * factor)
    gallery = problem.gallery.with_features(problem.gallery.features * factor)
    assert evaluate_items(query, gallery, "market1501", "cosine").result_digest == report.result_digest
    assert evaluate_items(query, problem.gallery, "market1501", "cosine").result_digest == report.result_digest


def test_cosine_does_not_depend_on_a_power_of_two_in_each_row():
    query, gallery = crowded_sets(20, 300, 23, seed=15)
    powers = np.random.default_rng(16).integers(-25, 25, (320, 1))
    factors = (2.0**powers).astype(np.float32)
    scaled = evaluate_items(
        query.with_features(query.features * factors[:20]), gallery.with_features(gallery.features * factors[20:])
    )
    assert scaled.result_digest == evaluate_items(query, gallery).result_digest


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", ["euclidean", "sqeuclidean"])
@given(problem=problems(kinds=("palette", "few_valued", "random")), power=st.integers(-20, 20))
def test_euclidean_ranks_do_not_depend_on_a_power_of_two(distance, problem, power):
    report = evaluate_or_skip(problem.query, problem.gallery, "market1501", distance)
    factor = np.float32(2.0**power)
    query = problem.query.with_features(problem.query.features * factor)
    gallery = problem.gallery.with_features(problem.gallery.features * factor)
    assert_same_scores(evaluate_items(query, gallery, "market1501", distance), report)


@given(problem=problems(kinds=("palette", "few_valued", "scaled", "constant", "half")))
def test_euclidean_and_squared_euclidean_give_the_same_ranks(problem):
    # Distinct whole numbers below 2 ** 52 have distinct square roots; the half-precision sets are checked.
    squared = np.unique(
        [((x - problem.gallery.features.astype(float)) ** 2).sum(axis=1) for x in problem.query.features.astype(float)]
    )
    assume((np.diff(np.sqrt(squared)) > 0).all())
    report = evaluate_or_skip(problem.query, problem.gallery, "market1501", "sqeuclidean")
    assert_same_scores(evaluate_items(problem.query, problem.gallery, "market1501", "euclidean"), report)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@given(data=st.data())
def test_a_far_distractor_changes_nothing(protocol, data):
    problem = data.draw(problems_for(protocol, kinds=("palette", "few_valued", "constant", "random", "half")))
    distance = data.draw(st.sampled_from(["euclidean", "sqeuclidean"]))
    report = evaluate_or_skip(problem.query, problem.gallery, protocol, distance)
    dim = problem.gallery.features.shape[1]
    far = ItemSet(
        np.full((2, dim), 1000, problem.gallery.features.dtype),
        np.array([77, 78]),
        np.array([0, 1]),
        np.array([70_001, 70_002]),
    )
    for larger in (problem.gallery + far, far + problem.gallery):
        assert_same_scores(evaluate_items(problem.query, larger, protocol, distance, chunk_rows=5), report)


@given(problem=problems(kinds=("palette", "random")))
def test_a_near_distractor_costs_one_rank(problem):
    """A negative that is a copy of the query, in the first gallery row, ranks before every positive."""
    query = problem.query.take([0])
    report = evaluate_or_skip(query, problem.gallery, "no_cameras", "euclidean")
    intruder = ItemSet(query.features, np.array([99]), query.camids, np.array([88_888]))
    worse = evaluate_items(query, intruder + problem.gallery, "no_cameras", "euclidean")
    assert worse.per_query["first_rank"][0] == report.per_query["first_rank"][0] + 1
    assert worse.per_query["AP"][0] < report.per_query["AP"][0]


def test_pid_zero_is_an_identity_like_any_other():
    query, gallery = scattered_sets(20, 150, 8, seed=17, n_pids=5)
    report = evaluate_items(query, gallery)

    def renamed(items):
        return ItemSet(items.features, np.where(items.pids == 0, 500, items.pids), items.camids, items.item_ids)

    assert (query.pids == 0).any()
    assert_same_scores(evaluate_items(renamed(query), renamed(gallery)), report)


def test_names_of_identities_and_cameras_have_no_effect():
    query, gallery = crowded_sets(20, 200, 8, seed=18)
    report = evaluate_items(query, gallery)

    def renamed(items):
        pids = np.where(items.pids == -1, -1, 2**53 + 1 - items.pids)
        return ItemSet(items.features, pids, items.camids * 1000 - 3, items.item_ids)

    assert_same_scores(evaluate_items(renamed(query), renamed(gallery)), report)


def test_no_cameras_ignores_cameras():
    query, gallery = crowded_sets(20, 200, 8, seed=19)
    bare = [ItemSet(items.features, items.pids) for items in (query, gallery)]
    report = evaluate_items(*bare, "no_cameras")
    assert_same_scores(report, evaluate_items(query, gallery, "no_cameras"))
    assert_agrees(report, evaluation.evaluate(*bare, "no_cameras"))


def test_items_of_one_set_are_matched_by_name():
    """Items are matched neither by the order of queries nor by that of the gallery."""
    rng = np.random.default_rng(20)
    _, gallery = crowded_sets(1, 120, 7, seed=20)
    gallery = ItemSet(gallery.features, gallery.pids, None, rng.permutation(120) + 1000)
    query = gallery.take(rng.permutation(120)[:50])
    for distance in DISTANCES:
        report = evaluate_items(query, gallery, "same_set", distance)
        assert_agrees(report, evaluation.evaluate(query, gallery, "same_set", distance))


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


def test_items_may_be_named_by_text():
    query, gallery = crowded_sets(1, 90, 7, seed=23)
    gallery = ItemSet(gallery.features, gallery.pids, None, np.arange(90))
    query = gallery.take(range(60, 20, -1))
    by_number = evaluate_items(query, gallery, "same_set")

    def by_text(items):
        return ItemSet(items.features, items.pids, None, np.array([f"image-{i:05d}.jpg" for i in items.item_ids]))

    assert evaluate_items(by_text(query), by_text(gallery), "same_set").result_digest == by_number.result_digest
