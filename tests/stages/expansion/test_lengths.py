"""Expanded rows of length 1 against rows of other lengths: refused where the distance depends on length."""

from __future__ import annotations

import numpy as np
import pytest
from expansion_runs import labelled
from oracles import evaluation, expansion
from support.refusals import in_full
from support.strategies import scattered_sets

from reid_dist import FeatureSet, evaluate, sweep_parameters
from reid_dist.errors import InputError

DEPENDENT = ("euclidean", "sqeuclidean")


def raw_sets():
    """Queries and gallery rows of lengths around 20."""
    return tuple(each.with_features(8 * each.features) for each in scattered_sets(12, 60, 6, seed=31))


def unit_sets():
    return tuple(each.with_features(expansion.unit_rows(each.features).astype(np.float32)) for each in raw_sets())


@pytest.mark.parametrize("distance", DEPENDENT)
@pytest.mark.parametrize(
    ("spec", "side"),
    [
        ("aqe(k=1)", "gallery"),
        ("alpha_qe(k=3,alpha=2)", "gallery"),
        ("dba(k=2)", "query"),
        ("dba(k=2)+aqe(k=0)", "query"),
        ("dba(k=2)+fastreid(k=2)", "query"),
        ("fastreid(k=2)+aqe(k=2)", "gallery"),
        ("fastreid(k=2)+dba(k=2)", None),
    ],
)
def test_one_side_of_length_1_is_refused(spec, side, distance):
    query, gallery = map(labelled, raw_sets())
    if side is None:
        with pytest.raises(InputError, match="put dba first"):
            evaluate(query, gallery, distance=distance, expand=spec)
        return
    with pytest.raises(InputError, match=f"{side} rows stay") as caught:
        evaluate(query, gallery, distance=distance, expand=spec)
    for works in ("'cosine'", "scale all features to length 1", "dba(k=…)+aqe(k=…)", repr(distance)):
        assert works in in_full(caught.value)


@pytest.mark.quick_cases(4)
@pytest.mark.parametrize("spec", ["aqe(k=2)", "dba(k=2)", "dba(k=2)+alpha_qe(k=3)", "fastreid(k=3)"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_features_of_length_1_are_expanded(spec, dtype):
    """Under the Euclidean distance rows of length 1 are in the order of cosine."""
    query, gallery = (
        FeatureSet.from_arrays(each.features.astype(dtype), each.pids, each.camids) for each in unit_sets()
    )
    assert evaluate(query, gallery, distance="euclidean", expand=spec, confidence=None).metrics["mAP"] > 0


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("spec", ["dba(k=2)+aqe(k=3)", "fastreid(k=3,alpha=2)", "aqe(k=0)", "dba(k=0)+aqe(k=0)"])
def test_sides_that_are_alike_are_compared(spec):
    query, gallery = raw_sets()
    features = {
        "dba(k=2)+aqe(k=3)": lambda q, g: expansion.aqe(q, expansion.dba(q, g, 2)[1], 3),
        "fastreid(k=3,alpha=2)": lambda q, g: expansion.fastreid(q, g, 3, 2),
    }.get(spec, lambda q, g: (q, g))(query.features, gallery.features)
    near, far = (np.asarray(each, np.float32) for each in features)
    expected = evaluation.evaluate(
        query.with_features(near), gallery.with_features(far), "market1501", "euclidean", metrics=("mAP",)
    )
    found = evaluate(labelled(query), labelled(gallery), distance="euclidean", expand=spec, metrics="mAP")
    assert abs(found.metrics["mAP"] - expected.metrics["mAP"]) <= 1e-12


def test_a_sweep_is_refused_before_its_first_point_and_k_0_is_the_plain_result(tmp_path):
    query, gallery = map(labelled, raw_sets())
    shown = []
    with pytest.raises(InputError, match="rows of different length"):
        sweep_parameters(
            query, gallery, expand="aqe", k="0:3", distance="euclidean", on_point=lambda *point: shown.append(1)
        )
    assert not shown
    swept = sweep_parameters(query, gallery, expand="aqe", k="0", distance="euclidean", metrics=["mAP"])
    plain = evaluate(query, gallery, distance="euclidean", metrics=["mAP"], confidence=None)
    assert swept.rows[0]["digest"] == plain.result_digest


def test_the_command_on_real_features_that_are_not_normalised(reid_dist, shared_data, tmp_path):
    veri = shared_data("veri776_sample.npz")
    (tmp_path / "threads.yaml").write_text("kind: threads\n")
    words = ("evaluate", veri, veri, "--protocol", "same_set", "--distance", "euclidean", "--metric", "mAP")
    words += ("--cluster", tmp_path / "threads.yaml", "--output", tmp_path / "out")
    reid_dist(*words, "--expand", "aqe(k=1)").assert_refused("gallery rows stay as they are given (row 0 has length 2")
    assert not (tmp_path / "out").exists()
