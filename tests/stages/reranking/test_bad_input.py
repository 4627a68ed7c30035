"""Re-rankings that make no sense and sets that cannot be re-ranked: one clear line, in Python and as a command."""

from __future__ import annotations

import re
from functools import partial

import numpy as np
import pytest
from oracles import graph_reranking as graph_oracle
from oracles import reranking as oracle
from support.reranking_runs import bare
from support.strategies import scattered_sets

from reid_dist import (
    DistanceBlock,
    FeatureSet,
    evaluate,
    evaluate_distances,
    evaluate_lists,
    nearest,
    reranked_distances,
)
from reid_dist.errors import DamagedStoreError, InputError, UnknownNameError
from reid_dist.stages.reranking.k_reciprocal import KReciprocal
from reid_dist.stages.reranking.rerankers import parse_rerank

BAD_SPECS = [
    ("k_reciprocl", r"unknown re-ranker 'k_reciprocl'.*k_reciprocal"),
    ("k_reciprocal(k1=2.5)", r"k1 of k_reciprocal must be a whole number from 1, found 2.5"),
    ("k_reciprocal(k1=true)", r"k1 of k_reciprocal must be a whole number from 1, found True"),
    ("k_reciprocal(k1=4,k2=6)", r"k2 of k_reciprocal must not be larger than k1 \+ 1 = 5, found 6"),
    ("k_reciprocal(lambda_value=1.5)", r"lambda_value of k_reciprocal must be a number from 0 to 1, found 1.5"),
    ("k_reciprocal(lambda_value=nan)", r"lambda_value of k_reciprocal must be a number from 0 to 1, found nan"),
    ("k_reciprocal(lambda_value=1e-12)", r"lambda_value of k_reciprocal must be 0 or at least 1e-09, found 1e-12"),
    ("k_reciprocal(lambda_value=true)", r"lambda_value of k_reciprocal must be a number from 0 to 1, found True"),
    ("k_reciprocal(variant=zong)", r"unknown variant of re-ranking 'zong'.*zhong"),
    ("k_reciprocal(variant=3)", r"variant of k_reciprocal must be text, found 3"),
    ("k_reciprocal(inclusive=1)", r"inclusive of k_reciprocal must be true or false, or None, found 1"),
    ("k_reciprocal(weights=binry)", r"weights of k_reciprocal must be gaussian or binary, found 'binry'"),
    ("k_reciprocal(weights=binary)", r"binary weights belong to the variant 'paper', not to 'zhong'"),
    ("k_reciprocal(mode=inductiv)", r"mode of k_reciprocal must be transductive or inductive, found 'inductiv'"),
    ("k_reciprocal(lambda=0.3)", r"unknown parameter of k_reciprocal 'lambda'.*lambda_value"),
    ("k_reciprocal(k1=0,mode=x)", r"(?s)k1 of .*, found 0.*mode of k_reciprocal must be .*, found 'x'"),
    ("k_reciprocal(k1=" + "9" * 5000 + ")", r"k1 of k_reciprocal must be a whole number from 1, found '9999"),
    ("k_reciprocal+k_reciprocal", r"one re-ranking at a time"),
    ("k_reciprocal(20)", r"cannot read '20' in re-ranking"),
    ("k_reciprocal(k1=20", r"cannot read re-ranking"),
    ("", r"a re-ranking is a name or a call"),
]


@pytest.fixture(scope="module")
def data():
    """Items with identities and cameras, as arrays."""
    return scattered_sets(12, 60, 6, seed=61)


@pytest.fixture(scope="module")
def stores(data, tmp_path_factory):
    """The same on disk, with a block of distances and lists beside them."""
    folder = tmp_path_factory.mktemp("stores")
    for side, items in zip(("query", "gallery"), data, strict=True):
        FeatureSet.from_arrays(items.features, items.pids, items.camids).save(folder / f"{side}.zarr")
    (folder / "threads.yaml").write_text("kind: threads\n")
    np.save(folder / "block.npy", np.random.default_rng(1).random((12, 60)))
    np.savez(folder / "lists.npz", index=np.tile(np.arange(20), (12, 1)))
    return folder


