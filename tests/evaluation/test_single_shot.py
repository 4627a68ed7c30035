"""CMC over single-shot galleries: the exact expectation, and seeded draws around it."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from agreement import evaluate_items
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import evaluation, single_shot
from oracles.protocols import PID_PROTOCOLS, assign_relevance
from support.reference import ItemSet, canonical_distances
from support.sampling import examples
from support.strategies import crowded_sets, problems, scattered_sets

from reid_dist.errors import InputError

PROTOCOLS = ("cuhk03", "cuhk03_separate_cameras")
CURVE = "CMC_single_shot"


# ------------------------------------------------------------------------------------------------- the oracle


@settings(max_examples=examples(25))
@given(problem=problems(kinds=("palette", "few_valued", "constant"), max_query=2, max_gallery=11), data=st.data())
def test_the_formula_is_the_mean_over_every_draw(problem, data):
    protocol = data.draw(st.sampled_from(PID_PROTOCOLS))
    order = data.draw(st.sampled_from(single_shot.ORDERS))
    distances = canonical_distances(problem.query.features, problem.gallery.features, "sqeuclidean")
    relevant, junk = assign_relevance(problem.query, problem.gallery, protocol)
    for i in np.flatnonzero(relevant.any(axis=1)):
        arguments = distances[i], relevant[i], junk[i], problem.gallery.pids, 6, order
        assert single_shot.expected_curve(*arguments) == single_shot.enumerated_curve(*arguments)


# -------------------------------------------------------------------------------------------------- reports


def as_items(features, pids, camids=None):
    """A set on a line, everything in camera 1."""
    features = np.asarray(features, np.float32)[:, None]
    return ItemSet(features, np.asarray(pids), np.ones(len(pids), int) if camids is None else np.asarray(camids))


ORIGIN = ItemSet(np.zeros((1, 1), np.float32), np.array([1]), np.array([0]))


def test_the_example_by_hand():
    gallery = as_items([1, 2, 9, 1, 9, 5], [8, 8, 8, 9, 9, 1])
    for protocol in PROTOCOLS:
        report = evaluate_items(ORIGIN, gallery, protocol, "euclidean", [f"{CURVE}@1", f"{CURVE}@2"], max_rank=4)
        assert report.curves[CURVE] == pytest.approx([1 / 6, 2 / 3, 1, 1], abs=1e-15)
        assert report.metrics == {f"{CURVE}@1": report.curves[CURVE][0], f"{CURVE}@2": report.curves[CURVE][1]}


@cache
def many_identities():
    """Identities of one to a dozen items, some of them exact duplicates, in two cameras."""
    query, gallery = crowded_sets(15, 260, 7, seed=71, n_distinct=60, n_pids=40, n_cameras=2)
    return query, gallery


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["cuhk03", "cuhk03_separate_cameras", "no_cameras"])
def test_identities_of_thousands(protocol):
    """Distractors as one identity, and a query identity with more items than a tile; ties in all of them."""
    query, gallery = crowded_sets(6, 3600, 5, seed=75, n_distinct=90, n_pids=12, n_cameras=2)
    row = np.arange(3600)
    pids = np.where(row % 3 == 0, 0, np.where(row % 3 == 1, 1, gallery.pids))
    gallery = ItemSet(gallery.features, pids, gallery.camids, gallery.item_ids)
    query_pids = np.array([3, 5, 8])
    query = ItemSet(query.features, np.array([0, *query_pids, *query_pids[:2]]), query.camids, query.item_ids)
    # Most items of a query identity are of one camera, which keeps the oracle fast.
    for pid, camera in zip(query.pids, query.camids, strict=True):
        gallery.camids[np.flatnonzero(gallery.pids == pid)[20:]] = camera
    names = [f"{CURVE}@1", f"{CURVE}@4"]
    if protocol == "no_cameras":
        query = query.take([1])
    expected = evaluation.evaluate(query, gallery, protocol, "sqeuclidean", names, max_rank=60)
    digests = set()
    for chunk in (None, 500):
        report = evaluate_items(query, gallery, protocol, "sqeuclidean", names, max_rank=60, chunk_rows=chunk)
        digests.add(report.result_digest)
        for name in names:
            assert report.metrics[name] == pytest.approx(expected.metrics[name], abs=1e-12)
        if CURVE in report.curves:
            assert report.curves[CURVE] == pytest.approx(expected.curves[CURVE], abs=1e-12)
    assert len(digests) == 1


def test_one_item_of_each_identity_gives_the_plain_cmc():
    """Where nothing is drawn, the curve is CMC."""
    rng = np.random.default_rng(72)
    gallery = ItemSet(rng.normal(size=(50, 6)).astype(np.float32), rng.permutation(50), np.ones(50, int))
    query = ItemSet(rng.normal(size=(20, 6)).astype(np.float32), rng.integers(0, 50, 20), np.zeros(20, int))
    single = evaluate_items(query, gallery, "cuhk03", metrics=None)
    plain = evaluate_items(query, gallery, "market1501", metrics=None)
    assert single.curves[CURVE].tolist() == plain.curves["CMC"].tolist()
    drawn = evaluate_items(query, gallery, "cuhk03", metrics=None, single_shot_draws=3)
    assert drawn.curves[CURVE].tolist() == plain.curves["CMC"].tolist()


# ---------------------------------------------------------------------------------------------------- draws


def test_each_draw_is_as_likely_as_another():
    """Rank 1, 2 and 3 of one query in many draws, as often as by enumeration."""
    gallery = as_items([1, 2, 9, 1, 9, 5], [8, 8, 8, 9, 9, 1])
    n_draws = 20_000
    report = evaluate_items(
        ORIGIN, gallery, "cuhk03", "euclidean", metrics=None, max_rank=3, single_shot_draws=n_draws, seed=11
    )
    for found, p in zip(report.curves[CURVE], [1 / 6, 2 / 3, 1], strict=True):
        assert abs(found - p) <= 5 * math.sqrt(p * (1 - p) / n_draws) + 1e-12


@pytest.mark.slow
def test_draws_do_not_depend_on_tiles_or_other_metrics():
    query, gallery = many_identities()
    options = {"metrics": None, "max_rank": 12, "single_shot_draws": 6, "seed": 3}
    digests = {
        evaluate_items(query, gallery, "cuhk03", chunk_rows=chunk, **options).result_digest
        for chunk in (None, 1, 7, 100)
    }
    assert len(digests) == 1
    with_others = {**options, "metrics": ["mAP", f"{CURVE}@1", "CMC_allshots@1", "CMC@1"]}
    assert (
        evaluate_items(query, gallery, "cuhk03", **with_others).curves[CURVE].tobytes()
        == evaluate_items(query, gallery, "cuhk03", **options).curves[CURVE].tobytes()
    )


def test_draws_depend_on_the_seed():
    query, gallery = many_identities()
    curves = [
        evaluate_items(query, gallery, "cuhk03", metrics=None, single_shot_draws=3, seed=seed).curves[CURVE].tobytes()
        for seed in (0, 1, 2, 0)
    ]
    assert curves[0] == curves[3]
    assert len(set(curves)) == 3


def test_draws_change_nothing_but_the_curve():
    query, gallery = many_identities()
    exact = evaluate_items(query, gallery, "cuhk03", metrics=["mAP", "mINP", "CMC@1"])
    drawn = evaluate_items(query, gallery, "cuhk03", metrics=["mAP", "mINP", "CMC@1"], single_shot_draws=4)
    assert drawn.metrics == exact.metrics
    assert drawn.curves[CURVE].tobytes() != exact.curves[CURVE].tobytes()


def test_queries_draw_independently():
    """Copies of one query do not all get one draw."""
    gallery = as_items([1, 9, 5], [8, 8, 1])
    query = ItemSet(np.zeros((64, 1), np.float32), np.ones(64, int), np.zeros(64, int), np.arange(100, 164))
    curve = evaluate_items(
        query, gallery, "cuhk03", "euclidean", metrics=None, max_rank=2, single_shot_draws=1, seed=0
    ).curves[CURVE]
    assert 0 < curve[0] < 1
    assert curve[1] == 1


# -------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("protocol", ["oxford", "revisitop_medium"])
def test_lists_have_no_identities_to_draw_from(protocol):
    query, gallery = scattered_sets(2, 40, 5, seed=74)
    truth = [{"ok": [0], "junk": []}, {"ok": [3], "junk": []}]
    if protocol != "oxford":
        truth = [{"easy": [0], "hard": [], "junk": []}, {"easy": [3], "hard": [5], "junk": []}]
    with pytest.raises(InputError, match=CURVE):
        evaluate_items(query, gallery, protocol, metrics=[f"{CURVE}@1"], ground_truth=truth)
