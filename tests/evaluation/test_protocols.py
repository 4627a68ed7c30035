"""Every protocol against the oracle: metrics and their bounds, curves, values of queries, counts, reasons and lists."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from agreement import LIST_NAMES, assert_agrees, assert_lists_agree, assert_ties_agree, drawn_truth, evaluate_items
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles import evaluation, rank_metrics
from oracles.protocols import CMC_FAMILY, LIST_PROTOCOLS, PID_PROTOCOLS, TRAPEZOID_PROTOCOLS
from support.reference import DISTANCES, ItemSet, order_is_unambiguous
from support.sampling import examples
from support.strategies import KINDS, crowded_sets, problems, problems_for, scattered_sets

from reid_dist.errors import InputError

METRICS = (
    *("mAP", "mAP_trapezoid", "mAP_R", "mINP", "MRR", "Rprec"),
    *(f"{name}@{k}" for name in ("CMC", "CMC_allshots", "mAP", "mAP_found", "mAP_min") for k in (1, 3, 40)),
    *(f"{name}@{k}" for name in ("P", "P_min", "P_clipped", "R", "nDCG") for k in (1, 2, 5, 90)),
)
SINGLE_SHOT = tuple(f"CMC_single_shot@{k}" for k in (1, 2, 5, 40))


def metrics_of(protocol):
    """All metrics; lists have no identities to draw from."""
    return METRICS if protocol in LIST_PROTOCOLS else METRICS + SINGLE_SHOT


@st.composite
def problems_with_truth(draw, protocol, kinds):
    """Sets that a protocol accepts, and the lists of one that goes by lists: each row in one of them or in none."""
    if protocol in PID_PROTOCOLS:
        return draw(problems_for(protocol, kinds=kinds)), None
    problem = draw(problems(kinds=kinds, max_query=5, max_gallery=20))
    rows, names = len(problem.gallery), (*LIST_NAMES[protocol], None)
    places = [draw(st.lists(st.sampled_from(names), min_size=rows, max_size=rows)) for _ in range(len(problem.query))]
    return problem, [
        {name: [j for j, place in enumerate(row) if place == name] for name in LIST_NAMES[protocol]} for row in places
    ]


def check(query, gallery, protocol, distance, truth=None, *, max_rank=20, chunks=(None,)):
    """All of a report agrees with the oracle, in any tiles; without a valid query, it is refused."""
    metrics = metrics_of(protocol)
    options = {"max_rank": max_rank, "ground_truth": truth, "ties": True}
    expected = evaluation.evaluate(query, gallery, protocol, distance, metrics, **options)
    if expected is None:
        with pytest.raises(InputError, match="no query has a relevant gallery item"):
            evaluate_items(query, gallery, protocol, distance, metrics, **options)
        return
    reports = [
        evaluate_items(query, gallery, protocol, distance, metrics, topk=9, chunk_rows=chunk, **options)
        for chunk in chunks
    ]
    assert len({report.result_digest for report in reports}) == 1
    assert_agrees(reports[0], expected)
    assert_ties_agree(reports[0], expected)
    assert_lists_agree(reports[0].topk, expected)
    for name, curve in expected.more_curves.items():
        assert reports[0].curves[name] == pytest.approx(curve, abs=1e-12), name


@pytest.mark.quick_cases(6)
@pytest.mark.parametrize("protocol", [*PID_PROTOCOLS, *LIST_PROTOCOLS])
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(15))
@given(data=st.data())
def test_small_sets(protocol, kind, data):
    problem, truth = data.draw(problems_with_truth(protocol, (kind,)))
    distance = data.draw(st.sampled_from(DISTANCES))
    assume(order_is_unambiguous(problem.query.features, problem.gallery.features, distance))
    chunks = None, data.draw(st.integers(1, 40))
    check(
        problem.query, problem.gallery, protocol, distance, truth, max_rank=data.draw(st.integers(1, 45)), chunks=chunks
    )


@cache
def crowded(dtype, dim=33):
    """Duplicates, junk, and queries without items, or with items of their own camera alone."""
    query, gallery = crowded_sets(30, 400, dim, seed=41, n_distinct=30, dtype=dtype)
    unmatched = ItemSet(query.features[:3], np.array([700, 701, -1]), query.camids[:3], np.arange(900, 903))
    own_camera_only = ItemSet(gallery.features[:4], np.full(4, 800), np.zeros(4, int), np.arange(910, 914))
    return query + unmatched + own_camera_only.take([0, 1]), gallery + own_camera_only.take([2, 3])


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("protocol", PID_PROTOCOLS)
@pytest.mark.parametrize("kind", [1, 16, 33, 70, np.float32, np.float16], ids=str)
def test_larger_sets(protocol, distance, kind):
    """Random rows of some dimension; and rows of some type with many duplicates."""
    query, gallery = scattered_sets(40, 400, kind, seed=kind) if isinstance(kind, int) else crowded(kind)
    if protocol == "same_set":
        query = gallery.take(np.random.default_rng(3).permutation(400)[:40])
    # A fixed set whose order hangs on a last bit is a mistake in the test.
    assert order_is_unambiguous(query.features, gallery.features, distance)
    check(query, gallery, protocol, distance, max_rank=50, chunks=(None, 64))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("protocol", LIST_PROTOCOLS)
def test_larger_lists(protocol):
    """Also by the walk down the list of the published code, in which junk before a position moves it up."""
    query, gallery = crowded_sets(12, 150, 8, seed=91)
    truth = drawn_truth(protocol, 12, 150, seed=92)
    check(query, gallery, protocol, "cosine", truth, chunks=(None, 7))
    expected = evaluation.evaluate(query, gallery, protocol, "cosine", ground_truth=truth)
    metrics = ["mAP_trapezoid", "P_clipped@1", "P_clipped@5", "P_clipped@10"]
    report = evaluate_items(query, gallery, protocol, "cosine", metrics, ground_truth=truth)
    walks = [
        rank_metrics.walk_revisitop(np.lexsort((np.arange(150), row)), relevant, junk, (1, 5, 10))
        for row, relevant, junk in zip(expected.distances, expected.relevant, expected.junk, strict=True)
        if relevant.any()
    ]
    assert len(walks) == 10
    means = [np.mean([area for area, _ in walks]), *(np.mean([each[k] for _, each in walks]) for k in (1, 5, 10))]
    assert list(report.metrics.values()) == pytest.approx(means, abs=1e-12)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("distance", DISTANCES)
def test_thousands_of_duplicates(distance):
    query, gallery = crowded_sets(25, 5000, 21, seed=4, n_distinct=9)
    assert order_is_unambiguous(query.features, gallery.take(range(200)).features, distance)
    expected = evaluation.evaluate(query, gallery, "market1501", distance)
    assert_agrees(evaluate_items(query, gallery, "market1501", distance), expected)


@pytest.mark.slow
def test_thousands_of_queries():
    query, gallery = crowded_sets(9000, 90, 5, seed=9, n_distinct=20)
    assert_agrees(evaluate_items(query, gallery), evaluation.evaluate(query, gallery))


@pytest.mark.parametrize("distance", DISTANCES)
def test_mixed_dtypes(distance):
    rng = np.random.default_rng(8)
    query, gallery = scattered_sets(10, 80, 24, seed=8)
    query = query.with_features(query.features.astype(np.float16))
    gallery = gallery.with_features(np.where(rng.random((80, 1)) < 0.3, gallery.features[:1], gallery.features))
    assert order_is_unambiguous(query.features, gallery.features, distance)
    check(query, gallery, "market1501", distance)


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


@pytest.mark.parametrize("protocol", [*PID_PROTOCOLS, *LIST_PROTOCOLS])
def test_default_metrics_and_curves(protocol):
    query, gallery = scattered_sets(10, 80, 6, seed=42)
    if protocol == "same_set":
        query = gallery.take(range(10))
    family = CMC_FAMILY.get(protocol, "CMC")
    truth = (
        [dict(zip(LIST_NAMES[protocol], ([0, 2], [3, 4], [1]), strict=True))] * 10 if protocol in LIST_NAMES else None
    )
    report = evaluate_items(query, gallery, protocol, metrics=None, max_rank=13, ground_truth=truth)
    own = ["mAP_trapezoid"] if protocol in TRAPEZOID_PROTOCOLS else []
    clipped = [f"P_clipped@{k}" for k in (1, 5, 10)] if protocol.startswith("revisitop") else []
    assert list(report.metrics) == ["mAP", "mINP", *own, *(f"{family}@{k}" for k in (1, 5, 10)), *clipped]
    families = {"CMC", "CMC_allshots", "CMC_single_shot"} & set(report.curves)
    assert families == {family}
    assert len(report.curves[family]) == 13
    for k in (1, 5, 10):
        assert report.curves[family][k - 1] == report.metrics[f"{family}@{k}"]
    assert set(report.definitions) >= set(report.metrics)
    assert report.protocol["name"] == protocol
    assert report.protocol["cmc_family"] == family
    assert report.protocol["ap_family"] == ("mAP_trapezoid" if own else "mAP")


# -------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("protocol", [*PID_PROTOCOLS, *LIST_PROTOCOLS])
def test_ground_truth_of_another_kind_is_refused(protocol):
    """Lists for a protocol of identities, and lists of the other kind, or none, for one that goes by lists."""
    query, gallery = scattered_sets(3, 20, 4, seed=44)
    if protocol == "same_set":
        query = gallery.take(range(3))
    other = {"easy": [0], "hard": [], "junk": []} if protocol == "oxford" else {"ok": [0], "junk": []}
    for truth in [[other] * 3] + [None] * (protocol in LIST_PROTOCOLS):
        with pytest.raises(InputError, match=protocol):
            evaluate_items(query, gallery, protocol, ground_truth=truth)