@pytest.fixture
def refused(stores, reid_dist):
    """Call ``reid-dist evaluate``, and return the error line of the refusal."""

    def call(*words):
        sides = (stores / "query.zarr", stores / "gallery.zarr")
        return reid_dist("evaluate", *sides, "--cluster", stores / "threads.yaml", *words).assert_refused()

    return call


def sets_of(data, **replaced):
    query, gallery = data
    features = {"query": query.features, "gallery": gallery.features, **replaced}
    return tuple(
        FeatureSet.from_arrays(features[side], items.pids, items.camids, allow_zero=True)
        for side, items in (("query", query), ("gallery", gallery))
    )


# --------------------------------------------------------------------------------------------------------- specs


@pytest.mark.parametrize(("spec", "message"), BAD_SPECS)
def test_specs(spec, message):
    with pytest.raises((InputError, UnknownNameError), match=message) as caught:
        parse_rerank(spec)
    assert "\n" not in str(caught.value)


def test_specs_of_calls_and_commands(data, refused, tmp_path):
    """The command writes nothing."""
    near, far = sets_of(data)
    spec, message = "k_reciprocal(k1=0)", "k1 of k_reciprocal must be a whole number from 1, found 0"
    for call in (lambda: evaluate(near, far, rerank=spec), lambda: reranked_distances(near, far, rerank=spec)):
        with pytest.raises(InputError, match=message):
            call()
    assert message in refused("--rerank", spec, "--output", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("spec", [5, ["k_reciprocal"], b"k_reciprocal"])
def test_values_that_are_no_spec(data, spec):
    near, far = sets_of(data)
    for evaluated in (lambda: evaluate(near, far, rerank=spec), lambda: reranked_distances(near, far, rerank=spec)):
        with pytest.raises(InputError, match="a re-ranking is a name or a call"):
            evaluated()


@pytest.mark.parametrize(
    "wrong",
    [{"k1": np.float64(3)}, {"k1": None}, {"k2": "6"}, {"lambda_value": None}, {"lambda_value": float("nan")},
     {"inclusive": 0}, {"variant": None}, {"weights": None}, {"mode": None},
     {"k1": np.bool_(True)}],
)  # fmt: skip
def test_values_in_python(wrong):
    with pytest.raises((InputError, UnknownNameError)):
        KReciprocal(**wrong)


def test_numbers_of_numpy_are_numbers(data):
    near, far = sets_of(data)
    plain = reranked_distances(near, far, rerank=KReciprocal(k1=5, k2=3, lambda_value=0.5))
    spec = KReciprocal(k1=np.int64(5), k2=np.int32(3), lambda_value=np.float64(0.5))
    assert reranked_distances(near, far, rerank=spec).tobytes() == plain.tobytes()
    report = evaluate(near, far, rerank=spec, confidence=None)
    assert report.to_json() is not None
    assert evaluate(near, far, rerank="k_reciprocal(k1=5,k2=3,lambda_value=0.5)").result_digest == report.result_digest


def test_both_ends_of_the_weight_are_whole_numbers_too():
    for value in (0, 1):
        assert parse_rerank(f"k_reciprocal(lambda_value={value})").lambda_value == float(value)
    assert parse_rerank("k_reciprocal(lambda_value=1e-9)").lambda_value == 1e-9


# ---------------------------------------------------------------------------------------------------------- sets


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite(data, value):
    """Refused where a set is made; and where something slipped into memory afterwards, by the row."""
    features = data[1].features.copy()
    features[7, 2] = value
    with pytest.raises(InputError, match=r"\b7\b"):
        sets_of(data, gallery=features)
    slipped = data[1].features.copy()
    near, far = sets_of(data, gallery=slipped)
    slipped[7, 2] = value
    specs = ("k_reciprocal(k1=5)", "gnn(k1=5,k2=2)", "ecn", "ecn(method=origdist)", "top(gnn,m=9)")
    for evaluated in (*(partial(evaluate, near, far, rerank=spec) for spec in specs),
                lambda: reranked_distances(near, far), lambda: nearest(far, far, k=3)):  # fmt: skip
        with pytest.raises(DamagedStoreError, match="row 7 of memory is not finite"):
            evaluated()


def test_zero_rows_under_cosine(data):
    query, gallery = data
    features = gallery.features.copy()
    features[[3, 40]] = 0
    near = FeatureSet.from_arrays(query.features, query.pids, query.camids)
    far = FeatureSet.from_arrays(features, gallery.pids, gallery.camids)
    for evaluated in (*(partial(evaluate, near, far, rerank=spec) for spec in ("k_reciprocal", "gnn", "top(ecn)")),
                lambda: reranked_distances(near, far)):  # fmt: skip
        with pytest.raises(InputError, match=r"(?s)2 of 60 gallery rows are all zeros.*rows: 3, 40"):
            evaluated()
    for variant in ("zhong", "zhong_d4", "paper"):
        rerank = KReciprocal(k1=5, k2=2, variant=variant)
        assert np.isfinite(reranked_distances(near, far, rerank=rerank, distance="sqeuclidean")).all()


@pytest.mark.parametrize("distance", ["euclidean", "sqeuclidean"])
def test_zero_rows_on_the_sphere(data, distance):
    """`faiss_k1` compares directions whatever the distance; zero rows have none, and are refused unless allowed."""
    query, gallery = data
    features = gallery.features.copy()
    features[[3, 40]] = 0
    near = FeatureSet.from_arrays(query.features, query.pids, query.camids)
    far = FeatureSet.from_arrays(features, gallery.pids, gallery.camids)
    rerank = KReciprocal(k1=5, k2=2, variant="faiss_k1")
    for evaluated in (lambda: evaluate(near, far, rerank=rerank, distance=distance),
                lambda: reranked_distances(near, far, rerank=rerank, distance=distance)):  # fmt: skip
        with pytest.raises(InputError, match="2 of 60 gallery rows are all zeros"):
            evaluated()
    near, far = sets_of(data, gallery=features)
    assert np.isfinite(reranked_distances(near, far, rerank=rerank, distance=distance)).all()


@pytest.mark.parametrize("variant", oracle.VARIANTS)
def test_fewer_items_than_neighbours(variant):
    """No error: lists are as long as the set."""
    rng = np.random.default_rng(4)
    query, gallery = rng.normal(size=(2, 4)), rng.normal(size=(5, 4))
    found = reranked_distances(bare(query), bare(gallery), rerank=KReciprocal(k1=1000, k2=1001, variant=variant))
    as_stored = query.astype(np.float32), gallery.astype(np.float32)
    expected = oracle.reranked(*as_stored, variant=variant, k1=1000, k2=1001)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_fewer_items_than_neighbours_of_other_re_rankings():
    rng = np.random.default_rng(4)
    query, gallery = (rng.normal(size=(n, 4)).astype(np.float32) for n in (2, 5))
    expected = {
        "gnn(k1=1000,k2=900,rounds=3)": graph_oracle.propagated(query, gallery, k1=1000, k2=900, rounds=3).final,
        "ecn(k=1000,t=90,q=80)": graph_oracle.cross_neighbourhoods(query, gallery, k=1000, t=90, q=80),
        "ecn(t=90,q=80,method=origdist)": graph_oracle.mean_distances(query, gallery, t=90, q=80),
    }
    for spec, dense in expected.items():
        found = reranked_distances(bare(query), bare(gallery), rerank=spec)
        np.testing.assert_allclose(found, dense, rtol=0, atol=2e-7)


def test_dimensions(data):
    near, far = sets_of(data, gallery=np.ones((60, 5), np.float32))
    for evaluated in (lambda: evaluate(near, far, rerank="k_reciprocal"), lambda: reranked_distances(near, far)):
        with pytest.raises(InputError, match="query features have 6 dimensions, gallery features 5"):
            evaluated()


@pytest.mark.parametrize("rows", [[12], [-1], [0.0], [True], [[1]], "0", ["a"], 3])
def test_rows_out_of_range(data, rows):
    near, far = sets_of(data)
    with pytest.raises(InputError, match=r"^rows must be"):
        reranked_distances(near, far, rows=rows)


# ------------------------------------------------------------------------------------- what does not go together


@pytest.mark.parametrize("metric", ["TAR@FAR=0.01", "EER", "DIR@FAR=0.1"])
def test_thresholds(data, refused, metric):
    near, far = sets_of(data)
    message = rf"^{re.escape(metric)} would compare re-ranked distances of different queries with one threshold"
    with pytest.raises(InputError, match=message):
        evaluate(near, far, rerank="k_reciprocal", metrics=["mAP", metric])
    assert f"Error: {metric} would compare" in refused("--rerank", "k_reciprocal", "--metric", metric)


def test_roc(data, refused):
    near, far = sets_of(data)
    with pytest.raises(InputError, match=r"^roc would compare re-ranked distances"):
        evaluate(near, far, rerank="k_reciprocal", roc=True)
    line = refused("--rerank", "k_reciprocal(variant=zhong_d4)", "--roc")
    assert "Error: roc would compare" in line
    assert "'zhong_d4' each query has a scale of its own (its largest distance; faiss_k1 and paper have one" in line


def test_the_report_has_the_rule_of_two_thirds(data, refused):
    near, far = sets_of(data)
    report = evaluate(near, far, rerank="k_reciprocal(k1=5,k2=3,variant=paper)", confidence=None)
    assert report.rerank["inclusive"] is True
    assert evaluate(near, far, rerank="k_reciprocal(k1=5,k2=3)", confidence=None).rerank["inclusive"] is False
    shown = evaluate(near, far, rerank="k_reciprocal(k1=5,k2=3,variant=paper,inclusive=true)", confidence=None)
    assert shown.result_digest == report.result_digest
    assert "contradicts the variant 'paper'" in refused("--rerank", "k_reciprocal(variant=paper,inclusive=false)")


def test_variants_are_listed_as_variants(reid_dist):
    rows = [line.split()[0] for line in reid_dist("list", "rerankers").out.splitlines() if line.strip()]
    place = rows.index("k_reciprocal")
    assert rows[place + 1 : place + 5] == [f"k_reciprocal(variant={name})" for name in oracle.VARIANTS]
    for name in ("ecn", "ecn(variant=plain_fallback)", "gnn", "gnn(variant=zhang)", "top"):
        assert name in rows


@pytest.mark.parametrize(("option", "spec"), [("rerank", "k_reciprocal"), ("expand", "aqe(k=3)")])
def test_given_distances_and_lists(data, stores, refused, option, spec):
    sides = sets_of(data)
    block, lists = DistanceBlock.open(stores / "block.npy"), np.tile(np.arange(20), (12, 1))
    for what, call, file in (
        ("distances", lambda: evaluate_distances(block, *sides, **{option: spec}), "block.npy"),
        ("lists", lambda: evaluate_lists(lists, *sides, **{option: spec}), "lists.npz"),
    ):
        message = f"{option} is not available for {what}; evaluate the feature stores"
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert ("rerank_blocks" in str(caught.value)) == (option == "rerank" and what == "distances")
        assert message in refused(f"--{option}", spec, f"--{what}", stores / file)


def test_the_report_of_another_re_ranking(refused, stores, reid_dist, tmp_path):
    words = ("--output", tmp_path / "out", "--resume")
    sides = (stores / "query.zarr", stores / "gallery.zarr", "--cluster", stores / "threads.yaml")
    for _ in range(2):
        assert reid_dist("evaluate", *sides, *words, "--rerank", "k_reciprocal(k1=5,k2=2)").code == 0
    for other in (
        ["--rerank", "k_reciprocal(k1=5,k2=3)"],
        ["--rerank", "k_reciprocal(k1=5,k2=2,variant=zhong_d4)"],
        [],
    ):
        line = refused(*other, *words)
        assert "holds the report of another job" in line
        assert "rerank" in line
