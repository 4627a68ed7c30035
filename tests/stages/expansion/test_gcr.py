"""Graph convolution: the dense formula, what is not done again, and what is refused."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from expansion_runs import assert_close, expanded, features_of
from oracles import expansion as oracle
from support.passes import Count

from reid_dist import FeatureSet, evaluate
from reid_dist.engine.plan import SetShape
from reid_dist.errors import InputError, PlanError
from reid_dist.stages.expansion import new_features
from reid_dist.stages.expansion.expansion_steps import parse_expand
from reid_dist.stages.stage_plan import plan_expand

SPECS = {
    "gcr(k1=5)": {"k1": 5},
    "gcr(k1=4,k2=5,beta1=0.1,beta2=0.5,scale=0.6,rounds=2,symmetric=true)": {
        "k1": 4, "k2": 5, "beta1": 0.1, "beta2": 0.5, "scale": 0.6, "rounds": 2, "symmetric": True,
    },
    "gcr(k1=6,scale=0,rounds=1)": {"k1": 6, "scale": 0, "rounds": 1},
    "gcr(k2=4,scale=1,rounds=2,symmetric=true)": {"k2": 4, "scale": 1, "rounds": 2, "symmetric": True},
    # More than there are items, and than there are of other cameras.
    "gcr(k1=500,k2=500,rounds=1)": {"k1": 500, "k2": 500, "rounds": 1},
}  # fmt: skip


def arrays(n_query=13, n_gallery=70, dim=9, seed=5, n_cameras=3):
    """Rows around few centres, with dozens of copies; the last camera has two rows."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(12, dim))
    query, gallery = (
        (centres[rng.integers(0, 12, n)] + 0.4 * rng.normal(size=(n, dim))).astype(np.float32)
        for n in (n_query, n_gallery)
    )
    gallery[20:45] = gallery[3]
    cameras = [rng.integers(0, n_cameras, n) for n in (n_query, n_gallery)]
    cameras[1][:2] = n_cameras
    return query, gallery, cameras


def sets(**options):
    query, gallery, cameras = arrays(**options)
    return tuple(
        FeatureSet.from_arrays(rows, np.arange(len(rows)) % 7, camids=own)
        for rows, own in zip((query, gallery), cameras, strict=True)
    )


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("spec", SPECS)
def test_the_formula(spec, tmp_path):
    query, gallery, cameras = arrays()
    found = expanded(*sets(), spec, tmp_path)
    for side, expected in zip(found, oracle.gcr(query, gallery, cameras, **SPECS[spec]), strict=True):
        assert_close(features_of(side), expected)


def test_by_hand(tmp_path):
    """Two items at a right angle, of two cameras: weights 1 and exp(-1 / beta) in both graphs."""
    rows = np.eye(2, dtype=np.float32)
    one, other = (FeatureSet.from_arrays(3 * rows[i : i + 1], [0], camids=[i]) for i in range(2))
    near, _ = expanded(one, other, "gcr(k1=2,k2=2,beta1=0.5,beta2=0.5,rounds=1)", tmp_path)
    expected = np.array([1, np.exp(-2)]) / np.hypot(1, np.exp(-2))
    np.testing.assert_allclose(features_of(near)[0], expected, rtol=1e-6)


def test_one_camera(tmp_path):
    """The graph across cameras is the identity, and the store says so."""
    query, gallery, _ = arrays()
    one = [
        FeatureSet.from_arrays(rows, np.zeros(len(rows), int), camids=np.full(len(rows), 4))
        for rows in (query, gallery)
    ]
    near, _ = expanded(*one, "gcr(k1=5,rounds=1)", tmp_path)
    same = [np.full(len(rows), 4) for rows in (query, gallery)]
    assert_close(features_of(near), oracle.gcr(query, gallery, same, k1=5, rounds=1)[0])
    assert near.notes[-1] == "all items are of one camera: the graph across cameras links each item only with itself"


