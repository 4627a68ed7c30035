"""Every protocol of identities: who is relevant, who is junk, which queries count, and what is reported.

Ground-truth lists are in test_oxford.py.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import assert_agrees, assert_same_scores, evaluate_items
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import evaluation, protocols, rank_metrics
from oracles.protocols import CAMERA_PROTOCOLS, CMC_FAMILY, PID_PROTOCOLS, TRAPEZOID_PROTOCOLS
from oracles.rank_metrics import ALL_METRICS
from reference import DISTANCES, ItemSet, order_is_unambiguous
from sampling import examples
from strategies import crowded_sets, problems, problems_for, scattered_sets

from reid_dist.errors import InputError

RANK_METRICS = (*ALL_METRICS, "CMC@3", "mAP@3")


def family_of(protocol):
    """The CMC family of a protocol."""
    return CMC_FAMILY.get(protocol, "CMC")


# ------------------------------------------------------------------------------------------------- the oracle


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


@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
def test_relevance_by_hand(protocol):
    relevant, junk = protocols.assign_relevance(QUERY, GALLERY, protocol)
    assert (np.flatnonzero(relevant[0]).tolist(), np.flatnonzero(junk[0]).tolist()) == BY_HAND[protocol]


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


@pytest.mark.quick_cases(4)
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


@pytest.mark.parametrize("other", ["market1501_matlab", "allshots", "cuhk03"])
@given(problem=problems())
@settings(max_examples=examples(12))
def test_protocols_that_differ_in_what_they_report_only(other, problem):
    """Same relevant and junk items as market1501, so the same ranks."""
    reports = []
    for protocol in ("market1501", other):
        try:
            reports.append(evaluate_items(problem.query, problem.gallery, protocol, metrics=["mAP", "CMC@1"]))
        except InputError:
            assume(False)
    one, two = reports
    for name in ("AP", "AP_trapezoid", "INP", "first_rank", "n_relevant", "reason"):
        assert one.per_query[name].tobytes() == two.per_query[name].tobytes(), name
    assert one.counts == two.counts


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


def test_a_gallery_of_ones_own_camera_is_all_junk_when_cameras_are_kept_apart():
    query = ItemSet(np.eye(2, dtype=np.float32), np.array([5, 5]), np.array([0, 1]))
    gallery = ItemSet(np.ones((3, 2), np.float32), np.array([5, 6, 7]), np.array([0, 0, 0]))
    report = evaluate_items(query, gallery, "cuhk03_separate_cameras")
    assert str(report.per_query["reason"][0]) in {"all_junk", "only_same_camera_positives"}
    assert report.per_query["reason"][1] == ""
    assert report.counts["n_junk"] == 3
    # The identity is under the own camera alone, and rows of other cameras are kept.
    wider = gallery + ItemSet(np.ones((1, 2), np.float32), np.array([8]), np.array([3]))
    report = evaluate_items(query, wider, "cuhk03_separate_cameras")
    assert report.per_query["reason"].tolist() == ["only_same_camera_positives", ""]


def test_separate_cameras_hide_unlabelled_rows_of_every_camera_once():
    query = ItemSet(np.eye(2, dtype=np.float32), np.array([5, 6]), np.array([0, 1]))
    gallery = ItemSet(np.ones((5, 2), np.float32), np.array([-1, -1, 5, 6, 6]), np.array([0, 1, 1, 0, 1]))
    report = evaluate_items(query, gallery, "cuhk03_separate_cameras")
    # camera 0: rows 0, 1, 3; camera 1: rows 0, 1, 2, 4
    assert report.counts["n_junk"] == 3 + 4
    assert report.per_query["n_kept"].tolist() == [2, 1]


@cache
def left_out_and_as_zero():
    """One set, its invalid queries left out and counted as 0."""
    query, gallery = one_set()
    return [
        evaluate_items(query, gallery, protocol, metrics=TestMatlab.METRICS)
        for protocol in ("market1501", "market1501_matlab")
    ]


class TestMatlab:
    """A query without relevant items counts as 0 in every mean, and its row stays NaN."""

    METRICS = (*RANK_METRICS, "CMC_allshots@2", "CMC_single_shot@2", "P_clipped@5", "mAP_found@2")

    def test_means(self):
        left_out, as_zero = left_out_and_as_zero()
        assert left_out.counts == as_zero.counts
        n_query, n_valid = (as_zero.counts[name] for name in ("n_query", "n_valid"))
        assert n_valid < n_query
        for name in self.METRICS:
            assert as_zero.metrics[name] == pytest.approx(left_out.metrics[name] * n_valid / n_query, abs=1e-12), name
        for name in ("CMC", "precision_recall"):
            assert as_zero.curves[name] == pytest.approx(left_out.curves[name] * n_valid / n_query, abs=1e-12), name

    def test_rows(self):
        left_out, as_zero = left_out_and_as_zero()
        invalid = as_zero.per_query["reason"] != ""
        assert invalid.sum() == as_zero.counts["n_query"] - as_zero.counts["n_valid"] > 0
        for name in ("AP", "AP_trapezoid", "INP", "first_rank"):
            assert np.isnan(as_zero.per_query[name][invalid]).all()
            assert as_zero.per_query[name].tobytes() == left_out.per_query[name].tobytes()

    def test_nothing_to_leave_out(self):
        query, gallery = one_set()
        valid = np.flatnonzero(left_out_and_as_zero()[0].per_query["reason"] == "")
        assert_same_scores(
            *(
                evaluate_items(query.take(valid), gallery, protocol, metrics=self.METRICS)
                for protocol in ("market1501", "market1501_matlab")
            )
        )

    def test_the_mean_is_never_without_its_count(self):
        _, as_zero = left_out_and_as_zero()
        assert as_zero.protocol["invalid_query"] != left_out_and_as_zero()[0].protocol["invalid_query"]
        assert as_zero.counts["n_query"] == len(one_set()[0])


# -------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
def test_ground_truth_is_not_for_protocols_of_identities(protocol):
    query, gallery = scattered_sets(3, 20, 4, seed=44)
    if protocol == "same_set":
        query = gallery.take(range(3))
    with pytest.raises(InputError, match=protocol):
        evaluate_items(query, gallery, protocol, ground_truth=[{"ok": [0], "junk": []}] * 3)


@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
def test_a_gallery_of_one_item(protocol):
    item = ItemSet(np.ones((1, 3), np.float32), np.array([4]), np.array([1]), np.array([1]))
    query = ItemSet(np.ones((2, 3), np.float32), np.array([4, 5]), np.array([0, 0]), np.array([7, 1]))
    family = family_of(protocol)
    report = evaluate_items(query, item, protocol, metrics=["mAP", "mINP", f"{family}@100"], max_rank=60)
    rate = 0.5 if protocol == "market1501_matlab" else 1.0
    assert report.metrics == {"mAP": rate, "mINP": rate, f"{family}@100": rate}
    assert report.curves[family].tolist() == [rate] * 60
