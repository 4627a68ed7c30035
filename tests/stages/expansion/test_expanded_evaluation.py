"""Evaluations of expanded features: against the oracles, under re-ranking, in the database itself, of real models."""

from __future__ import annotations

import numpy as np
import pytest
from expansion_runs import expanded, features_of, labelled
from oracles import evaluation, expansion, reranking
from support.passes import Count
from support.real_sets import read_sides
from support.reference import order_is_unambiguous
from support.strategies import crowded_sets, scattered_sets

from reid_dist import DistanceBlock, FeatureSet, evaluate, evaluate_distances, sweep_parameters
from reid_dist.errors import InputError

CLOSE = 1e-12
METRICS = ("mAP", "mAP_trapezoid", "mINP", "CMC@1", "CMC@5", "P@5")

METHODS = {
    "aqe(k=3)": lambda q, g: expansion.aqe(q, g, 3),
    "alpha_qe(k=4,alpha=1.5)": lambda q, g: expansion.alpha_qe(q, g, 4, 1.5),
    "dba(k=3)": lambda q, g: expansion.dba(q, g, 3),
    "fastreid(k=3,alpha=2)": lambda q, g: expansion.fastreid(q, g, 3, 2),
}


def check(query, gallery, spec, features, protocol="market1501", distance="cosine", margin=1e-6):
    """An expanded evaluation equals that of the oracle's features."""
    near, far = (np.asarray(each, np.float32) for each in features)
    assert order_is_unambiguous(near, far, distance, margin=margin)
    expected = evaluation.evaluate(
        query.with_features(near), gallery.with_features(far), protocol, distance, metrics=METRICS
    )
    found = evaluate(
        labelled(query), labelled(gallery), protocol=protocol, distance=distance, metrics=METRICS, expand=spec
    )
    for name in METRICS:
        assert abs(found.metrics[name] - expected.metrics[name]) <= CLOSE, name
    np.testing.assert_array_equal(found.per_query["first_rank"], expected.per_query["first_rank"])
    return found


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("distance", ["cosine", "euclidean"])
@pytest.mark.parametrize("spec", METHODS)
def test_against_the_oracle(spec, distance):
    query, gallery = scattered_sets(12, 60, 6, seed=31)
    if distance != "cosine" and "fastreid" not in spec:
        # Rows of length 1 on one side are compared with rows of length 1 alone.
        query, gallery = (each.with_features(expansion.unit_rows(each.features)) for each in (query, gallery))
    report = check(query, gallery, spec, METHODS[spec](query.features, gallery.features), distance=distance)
    plain = evaluate(labelled(query), labelled(gallery), distance=distance)
    assert report.result_digest != plain.result_digest
    assert report.inputs == plain.inputs
    assert report.expand["name"].startswith(spec.removesuffix(")"))
    assert plain.expand is None


def test_queries_that_cancelled_are_at_one_distance_from_everything():
    query = FeatureSet.from_arrays(np.array([[1, 0], [0, 1]], np.float32), [1, 2], [0, 0])
    gallery = FeatureSet.from_arrays(np.array([[-1, 0]] * 3, np.float32), [2, 1, 1], [1, 1, 1])
    report = evaluate(query, gallery, expand="aqe(k=1)", confidence=None)
    # All ties: the order is that of gallery rows.
    assert report.per_query["first_rank"].tolist() == [2, 1]
    assert np.isfinite(list(report.metrics.values())).all()


# ------------------------------------------------------------------------------------------------ with re-ranking


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("variant", ["zhong", "faiss_k1"])
@pytest.mark.parametrize("spec", METHODS)
def test_with_re_ranking(spec, variant):
    """The re-ranking is of the expanded features: the two oracles one after the other."""
    query, gallery = scattered_sets(9, 50, 6, seed=33)
    near, far = (np.asarray(each, np.float32) for each in METHODS[spec](query.features, gallery.features))
    assert reranking.order_is_unambiguous(near, far, "cosine", variant)
    final = reranking.reranked(near, far, variant=variant, k1=6, k2=3, lambda_value=0.3)
    expected = evaluate_distances(
        DistanceBlock.from_array(final), labelled(query), labelled(gallery), metrics=METRICS, confidence=None
    )
    found = evaluate(
        labelled(query),
        labelled(gallery),
        metrics=METRICS,
        confidence=None,
        expand=spec,
        rerank=f"k_reciprocal(k1=6,k2=3,lambda_value=0.3,variant={variant})",
    )
    for name in METRICS:
        assert abs(found.metrics[name] - expected.metrics[name]) <= CLOSE, name
    assert found.rerank["variant"] == variant
    assert found.expand is not None


@pytest.mark.slow
def test_with_re_ranking_to_the_last_bit(tmp_path):
    """The same as re-ranking stores of the expanded features."""
    query, gallery = map(labelled, crowded_sets(20, 150, 10, seed=34))
    spec, rerank = "dba(k=3)+alpha_qe(k=2,alpha=1)", "k_reciprocal(k1=7,k2=2)"
    near, far = expanded(query, gallery, spec, tmp_path)
    expected = evaluate(near, far, rerank=rerank, topk=4, confidence=None)
    for chunk in (None, 17):
        found = evaluate(query, gallery, expand=spec, rerank=rerank, topk=4, confidence=None, chunk_rows=chunk)
        assert found.result_digest == expected.result_digest
        assert found.topk.digest == expected.topk.digest


