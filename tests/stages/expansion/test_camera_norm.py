"""Normalisation by camera: the formula, its groups, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from expansion_runs import assert_close, expanded, features_of
from oracles import expansion as oracle

from reid_dist import FeatureSet
from reid_dist.engine.plan import SetShape
from reid_dist.errors import InputError, PlanError
from reid_dist.stages.expansion import learned_maps
from reid_dist.stages.expansion.expansion_steps import parse_expand
from reid_dist.stages.stage_plan import plan_expand

SPECS = {
    "camera_norm(least_rows=20)": {"least_rows": 20},
    "camera_norm(ridge=1e-6,least_rows=1)": {"ridge": 1e-6, "least_rows": 1},
    "camera_norm(ridge=0.02,statistics=all)": {"ridge": 0.02, "per_camera": False},
    "camera_norm(operation=centre,least_rows=30)": {"whiten": False, "least_rows": 30},
}


def arrays(n_query=17, n_gallery=150, dim=12, seed=5):
    """Rows shifted by camera; camera 3 has few gallery rows, camera 9 none; a zero row, copies."""
    rng = np.random.default_rng(seed)
    cameras = rng.choice([0, 1, 3], n_gallery, p=[0.5, 0.45, 0.05])
    near = rng.choice([0, 1, 3, 9], n_query)
    shift = rng.standard_normal((10, dim))
    query, gallery = (rng.standard_normal((len(own), dim)) + shift[own] for own in (near, cameras))
    gallery[40] = 0
    gallery[50:60] = gallery[3]
    query[2] = gallery[7]
    return query.astype(np.float32), gallery.astype(np.float32), near, cameras


def sets(**options):
    query, gallery, near, cameras = arrays(**options)
    return tuple(
        FeatureSet.from_arrays(rows, np.arange(len(rows)) % 13, camids=own, allow_zero=True)
        for rows, own in ((query, near), (gallery, cameras))
    )


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("spec", SPECS)
def test_the_formula(spec, tmp_path):
    query, gallery, *cameras = arrays()
    for found, expected in zip(
        expanded(*sets(), spec, tmp_path), oracle.camera_norm(query, gallery, cameras, **SPECS[spec]), strict=True
    ):
        assert_close(features_of(found), expected)


def test_rows_of_few_dimensions_and_a_singular_covariance(tmp_path):
    """All rows of a camera are one row, which is its mean."""
    rows = np.repeat(np.eye(3, 5, dtype=np.float32), 4, axis=0)
    features = FeatureSet.from_arrays(rows, np.arange(12) % 3, camids=np.repeat([0, 1, 2], 4))
    query, gallery = expanded(features, features, "camera_norm(least_rows=1)", tmp_path)
    assert not features_of(query).any()
    assert features_of(gallery).tobytes() == features_of(query).tobytes()


def test_sums_are_cut_by_gallery_rows_alone(tmp_path, monkeypatch):
    """Many runs of summed rows, on threads and on chunks of any size, give the same bytes."""
    monkeypatch.setattr(learned_maps, "SUMMED_ROWS", 13)
    found = []
    for chunk_rows, name in ((5, "a"), (64, "b")):
        query, gallery = sets()
        gallery.save(tmp_path / f"{name}.zarr", chunk_rows=chunk_rows)
        stored = FeatureSet.open(tmp_path / f"{name}.zarr")
        both = expanded(query, stored, "camera_norm(least_rows=20)", tmp_path / name)
        found.append([features_of(each).tobytes() for each in both])
    assert found[0] == found[1]


def test_cameras_without_statistics_are_noted(tmp_path):
    query, _ = expanded(*sets(), "camera_norm(least_rows=20)", tmp_path)
    assert any("cameras 3, 9" in note for note in query.notes)


def test_rows_of_unknown_camera_take_statistics_of_all_rows(tmp_path):
    """As the oracle, each of them is of a camera of its own, which has too few rows."""
    query, gallery, near, cameras = arrays()
    near[3:6] = -1
    cameras[::3] = -1
    own = [np.where(each == -1, 1000 + np.arange(len(each)), each) for each in (near, cameras)]
    labelled = (
        FeatureSet.from_arrays(rows, np.zeros(len(rows), int), camids=camids, allow_zero=True)
        for rows, camids in ((query, near), (gallery, cameras))
    )
    found = expanded(*labelled, "camera_norm(least_rows=20)", tmp_path)
    for side, expected in zip(found, oracle.camera_norm(query, gallery, own, least_rows=20), strict=True):
        assert_close(features_of(side), expected)
        assert "normalised with all gallery rows: rows of unknown camera (-1)" in side.notes
        assert not any("cameras -1" in note for note in side.notes)


@pytest.mark.parametrize("names", [("a", "b", "d", "c"), ("07", "x", "y", "3")])
def test_cameras_that_are_texts_are_those_of_their_names(names, tmp_path):
    """Each side numbers the texts that it holds."""
    query, gallery, near, cameras = arrays()
    near[near == 0] = 1
    text = dict(zip([0, 1, 3, 9], names, strict=True))
    labelled = (
        FeatureSet.from_arrays(
            rows, np.zeros(len(rows), int), camids=[text[each] for each in camids.tolist()], allow_zero=True
        )
        for rows, camids in ((query, near), (gallery, cameras))
    )
    found = expanded(*labelled, "camera_norm(least_rows=20)", tmp_path)
    for side, expected in zip(found, oracle.camera_norm(query, gallery, [near, cameras], least_rows=20), strict=True):
        assert_close(features_of(side), expected)
    named = [note for note in found[0].notes if "too few" in note]
    assert all(f"{text[3]}" in note and f"{text[9]}" in note for note in named)
    assert named


def test_sets_without_cameras(tmp_path):
    query, gallery, *_ = arrays()
    bare = [FeatureSet.from_arrays(each, np.zeros(len(each), int), allow_zero=True) for each in (query, gallery)]
    with pytest.raises(InputError, match=r"the query set has no cameras; .* camera_norm\(statistics=all\)"):
        expanded(*bare, "camera_norm", tmp_path)
    expanded(*bare, "camera_norm(statistics=all)", tmp_path)


def test_plan():
    shapes = SetShape(3368, 512, 4, 1024), SetShape(1_000_000, 512, 4, 8192)
    (plan,) = plan_expand(*shapes, parse_expand("camera_norm"), n_threads=2, memory_per_thread=4 << 30)
    assert plan.cost.flop == (1_000_000 + 2 * 1_003_368) * 512**2
    assert plan.cost.kept > 4 * 1_003_368 * 512
    with pytest.raises(PlanError, match="fewer threads"):
        plan_expand(*shapes, parse_expand("camera_norm"), n_threads=2, memory_per_thread=64 << 20)
