"""Every protocol of identities: who is relevant, who is junk, which queries count, and what is reported.

Ground-truth lists are in test_oxford.py.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import assert_agrees, evaluate_items
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import evaluation, rank_metrics
from oracles.protocols import CAMERA_PROTOCOLS, CMC_FAMILY, PID_PROTOCOLS, TRAPEZOID_PROTOCOLS
from oracles.rank_metrics import ALL_METRICS
from support.reference import DISTANCES, ItemSet, order_is_unambiguous
from support.sampling import examples
from support.strategies import crowded_sets, problems_for, scattered_sets

from reid_dist.errors import InputError

RANK_METRICS = (*ALL_METRICS, "CMC@3", "mAP@3")


def family_of(protocol):
    """The CMC family of a protocol."""
    return CMC_FAMILY.get(protocol, "CMC")


# ------------------------------------------------------------------------------------------------------- by hand


# One query with pid 7 in camera 0, item 0.  Gallery rows: itself; its pid in its camera; its pid in another camera;
# another pid in its camera; another pid in another camera; unlabelled, in either camera.
QUERY = ItemSet(np.zeros((1, 1), np.float32), np.array([7]), np.array([0]), np.array([0]))
GALLERY = ItemSet(
    np.arange(7, dtype=np.float32)[:, None],
    np.array([7, 7, 7, 8, 8, -1, -1]),
    np.array([0, 0, 1, 0, 1, 0, 1]),
    np.arange(7),
)
BY_HAND = {
    "market1501": ([2], [0, 1, 5, 6]),
    "market1501_matlab": ([2], [0, 1, 5, 6]),
    "allshots": ([2], [0, 1, 5, 6]),
    "cuhk03": ([2], [0, 1, 5, 6]),
    "cuhk03_separate_cameras": ([2], [0, 1, 3, 5, 6]),
    "same_set": ([1, 2], [0, 5, 6]),
    "no_cameras": ([0, 1, 2], [5, 6]),
}


# -------------------------------------------------------------------------------------------------- reports


@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
def test_one_query_by_hand(protocol):
    relevant, junk = BY_HAND[protocol]
    report = evaluate_items(QUERY, GALLERY, protocol, "euclidean", ["mAP"])
    kept = [row for row in range(7) if row not in junk]
    assert report.counts["n_junk"] == len(junk)
    assert report.per_query["n_relevant"].tolist() == [len(relevant)]
    assert report.per_query["first_rank"].tolist() == [kept.index(relevant[0]) + 1]
    ranks = [kept.index(row) + 1 for row in relevant]
    assert report.metrics["mAP"] == pytest.approx(rank_metrics.average_precision(ranks), abs=1e-15)


def check(problem, protocol, distance, **options):
    """The report agrees with the oracle; without a valid query, it is refused."""
    metrics = [*RANK_METRICS, f"{family_of(protocol)}@2"]
    expected = evaluation.evaluate(problem.query, problem.gallery, protocol, distance, metrics, max_rank=20)
    if expected is None:
        with pytest.raises(InputError, match="no query has a relevant gallery item"):
            evaluate_items(problem.query, problem.gallery, protocol, distance, metrics, max_rank=20, **options)
        return
    report = evaluate_items(problem.query, problem.gallery, protocol, distance, metrics, max_rank=20, **options)
    assert_agrees(report, expected)
    assert set(report.curves) >= set(expected.curves)


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
@settings(max_examples=examples(40))
@given(data=st.data())
def test_small_sets(protocol, data):
    problem = data.draw(problems_for(protocol))
    distance = data.draw(st.sampled_from(DISTANCES))
    assume(order_is_unambiguous(problem.query.features, problem.gallery.features, distance))
    check(problem, protocol, distance, chunk_rows=data.draw(st.sampled_from([None, 1, 3, 8])))


@cache
def one_set():
    """Duplicates, junk, and queries without items, or with items of their own camera alone."""
    query, gallery = crowded_sets(30, 400, 11, seed=41, n_distinct=30)
    unmatched = ItemSet(query.features[:3], np.array([700, 701, -1]), query.camids[:3], np.arange(900, 903))
    own_camera_only = ItemSet(gallery.features[:4], np.full(4, 800), np.zeros(4, int), np.arange(910, 914))
    return query + unmatched + own_camera_only.take([0, 1]), gallery + own_camera_only.take([2, 3])


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
def test_a_crowded_set(protocol):
    query, gallery = one_set()
    if protocol == "same_set":
        query = gallery.take(range(0, len(gallery), 9))
    metrics = [*RANK_METRICS, f"{family_of(protocol)}@2"]
    expected = evaluation.evaluate(query, gallery, protocol, "sqeuclidean", metrics, max_rank=5)
    for chunk in (None, 33):
        report = evaluate_items(query, gallery, protocol, "sqeuclidean", metrics, max_rank=5, chunk_rows=chunk)
        assert_agrees(report, expected)


@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
def test_default_metrics_and_curves(protocol):
    query, gallery = scattered_sets(10, 80, 6, seed=42)
    if protocol == "same_set":
        query = gallery.take(range(10))
    family = family_of(protocol)
    report = evaluate_items(query, gallery, protocol, metrics=None, max_rank=13)
    own = ["mAP_trapezoid"] if protocol in TRAPEZOID_PROTOCOLS else []
    assert list(report.metrics) == ["mAP", "mINP", *own, *(f"{family}@{k}" for k in (1, 5, 10))]
    families = {"CMC", "CMC_allshots", "CMC_single_shot"} & set(report.curves)
    assert families == {family}
    assert len(report.curves[family]) == 13
    for k in (1, 5, 10):
        assert report.curves[family][k - 1] == report.metrics[f"{family}@{k}"]
    assert set(report.definitions) >= set(report.metrics)
    assert report.protocol["name"] == protocol
    assert report.protocol["cmc_family"] == family
    assert report.protocol["ap_family"] == ("mAP_trapezoid" if own else "mAP")


# ------------------------------------------------------------------------------------- queries that do not count


def test_reasons_of_every_protocol():
    # pid 1: in another camera; pid 2: in its own camera only; pid 3: nowhere; pid -1: its namesakes are junk
    query = ItemSet(np.eye(4, dtype=np.float32), np.array([1, 2, 3, -1]), np.zeros(4, int), np.arange(10, 14))
    ids = np.array([0, 1, 2, 13])
    gallery = ItemSet(np.ones((4, 4), np.float32), np.array([1, 2, 2, -1]), np.array([1, 0, 0, 1]), ids)
    for protocol in PID_PROTOCOLS:
        report = evaluate_items(query, gallery, protocol)
        reasons = [str(reason) for reason in report.per_query["reason"]]
        own_camera = "only_same_camera_positives" if protocol in CAMERA_PROTOCOLS else ""
        assert reasons[:3] == ["", own_camera, "no_positive_in_gallery"], protocol
        assert reasons[3] in {"all_junk", "no_positive_in_gallery"}, protocol
        assert report.counts["n_valid"] == reasons.count("")
        if protocol == "market1501":
            # Row 3 is junk to every query, and rows 1 and 2 are to the second one.
            assert report.counts["n_junk"] == 4 + 2
        assert report.counts["n_invalid_by_reason"] == {name: reasons.count(name) for name in set(reasons) - {""}}


# -------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
def test_ground_truth_is_not_for_protocols_of_identities(protocol):
    query, gallery = scattered_sets(3, 20, 4, seed=44)
    if protocol == "same_set":
        query = gallery.take(range(3))
    with pytest.raises(InputError, match=protocol):
        evaluate_items(query, gallery, protocol, ground_truth=[{"ok": [0], "junk": []}] * 3)