@pytest.mark.parametrize("all_unknown", [False, True])
def test_an_unknown_camera_is_no_others(all_unknown, tmp_path):
    """As the oracle, each item of unknown camera is of a camera of its own."""
    query, gallery, cameras = arrays()
    for each in cameras:
        each[:: 1 if all_unknown else 3] = -1
    own = [np.where(each == -1, 100 * place + 10 + np.arange(len(each)), each) for place, each in enumerate(cameras, 1)]
    labelled = [
        FeatureSet.from_arrays(rows, np.arange(len(rows)) % 7, camids=each)
        for rows, each in zip((query, gallery), cameras, strict=True)
    ]
    found = expanded(*labelled, "gcr(k1=5,rounds=2)", tmp_path)
    for side, expected in zip(found, oracle.gcr(query, gallery, own, k1=5, rounds=2), strict=True):
        assert_close(features_of(side), expected)
        assert not any("one camera" in note for note in side.notes)


def test_no_cameras(tmp_path):
    query, gallery, cameras = arrays()
    bare = [FeatureSet.from_arrays(rows, np.zeros(len(rows), int)) for rows in (query, gallery)]
    with pytest.raises(InputError, match=r"gcr has a graph across cameras, and the query set has no .*gcr\(scale=0\)"):
        expanded(*bare, "gcr", tmp_path)
    found = expanded(*bare, "gcr(k1=5,scale=0,rounds=1)", tmp_path)
    expected = oracle.gcr(query, gallery, cameras, k1=5, scale=0, rounds=1)
    assert_close(features_of(found[1]), expected[1])


def test_what_is_there_is_not_done_again(tmp_path):
    """Of a run that ended while rows were written, finished blocks are used again; a finished one does nothing."""
    spec, first, count = "gcr(k1=4,rounds=2)", Count(), Count()
    with patch.object(new_features.FeatureWriter, "set_labels", lambda *_: 1 / 0), pytest.raises(ZeroDivisionError):
        expanded(*sets(), spec, tmp_path, progress=first)
    assert first.neighbour_sweeps == 2
    assert first.done["statistics"] == 2
    made = expanded(*sets(), spec, tmp_path, progress=count)
    assert count.neighbour_sweeps == 2, "of the second round alone"
    assert count.done["statistics"] == 2
    again = Count()
    assert [each.uri for each in expanded(*sets(), spec, tmp_path, progress=again)] == [each.uri for each in made]
    assert again.passes == []


def test_an_evaluation_names_the_step(tmp_path):
    report = evaluate(*sets(), expand="gcr(k1=5)+aqe(k=2)", confidence=None, workspace=tmp_path)
    assert report.expand["name"].startswith("gcr(k1=5,k2=3,beta1=0.2,beta2=0.2,scale=0.3,rounds=3,symmetric=false)+aqe")
    assert "GCN_rerank" in report.expand["source"]


def test_the_plan():
    shapes = SetShape(3000, 512, 4, 3000), SetShape(100_000, 512, 4, 8192)
    options = {"n_threads": 2, "memory_per_thread": 4 << 30}
    (one,) = plan_expand(*shapes, parse_expand("gcr(rounds=1)"), **options)
    (alone,) = plan_expand(*shapes, parse_expand("gcr(rounds=1,scale=0)"), **options)
    (thrice,) = plan_expand(*shapes, parse_expand("gcr"), **options)
    assert (one.search.n_pairs, one.search.k) == (2 * alone.search.n_pairs, 15)
    assert one.cost.flop == 2 * 512 * 103_000 * 103_001
    assert thrice.cost.kept == 3 * one.cost.kept
    assert one.cost.kept > 103_000 * (4 * 512 + 12 * 18)
    with pytest.raises(PlanError, match="memory"):
        plan_expand(*shapes, parse_expand("gcr"), n_threads=2, memory_per_thread=16 << 20)