# --------------------------------------------------------------------------------------- queries of the database


def landmarks():
    """Oxford's way: each query is an image of the database, and its lists name what is good and what is junk."""
    rng = np.random.default_rng(37)
    place = rng.integers(0, 6, 80)
    features = (rng.normal(size=(6, 12))[place] + 1.2 * rng.normal(size=(80, 12))).astype(np.float32)
    requested = np.arange(0, 80, 9)
    truth = [
        {
            "ok": np.flatnonzero(place == place[row]).tolist(),
            "junk": rng.choice(np.flatnonzero(place != place[row]), 3, replace=False),
        }
        for row in requested
    ]
    gallery = FeatureSet.from_arrays(features, np.zeros(80, int), item_ids=np.arange(80))
    query = FeatureSet.from_arrays(features[requested], np.zeros(len(requested), int), item_ids=requested)
    return query, gallery, [{name: list(map(int, rows)) for name, rows in entry.items()} for entry in truth]


@pytest.mark.slow
def test_a_query_in_the_database_counts_as_its_first_neighbour():
    """The curve is flat from 0 to 1, and k counts the query."""
    query, gallery, truth = landmarks()
    requested = {"protocol": "oxford", "ground_truth": truth, "metrics": ["mAP_trapezoid", "mAP"]}
    report = sweep_parameters(query, gallery, expand="aqe", k="0:4", include_self=True, **requested)
    plain = evaluate(query, gallery, confidence=None, **requested)
    digests = [row["digest"] for row in report.rows]
    assert digests[0] == digests[1] == plain.result_digest
    assert len(set(digests[1:])) == 4
    # Without it, the query's own row is its first neighbour, which brings nothing: the two differ by one in k.
    without = sweep_parameters(query, gallery, expand="aqe", k="1:4", **requested)
    assert without.values("mAP").tolist() == pytest.approx([plain.metrics["mAP"], *without.values("mAP")[1:]])
    own = features_of(gallery)[query.item_ids]
    rows, _ = expansion.aqe(own, features_of(gallery), 3, include_self=True, own_rows=query.item_ids)
    assert order_is_unambiguous(rows.astype(np.float32), features_of(gallery), "cosine", margin=1e-7)
    block = 1 - expansion.unit_rows(rows) @ expansion.unit_rows(features_of(gallery)).T
    expected = evaluate_distances(DistanceBlock.from_array(block), query, gallery, confidence=None, **requested)
    assert report.values("mAP")[3] == pytest.approx(expected.metrics["mAP"], abs=CLOSE)


def test_include_self_needs_queries_that_are_gallery_rows():
    features, pids = np.random.default_rng(8).standard_normal((30, 4)), np.arange(30) % 6
    options = {"expand": "aqe(k=3,include_self=true)", "metrics": ["mAP"], "confidence": None}
    gallery = FeatureSet.from_arrays(features, pids, item_ids=np.arange(30))
    apart = FeatureSet.from_arrays(features[:9], pids[:9], item_ids=np.arange(9) + 100)
    with pytest.raises(InputError, match="none of the 9 item ids is there"):
        evaluate(apart, gallery, protocol="no_cameras", **options)
    nameless = FeatureSet.from_arrays(features[:9], pids[:9])
    with pytest.raises(InputError, match="one of the sets has none"):
        evaluate(nameless, gallery, protocol="no_cameras", **options)
    some = FeatureSet.from_arrays(features[:9], pids[:9], item_ids=np.arange(9) + 21)
    assert evaluate(some, gallery, protocol="same_set", **options).counts["n_valid"] == 9


# -------------------------------------------------------------------------------------------------- real features


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("spec", "method"),
    [
        ("aqe(k=5)", lambda q, g: expansion.aqe(q, g, 5)),
        ("fastreid(k=5,alpha=3)", lambda q, g: expansion.fastreid(q, g, 5, 3)),
    ],
)
@pytest.mark.parametrize("name", ["market1501_sample", "sketch_photo"])
def test_real_features(shared_data, name, spec, method):
    query, gallery = read_sides(shared_data(f"{name}.mat"))
    check(query, gallery, spec, method(query.features, gallery.features), "market1501", margin=1e-10)


@pytest.mark.slow
def test_a_sweep_over_real_features(shared_data):
    with np.load(shared_data("veri776_sample.npz")) as content:
        items = FeatureSet.from_arrays(content["features"], content["pids"], item_ids=np.arange(500))
    count = Count()
    report = sweep_parameters(items, items, expand="aqe", k="0:6:2", protocol="same_set", progress=count)
    assert count.list_sweeps == 1
    for row in report.rows:
        spec = f"aqe(k={row['parameters']['k']})"
        alone = evaluate(
            items, items, protocol="same_set", metrics=["mAP", "CMC@1", "mINP"], confidence=None, expand=spec
        )
        assert row["digest"] == alone.result_digest
    assert report.best["mAP"]["value"] == max(report.values("mAP"))
