"""Stages of evaluations whose protocol counts some cameras alone: as with stores that hold the rows that count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from oracles.expansion import aqe
from support.noted import codes

from reid_dist import FeatureSet, Report, compose_protocol, evaluate, operating_points, sweep_parameters

N_QUERY, N_GALLERY, DIM, N_IDENTITY = 60, 300, 10, 12
NEAR_CAMERAS, FAR_CAMERAS = (3, 4), (1, 4)
RULES = compose_protocol("some cameras", base="market1501", query_cameras=NEAR_CAMERAS, gallery_cameras=FAR_CAMERAS)

STAGES = [
    {"expand": "aqe(k=5)"},
    {"expand": "dba(k=3)+alpha_qe(k=4,alpha=2)"},
    {"expand": "fastreid(k=4,alpha=3,times=2)"},
    {"expand": "camera_norm"},
    {"expand": "whiten(dim=6)"},
    {"expand": "gcr(k1=8)"},
    {"rerank": "k_reciprocal(k1=10,k2=3)"},
    {"rerank": "k_reciprocal(k1=6,k2=3,mode=inductive)"},
    {"rerank": "gnn(k1=10,k2=3)"},
    {"rerank": "ecn(k=10,t=2,q=3)"},
    {"rerank": "ecn(t=2,q=3,method=origdist)"},
    {"rerank": "top(k_reciprocal(k1=6),m=40)"},
    {"expand": "dba(k=2)", "rerank": "k_reciprocal(k1=7,k2=2)"},
]


class Items:
    """Arrays of a side, and the rows that count."""

    def __init__(self, n: int, cameras: tuple[int, ...], seed: int) -> None:
        rng = np.random.default_rng(seed)
        centres = np.random.default_rng(0).normal(size=(N_IDENTITY, DIM))
        self.pids, self.camids = rng.integers(0, N_IDENTITY, n), rng.integers(1, 5, n)
        self.features = (centres[self.pids] + 1.2 * rng.normal(size=(n, DIM))).astype(np.float32)
        self.counted = np.flatnonzero(np.isin(self.camids, cameras))

    def features_of(self, rows: Any = slice(None)) -> FeatureSet:
        return FeatureSet.from_arrays(self.features[rows], self.pids[rows], self.camids[rows])

    def sides(self) -> tuple[FeatureSet, FeatureSet]:
        """All rows, and those that count."""
        return self.features_of(), self.features_of(self.counted)


QUERY, GALLERY = Items(N_QUERY, NEAR_CAMERAS, 1), Items(N_GALLERY, FAR_CAMERAS, 2)


def both(**options: Any) -> tuple[Report, Report]:
    """Reports of the whole sets, and of the rows that count."""
    whole, counted = zip(QUERY.sides(), GALLERY.sides(), strict=True)
    return evaluate(*whole, protocol=RULES, **options), evaluate(*counted, protocol=RULES, **options)


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("options", STAGES, ids=str)
def test_the_result_is_that_of_the_rows_that_count(options: dict[str, str]) -> None:
    whole, counted = both(topk=7, breakdowns=("camera",), **options)
    assert whole.metrics == counted.metrics
    assert {name: each.tolist() for name, each in whole.curves.items()} == {
        name: each.tolist() for name, each in counted.curves.items()
    }
    assert whole.confidence == counted.confidence
    near, far = QUERY.counted, GALLERY.counted
    others = np.setdiff1d(np.arange(N_QUERY), near)
    for name, values in whole.per_query.items():
        assert len(values) == N_QUERY
        np.testing.assert_array_equal(values[near], counted.per_query[name])
        if values.dtype.kind == "f":
            assert np.isnan(values[others]).all()
    assert set(whole.per_query["reason"][others]) == {"camera_not_counted"}
    np.testing.assert_array_equal(whole.per_query["pid"], QUERY.pids)
    np.testing.assert_array_equal(whole.per_query["camid"], QUERY.camids)
    np.testing.assert_array_equal(whole.topk.index[near], far[counted.topk.index])
    for name in ("distance", "junk", "relevant"):
        np.testing.assert_array_equal(getattr(whole.topk, name)[near], getattr(counted.topk, name))
    assert (whole.topk.index[others] == -1).all()
    assert np.isinf(whole.topk.distance[others]).all()
    assert (whole.counts["n_query"], whole.counts["n_gallery"]) == (N_QUERY, N_GALLERY)
    assert whole.counts["n_valid"] == counted.counts["n_valid"]
    assert whole.counts["n_invalid_by_reason"]["camera_not_counted"] == len(others)
    assert [each["shape"] for each in whole.inputs.values()] == [[N_QUERY, DIM], [N_GALLERY, DIM]]
    assert codes(whole).count("rows_not_counted") == 1


def test_cameras_with_names_keep_their_numbers() -> None:
    """Numbers of cameras, by which a protocol counts some, are those among all names."""
    whole, _ = both(expand="aqe(k=5)", confidence=None)
    named = [
        FeatureSet.from_arrays(each.features, each.pids, [f"camera {number}" for number in each.camids])
        for each in (QUERY, GALLERY)
    ]
    report = evaluate(*named, protocol=RULES, expand="aqe(k=5)", confidence=None)
    assert report.metrics == whole.metrics
    assert report.counts == whole.counts


def test_expansion_is_among_the_rows_that_count() -> None:
    """Average precision by NumPy, of queries expanded with gallery rows of the cameras that count."""
    near, far = QUERY.counted, GALLERY.counted
    queries, items = aqe(QUERY.features[near], GALLERY.features[far], 5)
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    precisions = []
    for row, similarity in zip(near, queries @ items.T, strict=True):
        same = GALLERY.pids[far] == QUERY.pids[row]
        kept = ~(same & (GALLERY.camids[far] == QUERY.camids[row]))
        order = np.argsort(-similarity, kind="stable")
        ranks = 1 + np.flatnonzero(same[order][kept[order]])
        if len(ranks):
            precisions.append(np.mean(np.arange(1, len(ranks) + 1) / ranks))
    whole, _ = both(expand="aqe(k=5)", confidence=None)
    assert whole.metrics["mAP"] == pytest.approx(np.mean(precisions), abs=1e-12)


def test_rows_on_one_side_alone() -> None:
    rules = compose_protocol("a camera of queries", query_cameras=[2])
    near = np.flatnonzero(QUERY.camids == 2)
    options = {"protocol": rules, "rerank": "k_reciprocal(k1=6,k2=3)", "topk": 3}
    whole = evaluate(QUERY.features_of(), GALLERY.features_of(), **options)
    counted = evaluate(QUERY.features_of(near), GALLERY.features_of(), **options)
    assert whole.metrics == counted.metrics
    np.testing.assert_array_equal(whole.topk.index[near], counted.topk.index)
    assert whole.counts["n_junk_rows"] == counted.counts["n_junk_rows"]


def test_cameras_that_none_has_are_explained_as_without_stages() -> None:
    rules = compose_protocol("other cameras", gallery_cameras=[9])
    with pytest.raises(Exception, match=r"counts gallery rows of cameras \[9\]"):
        evaluate(QUERY.features_of(), GALLERY.features_of(), protocol=rules, expand="aqe(k=2)")


def test_stores_on_workers_and_a_sweep_give_the_same(two_workers: Any, tmp_path: Path) -> None:
    options = {"protocol": RULES, "rerank": "k_reciprocal(k1=10,k2=3)"}
    expected = evaluate(QUERY.features_of(), GALLERY.features_of(), **options)
    stored = [
        each.features_of().save(tmp_path / f"{name}.zarr", chunk_rows=40)
        for name, each in (("q", QUERY), ("g", GALLERY))
    ]
    for client in (None, two_workers):
        found = evaluate(*stored, client=client, workspace=tmp_path / "workspace", chunk_rows=30, **options)
        assert found.result_digest == expected.result_digest
    swept = sweep_parameters(*stored, protocol=RULES, rerank="k_reciprocal", k1=[8, 10], k2=[3])
    assert swept.rows[1]["metrics"]["mAP"] == expected.metrics["mAP"]


def test_operating_points_are_those_of_the_rows_that_count() -> None:
    whole, counted = zip(QUERY.sides(), GALLERY.sides(), strict=True)
    options: dict[str, Any] = {"protocol": RULES, "expand": "dba(k=3)", "far": ["0.01"]}
    found, expected = operating_points(*whole, **options), operating_points(*counted, **options)
    assert found.to_dict()["table"] == expected.to_dict()["table"]
    assert found.counts["n_query"] == N_QUERY
    assert found.counts["n_genuine"] == expected.counts["n_genuine"]
    assert "rows_not_counted" in codes(found)
